# SPDX-License-Identifier: Apache-2.0
"""Inputs and outputs of a failure, kept bit for bit beside its record.

`<name>.safetensors` holds the arrays as unsigned words, because that format and NumPy lack some
element types; `<name>.json` names the element types, says what was cut, and holds the checksum of
the data. The JSON is written last: without it there is no evidence. Nothing is ever pickled.
"""

from __future__ import annotations

import hashlib
import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import safetensors
import safetensors.numpy

from truestep.errors import RecordError
from truestep.observation import Miscompare
from truestep.record import Artifact
from truestep.store.block import Array, Kept, cut
from truestep.store.durable import (
    make_folder,
    read_regular,
    refused_as_record_error,
    write_atomically,
)
from truestep.store.schema import dumps, from_plain, loads

SCHEMA_VERSION = 1
LIMIT_BYTES = 64 * 2**20
HEADER_LIMIT_BYTES = 2**20

_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.+-]{0,199}")
_ARRAY_NAME = re.compile(r"(?!__metadata__$)[A-Za-z0-9_][A-Za-z0-9_.+/-]{0,199}")
_NUMPY = (
    *("bool", "float16", "float32", "float64", "complex64", "complex128"),
    *("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"),
)
_ML_DTYPES = tuple(
    name for name in dir(ml_dtypes) if re.fullmatch(r"bfloat16|float[468]_\w+|u?int[124]", name)
)
_DTYPES = {name: np.dtype(name) for name in _NUMPY} | {
    name: np.dtype(getattr(ml_dtypes, name)) for name in _ML_DTYPES
}
_WORDS = {1: "U8", 2: "U16", 4: "U32", 8: "U64"}


@dataclass(frozen=True, slots=True, kw_only=True)
class _Sheet:
    """What stands in the JSON file, `meta` apart."""

    schema_version: int
    sha256: str
    size_bytes: int
    arrays: Mapping[str, Kept]


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """Arrays and what was said of them.

    Attributes:
        arrays: Name to array, with the bits and the element type that were saved.
        meta: Plain data. A float that is not finite comes back as text.
        kept: Name to how the array was kept, those left out included.
    """

    arrays: Mapping[str, Array]
    meta: Mapping[str, Any]
    kept: Mapping[str, Kept] = field(default_factory=dict)


def save(
    folder: Path | str,
    name: str,
    arrays: Mapping[str, Array],
    meta: Mapping[str, Any],
    *,
    miscompare: Miscompare | None = None,
    limit_bytes: int = LIMIT_BYTES,
) -> tuple[Artifact, Artifact]:
    """Write arrays and meta as two files, mode 0600, each whole or not at all.

    Args:
        folder: Where to write. Made if missing.
        name: Name of both files, without an ending.
        arrays: Name to array of any shape, element types as in `ml_dtypes` included.
        meta: Plain data about them.
        miscompare: Where they differ. An array of its shape that is too large is cut to a block
            round its first difference.
        limit_bytes: Most that all arrays together may take. Where they do not fit, each has an
            equal share, and one above its share is cut or left out; `Evidence.kept` says so.

    Returns:
        Both files as artifacts, named relative to `folder`: data, then JSON.

    Raises:
        RecordError: The name could leave the folder, evidence of this name exists, an element type
            has no fixed bits, meta is no plain data, or the disk refuses.

    Guarantees:
        `load` gives every kept element bit for bit, and the files are equal for equal arguments.
    """
    if not _NAME.fullmatch(name):
        raise RecordError(
            f"name must be letters, digits and _ . + - and not begin with a dot, got {name!r}. "
            "Use the id of the record."
        )
    data_path, sheet_path = Path(folder) / f"{name}.safetensors", Path(folder) / f"{name}.json"
    found = {key: _checked(key, np.asarray(array)) for key, array in arrays.items()}
    blocks, kept = cut(found, miscompare, limit_bytes=limit_bytes)
    data = safetensors.numpy.save({key: _words_of(block) for key, block in blocks.items()})
    sheet = _Sheet(
        schema_version=SCHEMA_VERSION,
        sha256=hashlib.sha256(data).hexdigest(),
        size_bytes=len(data),
        arrays=kept,
    )
    text = (dumps({"sheet": sheet, "meta": meta}) + "\n").encode()
    _check_header(data)
    if len(text) > LIMIT_BYTES:
        raise RecordError(
            f"meta must fit in {LIMIT_BYTES} bytes, got {len(text)}. Move arrays out of it."
        )
    with refused_as_record_error(data_path, "This evidence was not kept. Free the disk."):
        make_folder(Path(folder))
        if sheet_path.is_symlink() or sheet_path.exists():
            raise RecordError(
                f"{sheet_path} must not exist, got evidence of that name. Use another name."
            )
        write_atomically(data_path, data)
        write_atomically(sheet_path, text)
    return Artifact.of(data_path.name, data), Artifact.of(sheet_path.name, text)


def load(
    path: Path | str, *, artifacts: Iterable[Artifact] = (), limit_bytes: int = 2 * LIMIT_BYTES
) -> Evidence:
    """Read evidence, given the path of either file.

    Args:
        path: `<name>.json` or `<name>.safetensors`.
        artifacts: What the record says of the files; those named here must agree.
        limit_bytes: Largest file that is read.

    Raises:
        RecordError: A file is missing, is no regular file, is too large, does not match its
            checksum, or does not hold what it must.
    """
    path = Path(path)
    if path.suffix not in (".json", ".safetensors") or ".." in path.parts:
        raise RecordError(
            f"path must end in .json or .safetensors and not climb by .., got {str(path)!r}. "
            "Name one of the two files."
        )
    sheet_path, data_path = path.with_suffix(".json"), path.with_suffix(".safetensors")
    with refused_as_record_error(sheet_path, "Both files must lie side by side; copy them again."):
        text = read_regular(sheet_path, limit_bytes=limit_bytes)
        data = read_regular(data_path, limit_bytes=limit_bytes)
    for artifact in artifacts:
        for found in (Artifact.of(sheet_path.name, text), Artifact.of(data_path.name, data)):
            if Path(artifact.name).name == found.name and artifact.sha256 != found.sha256:
                raise _damaged(found.name, f"sha256 {artifact.sha256}", found.sha256)
    sheet, meta = _read_sheet(text)
    if Artifact.of("", data) != Artifact(name="", sha256=sheet.sha256, size_bytes=sheet.size_bytes):
        raise _damaged(data_path.name, f"sha256 {sheet.sha256}", "other bytes")
    return Evidence(arrays=_read_arrays(data, sheet.arrays), meta=meta, kept=sheet.arrays)


def _damaged(what: str, must: str, got: object) -> RecordError:
    return RecordError(f"{what} must have {must}, got {got}. Restore it from a copy.")


def _checked(name: str, array: Array) -> Array:
    """The array, if its name and element type can be kept."""
    if not _ARRAY_NAME.fullmatch(name):
        raise RecordError(
            f"an array's name must be letters, digits and _ . + / -, got {name!r}. Rename it."
        )
    if _DTYPES.get(array.dtype.name) != array.dtype.newbyteorder("="):
        raise RecordError(
            f"array {name!r} must have a numeric element type of fixed bits, got {array.dtype}. "
            "Convert it first."
        )
    return array


def _words_of(array: Array) -> Array:
    """The bits as unsigned words of the same width, little-endian; 16-byte types as two words."""
    native = array if array.dtype.isnative else array.byteswap().view(array.dtype.newbyteorder("="))
    # As raw bytes, because copying a boolean array by value mends a damaged boolean.
    raw = native.view(np.dtype((np.void, native.itemsize))).tobytes()
    words: Array = np.frombuffer(raw, dtype=f"u{min(8, native.itemsize)}")
    return words


def _read_sheet(text: bytes) -> tuple[_Sheet, Mapping[str, Any]]:
    plain = loads(text)
    if not isinstance(plain, dict) or not isinstance(plain.get("meta"), dict):
        raise RecordError("evidence must be an object with sheet and meta, got other JSON.")
    sheet = from_plain(_Sheet, plain.get("sheet"))
    if sheet.schema_version > SCHEMA_VERSION:
        raise RecordError(
            f"schema_version must be at most {SCHEMA_VERSION}, got {sheet.schema_version}. "
            "Upgrade truestep to read evidence of a newer version."
        )
    return sheet, plain["meta"]


def _read_arrays(data: bytes, kept: Mapping[str, Kept]) -> dict[str, Array]:
    found = _deserialize(data)
    expected = {name for name, each in kept.items() if each.box is not None}
    if found.keys() != expected:
        raise _damaged("evidence", f"arrays {sorted(expected)}", sorted(found))
    return {name: _read_array(name, found[name], kept[name]) for name in sorted(expected)}


def _deserialize(data: bytes) -> dict[str, Mapping[str, Any]]:
    _check_header(data)
    try:
        return dict(safetensors.deserialize(data))  # type: ignore[no-untyped-call]
    except Exception as error:  # which errors the library raises on hostile bytes is no contract
        raise _damaged("evidence", "the safetensors format", error) from error


def _check_header(data: bytes) -> None:
    # The library takes headers of 100 MB; ours hold a few names.
    header_bytes = int.from_bytes(data[:8], "little")
    if not 0 < header_bytes <= min(HEADER_LIMIT_BYTES, len(data) - 8):
        raise _damaged("evidence", f"a header of at most {HEADER_LIMIT_BYTES} bytes", header_bytes)


def _read_array(name: str, found: Mapping[str, Any], kept: Kept) -> Array:
    dtype = _DTYPES.get(kept.dtype)
    if dtype is None:
        raise _damaged(f"array {name!r}", "a known element type", kept.dtype)
    box = kept.box or ()
    if len(box) != len(kept.shape) or not all(
        0 <= start <= stop <= extent for (start, stop), extent in zip(box, kept.shape, strict=True)
    ):
        raise _damaged(f"array {name!r}", f"a box within {kept.shape}", box)
    raw, shape = bytes(found["data"]), tuple(stop - start for start, stop in box)
    is_words = found["dtype"] == _WORDS[min(8, dtype.itemsize)]
    if not is_words or len(raw) != dtype.itemsize * math.prod(shape):
        raise _damaged(f"array {name!r}", f"the words of {kept.dtype} {shape}", found["dtype"])
    array: Array = np.frombuffer(raw, dtype=dtype.newbyteorder("<")).reshape(shape)
    return array
