# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import dataclasses
import os
import random
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import strategies
import truestep as ts
from truestep.errors import RecordError
from truestep.store.journal import MOST_DAMAGE_LISTED, Journal
from truestep.store.schema import dumps

WRITER = """
import sys
import truestep as ts
from truestep.store.journal import Journal
journal, name, count = Journal(sys.argv[1]), sys.argv[2], int(sys.argv[3])
for i in range(count):
    record_id = f"{name}-{i}"
    journal.append(ts.Record(
        id=record_id, kind=ts.RecordKind.WATCH, run_id=name, time_s=0.0,
        subject="x" * (i * 37 % 999),
    ))
    print(record_id, flush=True)
"""

FULL_DISK = """
import os, resource, sys
import truestep as ts
from truestep.errors import RecordError
from truestep.store.journal import Journal
path, limit = sys.argv[1], int(sys.argv[2])
if limit:
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))
kept = 0
try:
    for i in range(10000):
        Journal(path).append(ts.Record(
            id=str(i), kind=ts.RecordKind.WATCH, run_id="r", time_s=0.0, subject="x" * 100
        ))
        kept += 1
except RecordError as error:
    print(kept, error)
"""

LONG_LINE = r"""
import re, sys
from pathlib import Path
from truestep.store.journal import Journal
scan = Journal(sys.argv[1], line_limit_bytes=2**20).scan()
# Not ru_maxrss, which a child takes over from the process that started it.
peak_kib = re.search(r"VmHWM:\s+(\d+)", Path("/proc/self/status").read_text())[1]
print(len(scan.records), scan.num_damaged, scan.torn, peak_kib)
"""


def record(name: str, **changes: object) -> ts.Record:
    values = {"kind": ts.RecordKind.SCREENING, "run_id": "run", "time_s": 1.5, "subject": "gemm"}
    return ts.Record(**{"id": name, **values, **changes})


def ids(found: Iterator[ts.Record]) -> list[str]:
    return [each.id for each in found]


@pytest.fixture
def journal(tmp_path: Path) -> Journal:
    return Journal(tmp_path / "journal.jsonl")


@pytest.fixture
def three(journal: Journal) -> Journal:
    for name in ("first", "second", "third"):
        journal.append(record(name))
    return journal


def test_what_is_appended_is_read_in_order(three):
    scan = three.scan()
    assert scan.records == tuple(record(name) for name in ("first", "second", "third"))
    assert (scan.damaged, scan.num_damaged, scan.torn) == ((), 0, False)
    assert list(three.read()) == list(scan.records)


@given(st.lists(strategies.records(), max_size=4, unique_by=lambda each: each.id))
def test_any_records_are_read_as_they_were_written(tmp_path_factory, found):
    journal = Journal(tmp_path_factory.mktemp("journal") / "j")
    for each in found:
        journal.append(each)
    assert [dumps(each) for each in journal.read()] == [dumps(each) for each in found]


def test_a_missing_journal_holds_nothing_and_is_not_made(journal):
    assert list(journal.read()) == []
    assert not journal.path.exists()


def test_the_file_and_a_new_folder_are_for_the_owner_only(tmp_path):
    journal = Journal(tmp_path / "a" / "b" / "journal.jsonl")
    journal.append(record("r"))
    assert journal.path.stat().st_mode & 0o777 == 0o600
    assert journal.path.parent.stat().st_mode & 0o777 == 0o700


def test_a_cut_at_every_byte_loses_only_the_record_that_was_cut(three, tmp_path):
    whole = three.path.read_bytes()
    ends = [
        at for at in range(len(whole)) if whole[at : at + 1] == b"\n" and whole[at - 1 : at] == b"}"
    ]
    for cut in range(len(whole) + 1):
        copy = Journal(tmp_path / "copy.jsonl")
        copy.path.write_bytes(whole[:cut])
        scan = copy.scan()
        num_complete = sum(end <= cut for end in ends)
        assert ids(scan.records) == ["first", "second", "third"][:num_complete], cut
        assert scan.damaged == ()
        assert scan.torn == (cut > 0 and whole[cut - 1 : cut] != b"\n")


def test_an_append_after_a_cut_at_any_byte_loses_nothing_more(three, tmp_path):
    whole = three.path.read_bytes()
    for cut in range(0, len(whole) + 1, 7):
        copy = Journal(tmp_path / f"{cut}.jsonl")
        copy.path.write_bytes(whole[:cut])
        before = ids(copy.read())
        copy.append(record("later"))
        assert ids(copy.read()) == [*before, "later"]
        assert copy.path.read_bytes().startswith(whole[:cut])
        assert not copy.scan().torn


def test_a_flipped_bit_at_any_position_costs_one_record_at_most(three, tmp_path):
    whole = three.path.read_bytes()
    copy = Journal(tmp_path / "copy.jsonl")
    for at in range(len(whole)):
        line = whole[:at].count(b"\n\n") if whole[at : at + 1] != b"\n" else None
        for bit in range(8):
            damaged = bytearray(whole)
            damaged[at] ^= 1 << bit
            copy.path.write_bytes(damaged)
            scan = copy.scan()
            kept = ids(scan.records)
            if line is not None:
                expected = ["first", "second", "third"]
                del expected[line]
                assert kept == expected, (at, bit)
                assert scan.num_damaged >= 1
            else:
                assert len(kept) >= 2, (at, bit)
                assert len(kept) == 3 or scan.num_damaged or scan.torn


@given(st.binary(max_size=200), st.integers(0, 3))
def test_garbage_between_lines_hides_no_record(tmp_path_factory, garbage, where):
    journal = Journal(tmp_path_factory.mktemp("journal") / "j")
    for i in range(4):
        if i == where:
            with journal.path.open("ab") as file:
                file.write(garbage)
        journal.append(record(str(i)))
    assert ids(journal.read()) == ["0", "1", "2", "3"]


@given(st.binary(max_size=400))
def test_any_bytes_are_read_without_an_error(tmp_path_factory, data):
    path = tmp_path_factory.mktemp("journal") / "j"
    path.write_bytes(data)
    scan = Journal(path).scan()
    assert scan.records == ()
    assert scan.torn == (bool(data.split(b"\n")[-1].strip()))


def test_bytes_that_are_not_utf8_damage_their_line_alone(three):
    with three.path.open("ab") as file:
        file.write(b"\xff\xfe\x00 \xb5\n")
    scan = three.scan()
    assert len(scan.records) == 3
    assert scan.num_damaged == 1
    assert scan.damaged[0].line_no == 7
    assert three.path.read_bytes()[scan.damaged[0].offset :].startswith(b"\xff\xfe")


def test_blank_lines_and_crlf_mean_nothing(three):
    data = three.path.read_bytes().replace(b"\n", b"\r\n")
    three.path.write_bytes(data + b"\r\n \n\t\n\n")
    scan = three.scan()
    assert len(scan.records) == 3
    assert (scan.num_damaged, scan.torn) == (0, False)


def test_a_copy_of_a_record_counts_once(three):
    three.append(record("second"))
    scan = three.scan()
    assert ids(scan.records) == ["first", "second", "third"]
    assert scan.num_damaged == 0


def test_one_id_with_two_contents_is_reported_on_both_lines_and_the_first_is_kept(three):
    three.append(record("second", subject="other"))
    three.append(record("second", subject="third content"))
    scan = three.scan()
    assert scan.records[1] == record("second")
    assert len(scan.records) == 3
    assert [each.line_no for each in scan.damaged] == [4, 8, 10]
    assert all("id 'second'" in each.why for each in scan.damaged)


def test_a_record_of_a_newer_schema_is_damage_that_says_upgrade(journal):
    journal.append(dataclasses.replace(record("r"), schema_version=99))
    assert "Upgrade truestep" in journal.scan().damaged[0].why


def test_a_hundred_megabytes_of_garbage_are_passed_over_in_little_memory(three, run_python):
    with three.path.open("ab") as file:
        for _ in range(100):
            file.write(b"x" * 2**20)
    three.append(record("after"))
    num_records, num_damaged, torn, peak_kib = run_python(LONG_LINE, three.path).split()
    assert (num_records, num_damaged, torn) == ("4", "1", "False")
    assert int(peak_kib) < 100 * 1024


def test_an_unfinished_line_above_the_limit_is_torn(journal):
    journal.path.write_bytes(b"x" * 3000)
    scan = Journal(journal.path, line_limit_bytes=1000).scan()
    assert (scan.records, scan.num_damaged, scan.torn) == ((), 0, True)


def test_a_line_of_exactly_the_limit_is_kept_and_a_longer_one_is_refused(journal):
    journal.append(record("r"))
    length = len(journal.path.read_bytes()) - 2
    assert ids(Journal(journal.path, line_limit_bytes=length).read()) == ["r"]
    shorter = Journal(journal.path, line_limit_bytes=length - 1)
    assert (shorter.scan().records, shorter.scan().num_damaged) == ((), 1)
    with pytest.raises(RecordError, match=r"must fit in \d+ bytes"):
        shorter.append(record("r"))


def test_the_list_of_damage_is_bounded_and_the_count_is_not(journal):
    journal.path.write_bytes(b"x\n" * (MOST_DAMAGE_LISTED + 500))
    scan = journal.scan()
    assert len(scan.damaged) == MOST_DAMAGE_LISTED
    assert scan.num_damaged == MOST_DAMAGE_LISTED + 500


def link(path: Path) -> None:
    (path.parent / "target").touch()
    path.symlink_to("target")


NOT_REGULAR = {
    "link": link,
    "dangling link": lambda path: path.symlink_to("nowhere"),
    "folder": Path.mkdir,
    "pipe": os.mkfifo,
    "null device": lambda path: path.symlink_to("/dev/null"),
}


@pytest.mark.parametrize("make", NOT_REGULAR.values(), ids=NOT_REGULAR)
def test_what_is_no_regular_file_is_refused(journal, make):
    make(journal.path)
    with pytest.raises(RecordError):
        journal.append(record("r"))
    with pytest.raises(RecordError):
        journal.scan()
    assert not (journal.path.parent / "nowhere").exists()


def test_two_processes_that_append_at_once_lose_nothing(journal, start_python):
    writers = [start_python(WRITER, journal.path, name, 200) for name in "ab"]
    for writer in writers:
        _, errors = writer.communicate(timeout=120)
        assert writer.returncode == 0, errors
    scan = journal.scan()
    assert (scan.num_damaged, scan.torn) == (0, False)
    for name in "ab":
        own = [each.id for each in scan.records if each.run_id == name]
        assert own == [f"{name}-{i}" for i in range(200)]


def test_killing_a_writer_at_any_moment_loses_no_completed_record(journal, start_python):
    chance, completed = random.Random(35), []
    for attempt in range(20):
        with start_python(WRITER, journal.path, f"w{attempt}", 100_000) as writer:
            completed.append(writer.stdout.readline().strip())
            time.sleep(chance.uniform(0.0, 0.05))
            writer.kill()
            completed += [line.strip() for line in writer.stdout if line.endswith("\n")]
    scan = journal.scan()
    assert set(completed) <= set(ids(scan.records))
    assert len(scan.records) <= len(completed) + 20
    assert len(completed) > 40


def test_a_writer_that_holds_the_lock_is_waited_for_only_so_long(three):
    import fcntl

    with three.path.open("ab") as holder:
        fcntl.flock(holder, fcntl.LOCK_SH)  # only an exclusive lock waits for a shared one
        with pytest.raises(RecordError, match=r"must be free within 0\.1 s"):
            Journal(three.path, lock_timeout_s=0.1).append(record("r"))
        assert len(list(three.read())) == 3
    three.append(record("r"))


def check_full(journal: Journal, output: str) -> None:
    kept, message = output.split(" ", 1)
    assert "earlier ones are intact" in message
    assert int(kept) > 5
    assert ids(journal.read()) == [str(i) for i in range(int(kept))]


def test_a_file_size_limit_is_a_clear_error_and_spares_earlier_records(journal, run_python):
    check_full(journal, run_python(FULL_DISK, journal.path, 10_000))
    journal.append(record("later"))
    assert ids(journal.read())[-1] == "later"


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    folder = tmp_path / "disk"
    folder.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", "size=64k", "truestep", str(folder)]
    try:
        subprocess.run(command, check=True, capture_output=True)
    except (OSError, subprocess.CalledProcessError):
        pytest.skip("only root can mount a small disk; the file size limit covers the same path")
    yield folder
    subprocess.run(["umount", str(folder)], check=True)


def test_a_full_disk_is_a_clear_error_and_spares_earlier_records(small_disk, run_python):
    journal = Journal(small_disk / "journal.jsonl")
    output = run_python(FULL_DISK, journal.path, 0)
    assert "No space left" in output
    check_full(journal, output)


def test_an_append_returns_only_after_the_disk_has_the_record_and_a_new_name(journal, monkeypatch):
    synchronised = []

    def fsync(descriptor: int) -> None:
        target = Path(f"/proc/self/fd/{descriptor}").readlink()
        synchronised.append((target, journal.path.stat().st_size))

    monkeypatch.setattr(os, "fsync", fsync)
    journal.append(record("first"))
    size = journal.path.stat().st_size
    assert synchronised == [(journal.path, size), (journal.path.parent, size)]
    journal.append(record("second"))
    assert synchronised[2:] == [(journal.path, journal.path.stat().st_size)]
