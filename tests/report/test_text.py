# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import io

from hypothesis import example, given
from hypothesis import strategies as st
from rich.console import Console

from truestep.report.text import shown


def printed(text: str) -> str:
    out = io.StringIO()
    Console(file=out, width=10_000, force_terminal=True, color_system="truecolor").print(
        shown(text), highlight=False, emoji=False, soft_wrap=True
    )
    return out.getvalue().removesuffix("\n")


@given(st.text(st.characters(codec="utf-8"), max_size=20))
@example("[red]pass[/red]")
@example("[/]")
@example("a\x1b[2Jb")
@example("line\nOutcome: pass\r")
@example("\x9b31m\u202e")
@example("\\[bold]")
def test_hostile_text_is_shown_and_never_obeyed(text):
    seen = printed(text)
    assert "\x1b" not in seen
    assert seen.isprintable() or not seen
    if text.isprintable():
        assert seen == text
