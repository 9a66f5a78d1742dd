# SPDX-License-Identifier: Apache-2.0
"""The bench on which a test computes: one device, and the tally of its comparisons."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import numpy as np

from truestep.backends.protocol import Array, Backend, Host
from truestep.device import Device
from truestep.numerics.compare import compare
from truestep.numerics.digest import digest, digest_words
from truestep.observation import Miscompare, Observation, Party, Role
from truestep.reference import Reference, ReferenceKind

COMPARISON = "the comparison itself"
"""Where a miscompare is whose arrays are equal when read back, though the device called them
different: its answer, a `bool`, is what is compared."""


@dataclass(slots=True)
class Tally:
    """Comparisons of one site and value class between the same parties."""

    num_comparisons: int = 0
    num_miscompares: int = 0
    seed: int | None = None
    miscompare: Miscompare | None = None
    coverage: dict[str, dict[str, None]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """What is saved of a miscompare: inputs, the wrong result and the right one."""

    site: str
    seed: int
    arrays: Mapping[str, Host]


class Bench:
    """One device under one test. Results that are handed in are compared and counted.

    Args:
        backend: Computes; a fault may sit beneath it.
        device, unit: Where.
        level: 1 to 4; a test may take larger shapes at a higher one.
        peers: Other devices that copies may go to.
        memory_bytes: What the test may allocate.
        max_failures: How many failures are kept for saving.
        is_blind: Switch the comparison off, to rehearse a broken checker.
        is_digesting: Keep a digest of everything that is put on the device.
    """

    def __init__(
        self,
        *,
        backend: Backend,
        device: Device,
        unit: str = "",
        level: int = 1,
        peers: tuple[Device, ...] = (),
        memory_bytes: int = 1 << 28,
        max_failures: int = 1,
        is_blind: bool = False,
        is_digesting: bool = False,
    ) -> None:
        self.backend = backend
        self.device = device
        self.unit = unit
        self.level = level
        self.peers = peers
        self.memory_bytes = memory_bytes
        self.seed = 0
        self.failures: list[Failure] = []
        self._max_failures = max_failures
        self._is_blind = is_blind
        self._inputs = hashlib.sha256() if is_digesting else None
        self._tallies: dict[tuple[str, str, tuple[Party, ...]], Tally] = {}

    @property
    def num_miscompares(self) -> int:
        """Miscompares so far."""
        return sum(t.num_miscompares for t in self._tallies.values())

    @property
    def num_comparisons(self) -> int:
        """Comparisons so far."""
        return sum(t.num_comparisons for t in self._tallies.values())

    @property
    def inputs_digest(self) -> str:
        """Digest of everything that was put on the device; empty where it was not asked for."""
        return "" if self._inputs is None else self._inputs.hexdigest()

    def put(self, host: Host) -> Array:
        """A copy of a host array on the device."""
        if self._inputs is not None:
            self._inputs.update(digest(host).encode())
        return self.backend.put(host, self.device)

    def check(
        self,
        actual: Array,
        expected: Array,
        *,
        site: str,
        value_class: str = "",
        inputs: Mapping[str, Array] | None = None,
        coverage: Mapping[str, str] | None = None,
        receiver: Device | None = None,
        by_digest: bool = False,
    ) -> bool:
        """Compare a result with its expected value, both on the device; True where equal.

        Args:
            actual: What was computed.
            expected: What is right, in the same dtype and shape.
            site: Operation and precision.
            value_class: Class of the operands.
            inputs: Operands, saved if the result is wrong.
            coverage: What this call covered, by kind: `shape`, `values`, `bytes`.
            receiver: The other end, where data was sent to another device.
            by_digest: Compare digests, each computed where its array lies.
        """
        tally = self._tally(site, value_class, receiver)
        tally.num_comparisons += 1
        for kind, what in (coverage or {}).items():
            tally.coverage.setdefault(kind, {})[what] = None
        if self._is_blind or self._are_equal(actual, expected, by_digest=by_digest):
            return True
        arrays = {**(inputs or {}), "actual": actual, "expected": expected}
        self._keep(tally, self._difference(tally, actual, expected, by_digest), site, arrays)
        return False

    def check_digest(
        self,
        actual: Array,
        *,
        found: str,
        known: str,
        right: Callable[[], Host],
        place: str,
        site: str,
        value_class: str,
        inputs: Mapping[str, Array],
        coverage: Mapping[str, str],
    ) -> bool:
        """Compare the digest of a result with the one that is known; True where equal.

        Args:
            actual: What was computed. Zeros are +0.
            found: Its digest.
            known: The digest that is right.
            right: Computes what is right, to say which bits differ. Called only where they do.
            place: Where in a long computation this is, in words.
            site: Operation and precision.
            value_class: Class of the operands.
            inputs: What it was computed from, saved if it is wrong.
            coverage: What this call covered, by kind.
        """
        tally = self._tally(site, value_class, None)
        tally.num_comparisons += 1
        for kind, what in coverage.items():
            tally.coverage.setdefault(kind, {})[what] = None
        if self._is_blind or found == known:
            return True
        tally.coverage.setdefault("differs_at", {})[place] = None
        expected = right()
        difference = compare(self.backend.get(actual), expected)
        if difference is None:
            # The digest itself was computed wrongly, or the host makes the same mistake again.
            difference = compare(digest_words([found]), digest_words([known]))
        assert difference is not None
        shown = {"actual": actual, "expected": self.backend.put(expected, self.device)}
        self._keep(tally, difference, site, {**inputs, **shown})
        return False

    def check_repeats(
        self,
        compute: Callable[[], Array],
        expected: Array,
        *,
        times: int,
        site: str,
        value_class: str,
        inputs: Mapping[str, Array],
        coverage: Mapping[str, str],
    ) -> None:
        """Compute the same known result many times, and `check` every one of them."""
        for _ in range(times):
            self.check(
                compute(),
                expected,
                site=site,
                value_class=value_class,
                inputs=inputs,
                coverage=coverage,
            )

    def _are_equal(self, actual: Array, expected: Array, *, by_digest: bool) -> bool:
        if not by_digest:
            return self.backend.equal(actual, expected)
        sent, received = self.backend.digest_many([expected]), self.backend.digest_many([actual])
        return sent == received

    def _difference(
        self, tally: Tally, actual: Array, expected: Array, by_digest: bool
    ) -> Miscompare:
        """How two arrays differ that were told apart on the device.

        Raises:
            ValueError: The expected value holds NaN, which equals nothing: no expected value.
        """
        got, known = self.backend.get(actual), self.backend.get(expected)
        if by_digest:
            found = compare(got, known)
        else:
            # Libraries differ in the sign of zero, and `equal` does not look at it. Where the
            # values do differ the bits are kept, so that a value damaged into -0 shows the damaged
            # bit alone.
            found = compare(np.where(got == known, known, got), known)
        if found is not None:
            return found
        if not by_digest and bool((known != known).any()):  # noqa: PLR0124  only NaN differs
            raise ValueError("a check was given an expected value that holds NaN")
        # Equal bits that the device called different: its comparison is what went wrong.
        tally.coverage.setdefault("differs_at", {})[COMPARISON] = None
        answer, right = np.array([False]), np.array([True])
        difference = compare(answer, right)
        assert difference is not None
        return difference

    def _keep(
        self, tally: Tally, found: Miscompare, site: str, arrays: Mapping[str, Array]
    ) -> None:
        tally.num_miscompares += 1
        if tally.miscompare is None:
            tally.miscompare, tally.seed = found, self.seed
        if len(self.failures) < self._max_failures:
            hosts = {name: np.array(self.backend.get(a), copy=True) for name, a in arrays.items()}
            self.failures.append(Failure(site=site, seed=self.seed, arrays=hosts))

    def _tally(self, site: str, value_class: str, receiver: Device | None) -> Tally:
        if receiver is None:
            parties: tuple[Party, ...] = (Party(device=self.device.id, unit=self.unit),)
        else:
            parties = (
                Party(device=self.device.id, unit=self.unit, role=Role.SENDER),
                Party(device=receiver.id, role=Role.RECEIVER),
            )
        return self._tallies.setdefault((site, value_class, parties), Tally())

    def observations(
        self, *, name: str, kind: ReferenceKind, provenance: str, run_id: str
    ) -> tuple[Observation, ...]:
        """The tallies as observations of the test `name`."""
        return tuple(
            Observation(
                name=name,
                reference=Reference(kind=kind, provenance=provenance),
                parties=parties,
                site=site,
                value_class=value_class,
                value=float(tally.num_miscompares),
                num_comparisons=tally.num_comparisons,
                seed=tally.seed,
                miscompare=tally.miscompare,
                coverage={kind: _listed(tally.coverage[kind]) for kind in sorted(tally.coverage)},
                run_id=run_id,
            )
            for (site, value_class, parties), tally in self._tallies.items()
        )


def _listed(values: Mapping[str, None], most: int = 12) -> str:
    shown = list(values)[:most]
    more = len(values) - len(shown)
    return ", ".join(shown) + (f" and {more} more" if more else "")
