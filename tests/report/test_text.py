# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import io
import os
import shlex
import shutil
import subprocess

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from rich.console import Console

from truestep.report.text import one_line, shown


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
@example("\\")
def test_hostile_text_is_shown_and_never_obeyed(text):
    seen = printed(text)
    assert "\x1b" not in seen
    assert seen.isprintable() or not seen
    if text.isprintable():
        assert seen == text


ODD_WORDS = ["a\nb", "it's\t1", "\\n\r0", "\u202eü", "\udcff", "a b", "$HOME\n`x`", ""]


@pytest.mark.skipif(not shutil.which("bash"), reason="needs bash")
def test_a_command_on_one_line_still_gives_the_same_words():
    command = one_line(shlex.join(["printf", r"%s\0", *ODD_WORDS]))
    assert command.isprintable()
    done = subprocess.run(["bash", "-c", command], capture_output=True, check=True)
    assert done.stdout.split(b"\0") == [*map(os.fsencode, ODD_WORDS), b""]


def test_a_command_that_fits_on_a_line_stays_as_it_is():
    command = "truestep replay 'a folder/x.json'"
    assert one_line(command) == command
