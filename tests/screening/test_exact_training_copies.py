# SPDX-License-Identifier: Apache-2.0
"""Equal trainings side by side: the golden of one holds for each."""

from __future__ import annotations

import pytest

from truestep.backends.open import open_backend
from truestep.fault import Fault, FaultKind
from truestep.injection.faulty_backend import FaultyBackend
from truestep.reference import ReferenceKind
from truestep.screening.bench import Bench
from truestep.screening.suite.exact_training import MODES, _Training
from truestep.workloads import exact_goldens
from truestep.workloads.exact_sizes import SIZES

NUM_COPIES = 3


def trained(bench: Bench, precision: str) -> None:
    mode = MODES[precision]
    golden = exact_goldens.load(SIZES["S"], mode.value_class)
    _Training(bench, golden, mode, NUM_COPIES).run()


@pytest.mark.parametrize(("name", "precision"), [("numpy", "fp32"), ("torch", "bf16")])
def test_copies_side_by_side_each_have_the_digests_of_one(name: str, precision: str) -> None:
    pytest.importorskip(name)
    backend = open_backend(name)
    bench = Bench(backend=backend, device=backend.devices()[0])
    trained(bench, precision)
    golden = exact_goldens.load(SIZES["S"], MODES[precision].value_class)
    assert bench.num_comparisons == NUM_COPIES * golden.digests.shape[0] * golden.digests.shape[1]
    assert bench.num_miscompares == 0


def test_a_fault_in_one_copy_is_named_with_its_copy() -> None:
    backend = open_backend("numpy")
    device = backend.devices()[0]
    fault = Fault(kind=FaultKind.FLIP, site="matmul/fp32/forward", bit=0, index=0, calls=(0, 1))
    bench = Bench(backend=FaultyBackend(backend, [fault], device=device), device=device)
    trained(bench, "fp32")
    seen = [
        o
        for o in bench.observations(name="", kind=ReferenceKind.EXACT, provenance="", run_id="")
        if o.is_miscompare
    ]
    assert {o.site for o in seen} >= {"matmul/fp32/forward"}
    places = " ".join(o.coverage["differs_at"] for o in seen)
    assert "step 0 forward table of copy 0" in places
    assert "copy 1" not in places
