# SPDX-License-Identifier: Apache-2.0
"""What `--simulate` takes: `flip:matmul/fp32,rate=0.005,bit=3`, or `blind`."""

from __future__ import annotations

from collections.abc import Iterable

from truestep.errors import ConfigError
from truestep.fault import Fault, FaultKind

BLIND = "blind"

_NUMBERS = {"rate": float, "factor": float, "bit": int, "index": int, "seed": int}
_NAMES = ("device", "unit")


def parse(texts: Iterable[str]) -> tuple[tuple[Fault, ...], bool]:
    """The faults that are asked for, and whether the comparison is to be switched off.

    Raises:
        ConfigError: A text is not of the form KIND:SITE[,NAME=VALUE...].
    """
    wanted = list(texts)
    faults = tuple(_fault(t) for t in wanted if t != BLIND)
    return faults, BLIND in wanted


def _fault(text: str) -> Fault:
    kind, colon, rest = text.partition(":")
    site, *options = rest.split(",")
    kinds = [k.value for k in FaultKind]
    if not colon or kind not in kinds or not site:
        raise ConfigError(
            f"--simulate must be {BLIND} or KIND:SITE[,NAME=VALUE...] with KIND one of "
            f"{', '.join(kinds)}, got {text!r}. An example is flip:matmul/fp32,rate=0.005."
        )
    return _build(kind, site, options, text)


def _build(kind: str, site: str, options: list[str], text: str) -> Fault:
    values: dict[str, float | int | str] = {}
    for option in options:
        name, equals, value = option.partition("=")
        if not equals or name not in (*_NUMBERS, *_NAMES):
            raise ConfigError(
                f"an option of --simulate must be one of {', '.join((*_NUMBERS, *_NAMES))} with a "
                f"value, got {option!r} in {text!r}."
            )
        try:
            values[name] = value if name in _NAMES else _NUMBERS[name](value)
        except ValueError:
            raise ConfigError(f"{name} must be a number, got {value!r} in {text!r}.") from None
    try:
        return Fault(kind=FaultKind(kind), site=site, **values)  # type: ignore[arg-type]
    except ValueError as error:
        raise ConfigError(f"{error} The text was {text!r}.") from None
