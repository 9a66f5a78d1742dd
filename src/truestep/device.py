# SPDX-License-Identifier: Apache-2.0
"""Who is under test: `Device` and the `Node` it sits in."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """A machine. Its identity is the board serial; all other names are weak.

    Host name and machine id are shared by cloned images and changed by stateless ones, so they
    identify a node only where no board serial can be read (`is_weak`).
    """

    name: str
    board_serial: str = ""
    machine_id: str = ""

    @property
    def is_weak(self) -> bool:
        """Whether this identity may be shared by two machines or change on one."""
        return not self.board_serial

    @property
    def identity(self) -> str:
        """The strongest name known: board serial, else machine id, else host name."""
        return self.board_serial or self.machine_id or self.name


@dataclass(frozen=True, slots=True, kw_only=True)
class Device:
    """A device under test, addressed as `id` in this run and known by `serial` for life.

    Attributes:
        id: Address in this run, such as `cuda:0` or `cpu:0` (a socket).
        kind: `cpu`, `cuda`, `rocm` or `xla`.
        model: What the vendor calls it.
        serial: Device serial or UUID. Empty when it is not reported.
        units: Units that can be addressed alone and serve as each other's contrast: the granted
            cores of a socket. Empty when the device has none.
        firmware: VBIOS or microcode revision. Empty when it is not reported.
        is_partial: Only a part of the silicon is visible (a MIG slice, some cores of a socket).
        is_simulated: Invented for a rehearsal. Its records never enter a real fleet.
    """

    id: str
    kind: str
    model: str
    serial: str = ""
    units: tuple[str, ...] = ()
    firmware: str = ""
    is_partial: bool = False
    is_simulated: bool = False

    @property
    def is_weak(self) -> bool:
        """Whether no serial is known, so that a mark cannot follow the device."""
        return not self.serial

    def identity_in(self, node: Node) -> str:
        """The serial, else a weak name made of the node's identity and the address."""
        return self.serial or f"{node.identity}/{self.id}"
