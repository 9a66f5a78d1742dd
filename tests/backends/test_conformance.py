# SPDX-License-Identifier: Apache-2.0
"""Every backend keeps the promises of the protocol, and so does what wraps one."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from truestep.backends.open import MODULES, open_backend
from truestep.backends.protocol import Backend
from truestep.device import Device
from truestep.injection.faulty_backend import FaultyBackend
from truestep.injection.simulated_devices import SimulatedDevices

with pytest.MonkeyPatch.context() as patch:
    # The folder is no package, and pytest imports test files only.
    patch.syspath_prepend(Path(__file__).parent)
    import conformance


def _opened(name: str) -> Backend:
    if name not in sys.modules:
        pytest.importorskip(name)
    return open_backend(name)


def _plain(name: str) -> Backend:
    return _opened(name)


def _faulty(name: str) -> Backend:
    backend = _opened(name)
    return FaultyBackend(backend, (), device=backend.devices()[0])


def _simulated(name: str) -> Backend:
    return SimulatedDevices(_opened(name), 3)


WRAPPERS = {"plain": _plain, "faulty": _faulty, "simulated": _simulated}


@pytest.mark.parametrize("claim", conformance.CLAIMS, ids=lambda claim: claim.__name__)
@pytest.mark.parametrize("wrapper", WRAPPERS)
@pytest.mark.parametrize("name", MODULES)
def test_the_protocol_is_kept(name: str, wrapper: str, claim: conformance.Claim) -> None:
    if name == "jax" and wrapper != "plain":
        pytest.skip("XLA compiles each shape anew: what wraps it is tried on the other libraries")
    backend = WRAPPERS[wrapper](name)
    claim(backend, backend.devices()[0])


@pytest.mark.gpu
@pytest.mark.parametrize("claim", conformance.CLAIMS, ids=lambda claim: claim.__name__)
def test_the_protocol_is_kept_on_every_accelerator(claim: conformance.Claim) -> None:
    backend = _opened("torch")
    accelerators = [d for d in backend.devices() if d.kind != "cpu"]
    if not accelerators:
        pytest.skip("there is no accelerator here")
    for device in accelerators:
        claim(backend, device)


def test_every_claim_is_listed() -> None:
    own = {
        value
        for name, value in vars(conformance).items()
        if callable(value) and getattr(value, "__annotations__", {}).get("device") == "Device"
    }
    listed = set(conformance.CLAIMS)
    assert {f.__name__ for f in own - listed} == {"formats_of", "floats_of"}


def test_determinism_is_asked_for_within() -> None:
    torch = pytest.importorskip("torch")
    backend = open_backend("torch")
    with backend.deterministic():
        assert torch.are_deterministic_algorithms_enabled()
    assert not torch.are_deterministic_algorithms_enabled()


def test_the_number_of_threads_is_part_of_the_environment() -> None:
    torch = pytest.importorskip("torch")
    backend = open_backend("torch")
    device: Device = backend.devices()[0]
    before, threads = backend.environment(device), torch.get_num_threads()
    try:
        torch.set_num_threads(threads + 1)
        assert backend.environment(device).key != before.key
    finally:
        torch.set_num_threads(threads)
    assert backend.environment(device) == before
