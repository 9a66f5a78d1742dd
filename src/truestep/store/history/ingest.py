# SPDX-License-Identifier: Apache-2.0
"""Folding a folder of results into a history: journals, result documents, and job marks."""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from truestep.context import Context, Sample
from truestep.device import Node
from truestep.errors import RecordError
from truestep.record import Record, RecordKind
from truestep.store.durable import read_regular
from truestep.store.history.entry import Folded
from truestep.store.history.history import History
from truestep.store.journal import Journal
from truestep.store.schema import loads, record_from

LIMIT_BYTES = 256 * 2**20
"""Largest file that is read."""

NODE = "node"
"""Name of the file beside marks that holds the name of their node."""

_MARK = re.compile(r"(\d{1,12}) (\d{1,12}) (\d{1,10})")


@dataclass(frozen=True, slots=True, kw_only=True)
class Ingested:
    """What became of a folder.

    Attributes:
        folded: Its records.
        num_files: Files that were looked at.
        problems: Files and lines that hold no record, with the reason. They are kept aside.
    """

    folded: Folded
    num_files: int
    problems: tuple[str, ...]


def ingest_folder(history: History, folder: Path) -> Ingested:
    """Take in all that a folder and those below it hold, each record once.

    Journals (`journal.jsonl`), result documents (`result-*.json`) and marks (`*.marks`: lines
    `<end_s> <job id> <uid>`, each a watch record with subject `job/<id>`) are read. Links are not
    followed. It may be done again at any time, also in the middle of a run.

    Raises:
        RecordError: The folder or the history cannot be used.
    """
    if not folder.is_dir():
        raise RecordError(f"{folder} must be a folder, got none. Name one with results.")
    folded, num_files, problems = Folded(), 0, []
    unread: list[OSError] = []
    for path in _files(folder, unread):
        num_files += 1
        found: list[Record] = []
        for item in _read(path):
            if isinstance(item, Record):
                found.append(item)
            else:
                problems.append(f"{path.relative_to(folder)}: {item}")
        folded += history.fold(found, source=str(path.relative_to(folder)))
    problems += [f"a folder must be readable, got: {error}" for error in unread]
    history.keep_aside(tuple(problems), source=str(folder))
    return Ingested(folded=folded, num_files=num_files, problems=tuple(problems))


def _files(folder: Path, unread: list[OSError]) -> Iterator[Path]:
    for parent, folders, files in os.walk(folder, onerror=unread.append):
        folders.sort()
        for name in sorted(files):
            is_result = name.startswith("result-") and name.endswith(".json")
            if name == "journal.jsonl" or is_result or name.endswith(".marks"):
                yield Path(parent) / name


def _read(path: Path) -> Iterator[Record | str]:
    """The records of one file, and what is wrong with the rest of it."""
    try:
        if path.name == "journal.jsonl":
            yield from _of_journal(path)
        elif path.suffix == ".marks":
            yield from _of_marks(path)
        else:
            yield from _of_document(path)
    except (OSError, RecordError) as error:
        yield str(error)


def _of_journal(path: Path) -> Iterator[Record | str]:
    scan = Journal(path).scan()
    yield from scan.records
    for damage in scan.damaged:
        yield f"line {damage.line_no}: {damage.why}"


def _of_document(path: Path) -> Iterator[Record | str]:
    data = loads(read_regular(path, limit_bytes=LIMIT_BYTES))
    entries = data.get("records") if isinstance(data, Mapping) else None
    if not isinstance(entries, list):
        yield "a result must hold a list of records, got none. Leave the file out."
        return
    for number, entry in enumerate(entries):
        try:
            yield record_from(entry)
        except RecordError as error:
            yield f"record {number}: {error}"


def _of_marks(path: Path) -> Iterator[Record | str]:
    node = read_regular(path.with_name(NODE), limit_bytes=1024).decode("utf-8", "replace").strip()
    text = read_regular(path, limit_bytes=LIMIT_BYTES).decode("utf-8", "replace")
    for number, line in enumerate(text.split("\n"), start=1):
        if not line.strip():
            continue
        match = _MARK.fullmatch(line)
        if match is None:
            yield f"line {number}: a mark must be `<end_s> <job id> <uid>`, got {ascii(line)[:80]}"
        else:
            yield _mark(node, *match.groups())


def _mark(node: str, end_s: str, job: str, uid: str) -> Record:
    """That a job of a user ended on a node, as a record. The same mark is the same record."""
    name = hashlib.sha256(f"{node}\n{end_s}\n{job}\n{uid}".encode()).hexdigest()
    return Record(
        id=f"job-{name[:32]}",
        kind=RecordKind.WATCH,
        run_id="",
        time_s=float(end_s),
        subject=f"job/{int(job)}",
        node=Node(name=node),
        context=Context(after=Sample(time_s=float(end_s), readings={"uid": int(uid)})),
    )
