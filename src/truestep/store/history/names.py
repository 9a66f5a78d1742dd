# SPDX-License-Identifier: Apache-2.0
"""The explicit map: which names are one node, its serial, its rack, and its power domain."""

from __future__ import annotations

import reprlib
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from truestep.errors import ConfigError, RecordError
from truestep.store.durable import read_regular

LIMIT_BYTES = 64 * 2**20
LONGEST_NAME = 255
_FIELDS = ("serial", "aliases", "rack", "power")


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeNames:
    """What the map says of one node.

    Attributes:
        name: What the scheduler calls it.
        serial: Its board serial; in a simulation the one that it shall have. Empty: not said.
        aliases: Other names in evidence: full names, pods.
        rack, power: Where it stands and what feeds it.
    """

    name: str
    serial: str = ""
    aliases: tuple[str, ...] = ()
    rack: str = ""
    power: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class NameMap:
    """The map of a fleet.

    Raises:
        ConfigError: A name, alias or serial stands for two nodes; both are named.
    """

    nodes: tuple[NodeNames, ...] = ()
    _owner: dict[str, str] = field(default_factory=dict, repr=False, compare=False)

    def __post_init__(self) -> None:
        serials: dict[str, str] = {}
        for node in self.nodes:
            for name in dict.fromkeys((node.name, *node.aliases)):
                _claim(self._owner, name, node.name, "name")
            if node.serial:
                _claim(serials, node.serial, node.name, "serial")

    @classmethod
    def read(cls, path: Path) -> NameMap:
        """The map in a TOML file with a table `[nodes.NAME]` for each node.

        Raises:
            ConfigError: The file is no such map, or says two things of one name.
            RecordError: The file cannot be read.
        """
        try:
            data = tomllib.loads(read_regular(path, limit_bytes=LIMIT_BYTES).decode())
        except RecordError:
            raise
        except (OSError, ValueError, RecursionError) as error:
            raise ConfigError(
                f"{path} must be a TOML file in UTF-8, got: {error}. Write one table "
                '[nodes.NAME] for each node, with serial = "...", aliases = ["..."].'
            ) from error
        tables = data.get("nodes")
        if not isinstance(tables, dict) or data.keys() != {"nodes"}:
            raise ConfigError(
                f"{path} must hold the table `nodes` alone, got {sorted(data)}. "
                "Write one table [nodes.NAME] for each node."
            )
        return cls(nodes=tuple(_node_names(name, table) for name, table in tables.items()))


def is_sound_name(text: object) -> bool:
    """Whether text may be a name or serial: printable, short, no spaces at its ends."""
    return (
        isinstance(text, str)
        and 0 < len(text) <= LONGEST_NAME
        and text.isprintable()
        and text == text.strip()
    )


def _claim(owners: dict[str, str], name: str, node: str, what: str) -> None:
    other = owners.setdefault(name, node)
    if other != node:
        raise ConfigError(
            f"a {what} must belong to one node, got {name!r} for both {other!r} and {node!r}. "
            "Give each node its own."
        )


def _node_names(name: str, table: Any) -> NodeNames:
    if not isinstance(table, Mapping) or not table.keys() <= set(_FIELDS):
        raise ConfigError(
            f"[nodes.{name!r}] must hold some of {', '.join(_FIELDS)}, got {reprlib.repr(table)}."
        )
    aliases = table.get("aliases", [])
    texts = [table[f] for f in ("serial", "rack", "power") if f in table]
    if not isinstance(aliases, list) or not all(map(is_sound_name, [name, *texts, *aliases])):
        raise ConfigError(
            f"[nodes.{name!r}] must hold printable text of at most {LONGEST_NAME} characters, and "
            f"aliases a list of it, got {reprlib.repr(table)}."
        )
    return NodeNames(
        name=name,
        serial=table.get("serial", ""),
        aliases=tuple(aliases),
        rack=table.get("rack", ""),
        power=table.get("power", ""),
    )
