# SPDX-License-Identifier: Apache-2.0
"""How surely are rare flips of one bit found, and named, by a quick screening?

In each trial one of two devices has a unit that flips one bit of one element in one product of
200. Both run a matmul test for the rounds that level 1 guarantees. All trials share one process.

    python benchmarks/campaign_flips.py
    python benchmarks/campaign_flips.py --scale 0.02
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from multiprocessing import Pipe

import result_sheet
import torch

from truestep.backends.open import open_backend
from truestep.fault import Fault, FaultKind
from truestep.injection.faulty_backend import Activation, FaultyBackend
from truestep.injection.simulated_devices import SimulatedDevices
from truestep.judging.power import detection_chance, interval
from truestep.numerics.bits import FORMATS
from truestep.numerics.exact import PRECISIONS
from truestep.numerics.mixing import derive
from truestep.observation import Observation
from truestep.screening import registry
from truestep.screening.bench import Bench
from truestep.screening.suite.matmul import NUM_REPEATS
from truestep.screening.tasks import Setup, Target, Task
from truestep.screening.worker import Worker, open_for

NUM_TRIALS = 200
RATE = 1 / 200
NUM_DEVICES = 2

SIMULATED = {d.id: d for d in SimulatedDevices(open_backend("torch"), NUM_DEVICES).devices()}

OPERATIONS = {
    f"matmul_{kind}_{precision}": precision
    for precision in ("fp32", "bf16", "fp16", "fp8")
    for kind in ("exact", "permutation")
    if (kind, precision) != ("permutation", "fp8")
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """One fault: the test that meets it, the bit, the device that has it, the seed of all draws."""

    test_id: str
    bit: int
    device: str
    seed: int

    @property
    def precision(self) -> str:
        return OPERATIONS[self.test_id]

    @property
    def fault(self) -> Fault:
        return Fault(
            kind=FaultKind.FLIP,
            site=f"matmul/{self.precision}",
            rate=RATE,
            bit=self.bit,
            device=self.device,
            seed=self.seed,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """What came of a trial. A hit is masked if it only changes the sign of a zero."""

    trial: Trial
    num_calls: int
    num_hits: int
    num_masked: int
    num_seen: int
    num_false: int
    is_named: bool
    is_named_but_for_zero: bool

    @property
    def is_found(self) -> bool:
        return self.num_seen > 0

    @property
    def is_active(self) -> bool:
        return self.num_hits > self.num_masked


def trials(num: int, *, seed: int = 1) -> list[Trial]:
    """Every bit of every format in turn; tests of a format alternate from one pass to the next."""
    cells = [
        (precision, bit)
        for precision in dict.fromkeys(OPERATIONS.values())
        for bit in range(FORMATS[PRECISIONS[precision].natural_output].bits)
    ]
    planned = []
    for number in range(num):
        # Strides through all cells, so that a short campaign meets all formats.
        precision, bit = cells[number * 25 % len(cells)]
        tests = [t for t, p in OPERATIONS.items() if p == precision]
        planned.append(
            Trial(
                test_id=tests[(number + number // len(cells)) % len(tests)],
                bit=bit,
                device=f"sim:{derive(seed, number, 1) % NUM_DEVICES}",
                seed=derive(seed, number),
            )
        )
    return planned


def setup_for(device_id: str, fault: Fault) -> Setup:
    return Setup(
        backend="torch",
        target=Target(device=SIMULATED[device_id]),
        num_simulated=NUM_DEVICES,
        faults=(fault,),
    )


def run_trial(trial: Trial) -> Finding:
    """Screen every device, then hold what was observed against what was planted."""
    task = Task(id="trial", test_id=trial.test_id, seed=trial.seed, with_selftest=False)
    observed: dict[str, tuple[Observation, ...]] = {}
    hits: list[Activation] = []
    num_rounds = 0
    for device_id in SIMULATED:
        ours, theirs = Pipe()
        worker = Worker(theirs, setup_for(device_id, trial.fault), is_pinned=False)
        result = worker.run(task)
        ours.close()
        theirs.close()
        assert result.reason is None, result.detail
        observed[device_id] = result.observations
        num_rounds = result.num_rounds
        if device_id == trial.device:
            assert isinstance(worker.backend, FaultyBackend)
            hits = worker.backend.activations
    seeds = [derive(trial.seed, 1, number) for number in range(num_rounds)]
    bad = [o for o in observed[trial.device] if o.is_miscompare]
    return Finding(
        trial=trial,
        num_calls=num_rounds * NUM_REPEATS,
        num_hits=len(hits),
        num_masked=sum(is_masked(trial, hit, seeds) for hit in hits),
        num_seen=round(sum(o.value for o in bad)),
        num_false=round(
            sum(o.value for d, os in observed.items() if d != trial.device for o in os)
        ),
        is_named=bool(bad) and all(is_right(trial, o, hits, seeds) for o in bad),
        is_named_but_for_zero=bool(bad)
        and all(is_right(trial, o, hits, seeds, spare=sign_of_zero(o)) for o in bad),
    )


def is_masked(trial: Trial, hit: Activation, seeds: Sequence[int]) -> bool:
    """Whether a hit changed the sign of a zero only. Found by setting that value to zero."""
    if trial.bit != FORMATS[PRECISIONS[trial.precision].natural_output].bits - 1:
        return False
    number, call = divmod(hit.call, NUM_REPEATS)
    probe = Fault(
        kind=FaultKind.NULLIFY,
        site=trial.fault.site,
        index=hit.index,
        calls=(call, call + 1),
    )
    setup = setup_for(trial.device, probe)
    backend = open_for(setup)
    assert isinstance(backend, FaultyBackend)
    bench = Bench(backend=backend, device=setup.target.device)
    registry.by_id(trial.test_id).run(bench, seeds[number])
    return not any(a.is_changed for a in backend.activations)


def is_right(
    trial: Trial,
    seen: Observation,
    hits: Sequence[Activation],
    seeds: Sequence[int],
    *,
    spare: frozenset[int] = frozenset(),
) -> bool:
    """Whether an observation names test, site, device, element and bit of what was planted.

    Bits in `spare` may be named besides.
    """
    found = seen.miscompare
    assert found is not None
    assert seen.seed is not None
    number = seeds.index(seen.seed)
    planted = {hit.index for hit in hits if hit.call // NUM_REPEATS == number}
    return (
        seen.name == trial.test_id
        and seen.site == trial.fault.site
        and {p.device for p in seen.parties} == {trial.device}
        and found.count == 1
        and set(found.positions) <= planted
        and {trial.bit} <= set(found.bits) <= {trial.bit} | spare
    )


def sign_of_zero(seen: Observation) -> frozenset[int]:
    """The sign bit where the right result is a zero, whose sign no kernel promises."""
    found = seen.miscompare
    if found is None or int(found.expected, 16):
        return frozenset()
    return frozenset({FORMATS[found.dtype].bits - 1})


def report(findings: Sequence[Finding]) -> str:
    num_calls = min(f.num_calls for f in findings)
    active = [f for f in findings if f.is_active]
    found = sum(f.is_found for f in findings)
    named = sum(f.is_named for f in findings)
    but_for_zero = sum(f.is_named_but_for_zero for f in findings)
    low, high = interval(found, len(findings))
    low_active, high_active = interval(sum(f.is_found for f in active), len(active))
    hits, seen, masked = (
        sum(getattr(f, name) for f in findings) for name in ("num_hits", "num_seen", "num_masked")
    )
    rows = []
    for precision in dict.fromkeys(OPERATIONS.values()):
        part = [f for f in findings if f.trial.precision == precision]
        if part:
            rows.append(
                [
                    precision,
                    len(part),
                    len({f.trial.bit for f in part}),
                    sum(f.is_found for f in part),
                    sum(f.is_named for f in part),
                    sum(f.num_hits for f in part),
                    sum(f.num_seen for f in part),
                    sum(f.num_masked for f in part),
                ]
            )
    expected = len(findings) * (1 - detection_chance(RATE, num_calls))
    return f"""{result_sheet.header("Flips of a single bit")}
{len(findings)} trials. In each, one of {NUM_DEVICES} simulated devices flips one bit of one element
in one product of {round(1 / RATE)}, and a matmul test of level 1 runs {num_calls} products on each
device, with the seeds of the trial. Every bit of every output format has its turn.

* Found: {found} of {len(findings)} (95 % interval {low:.4f} to {high:.4f}).
* Found where a hit changed a value: {sum(f.is_found for f in active)} of {len(active)}
  ({low_active:.4f} to {high_active:.4f}). Trials that were never hit:
  {sum(not f.num_hits for f in findings)}; hit on the sign of zeros only:
  {sum(bool(f.num_hits) and not f.is_active for f in findings)}.
* Device, test, element and bit named rightly: {named} of {found} found; {but_for_zero} where the
  sign bit may be named besides if the right result is a zero (a kernel may have made it -0).
* Hits: {hits}, of which seen {seen}, masked {masked}, neither {hits - seen - masked}.
* Miscompares of the sound device: {sum(f.num_false for f in findings)}.
* Expected to be missed, (1 - 1/200)^{num_calls} = {1 - detection_chance(RATE, num_calls):.2e} a
  trial: {expected:.2f} trials.

{
        result_sheet.table(
            ["output of", "trials", "bits", "found", "named", "hits", "seen", "masked"], rows
        )
    }
"""


def main() -> None:
    args = result_sheet.arguments(__doc__).parse_args()
    torch.set_num_threads(1)
    num = result_sheet.scaled(NUM_TRIALS, args.scale)
    result_sheet.publish(
        report([run_trial(trial) for trial in trials(num)]), what="flips", args=args
    )


if __name__ == "__main__":
    main()
