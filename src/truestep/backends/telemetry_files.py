# SPDX-License-Identifier: Apache-2.0
"""Readings in files that other tools wrote: DCGM fields, `nvidia-smi` queries and listings.

Fields are accepted by DCGM number (`395`), by DCGM name (`DCGM_FI_DEV_ROW_REMAP_FAILURE`), by the
name in an `nvidia-smi` query (`remapped_rows.failure`, with or without a unit), and by our own
name. Which number is which is easily confused: 393 counts rows remapped for uncorrectable errors,
394 those for correctable ones, 395 says that remapping failed, 396 that it is pending.
"""

from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import Iterable, Mapping
from typing import Any

from truestep.backends.readings import (
    FLAG_READINGS,
    TEXT_READINGS,
    Readings,
    reported,
    reported_number,
)
from truestep.backends.telemetry_nvidia import (
    recovery_action_text,
    throttle_reasons_text,
    total_rows,
)
from truestep.context import decode_reversibly

_FIELDS: tuple[tuple[str, int, str, tuple[str, ...]], ...] = (
    ("device_name", 50, "NAME", ("name", "gpu_name")),
    ("uuid", 54, "UUID", ("uuid", "gpu_uuid")),
    ("mig_mode", 67, "MIG_MODE", ("mig.mode.current",)),
    ("vbios", 85, "VBIOS_VERSION", ("vbios_version",)),
    ("clock_mhz", 100, "SM_CLOCK", ("clocks.sm", "clocks.current.sm")),
    ("memory_clock_mhz", 101, "MEM_CLOCK", ("clocks.mem", "clocks.current.memory")),
    (
        "throttle_reasons",
        112,
        "CLOCKS_EVENT_REASONS",
        (
            "dcgm_fi_dev_clock_throttle_reasons",
            "clocks_event_reasons.active",
            "clocks_throttle_reasons.active",
        ),
    ),
    ("memory_temperature_celsius", 140, "MEMORY_TEMP", ("temperature.memory",)),
    ("temperature_celsius", 150, "GPU_TEMP", ("temperature.gpu",)),
    ("power_watts", 155, "POWER_USAGE", ("power.draw",)),
    ("utilisation_percent", 203, "GPU_UTIL", ("utilization.gpu",)),
    ("memory_utilisation_percent", 204, "MEM_COPY_UTIL", ("utilization.memory",)),
    ("last_xid", 230, "XID_ERRORS", ("xid",)),
    (
        "ecc_corrected_count",
        310,
        "ECC_SBE_VOL_TOTAL",
        ("ecc.errors.corrected.volatile.total",),
    ),
    (
        "ecc_uncorrected_count",
        311,
        "ECC_DBE_VOL_TOTAL",
        ("ecc.errors.uncorrected.volatile.total",),
    ),
    (
        "ecc_corrected_lifetime_count",
        312,
        "ECC_SBE_AGG_TOTAL",
        ("ecc.errors.corrected.aggregate.total",),
    ),
    (
        "ecc_uncorrected_lifetime_count",
        313,
        "ECC_DBE_AGG_TOTAL",
        ("ecc.errors.uncorrected.aggregate.total",),
    ),
    (
        "rows_remapped_uncorrected",
        393,
        "UNCORRECTABLE_REMAPPED_ROWS",
        ("remapped_rows.uncorrectable",),
    ),
    ("rows_remapped_corrected", 394, "CORRECTABLE_REMAPPED_ROWS", ("remapped_rows.correctable",)),
    ("rows_remap_failure", 395, "ROW_REMAP_FAILURE", ("remapped_rows.failure",)),
    ("rows_remap_pending", 396, "ROW_REMAP_PENDING", ("remapped_rows.pending",)),
    (
        "recovery_action",
        1523,
        "GET_GPU_RECOVERY_ACTION",
        ("dcgm_fi_dev_gpu_recovery_action", "gpu_recovery_action", "recovery action"),
    ),
)


def _accepted_names() -> dict[str, str]:
    names = {}
    for reading, number, dcgm, others in _FIELDS:
        for name in (reading, str(number), f"dcgm_fi_dev_{dcgm.casefold()}", *others):
            names[name] = reading
    own = TEXT_READINGS | FLAG_READINGS | {"rows_remapped", "xid_count"}
    return names | {name: name for name in own}


ACCEPTED_NAMES: Mapping[str, str] = _accepted_names()
"""Each field name that is understood, in lower case, to the name of the reading."""

_INDEX_NAMES = ("gpu", "gpu_index", "gpuid", "index")
_TEXT_OF_NUMBER = {
    "recovery_action": recovery_action_text,
    "throttle_reasons": throttle_reasons_text,
}


def readings_from(fields: Mapping[Any, object]) -> Readings:
    """The readings in the fields of one GPU. Unknown fields, such as an overall health, are left.

    Power is in watts, temperatures in degrees Celsius, clocks in MHz, as DCGM has them.
    """
    values: dict[str, object] = {}
    for field, value in fields.items():
        reading = ACCEPTED_NAMES.get(_plain_name(field))
        if reading is not None:
            values[reading] = _in_words(reading, value)
    if values.get("last_xid") in {0, "0"}:
        del values["last_xid"]  # DCGM says 0 where there was none.
    total = total_rows(
        values.get("rows_remapped_corrected"), values.get("rows_remapped_uncorrected")
    )
    if total is not None:
        values["rows_remapped"] = total
    return reported(values)


def read_telemetry(raw: bytes) -> dict[int, Readings]:
    """GPU index to its readings, in a JSON document or in lines of `name: value`.

    JSON holds the fields of one GPU, or a list of such under any name. A GPU that names no index
    gets its place in the list; where an index comes again, later fields win. What cannot be read
    gives no GPU.
    """
    text = raw.removeprefix(b"\xef\xbb\xbf").decode("utf-8", "surrogateescape")
    try:
        entries = _entries(json.loads(text))
    except (ValueError, RecursionError):
        entries = [_pairs(text)]
    found: dict[int, Readings] = {}
    for place, entry in enumerate(entries):
        if entry:
            found.setdefault(_index_in(entry, place), {}).update(readings_from(entry))
    return found


def read_csv(raw: bytes) -> tuple[dict[str, str], ...]:
    """The rows of a CSV file such as `nvidia-smi --format=csv` writes, by column name.

    Guarantees: never raises for what the bytes are; a byte order mark is no part of the first
    name; bytes that are no text are kept as `decode_reversibly` does.
    """
    text = decode_reversibly(raw.removeprefix(b"\xef\xbb\xbf"))
    rows: list[dict[str, str]] = []
    header: list[str] | None = None
    for line in io.StringIO(text):
        cells = _cells(line)
        if not any(cells):
            continue
        if header is None:
            header = cells
        else:
            rows.append(dict(zip(header, cells, strict=False)))
    return tuple(rows)


def _cells(line: str) -> list[str]:
    try:
        row = next(csv.reader([line.rstrip("\r\n")], skipinitialspace=True), [])
    except csv.Error:
        row = line.rstrip("\r\n").split(",")
    return [cell.strip() for cell in row]


def _plain_name(field: object) -> str:
    """A field name without the unit that `nvidia-smi` adds, such as `power.draw [W]`."""
    return re.sub(r"\s*\[[^\]]*\]\Z", "", str(field).strip()).casefold()


def _in_words(reading: str, value: object) -> object:
    """Numbers of actions and reasons as their words; anything else as it is."""
    to_text = _TEXT_OF_NUMBER.get(reading)
    if to_text is None or reported_number("number", value) is None:
        return value
    return to_text(value)


def _entries(document: object) -> list[dict[str, object]]:
    if isinstance(document, list):
        return [_readable(entry) for entry in document if isinstance(entry, dict)]
    if not isinstance(document, dict):
        return []
    lists = [value for value in document.values() if isinstance(value, list)]
    fullest = max(lists, key=_num_understood, default=[])
    return _entries(fullest) if _num_understood(fullest) else [_readable(document)]


def _num_understood(entries: Iterable[object]) -> int:
    """How many fields are understood. Lists of events or processes stand beside that of GPUs."""
    fields = (field for entry in entries if isinstance(entry, dict) for field in entry)
    return sum(_plain_name(field) in ACCEPTED_NAMES for field in fields)


def _readable(entry: Mapping[str, object]) -> dict[str, object]:
    """An entry whose texts hold no half characters."""
    return {
        _reversible(str(name)): _reversible(value) if isinstance(value, str) else value
        for name, value in entry.items()
    }


def _reversible(text: str) -> str:
    try:
        return decode_reversibly(text.encode("utf-8", "surrogateescape"))
    except UnicodeEncodeError:
        return text.encode("utf-8", "backslashreplace").decode("utf-8")


def _pairs(text: str) -> dict[str, object]:
    split = (re.split(r"\s*[:=]\s*", line.strip(), maxsplit=1) for line in text.splitlines())
    return _readable({pair[0]: pair[1] for pair in split if len(pair) == 2})


def _index_in(entry: Mapping[str, object], place: int) -> int:
    plain = {_plain_name(name): value for name, value in entry.items()}
    for name in _INDEX_NAMES:
        number = reported_number("index", plain.get(name))
        if number is not None and number.is_integer():
            return int(number)
    return place
