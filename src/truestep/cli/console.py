# SPDX-License-Identifier: Apache-2.0
"""A console whose reader may go away without that looking like a found defect."""

from __future__ import annotations

import rich.console


class Console(rich.console.Console):
    """As rich's, which would end the process with 1 where its reader has gone."""

    def on_broken_pipe(self) -> None:
        """Leave the error to `main`, which knows what each exit status means."""
        raise BrokenPipeError("whoever read the output has gone")
