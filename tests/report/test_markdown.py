# SPDX-License-Identifier: Apache-2.0
"""Text of others stays text in a Markdown page."""

from __future__ import annotations

from html.parser import HTMLParser

from hypothesis import given
from hypothesis import strategies as st

from truestep.report.markdown import escaped


class Tags(HTMLParser):
    """Collects the tags that a browser would see."""

    def __init__(self) -> None:
        super().__init__()
        self.tags: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        del attrs
        self.tags.append(tag)


@given(st.text())
def test_no_text_opens_a_tag_or_a_line(text: str) -> None:
    shown = escaped(text)
    seen = Tags()
    seen.feed(shown)
    assert seen.tags == []
    assert len(shown.splitlines()) <= 1


def test_what_markdown_would_format_is_escaped() -> None:
    assert escaped("[a](javascript:x) *b* `c`\n# d") == (
        r"\[a\]\(javascript:x\) \*b\* \`c\`&lt;a&gt;\# d"
    )
