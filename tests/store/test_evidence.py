# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import io
import json
import os
import pickle
import struct
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as st_numpy

import truestep as ts
from truestep.errors import RecordError
from truestep.observation import Change, Spread
from truestep.store import evidence
from truestep.store.evidence import HEADER_LIMIT_BYTES, load, save

DTYPES = sorted(evidence._DTYPES)
FULL_DISK = """
import resource, sys
import numpy as np
from truestep.errors import RecordError
from truestep.store.evidence import save
resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))
try:
    save(sys.argv[1], "r", {"actual": np.ones(1000)}, {})
except RecordError as error:
    print(error)
"""


def bits(array: np.ndarray) -> tuple[object, tuple[int, ...], bytes]:
    return array.dtype, array.shape, array.tobytes()


def files_in(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def miscompare(shape: tuple[int, ...], first: tuple[int, ...], box: object = None) -> ts.Miscompare:
    return ts.Miscompare(
        dtype="float32",
        shape=shape,
        count=1,
        first=first,
        box=box or tuple((at, at + 1) for at in first),
        spread=Spread.SINGLE,
        change=Change.MANTISSA,
        xor_mask=1,
        xor_common=1,
        positions=(),
        actual="0",
        expected="1",
    )


@pytest.fixture
def saved(tmp_path):
    arrays = {"actual": np.arange(6.0).reshape(2, 3), "expected": np.zeros((2, 3))}
    save(tmp_path, "r", arrays, {"seed": 2**64, "loss": float("nan")})
    return tmp_path / "r.json"


@pytest.mark.parametrize("name", DTYPES)
@settings(max_examples=25)
@given(data=st.data())
def test_every_element_type_survives_bit_for_bit(tmp_path_factory, name, data):
    dtype = evidence._DTYPES[name]
    shape = data.draw(st_numpy.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=4))
    length = int(np.prod(shape)) * dtype.itemsize
    raw = data.draw(st.binary(min_size=length, max_size=length))
    array = np.frombuffer(raw, dtype=dtype).reshape(shape)
    folder = tmp_path_factory.mktemp("evidence")
    save(folder, "r", {"actual": array}, {})
    assert bits(load(folder / "r.json").arrays["actual"]) == bits(array)


def test_the_element_types_of_the_accelerators_are_among_them():
    wanted = {
        "bfloat16",
        "float8_e4m3fn",
        "float8_e5m2",
        "float8_e4m3fnuz",
        "float4_e2m1fn",
        "int4",
    }
    assert wanted <= set(DTYPES)


def test_a_damaged_boolean_is_not_mended(tmp_path):
    damaged = np.array([0, 1, 2, 255], dtype=np.uint8).view(np.bool_)
    save(tmp_path, "r", {"all": damaged, "one": damaged[2, ...], "strided": damaged[::-2]}, {})
    arrays = load(tmp_path / "r.json").arrays
    assert arrays["all"].tobytes() == b"\x00\x01\x02\xff"
    assert arrays["one"].tobytes() == b"\x02"
    assert arrays["strided"].tobytes() == b"\xff\x01"


def test_views_and_foreign_byte_order_are_kept_by_value(tmp_path):
    base = np.arange(24, dtype=np.float32).reshape(4, 6)
    arrays = {
        "transposed": base.T,
        "strided": base[::2, ::-3],
        "big_endian": base.astype(">f4"),
        "bfloat16": base.astype(ml_dtypes.bfloat16)[:, 1],
    }
    save(tmp_path, "r", arrays, {})
    for name, array in load(tmp_path / "r.json").arrays.items():
        np.testing.assert_array_equal(array, arrays[name])
        assert array.dtype.name == arrays[name].dtype.name


def test_artifacts_name_both_files_with_checksum_and_size(tmp_path):
    artifacts = save(tmp_path / "new", "r.1", {"a": np.ones(3)}, {})
    assert [each.name for each in artifacts] == ["r.1.safetensors", "r.1.json"]
    for each in artifacts:
        path = tmp_path / "new" / each.name
        assert hashlib.sha256(path.read_bytes()).hexdigest() == each.sha256
        assert path.stat().st_size == each.size_bytes
        assert path.stat().st_mode & 0o777 == 0o600
    assert files_in(tmp_path / "new") == ["r.1.json", "r.1.safetensors"]
    assert load(tmp_path / "new" / "r.1.safetensors", artifacts=artifacts).arrays.keys() == {"a"}


def test_equal_arguments_give_equal_files(tmp_path):
    arrays = {name: np.arange(4, dtype=name) for name in ("uint8", "float64", "int16")}
    first = save(tmp_path / "a", "r", arrays, {"x": 1})
    second = save(tmp_path / "b", "r", dict(reversed(arrays.items())), {"x": 1})
    assert first == second


def test_meta_comes_back_with_large_integers_and_signals(saved):
    assert load(saved).meta == {"seed": 2**64, "loss": "NaN"}


def test_evidence_is_never_overwritten(saved, tmp_path):
    before = saved.read_bytes()
    with pytest.raises(RecordError, match="must not exist"):
        save(tmp_path, "r", {"actual": np.ones(1)}, {})
    assert saved.read_bytes() == before


def test_arrays_that_fit_are_whole(saved):
    assert all(kept.is_whole for kept in load(saved).kept.values())


def test_an_array_above_its_share_is_cut_round_the_first_difference(tmp_path):
    actual = np.arange(4096, dtype=np.float32).reshape(64, 64)
    found = miscompare((64, 64), (5, 60), box=((5, 50), (3, 64)))
    arrays = {"actual": actual, "expected": actual + 1, "small": np.ones(4, np.float32)}
    save(tmp_path, "r", arrays, {}, miscompare=found, limit_bytes=3000)
    loaded = load(tmp_path / "r.json")
    for name in ("actual", "expected"):
        kept = loaded.kept[name]
        (r0, r1), (c0, c1) = kept.box
        assert 5 <= r0 <= 5 < r1 <= 50
        assert 3 <= c0 <= 60 < c1 <= 64
        assert kept.shape == (64, 64)
        assert not kept.is_whole
        np.testing.assert_array_equal(loaded.arrays[name], arrays[name][r0:r1, c0:c1])
        assert loaded.arrays[name].nbytes <= 1000
    assert loaded.kept["small"].is_whole


def test_an_array_that_cannot_be_cut_is_left_out_and_named(tmp_path):
    arrays = {"input": np.ones(1000), "seed": np.ones(1, np.int64)}
    save(tmp_path, "r", arrays, {}, limit_bytes=100)
    loaded = load(tmp_path / "r.json")
    assert loaded.arrays.keys() == {"seed"}
    assert loaded.kept["input"].box is None
    assert loaded.kept["input"].shape == (1000,)


@given(st.integers(0, 400), st.integers(0, 2**32))
def test_kept_arrays_never_exceed_the_limit_and_hold_the_first_difference(
    tmp_path_factory, limit, seed
):
    draw = np.random.default_rng(seed)
    shape = tuple(int(n) for n in draw.integers(1, 7, size=3))
    first = tuple(int(draw.integers(n)) for n in shape)
    found = miscompare(shape, first, box=tuple((0, n) for n in shape))
    arrays = {"actual": np.ones(shape), "expected": np.ones(shape)}
    folder = tmp_path_factory.mktemp("evidence")
    save(folder, "r", arrays, {}, miscompare=found, limit_bytes=limit)
    loaded = load(folder / "r.json")
    assert sum(array.nbytes for array in loaded.arrays.values()) <= limit
    for kept in loaded.kept.values():
        if kept.box is not None:
            assert all(
                start <= at < stop for at, (start, stop) in zip(first, kept.box, strict=True)
            )
    assert len(loaded.arrays) == (2 if limit >= 16 else 0)


@pytest.mark.parametrize("name", ["", "../r", "a/b", ".r", "/r", "a\0", "a b", "r\n", "x" * 300])
def test_a_name_that_could_leave_the_folder_is_refused(tmp_path, name):
    with pytest.raises(RecordError, match="name must be"):
        save(tmp_path, name, {}, {})
    assert files_in(tmp_path) == []


@pytest.mark.parametrize("name", ["", "__metadata__", "a b", "\ud800", "a\n"])
def test_an_array_name_that_cannot_be_kept_is_refused(tmp_path, name):
    with pytest.raises(RecordError, match="array's name must be"):
        save(tmp_path, "r", {name: np.ones(1)}, {})


class Bomb:
    def __reduce__(self) -> object:
        return os._exit, (86,)


@pytest.mark.parametrize(
    "array",
    [
        np.array([Bomb()], dtype=object),
        np.array(["text"]),
        np.array([b"bytes"]),
        np.array(["2026-12-01"], dtype="datetime64[s]"),
        np.zeros(2, dtype=[("a", "f4")]),
        np.zeros(2, dtype=np.longdouble),
    ],
    ids=lambda array: str(array.dtype),
)
def test_element_types_without_fixed_bits_are_refused(tmp_path, array):
    with pytest.raises(RecordError, match="numeric element type"):
        save(tmp_path, "r", {"a": array}, {})
    assert files_in(tmp_path) == []


def test_meta_that_is_no_plain_data_is_refused(tmp_path):
    with pytest.raises(RecordError, match="plain data"):
        save(tmp_path, "r", {}, {"x": object()})
    assert files_in(tmp_path) == []


def test_more_names_than_a_reader_takes_are_not_written(tmp_path):
    arrays = {f"a{i}" + "x" * 190: np.ones(1, np.uint8) for i in range(5000)}
    with pytest.raises(RecordError, match="header"):
        save(tmp_path, "r", arrays, {})


def test_a_full_disk_leaves_no_evidence_and_no_draft(tmp_path, run_python):
    assert "must be usable" in run_python(FULL_DISK, tmp_path)
    assert files_in(tmp_path) == []


@pytest.mark.parametrize("ending", [".json", ".safetensors"])
def test_a_flipped_bit_in_either_file_is_found(saved, tmp_path, ending):
    artifacts = tuple(
        ts.Artifact(
            name=path.name, sha256=hashlib.sha256(path.read_bytes()).hexdigest(), size_bytes=0
        )
        for path in (saved, saved.with_suffix(".safetensors"))
    )
    path = saved.with_suffix(ending)
    whole = path.read_bytes()
    for at in range(len(whole)):
        damaged = bytearray(whole)
        damaged[at] ^= 1 << at % 8
        path.write_bytes(damaged)
        with pytest.raises(RecordError):
            load(saved, artifacts=artifacts)
        if ending == ".safetensors":
            with pytest.raises(RecordError):
                load(saved)


def test_a_cut_file_is_found(saved):
    data = saved.with_suffix(".safetensors")
    whole = data.read_bytes()
    for cut in range(len(whole)):
        data.write_bytes(whole[:cut])
        with pytest.raises(RecordError):
            load(saved)


@pytest.mark.parametrize("ending", [".json", ".safetensors"])
def test_a_missing_linked_or_oversized_file_is_refused(saved, tmp_path, ending):
    path = saved.with_suffix(ending)
    with pytest.raises(RecordError, match="at most"):
        load(saved, limit_bytes=50)
    path.rename(tmp_path / "elsewhere")
    with pytest.raises(RecordError):
        load(saved)
    path.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(RecordError, match="regular file"):
        load(saved)


@pytest.mark.parametrize("path", ["r", "r.txt", "../r.json", "a/../../r.json"])
def test_a_path_that_climbs_or_names_another_kind_of_file_is_refused(path):
    with pytest.raises(RecordError, match="path must end"):
        load(path)


def forge(folder, data: bytes, **changes: object):
    """Write evidence whose checksum is right, whatever the data."""
    kept = {"a": {"dtype": "float32", "shape": [2], "box": [[0, 2]]}}
    sheet = {
        "schema_version": 1,
        "sha256": hashlib.sha256(data).hexdigest(),
        "size_bytes": len(data),
        "arrays": kept,
    }
    (folder / "r.safetensors").write_bytes(data)
    (folder / "r.json").write_text(json.dumps({"sheet": sheet | changes, "meta": {}}))
    return folder / "r.json"


def container(header: object, body: bytes = b"", *, claimed: int | None = None) -> bytes:
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return struct.pack("<Q", len(text) if claimed is None else claimed) + text + body


GOOD = {"a": {"dtype": "U32", "shape": [2], "data_offsets": [0, 8]}}


def test_what_the_forge_makes_is_sound_when_nothing_is_changed(tmp_path):
    assert load(forge(tmp_path, container(GOOD, b"\0" * 8))).arrays["a"].shape == (2,)


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\0" * 8,
        container(GOOD, b"\0" * 8, claimed=2**63),
        container(GOOD, b"\0" * 8, claimed=2**64 - 1),
        container(b" " * (HEADER_LIMIT_BYTES + 1)),
        container(GOOD, b"\0" * 4),
        container({"b": GOOD["a"]}, b"\0" * 8),
        container({"a": GOOD["a"] | {"dtype": "F32"}}, b"\0" * 8),
        container({"a": GOOD["a"] | {"dtype": "Q"}}, b"\0" * 8),
        container({"a": GOOD["a"] | {"shape": [2**63, 2**63]}}, b"\0" * 8),
        container({"a": GOOD["a"] | {"shape": [-2]}}, b"\0" * 8),
        container({"a": GOOD["a"] | {"data_offsets": [0, 2**40]}}, b"\0" * 8),
        container({"a": GOOD["a"] | {"data_offsets": [8, 0]}}, b"\0" * 8),
        container(b"[" * 50_000),
        container(b"\xff" * 40),
        pickle.dumps(Bomb()),
    ],
)
def test_hostile_containers_with_a_right_checksum_are_refused(tmp_path, data):
    with pytest.raises(RecordError):
        load(forge(tmp_path, data))


@pytest.mark.parametrize(
    "changes",
    [
        {"arrays": {}},
        {"arrays": []},
        {"arrays": {"a": {"dtype": "object", "shape": [2], "box": [[0, 2]]}}},
        {"arrays": {"a": {"dtype": "O", "shape": [2], "box": [[0, 2]]}}},
        {"arrays": {"a": {"dtype": "float64", "shape": [2], "box": [[0, 2]]}}},
        {"arrays": {"a": {"dtype": "float32", "shape": [2], "box": [[0, 3]]}}},
        {"arrays": {"a": {"dtype": "float32", "shape": [2], "box": [[2, 0]]}}},
        {"arrays": {"a": {"dtype": "float32", "shape": [2], "box": [[0, 1]]}}},
        {"arrays": {"a": {"dtype": "float32", "shape": [2], "box": [[0, 2], [0, 1]]}}},
        {"arrays": {"a": {"dtype": "float32", "shape": [2], "box": None}}},
        {"arrays": {"a": {"dtype": "float32", "shape": [2**64] * 9, "box": [[0, 2**64]] * 9}}},
        {"sha256": "0" * 64},
        {"size_bytes": 1},
        {"schema_version": 2},
        {"schema_version": "1"},
    ],
)
def test_sheets_that_do_not_fit_the_data_are_refused(tmp_path, changes):
    with pytest.raises(RecordError):
        load(forge(tmp_path, container(GOOD, b"\0" * 8), **changes))


@given(data=st.binary(max_size=300), header=st.booleans())
def test_any_bytes_with_a_right_checksum_are_read_or_refused(tmp_path_factory, data, header):
    folder = tmp_path_factory.mktemp("evidence")
    with contextlib.suppress(RecordError):
        load(forge(folder, container(data) if header else data))


@given(st.data())
def test_any_change_to_a_sound_container_is_read_or_refused(tmp_path_factory, data):
    whole = bytearray(container(GOOD, b"\0" * 8))
    for _ in range(data.draw(st.integers(1, 4))):
        whole[data.draw(st.integers(0, len(whole) - 1))] = data.draw(st.integers(0, 255))
    with contextlib.suppress(RecordError):
        load(forge(tmp_path_factory.mktemp("evidence"), bytes(whole)))


@given(st.binary(max_size=200) | st.text(max_size=200).map(str.encode))
def test_any_json_file_is_read_or_refused(tmp_path_factory, text):
    folder = tmp_path_factory.mktemp("evidence")
    path = forge(folder, container(GOOD, b"\0" * 8))
    path.write_bytes(text)
    with pytest.raises(RecordError):
        load(path)


def test_loading_never_unpickles(tmp_path, monkeypatch):
    def refuse(*_: object, **__: object) -> None:
        raise AssertionError("pickle was used")

    monkeypatch.setattr(pickle, "loads", refuse)
    monkeypatch.setattr(pickle, "load", refuse)
    monkeypatch.setattr(pickle, "Unpickler", refuse)
    file = io.BytesIO()
    np.save(file, np.ones(2))
    with pytest.raises(RecordError):
        load(forge(tmp_path, file.getvalue()))


def test_an_artifact_of_another_file_is_no_complaint(saved):
    other = ts.Artifact(name="else/other.json", sha256="0" * 64, size_bytes=1)
    assert load(saved, artifacts=[other]).arrays
    with pytest.raises(RecordError, match="sha256"):
        load(saved, artifacts=[dataclasses.replace(other, name="else/r.json")])


def test_a_writer_that_dies_before_the_json_leaves_no_evidence_and_blocks_nobody(tmp_path):
    (tmp_path / "r.safetensors").write_bytes(b"half of the da")
    with pytest.raises(RecordError):
        load(tmp_path / "r.json")
    save(tmp_path, "r", {"a": np.ones(3)}, {})
    assert load(tmp_path / "r.json").arrays["a"].shape == (3,)
