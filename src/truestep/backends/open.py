# SPDX-License-Identifier: Apache-2.0
"""Backends by name, each loaded only when it is asked for."""

from __future__ import annotations

from importlib import import_module
from importlib.util import find_spec

from truestep.backends.protocol import Backend
from truestep.errors import ConfigError

MODULES = {
    "numpy": ("truestep.backends.numpy_backend", "NumpyBackend"),
    "torch": ("truestep.backends.torch_backend", "TorchBackend"),
    "jax": ("truestep.backends.jax_backend", "JaxBackend"),
}

EXTRAS = {"numpy": "torch", "torch": "torch", "jax": "xla"}
"""The extra of this package that brings a library."""

AUTO = "auto"


def resolve(name: str) -> str:
    """The backend meant by `auto`: torch where it is installed, else numpy.

    Raises:
        ConfigError: There is no such backend, or its library is not installed.
    """
    if name == AUTO:
        return "torch" if find_spec("torch") else "numpy"
    if name not in MODULES:
        raise ConfigError(f"--backend must be one of auto, {', '.join(MODULES)}, got {name!r}.")
    if not find_spec(name):
        raise ConfigError(
            f"--backend {name} needs the library {name}, which is not installed here. "
            f"Install truestep[{EXTRAS[name]}], or use --backend numpy."
        )
    return name


def open_backend(name: str) -> Backend:
    """The backend of that resolved name, its library loaded."""
    module, attribute = MODULES[name]
    backend: Backend = getattr(import_module(module), attribute)()
    return backend
