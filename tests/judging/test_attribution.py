# SPDX-License-Identifier: Apache-2.0
import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from judging.trials import alone, compared, sent, trial
from truestep.judging.attribution import ALL_ALIKE, attribute
from truestep.judging.power import chance_of_share
from truestep.observation import Observation, Party, Role
from truestep.verdict import Scope

DEVICES = ("cpu:0", "cuda:0", "cuda:1", "cuda:2")


@st.composite
def trials(draw: st.DrawFn) -> Observation:
    total = draw(st.integers(1, 40))
    wrong = draw(st.just(0) | st.integers(0, total))
    rest = {
        "wrong": wrong,
        "total": total,
        "conditions": draw(st.dictionaries(st.sampled_from(["clock"]), st.sampled_from("ab"))),
    }
    devices = st.sampled_from(DEVICES)
    shape = draw(st.sampled_from([alone, alone, sent, compared, "input"]))
    if shape is alone:
        return alone(draw(devices), draw(st.sampled_from(["", "core0", "core1"])), **rest)
    if shape == "input":
        return trial(Party(device="host", unit="shard", role=Role.INPUT), **rest)
    return shape(draw(devices), draw(devices), **rest)


runs = st.lists(trials(), max_size=8)
subjects = st.sampled_from(["", *DEVICES])


@given(runs, subjects, st.randoms())
def test_the_order_of_trials_does_not_matter(found, subject, chance):
    expected = attribute(found, subject=subject)
    chance.shuffle(found)
    assert attribute(found, subject=subject) == expected


@given(runs, subjects)
def test_nobody_is_suspected_where_nothing_differs_and_someone_is_named_as_such_else(
    found, subject
):
    suspect = attribute(found, subject=subject)
    assert (suspect is None) == (not any(o.is_miscompare for o in found))
    if suspect is not None:
        assert suspect.because
        is_vague = suspect.scope in (Scope.UNKNOWN, Scope.SOFTWARE_OR_PLATFORM)
        assert bool(suspect.name) != is_vague


@given(runs, subjects)
def test_nobody_is_named_without_a_clean_trial(found, subject):
    suspect = attribute(found, subject=subject)
    if suspect is not None and suspect.name and suspect.scope is not Scope.INPUT_DATA:
        assert any(not o.is_miscompare for o in found)


@given(st.lists(trials().filter(lambda o: o.is_miscompare), min_size=1, max_size=8), subjects)
def test_without_a_clean_trial_nothing_but_an_input_is_named(found, subject):
    suspect = attribute(found, subject=subject)
    assert suspect is not None
    assert not suspect.name or suspect.scope is Scope.INPUT_DATA


@given(st.sets(st.sampled_from(DEVICES), min_size=2), st.integers(1, 10), subjects)
def test_where_all_are_wrong_alike_it_is_software(devices, wrong, subject):
    suspect = attribute([alone(d, wrong=wrong) for d in devices], subject=subject)
    assert (suspect.scope, suspect.name) == (Scope.SOFTWARE_OR_PLATFORM, "")
    assert suspect.because == ALL_ALIKE


@given(
    st.lists(st.sampled_from(DEVICES[1:]), min_size=2, unique=True),
    st.integers(1, 10),
    st.integers(1, 2000),
)
def test_a_device_is_named_only_where_luck_does_not_explain_the_others(devices, wrong, total):
    bad, *clean = devices
    suspect = attribute(
        [alone(bad, wrong=wrong, total=10), *(alone(d, total=total) for d in clean)]
    )
    # Shared out over all who were asked, since any of them could have been the one.
    chance = chance_of_share(wrong, 10, 0, total * len(clean))
    is_luck = chance > 0.05 / len(devices)
    assert (suspect.name, suspect.scope) == (
        ("", Scope.UNKNOWN) if is_luck else (bad, Scope.DEVICE)
    )


@pytest.mark.parametrize("rate", [1e-3, 3e-3, 1e-2])
@pytest.mark.parametrize("num_devices", [2, 3, 8, 16])
def test_where_all_are_equally_bad_hardly_anybody_is_named(num_devices, rate):
    draws = np.random.default_rng(num_devices).binomial(1536, rate, (200, num_devices))
    names = [f"cuda:{i}" for i in range(num_devices)]
    num_wrong_names = 0
    for wrong in draws:
        found = [alone(n, wrong=int(w), total=1536) for n, w in zip(names, wrong, strict=True)]
        named = (attribute(found, subject=n) for n, w in zip(names, wrong, strict=True) if w)
        num_wrong_names += any(suspect.name for suspect in named)
    # Expected in at most 5 % of the runs; 17 of 200 or more would be luck once in 50.
    assert num_wrong_names <= 16


@pytest.mark.parametrize("num_clean", [1, 4])
def test_links_that_are_all_alike_are_hardly_ever_named(num_clean):
    found = [sent("a", "b", wrong=1, total=20), *(sent("a", f"c{i}", total=1) for i in range(4))]
    assert attribute(found[: 1 + num_clean]).scope is Scope.UNKNOWN


def test_a_bad_cpu_is_a_host_cpu():
    suspect = attribute([alone("cpu:0", wrong=10), alone("cuda:0")])
    assert (suspect.scope, suspect.name) == (Scope.HOST_CPU, "cpu:0")


def test_a_device_alone_is_not_named():
    suspect = attribute([alone("cuda:0", wrong=10)])
    assert suspect.scope is Scope.UNKNOWN
    assert "no second device" in suspect.because


def test_a_second_bad_device_does_not_hide_the_one_that_is_judged():
    found = [alone("cuda:0", wrong=10), alone("cuda:1", wrong=10), alone("cuda:2", total=20)]
    assert attribute(found, subject="cuda:0").name == "cuda:0"
    assert attribute(found, subject="cuda:1").name == "cuda:1"
    both = attribute(found)
    assert (both.scope, both.name) == (Scope.UNKNOWN, "")
    assert "cuda:0, cuda:1 differ" in both.because


def test_one_bad_core_among_clean_ones_is_named_and_two_are_the_device():
    cores = [alone("cpu:0", f"core{i}", wrong=10 * (i == 3)) for i in range(8)]
    suspect = attribute(cores)
    assert (suspect.scope, suspect.name) == (Scope.UNIT, "cpu:0/core3")
    cores[5] = alone("cpu:0", "core5", wrong=10)
    assert attribute(cores).scope is Scope.UNKNOWN
    assert attribute([*cores, alone("cpu:1", "core9", total=1000)]).name == "cpu:0"


def test_a_rarely_wrong_core_is_not_named_by_a_few_clean_calls():
    cores = [alone("cpu:0", "core0", wrong=1, total=1000), alone("cpu:0", "core1", total=10)]
    assert attribute(cores).scope is Scope.UNKNOWN


@pytest.mark.parametrize(
    ("is_bad", "scope", "name"),
    [
        (lambda s, r: (s, r) == ("a", "b"), Scope.LINK, "a->b"),
        (lambda s, r: s == "a", Scope.DEVICE, "a"),
        (lambda s, r: r == "a", Scope.DEVICE, "a"),
        (lambda s, r: True, Scope.SOFTWARE_OR_PLATFORM, ""),
        (lambda s, r: s != r and "a" in (s, r), Scope.UNKNOWN, ""),
    ],
)
def test_transfers_name_a_link_a_sender_or_a_receiver(is_bad, scope, name):
    edges = itertools.product("abc", repeat=2)
    suspect = attribute([sent(s, r, wrong=10 * is_bad(s, r)) for s, r in edges])
    assert (suspect.scope, suspect.name) == (scope, name)


def test_one_transfer_alone_accuses_neither_end():
    suspect = attribute([sent("a", "b", wrong=1)])
    assert (suspect.scope, suspect.name) == (Scope.UNKNOWN, "")


def test_a_device_that_is_wrong_alone_needs_no_link_to_explain_it():
    found = [sent("a", "b"), sent("b", "a"), alone("a", wrong=10), alone("b")]
    assert (attribute(found).scope, attribute(found).name) == (Scope.DEVICE, "a")


def test_two_that_differ_accuse_each_other_until_a_third_is_asked():
    found = [compared("a", "b", wrong=10)]
    assert attribute(found, subject="a").name == ""
    found.append(compared("a", "c"))
    # The one that is judged is not the one that is wrong.
    assert attribute(found, subject="a").name == "b"
    found.append(compared("b", "c", wrong=10))
    assert attribute(found, subject="a").name == "b"
    assert attribute(found, subject="b").name == "b"


def test_a_pair_that_agrees_by_luck_tells_nothing():
    found = [compared("a", "b", wrong=1, total=100), compared("a", "c", total=1)]
    assert attribute(found).name == ""


def test_where_all_pairs_differ_it_is_software():
    found = [compared(s, r, wrong=10) for s, r in itertools.combinations("abc", 2)]
    assert attribute(found).scope is Scope.SOFTWARE_OR_PLATFORM


def test_what_was_computed_from_a_damaged_input_accuses_no_device():
    damaged = trial(Party(device="host", unit="shard-3", role=Role.INPUT), wrong=1)
    found = [alone("cuda:0", wrong=10), alone("cuda:1"), damaged]
    suspect = attribute(found, subject="cuda:0")
    assert (suspect.scope, suspect.name) == (Scope.INPUT_DATA, "host/shard-3")


def test_a_condition_matters_where_changing_it_alone_made_the_failure_go():
    def at(clock: str, threads: str, wrong: int) -> Observation:
        conditions = {"clock": clock, "threads": threads}
        return alone("cpu:0", wrong=wrong, total=30, conditions=conditions)

    found = [at("high", "32", 15), at("low", "32", 0), at("high", "1", 0), alone("cpu:1", total=30)]
    assert attribute(found).because.endswith("depends on clock, threads")
    confounded = [at("high", "32", 15), at("low", "1", 0), alone("cpu:1", total=30)]
    assert "depends on" not in attribute(confounded).because
