# SPDX-License-Identifier: Apache-2.0
"""A folder that services under users of their own can enter, as those of pytest they cannot."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def open_folder(service: str) -> Iterator[Path]:
    """A folder for the files of a service, removed at the end."""
    folder = Path(tempfile.mkdtemp(prefix=f"truestep-{service}-", dir="/tmp"))
    folder.chmod(0o755)
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)
