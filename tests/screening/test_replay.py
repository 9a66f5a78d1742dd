# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rehearsal import screened, server
from truestep.device import Device, Node
from truestep.errors import ConfigError, RecordError
from truestep.fault import Fault, FaultKind
from truestep.screening.failures import Repeatable, load_failure
from truestep.screening.replay import Attempt, Conclusion, conclude, replay
from truestep.screening.tasks import Target

FAULT = Fault(kind=FaultKind.FLIP, site="add/float32", device="sim:1", seed=5)
TEST = "arithmetic_float32"


@pytest.fixture(scope="module")
def sheet(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("evidence")
    report = screened(tests=(TEST,), num_simulated=2, faults=(FAULT,), evidence_dir=str(folder))
    (path,) = folder.glob("*.json")
    (record,) = (r for r in report.records if r.artifacts)
    assert str(path) in record.replay
    return path


def again(failure: Repeatable, *, times: int = 5, devices: tuple[str, ...] = ()) -> Conclusion:
    return replay(failure, times=times, devices=devices, context=server()).conclusion


def test_a_failure_follows_its_device(sheet):
    shown = replay(load_failure(sheet), times=5, devices=(), context=server())
    assert shown.conclusion is Conclusion.FOLLOWS_DEVICE
    failed = {a.target.key: (a.num_failed, a.num_rounds) for a in shown.attempts}
    assert failed == {"sim:0": (0, 5), "sim:1": (5, 5)}
    assert all(a.is_same_input for a in shown.attempts)


def test_alone_or_elsewhere_it_says_less(sheet):
    failure = load_failure(sheet)
    assert again(failure, devices=("sim:1",)) is Conclusion.HERE_ONLY
    assert again(failure, devices=("sim:0",)) is Conclusion.NOT_REPRODUCED
    assert again(replace(failure, faults=())) is Conclusion.NOT_REPRODUCED
    everywhere = replace(failure, faults=(replace(FAULT, device=None),))
    assert again(everywhere) is Conclusion.ALL_ALIKE


def test_another_seed_is_another_input(sheet):
    failure = load_failure(sheet)
    assert again(replace(failure, seed=failure.seed + 1)) is Conclusion.OTHER_INPUTS


def test_a_device_that_is_not_here_is_refused(sheet):
    with pytest.raises(ConfigError, match="sim:7"):
        again(load_failure(sheet), devices=("sim:7",))


@given(st.integers(0, 10**6), st.integers(1, 255))
def test_damaged_evidence_is_refused(sheet, tmp_path_factory, position, mask):
    folder = tmp_path_factory.mktemp("damaged")
    for path in sheet.parent.iterdir():
        (folder / path.name).write_bytes(path.read_bytes())
    victim = folder / sheet.with_suffix(".safetensors").name
    content = bytearray(victim.read_bytes())
    content[position % len(content)] ^= mask
    victim.write_bytes(content)
    with pytest.raises(RecordError):
        load_failure(folder / sheet.name)


def rewritten(sheet: Path, folder: Path, **words: object) -> Path:
    """The evidence with other words on how to repeat it."""
    data = sheet.with_suffix(".safetensors")
    (folder / data.name).write_bytes(data.read_bytes())
    plain = json.loads(sheet.read_text())
    plain["meta"]["repeat"] |= words
    (folder / sheet.name).write_text(json.dumps(plain))
    return folder / sheet.name


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("backend", "auto"),
        ("backend", ""),
        ("level", 0),
        ("level", 5),
        ("num_simulated", -1),
        ("num_simulated", 1025),
        ("memory_bytes", 0),
        ("memory_bytes", 1 << 70),
    ],
)
def test_words_that_cannot_be_are_refused(sheet, tmp_path, name, value):
    assert load_failure(rewritten(sheet, tmp_path)) == load_failure(sheet)
    with pytest.raises(RecordError, match=name):
        load_failure(rewritten(sheet, tmp_path, **{name: value}))


@pytest.mark.parametrize("text", ["", "{", "[]", "{}", '{"sheet":1}', '{"schema_version":1}\n{}'])
def test_what_is_not_evidence_is_called_so(tmp_path, text):
    for name in ("x.json", "journal.jsonl", "noname"):
        (tmp_path / name).write_text(text)
        with pytest.raises(RecordError, match="this is not evidence of a screening"):
            load_failure(tmp_path / name)


def attempts() -> st.SearchStrategy[list[Attempt]]:
    def make(serial: int, num_failed: int, num_rounds: int, is_same_input: bool) -> Attempt:
        device = Device(id=f"cuda:{serial}", kind="cuda", model="m", serial=f"GPU-{serial}")
        return Attempt(
            target=Target(device=device),
            num_failed=min(num_failed, num_rounds),
            num_rounds=num_rounds,
            is_same_input=is_same_input,
        )

    return st.lists(
        st.builds(
            make, st.integers(0, 2), st.integers(0, 4), st.integers(0, 4), st.sampled_from([True])
        ),
        max_size=4,
    )


FAILURE = Repeatable(
    test_id=TEST,
    seed=1,
    level=1,
    backend="numpy",
    device="cuda:0",
    unit="",
    identity="GPU-0",
    site="add/float32",
    run_id="r",
    inputs_digest="d",
    memory_bytes=1 << 24,
)
NODE = Node(name="n", board_serial="board")


@given(attempts(), st.randoms())
def test_a_conclusion_blames_the_original_only_with_a_clean_other(tried, chance):
    found = conclude(tried, FAILURE, node=NODE)
    chance.shuffle(tried)
    assert conclude(tried, FAILURE, node=NODE) is found
    bad = {a.target.device.serial for a in tried if a.num_failed}
    ran = {a.target.device.serial for a in tried if a.num_rounds}
    if found in (Conclusion.FOLLOWS_DEVICE, Conclusion.MAY_BE_LUCK):
        assert "GPU-0" in bad
        assert ran - bad
    assert (found is Conclusion.NOT_REPRODUCED) == (bool(ran) and not bad)
    assert (found is Conclusion.NOTHING_RAN) == (not ran)


def test_the_device_is_known_by_its_serial_and_not_by_its_place():
    moved = Device(id="cuda:5", kind="cuda", model="m", serial="GPU-0")
    other = Device(id="cuda:0", kind="cuda", model="m", serial="GPU-9")
    tried = [
        Attempt(target=Target(device=moved), num_failed=3, num_rounds=3, is_same_input=True),
        Attempt(target=Target(device=other), num_failed=0, num_rounds=3, is_same_input=True),
    ]
    assert conclude(tried, FAILURE, node=NODE) is Conclusion.FOLLOWS_DEVICE
    swapped = [
        replace(tried[0], num_failed=0),
        replace(tried[1], num_failed=3),
    ]
    assert conclude(swapped, FAILURE, node=NODE) is Conclusion.ELSEWHERE


def tried(device: str, unit: str = "", *, wrong: int = 0, total: int = 10) -> Attempt:
    target = Target(device=Device(id=device, kind="cpu", model="m"), unit=unit)
    return Attempt(target=target, num_failed=wrong, num_rounds=total, is_same_input=True)


ON_SOCKET = replace(FAILURE, device="cpu:0", unit="core1", identity="board/cpu:0")


@pytest.mark.parametrize(
    ("attempts", "conclusion"),
    [
        ([tried("cpu:0", wrong=10), tried("cpu:1")], Conclusion.FOLLOWS_DEVICE),
        ([tried("cpu:0", wrong=1), tried("cpu:1")], Conclusion.MAY_BE_LUCK),
        ([tried("cpu:0", wrong=1), tried("cpu:1", total=199)], Conclusion.FOLLOWS_DEVICE),
        ([tried("cpu:0", "core1", wrong=10), tried("cpu:0", "core2")], Conclusion.FOLLOWS_UNIT),
        ([tried("cpu:0", "core1", wrong=1), tried("cpu:0", "core2")], Conclusion.HERE_ONLY),
        (
            [tried("cpu:0", "core1", wrong=9), tried("cpu:0", "core2", wrong=9), tried("cpu:1")],
            Conclusion.FOLLOWS_DEVICE,
        ),
        (
            [tried("cpu:0", "core1", wrong=9), tried("cpu:0", "core2"), tried("cpu:1", wrong=9)],
            Conclusion.FOLLOWS_UNIT,
        ),
    ],
)
def test_what_stayed_clean_must_have_had_the_chance_to_fail(attempts, conclusion):
    assert conclude(attempts, ON_SOCKET, node=NODE) is conclusion


def test_a_socket_of_another_host_is_not_the_original():
    attempts = [tried("cpu:0", wrong=10), tried("cpu:1")]
    elsewhere = Node(name="n", board_serial="another")
    assert conclude(attempts, ON_SOCKET, node=elsewhere) is Conclusion.ELSEWHERE


@pytest.mark.parametrize("test", ["memory_patterns", "memory_addresses", "memory_inversions"])
def test_a_failure_of_memory_is_repeated_with_as_much_of_it(test, tmp_path):
    fault = Fault(kind=FaultKind.FLIP, site="memory", device="sim:1")
    screened(tests=(test,), num_simulated=2, faults=(fault,), evidence_dir=str(tmp_path))
    (path,) = tmp_path.glob("*.json")
    shown = replay(load_failure(path), times=5, devices=(), context=server())
    assert (shown.conclusion, shown.suspect) == (Conclusion.FOLLOWS_DEVICE, "sim:1")
    assert shown.is_simulated


def test_memory_that_is_not_here_is_not_taken(sheet):
    with pytest.raises(ConfigError, match="bytes free"):
        again(replace(load_failure(sheet), memory_bytes=1 << 60))
