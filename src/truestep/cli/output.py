# SPDX-License-Identifier: Apache-2.0
"""Where results go: the results folder, or standard output where that cannot be written."""

from __future__ import annotations

import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from truestep import __version__
from truestep.cli.console import Console
from truestep.cli.exit_codes import exit_code
from truestep.errors import RecordError
from truestep.record import SCHEMA_VERSION, Record
from truestep.report import tables
from truestep.report.text import one_line, shown
from truestep.screening.request import Report
from truestep.store.durable import write_atomically
from truestep.store.journal import Journal
from truestep.store.schema import dumps, to_plain

DEFAULT_FOLDER = "./truestep-results"
JOURNAL = "journal.jsonl"


def console(*, is_error: bool = False) -> Console:
    """A console at most 100 columns wide; colour only on a terminal, and not with NO_COLOR."""
    made = Console(stderr=is_error, highlight=False)
    if not made.is_terminal or made.width > tables.WIDTH:
        made.width = tables.WIDTH
    return made


@dataclass(slots=True)
class Results:
    """The results folder of one run.

    Attributes:
        folder: None where nothing can be written.
        why_not: Why not.
    """

    folder: Path | None
    why_not: str = ""
    _journal: Journal | None = None

    @property
    def evidence_dir(self) -> str:
        """Folder for failing inputs and outputs; empty where nothing can be written."""
        return str(self.folder / "evidence") if self.folder else ""

    def keep(self, record: Record) -> None:
        """Append a record to the journal. A disk that fails is said once, and the run goes on."""
        if self.folder is None:
            return
        try:
            self._journal = self._journal or Journal(self.folder / JOURNAL)
            self._journal.append(record)
        except (RecordError, OSError) as error:
            self.lose(str(error))

    def write(self, name: str, text: str) -> None:
        """A file in the folder, whole or not at all."""
        if self.folder is None:
            return
        try:
            write_atomically(self.folder / name, text.encode())
        except (RecordError, OSError) as error:
            self.lose(str(error))

    def lose(self, why: str) -> None:
        """Write no more, and say why."""
        self.folder, self.why_not = None, why
        print(  # noqa: T201
            f"truestep: results cannot be kept on disk ({why}). "
            "They follow on standard output; use --out to choose another folder.",
            file=sys.stderr,
        )


def open_results(folder: str) -> Results:
    """The results folder, made if it is missing and tried by writing to it."""
    path = Path(folder).absolute()
    results = Results(path)
    try:
        path.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=path):
            pass
    except OSError as error:
        results.lose(str(error))
    return results


def document(report: Report, code: int) -> dict[str, Any]:
    """The result as plain data: one schema-versioned document."""
    return {
        "schema_version": SCHEMA_VERSION,
        "tool": {"name": "truestep", "version": __version__},
        "run": {
            "id": report.run_id,
            "level": report.request.level,
            "backend": report.request.backend,
            "seed": report.request.seed,
            "is_simulated": report.request.is_simulated,
            "is_interrupted": report.is_interrupted,
            "elapsed_s": round(report.elapsed_s, 3),
        },
        "node": to_plain(report.node),
        "devices": [to_plain(f.device) for f in report.found],
        "not_covered": list(report.not_covered),
        "records": [to_plain(r) for r in report.records],
        "outcome": report.outcome.value,
        "exit_code": code,
    }


def show(report: Report, results: Results, *, code: int, as_json: bool, is_long: bool) -> None:
    """Give the result: on disk, and as JSON or tables on standard output."""
    text = dumps(document(report, code))
    results.write(f"result-{report.run_id}.json", text + "\n")
    if as_json or results.folder is None:
        print(text)  # noqa: T201
    if not as_json:
        show_tables(report, results, console(), is_long=is_long)


def show_tables(report: Report, results: Results, out: Console, *, is_long: bool) -> None:
    """The result for people."""
    if report.records:
        out.print(tables.device_table(report.records, report.elapsed_s))
    if is_long:
        out.print(tables.power_table(report.records))
    findings = tables.findings_table(report.records)
    if findings is not None:
        out.print(findings)
    for line in _notes(report):
        out.print(line, markup=False)
    # What is copied stays whole, however long.
    for line in tables.repeat_commands(report.records):
        out.print(f"Repeat: {one_line(line)}", markup=False, emoji=False, soft_wrap=True)
    if results.folder is not None:
        kept = f"{results.folder} (result-{report.run_id}.json, {JOURNAL})"
        out.print(f"Results: {shown(kept)}", emoji=False, soft_wrap=True)
    out.print(f"Outcome: {tables.outcome_text(report.outcome)}")


def _notes(report: Report) -> list[str]:
    notes = []
    if report.request.is_simulated:
        notes.append("Simulated: devices or faults were invented for this run.")
    if report.request.faults and not report.is_hit:
        notes.append("No planted fault hit anything: its site, device or unit did not occur.")
    if not report.found:
        notes.append("No device was found that may be used: nothing was screened.")
    if report.is_interrupted:
        notes.append("Interrupted: what was finished is kept.")
    if report.not_covered:
        shown = "; ".join(report.not_covered[:3])
        more = len(report.not_covered) - 3
        notes.append(f"Not covered: {shown}" + (f"; and {more} more" if more > 0 else ""))
    return notes


def code_for(report: Report, style: Any) -> int:
    """The exit status of a report."""
    return exit_code(report.outcome, report.records, style)
