# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import pytest

from rehearsal import server
from truestep.device import Device
from truestep.errors import BackendError
from truestep.screening.probe import probe
from truestep.screening.tasks import Setup, Target

NOWHERE = Target(device=Device(id="", kind="cpu", model=""))
NEEDS = (("matmul", "fp32"), ("matmul", "bf16"), ("cast", "bfloat16"))


def test_devices_are_found_with_what_they_can_do():
    (one, two) = probe(server(), Setup(backend="numpy", target=NOWHERE, num_simulated=2), NEEDS)
    assert (one.device.id, two.device.id) == ("sim:0", "sim:1")
    assert one.device.is_simulated
    assert one.supported == {("matmul", "fp32"), ("cast", "bfloat16")}
    assert one.environment.entries["backend"] == "numpy"


def test_a_library_that_cannot_be_loaded_is_an_error_that_says_so():
    with pytest.raises(BackendError, match=r"could not list its devices\. It raised"):
        probe(server(), Setup(backend="no_such_library", target=NOWHERE), ())
