# SPDX-License-Identifier: Apache-2.0
"""Hypothesis strategies for the nouns, each noun legal by its own rules."""

from __future__ import annotations

from collections.abc import Sequence

from hypothesis import strategies as st

import truestep as ts
from truestep.action import REMOVING
from truestep.observation import Change, Role, Spread
from truestep.record import SCHEMA_VERSION
from truestep.verdict import Scope

SPELLINGS = {"nan", "inf", "infinity"}

words = st.text(max_size=12)
names = st.text(min_size=1, max_size=12)
floats = st.floats(allow_nan=True, allow_infinity=True)
finite = st.floats(allow_nan=False, allow_infinity=False)
counts = st.integers(0, 10**12)
seeds = st.integers(0, 2**64)
optional_seeds = st.none() | seeds
hexadecimal = st.text("0123456789abcdef", min_size=64, max_size=64)
plain_words = words.filter(lambda text: text.strip().lower().lstrip("+-") not in SPELLINGS)
text_maps = st.dictionaries(words, words, max_size=4)


def several(strategy: st.SearchStrategy, *, most: int = 4) -> st.SearchStrategy:
    """Tuples of what the strategy gives."""
    return st.lists(strategy, max_size=most).map(tuple)


nodes = st.builds(ts.Node, name=names, board_serial=words, machine_id=words)

devices = st.builds(
    ts.Device,
    id=names,
    kind=st.sampled_from(["cpu", "cuda", "rocm", "xla"]),
    model=words,
    serial=words,
    units=several(words),
    firmware=words,
    is_partial=st.booleans(),
    is_simulated=st.booleans(),
)

environments = st.builds(ts.Environment, entries=text_maps)

samples = st.builds(
    ts.Sample,
    time_s=finite,
    readings=st.dictionaries(words, floats | counts | plain_words, max_size=4),
)

contexts = st.builds(
    ts.Context,
    before=st.none() | samples,
    during=several(samples, most=2),
    after=st.none() | samples,
)

references = st.builds(ts.Reference, kind=st.sampled_from(ts.ReferenceKind), provenance=words)

parties = st.builds(ts.Party, device=names, unit=words, role=st.sampled_from(Role))


@st.composite
def miscompares(draw: st.DrawFn) -> ts.Miscompare:
    """Miscompares whose positions lie within their shape, with masks up to 64 bits."""
    shape = draw(st.lists(st.integers(1, 9), max_size=4).map(tuple))
    first = tuple(draw(st.integers(0, extent - 1)) for extent in shape)
    box = tuple(
        (draw(st.integers(0, at)), draw(st.integers(at + 1, extent)))
        for at, extent in zip(first, shape, strict=True)
    )
    mask = draw(st.integers(1, 2**64 - 1))
    return ts.Miscompare(
        dtype=draw(st.sampled_from(["float32", "bfloat16", "float16", "int64", "float8_e4m3fn"])),
        shape=shape,
        count=draw(st.integers(1, 10**12)),
        first=first,
        box=box,
        spread=draw(st.sampled_from(Spread)),
        change=draw(st.sampled_from(Change)),
        xor_mask=mask,
        xor_common=mask & draw(st.integers(0, 2**64 - 1)),
        positions=draw(several(st.integers(0, 6560))),
        actual=f"{draw(seeds):x}",
        expected=f"{draw(seeds):x}",
        max_ulp=draw(optional_seeds),
        max_relative=draw(st.none() | floats),
    )


@st.composite
def observations(draw: st.DrawFn) -> ts.Observation:
    """Observations; each miscompare in them was counted."""
    miscompare = draw(st.none() | miscompares())
    hit = miscompare is not None
    return ts.Observation(
        name=draw(names),
        reference=draw(references),
        parties=draw(several(parties)),
        site=draw(words),
        value_class=draw(words),
        value=draw(st.floats(min_value=1.0) if hit else floats | counts),
        unit=draw(words),
        num_comparisons=draw(st.integers(int(hit), 10**12)),
        seed=draw(optional_seeds),
        step=draw(st.none() | counts),
        miscompare=miscompare,
        conditions=draw(text_maps),
        coverage=draw(text_maps),
        run_id=draw(words),
    )


certificates = st.one_of(
    st.builds(
        ts.Certificate,
        tensor=names,
        environment_key=hexadecimal,
        repeatability=st.sampled_from([ts.Repeatability.BITWISE, ts.Repeatability.UNJUDGED]),
        floor=st.none(),
        devices=several(words),
    ),
    st.builds(
        ts.Certificate,
        tensor=names,
        environment_key=hexadecimal,
        repeatability=st.just(ts.Repeatability.NOISE_FLOOR),
        floor=floats,
        devices=st.lists(words, min_size=2, max_size=4, unique=True).map(tuple),
    ),
)

suspects = st.builds(ts.Suspect, scope=st.sampled_from(Scope), name=words, because=words)

powers = st.builds(
    ts.Power,
    site=words,
    value_class=words,
    num_comparisons=counts,
    excluded_rate=st.floats(0.0, 1.0),
    coverage=several(words),
)

LEGAL_PAIRS = (
    (ts.Outcome.PASS, ts.Status.COMPLETE),
    (ts.Outcome.FAIL, ts.Status.COMPLETE),
    (ts.Outcome.UNKNOWN, ts.Status.COMPLETE),
    (ts.Outcome.UNKNOWN, ts.Status.SKIPPED),
    (ts.Outcome.UNKNOWN, ts.Status.ERROR),
)
"""The five pairs of outcome and status that a verdict may have."""


@st.composite
def verdicts(
    draw: st.DrawFn, pairs: Sequence[tuple[ts.Outcome, ts.Status]] = LEGAL_PAIRS
) -> ts.Verdict:
    """Verdicts with these pairs; a pass had comparisons and a caught planted fault."""
    outcome, status = draw(st.sampled_from(pairs))
    passed = outcome is ts.Outcome.PASS
    return ts.Verdict(
        outcome=outcome,
        status=status,
        reason=draw(st.sampled_from(ts.Reason)),
        num_comparisons=draw(st.integers(int(passed), 10**12)),
        selftest_caught=passed or draw(st.booleans()),
        suspect=draw(st.none() | suspects),
        is_confirmed=draw(st.booleans()),
        repeats=(draw(counts), draw(counts)),
        detail=draw(words),
        untested=draw(several(words)),
        evidence=draw(several(words)),
        power=draw(several(powers, most=2)),
    )


artifacts = st.builds(ts.Artifact, name=names, sha256=hexadecimal, size_bytes=counts)


@st.composite
def records(draw: st.DrawFn) -> ts.Record:
    """Records of every kind; a withdrawal names what it takes back."""
    kind = draw(st.sampled_from(ts.RecordKind))
    device = draw(st.none() | devices)
    return ts.Record(
        id=draw(names),
        kind=kind,
        run_id=draw(words),
        time_s=draw(finite),
        subject=draw(words),
        node=draw(st.none() | nodes),
        device=device,
        environment=draw(st.none() | environments),
        context=draw(st.none() | contexts),
        observations=draw(several(observations(), most=2)),
        verdict=draw(st.none() | verdicts()),
        action=draw(actions()) if kind is ts.RecordKind.ACTION else None,
        transition=draw(transitions()) if kind is ts.RecordKind.TRANSITION else None,
        replay=draw(words),
        artifacts=draw(several(artifacts, most=2)),
        withdraws=draw(names) if kind is ts.RecordKind.WITHDRAWAL else "",
        is_simulated=(device is not None and device.is_simulated) or draw(st.booleans()),
        schema_version=SCHEMA_VERSION,
    )


@st.composite
def transitions(draw: st.DrawFn) -> ts.Transition:
    """Steps from any state to any other; which are legal is for the fleet to say."""
    before, after = draw(
        st.lists(st.sampled_from(ts.NodeState), min_size=2, max_size=2, unique=True)
    )
    return ts.Transition(
        before=before,
        after=after,
        reason=draw(st.sampled_from(ts.Reason)),
        records=draw(several(names)),
    )


@st.composite
def actions(draw: st.DrawFn) -> ts.Action:
    """Actions; one that takes a node out rests on at least two records."""
    kind = draw(st.sampled_from(ts.ActionKind))
    fewest = 2 if kind in REMOVING else 0
    return ts.Action(
        kind=kind,
        node=draw(names),
        reason=draw(st.sampled_from(ts.Reason)).value,
        records=tuple(draw(st.lists(names, min_size=fewest, max_size=4, unique=True))),
        is_dry_run=draw(st.booleans()),
        owner=draw(names),
    )


faults = st.builds(
    ts.Fault,
    kind=st.sampled_from(ts.FaultKind),
    site=names,
    rate=st.floats(0.0, 1.0, exclude_min=True),
    bit=st.none() | st.integers(0, 63),
    index=st.none() | counts,
    factor=floats,
    device=st.none() | words,
    unit=st.none() | words,
    seed=seeds,
)

ALL_NOUNS = {
    ts.Action: actions(),
    ts.Artifact: artifacts,
    ts.Certificate: certificates,
    ts.Context: contexts,
    ts.Device: devices,
    ts.Environment: environments,
    ts.Fault: faults,
    ts.Miscompare: miscompares(),
    ts.Node: nodes,
    ts.Observation: observations(),
    ts.Party: parties,
    ts.Power: powers,
    ts.Record: records(),
    ts.Reference: references,
    ts.Sample: samples,
    ts.Suspect: suspects,
    ts.Transition: transitions(),
    ts.Verdict: verdicts(),
}
"""A strategy for every dataclass among the nouns."""
