# SPDX-License-Identifier: Apache-2.0
"""The twelve rules of `docs/architecture.md`: nouns, store, judging and the screening stage."""

from __future__ import annotations

import dataclasses
import fcntl
import math
import multiprocessing
import os
import shlex
import threading
import typing
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import strategies
import truestep as ts
from judging.trials import alone, sent, trial
from rehearsal import runner, screened, server
from truestep.action import REMOVING, bound_of_nodes_out
from truestep.errors import RecordError, TruestepError
from truestep.judging.attribution import attribute
from truestep.judging.rules import Evidence, judge
from truestep.observation import Change, Spread
from truestep.reason import Owner
from truestep.screening.failures import load_failure
from truestep.screening.replay import Conclusion, replay
from truestep.screening.tasks import Found
from truestep.store.evidence import load, save
from truestep.store.journal import Journal
from truestep.store.schema import dumps, from_plain, loads, record_from
from truestep.verdict import Scope, merge_outcomes

ATTRIBUTING = {ts.Suspect, ts.Verdict, ts.Reason, ts.Action, ts.ActionKind, ts.StepDecision, Scope}


def verdict(**changes: object) -> ts.Verdict:
    values = {
        "outcome": ts.Outcome.PASS,
        "status": ts.Status.COMPLETE,
        "reason": ts.Reason.PASSED,
        "num_comparisons": 1,
        "selftest_caught": True,
    }
    return ts.Verdict(**{**values, **changes})


def record(name: str, **changes: object) -> ts.Record:
    values = {"kind": ts.RecordKind.SCREENING, "run_id": "run", "time_s": 0.0, "subject": "gemm"}
    return ts.Record(**{"id": name, **values, **changes})


def reachable(noun: type) -> set[object]:
    """Every type that stands in the hints of a noun, at any depth."""
    found, left = set(), [noun]
    while left:
        hint = left.pop()
        if hint in found:
            continue
        found.add(hint)
        left += typing.get_args(hint)
        if dataclasses.is_dataclass(hint):
            left += typing.get_type_hints(hint).values()
    return found


def test_rule_1_no_pass_without_work():
    assert verdict().outcome is ts.Outcome.PASS
    with pytest.raises(ValueError, match="a pass needs at least one comparison"):
        verdict(num_comparisons=0)
    with pytest.raises(ValueError, match="a pass needs a planted fault that was caught"):
        verdict(selftest_caught=False)


@given(
    strategies.verdicts(pairs=[(ts.Outcome.PASS, ts.Status.COMPLETE)]),
    st.sampled_from(["num_comparisons", "selftest_caught", "status"]),
)
def test_rule_1_no_stored_pass_without_work(found, field):
    forged = {"num_comparisons": 0, "selftest_caught": False, "status": "skipped"}[field]
    plain = loads(dumps(found)) | {field: forged}
    with pytest.raises(RecordError, match="breaks a rule of its noun"):
        from_plain(ts.Verdict, plain)


@given(st.lists(st.sampled_from(ts.Outcome)), st.randoms())
def test_rule_2_unknown_never_becomes_pass(outcomes, chance):
    merged = merge_outcomes(outcomes)
    if merged is ts.Outcome.PASS:
        assert set(outcomes) == {ts.Outcome.PASS}
    chance.shuffle(outcomes)
    assert merge_outcomes(outcomes) is merged
    cut = chance.randint(0, len(outcomes))
    if 0 < cut < len(outcomes):
        halves = merge_outcomes(outcomes[:cut]), merge_outcomes(outcomes[cut:])
        assert merge_outcomes(halves) is merged


def test_rule_2_nothing_at_all_is_unknown():
    assert merge_outcomes([]) is ts.Outcome.UNKNOWN


def test_rule_1_the_judge_passes_no_idle_test_and_no_blind_checker():
    idle = screened(tests=("exercise_silent",), num_simulated=1)
    blind = screened(tests=("exercise_sound",), num_simulated=1, is_blind=True)
    worked = screened(tests=("exercise_sound",), num_simulated=1)
    assert [r.outcome.value for r in (idle, blind, worked)] == ["unknown", "unknown", "pass"]


def test_rule_2_a_report_with_anything_unknown_is_no_pass():
    report = screened(tests=("exercise_sound", "exercise_exit"), num_simulated=1)
    assert {r.verdict.outcome.value for r in report.records} == {"pass", "unknown"}
    assert report.outcome is ts.Outcome.UNKNOWN


def test_rule_3_a_producer_names_no_culprit():
    for noun in (ts.Observation, ts.Miscompare, ts.Party, ts.Reference, ts.Context):
        assert reachable(noun) & ATTRIBUTING == set(), noun
    assert ts.Suspect in reachable(ts.Verdict)


def test_rule_4_if_everybody_fails_alike_no_node_is_blamed():
    assert ts.Reason.ALL_ALIKE.owner is Owner.PLATFORM
    assert Scope.SOFTWARE_OR_PLATFORM in Scope
    assert all(
        each.owner is not Owner.HARDWARE
        for each in (ts.Reason.ALL_ALIKE, ts.Reason.INPUT_DAMAGED, ts.Reason.UNATTRIBUTED)
    )


def test_rule_3_only_a_contrast_names_a_device():
    alone_wrong = [alone("cuda:0", wrong=10)]
    assert attribute(alone_wrong).name == ""
    assert attribute([*alone_wrong, alone("cuda:1")]).name == "cuda:0"


def test_rule_3_a_majority_that_received_one_sender_s_data_is_no_name():
    # All receivers of a agree and all are wrong; the sender's digest is the contrast.
    edges = [("a", "b"), ("a", "c"), ("b", "c"), ("c", "b")]
    suspect = attribute([sent(s, r, wrong=10 * (s == "a")) for s, r in edges])
    assert suspect.name == "a"


@given(st.integers(2, 6), st.integers(1, 10))
def test_rule_4_the_judge_blames_no_device_where_all_fail_alike(num, wrong):
    assert attribute([alone(f"cuda:{i}", wrong=wrong) for i in range(num)]).name == ""


def test_rule_4_a_fault_of_the_library_on_all_devices_is_no_fail_of_a_node():
    fault = ts.Fault(kind=ts.FaultKind.STUCK, site="add", bit=40, index=3)
    report = screened(tests=("exercise_sound",), num_simulated=2, faults=(fault,))
    assert {r.verdict.reason for r in report.records} == {ts.Reason.ALL_ALIKE}
    assert report.outcome is ts.Outcome.UNKNOWN


def test_rule_5_a_failure_is_replayed_from_its_record_with_the_same_input_bits(tmp_path):
    fault = ts.Fault(kind=ts.FaultKind.FLIP, site="add", device="sim:0")
    report = screened(
        tests=("exercise_sound",), num_simulated=2, faults=(fault,), evidence_dir=str(tmp_path)
    )
    failing = next(r for r in report.records if r.verdict.outcome is ts.Outcome.FAIL)
    *command, path = shlex.split(failing.replay)
    assert command == ["truestep", "replay"]
    failure = load_failure(Path(path))
    assert failure.seed in [o.seed for o in failing.observations]
    shown = replay(failure, times=5, devices=(), context=server())
    assert all(a.is_same_input for a in shown.attempts)
    assert shown.conclusion is Conclusion.FOLLOWS_DEVICE
    other = replace(failure, seed=failure.seed + 1)
    shown = replay(other, times=2, devices=(), context=server())
    assert not any(a.is_same_input for a in shown.attempts)


@given(strategies.records())
def test_rule_5_a_failing_record_replays(found):
    kept = record_from(loads(dumps(found)))
    assert (kept.id, kept.replay) == (found.id, found.replay)
    assert [each.seed for each in kept.observations] == [each.seed for each in found.observations]
    if found.environment is not None:
        assert kept.environment.key == found.environment.key


def test_rule_5_the_evidence_gives_the_same_input_bits(tmp_path):
    import numpy as np

    bits = np.random.default_rng(5).integers(0, 2**32, size=(7, 5), dtype=np.uint32)
    save(tmp_path, "r", {"a": bits.view(np.float32)}, {"seed": 5})
    assert load(tmp_path / "r.json").arrays["a"].tobytes() == bits.tobytes()


@given(st.lists(strategies.records(), min_size=1, max_size=4))
def test_rule_6_records_are_only_appended(tmp_path_factory, found):
    journal = Journal(tmp_path_factory.mktemp("rules") / "journal.jsonl")
    before = b""
    for each in found:
        journal.append(each)
        after = journal.path.read_bytes()
        assert after.startswith(before)
        assert len(after) > len(before)
        before = after


def test_rule_6_a_withdrawal_leaves_the_trail(tmp_path):
    journal = Journal(tmp_path / "journal.jsonl")
    journal.append(record("first", verdict=verdict()))
    journal.append(record("second", kind=ts.RecordKind.WITHDRAWAL, withdraws="first"))
    assert [each.id for each in journal.read()] == ["first", "second"]
    with pytest.raises(ValueError, match="a withdrawal must name"):
        record("third", kind=ts.RecordKind.WITHDRAWAL)
    with pytest.raises(ValueError, match="a withdrawal must name"):
        record("third", withdraws="first")


@given(strategies.ALL_NOUNS[ts.Record])
def test_rule_6_a_record_cannot_be_changed(found):
    with pytest.raises(dataclasses.FrozenInstanceError):
        found.id = "other"


def test_rule_7_no_bitwise_comparison_without_a_determinism_check():
    needing = {kind for kind in ts.ReferenceKind if kind.needs_certificate}
    assert needing == {
        ts.ReferenceKind.GOLDEN,
        ts.ReferenceKind.PEER,
        ts.ReferenceKind.RECOMPUTE,
    }


@given(st.sampled_from(ts.ReferenceKind))
def test_rule_7_the_judge_condemns_nothing_that_lacks_its_certificate(kind):
    found = trial(wrong=10, kind=kind, seed=None)
    device = ts.Device(id="cuda:0", kind="cuda", model="m")
    verdict = judge(Evidence(device=device, first=(found,), selftest_caught=True))
    assert (verdict.reason is ts.Reason.NOT_CERTIFIED) == kind.needs_certificate
    if kind.needs_certificate:
        assert verdict.outcome is ts.Outcome.UNKNOWN


@given(st.lists(st.sampled_from(["serial-1", "serial-2", "serial-3"]), max_size=4), st.floats())
def test_rule_7_a_noise_floor_is_learnt_on_two_devices(devices, floor):
    def certificate(repeatability: ts.Repeatability) -> ts.Certificate:
        return ts.Certificate(
            tensor="grad",
            environment_key="0" * 64,
            repeatability=repeatability,
            floor=floor,
            devices=tuple(devices),
        )

    if len(set(devices)) < 2:
        with pytest.raises(ValueError, match="at least two distinct devices"):
            certificate(ts.Repeatability.NOISE_FLOOR)
    else:
        assert certificate(ts.Repeatability.NOISE_FLOOR).devices == tuple(devices)
    for other in (ts.Repeatability.BITWISE, ts.Repeatability.UNJUDGED):
        with pytest.raises(ValueError, match="a floor belongs to noise_floor"):
            certificate(other)


@given(st.sampled_from(ts.ActionKind), st.lists(st.sampled_from("ab"), max_size=3))
def test_rule_8_a_node_is_never_taken_out_for_a_single_event(kind, records):
    def action() -> ts.Action:
        return ts.Action(kind=kind, node="n", reason="miscompare_repeated", records=tuple(records))

    if kind in REMOVING and len(set(records)) < 2:
        with pytest.raises(ValueError, match="at least two records"):
            action()
    else:
        assert action().is_dry_run


@given(strategies.actions(), st.randoms())
def test_rule_8_actions_are_bounded_and_idempotent(action, chance):
    records = [*action.records, *action.records]
    chance.shuffle(records)
    assert dataclasses.replace(action, records=tuple(records)).key == action.key
    # The same code path: a dry run is the same action.
    assert dataclasses.replace(action, is_dry_run=not action.is_dry_run).key == action.key
    assert dataclasses.replace(action, owner=f"{action.owner}'").key != action.key


@given(st.integers(0, 10**6), st.integers(0, 100), st.floats(0.0, 1.0))
def test_rule_8_the_bound_is_the_smaller_of_a_number_and_a_share(num_eligible, most, share):
    bound = bound_of_nodes_out(num_eligible=num_eligible, most=most, share=share)
    assert 0 <= bound <= most
    assert bound <= share * num_eligible
    assert bound_of_nodes_out(num_eligible=2 * num_eligible, most=most, share=share) <= most


@given(st.sampled_from(ts.Status), st.sampled_from(ts.Outcome))
def test_rule_9_a_test_that_crashed_is_unknown_and_never_healthy(status, outcome):
    if status is ts.Status.COMPLETE or outcome is ts.Outcome.UNKNOWN:
        assert verdict(status=status, outcome=outcome).outcome is outcome
    else:
        with pytest.raises(ValueError, match="can only be unknown"):
            verdict(status=status, outcome=outcome)


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_rule_9_a_value_that_is_not_finite_is_a_miscompare_that_is_kept(tmp_path, value):
    found = ts.Miscompare(
        dtype="float32",
        shape=(2,),
        count=1,
        first=(0,),
        box=((0, 1),),
        spread=Spread.SINGLE,
        change=Change.NON_FINITE,
        xor_mask=2**31,
        xor_common=2**31,
        positions=(0,),
        actual="7fc00000",
        expected="3f800000",
        max_relative=value,
    )
    seen = ts.Observation(
        name="gemm",
        reference=ts.Reference(kind=ts.ReferenceKind.EXACT, provenance="int64"),
        parties=(ts.Party(device="cpu:0"),),
        value=1,
        num_comparisons=1,
        miscompare=found,
    )
    journal = Journal(tmp_path / "journal.jsonl")
    journal.append(record("r", observations=(seen,)))
    kept = next(journal.read()).observations[0]
    assert kept.is_miscompare
    assert repr(kept.miscompare.max_relative) == repr(value)


def test_rule_9_no_error_of_ours_tells_of_a_failing_device():
    names = {each.__name__ for each in TruestepError.__subclasses__()}
    assert [name for name in names if "Device" in name or "Fail" in name] == []


def test_rule_10_a_power_always_states_how_many_calls_and_which_rate():
    stated = {"site": "matmul/fp32", "value_class": "accumulator_exact"}
    for missing in ({"num_comparisons": 300}, {"excluded_rate": 0.01}):
        with pytest.raises(TypeError):
            ts.Power(**stated, **missing)


@given(st.integers(1, 10**6))
def test_rule_10_a_pass_states_the_rate_that_it_excludes(num):
    device = ts.Device(id="cuda:0", kind="cuda", model="m")
    verdict = judge(Evidence(device=device, first=(trial(total=num),), selftest_caught=True))
    (power,) = verdict.power
    assert (power.site, power.num_comparisons) == ("matmul/fp32", num)
    assert math.isclose(power.excluded_rate, 1 - 0.05 ** (1 / num), rel_tol=1e-6)


def test_rule_10_every_test_states_its_power_and_its_coverage():
    report = screened(tests=("matmul_exact_fp32", "arithmetic_float32"), num_simulated=1)
    for each in report.records:
        assert each.verdict.power
        for power in each.verdict.power:
            assert any(c.startswith("shape: ") for c in power.coverage)


@pytest.mark.parametrize(
    "invented",
    [
        {"num_simulated": 1},
        {"num_simulated": 1, "is_blind": True},
        {"num_simulated": 1, "faults": (ts.Fault(kind=ts.FaultKind.FLIP, site="none"),)},
    ],
)
def test_rule_11_whatever_is_invented_marks_the_record(invented):
    report = screened(tests=("exercise_sound",), **invented)
    assert all(each.is_simulated for each in report.records)


@given(strategies.records(), st.booleans())
def test_rule_11_simulated_stays_simulated(found, is_simulated):
    found = dataclasses.replace(found, is_simulated=is_simulated)
    kept = record_from(loads(dumps(found)))
    assert kept.is_simulated is is_simulated
    if found.device is not None:
        assert kept.device.is_simulated is found.device.is_simulated


def test_rule_12_we_do_no_harm_unless_told_to():
    assert ts.Action(kind=ts.ActionKind.HOLD, node="n", reason="locked").is_dry_run


def test_rule_12_a_record_never_waits_for_ever(tmp_path):
    journal = Journal(tmp_path / "journal.jsonl", lock_timeout_s=0.05)
    journal.append(record("r"))
    with journal.path.open("rb") as holder:
        fcntl.flock(holder, fcntl.LOCK_EX)
        with pytest.raises(RecordError, match="must be free within"):
            journal.append(record("s"))


def test_rule_12_only_granted_processors_are_used_and_nothing_is_left_behind():
    affinity = os.sched_getaffinity(0)
    before = threading.active_count()
    report = screened(tests=("exercise_sound",), num_simulated=0)
    units = {u for one in report.found for u in one.device.units}
    assert units <= {f"core{cpu}" for cpu in affinity}
    assert os.sched_getaffinity(0) == affinity
    assert threading.active_count() == before
    assert multiprocessing.active_children() == []


def test_rule_12_a_device_that_others_use_is_left_alone():
    busy = ts.Device(id="cuda:0", kind="cuda", model="m")
    kept = []
    found = Found(
        device=busy,
        environment=ts.Environment(entries={}),
        supported=frozenset(),
        free_memory_bytes=0,
        busy_with=(4711,),
    )
    with ExitStack() as stack:
        assert not runner(keep=kept.append)._admit(found, stack)
    assert [(r.verdict.reason, r.verdict.detail) for r in kept] == [
        (ts.Reason.IN_USE, "used by processes 4711")
    ]
