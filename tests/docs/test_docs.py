# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

import truestep as ts
from truestep.reason import Owner

PAGES = (
    "docs/architecture.md",
    "docs/assumptions.md",
    "docs/decisions/README.md",
    "docs/glossary.md",
    "docs/log.md",
    "docs/reason_codes.md",
    "CHANGELOG.md",
    "CONTRIBUTING.md",
    "LICENSE",
    "README.md",
)

PLACEHOLDERS = re.compile(r"\b(?:FIRST_RUN|BAD_RUN|TODO|TBD|FIXME|XXX)\b")

# Spelled in parts so that this file does not find itself.
MACHINE_PATHS = re.compile(
    "|".join((r"(?<![\w.])/(?:wor" + r"k|roo" + r"t|hom" + r"e)/\w", r"\.\./sha" + "red"))
)
REGISTRIES = re.compile("|".join(("index" + "-url", "pypi" + r"\.", "find" + "-links")))


def reason_table() -> str:
    """The table of `docs/reason_codes.md`, as the code has it."""
    rows = [f"| `{each.value}` | {each.owner} | {each.next_action} |" for each in ts.Reason]
    return "\n".join(("| code | owner | next action |", "|---|---|---|", *rows))


def tracked(repository: Path) -> list[Path]:
    listed = subprocess.run(
        ["git", "-c", "safe.directory=*", "ls-files", "-z"],
        cwd=repository,
        check=True,
        capture_output=True,
        text=True,
    )
    paths = (repository / name for name in listed.stdout.split("\0") if name)
    return [path for path in paths if path.is_file()]


@pytest.mark.parametrize("page", PAGES)
def test_the_page_exists_and_says_something(repository, page):
    assert len((repository / page).read_text(encoding="utf-8")) > 200


def test_every_reason_code_is_documented_with_owner_and_next_action(repository):
    page = (repository / "docs/reason_codes.md").read_text(encoding="utf-8")
    assert reason_table() in page, f"put this table into the page:\n\n{reason_table()}\n"


def test_every_owner_is_explained(repository):
    page = (repository / "docs/reason_codes.md").read_text(encoding="utf-8")
    assert all(f"**{owner}**" in page for owner in Owner)


def test_every_noun_stands_in_the_architecture(repository):
    page = (repository / "docs/architecture.md").read_text(encoding="utf-8")
    values = {"ActionKind", "FaultKind", "Outcome", "RecordKind", "ReferenceKind"}
    values |= {"Repeatability", "Sample", "Status"}
    assert [name for name in ts.__all__ if name not in values and f"`{name}`" not in page] == []


def test_every_room_stands_in_the_architecture(repository):
    page = (repository / "docs/architecture.md").read_text(encoding="utf-8")
    rooms = {path.parent.name for path in (repository / "src/truestep").glob("*/__init__.py")}
    assert [room for room in sorted(rooms) if f"`{room}`" not in page] == []


def test_every_rule_of_the_architecture_has_a_test_named_after_it(repository):
    page = (repository / "docs/architecture.md").read_text(encoding="utf-8")
    rules = re.findall(r"^(\d+)\. ", page.split("## Rules")[1], re.MULTILINE)
    tests = (repository / "tests/test_rules.py").read_text(encoding="utf-8")
    assert rules == [str(number) for number in range(1, 13)]
    assert [number for number in rules if f"def test_rule_{number}_" not in tests] == []


def test_the_glossary_is_sorted_and_names_nothing_twice(repository):
    page = (repository / "docs/glossary.md").read_text(encoding="utf-8")
    words = [line.split("|")[1].strip() for line in page.splitlines() if line.startswith("| ")][1:]
    # The two fixed pairs lead.
    assert words[2:] == sorted(set(words[2:]), key=str.casefold)


def test_every_decision_has_alternatives_and_consequences(repository):
    files = sorted((repository / "docs/decisions").glob("[0-9]*.md"))
    numbers = [path.name[:3] for path in files]
    assert len(numbers) == len(set(numbers)) > 0
    for path in files:
        text = path.read_text(encoding="utf-8")
        assert all(f"## {part}" in text for part in ("Context", "Alternatives", "Consequences"))
        assert "Status: " in text


def test_links_within_the_documentation_lead_somewhere(repository):
    for page in [path for path in tracked(repository) if path.suffix == ".md"]:
        for target in re.findall(r"\]\(([^)#:]+)\)", page.read_text(encoding="utf-8")):
            assert (page.parent / target).exists(), (page, target)


def test_no_page_holds_a_word_that_stands_for_a_text_to_come(repository):
    pages = [repository / "README.md", *(repository / "docs").rglob("*.md")]
    found = [(p.name, PLACEHOLDERS.findall(p.read_text(encoding="utf-8"))) for p in pages]
    assert [(name, words) for name, words in found if words] == []


def test_no_tracked_file_tells_of_the_machine_on_which_it_was_written(repository):
    found = []
    for path in tracked(repository):
        text = path.read_bytes().decode("utf-8", "replace")
        hits = [*MACHINE_PATHS.findall(text), *REGISTRIES.findall(text)]
        found += [(path.name, hit) for hit in hits]
    assert found == []
