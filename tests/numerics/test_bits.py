# SPDX-License-Identifier: Apache-2.0
"""Formats, bit views, flips and distances."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from truestep.numerics import bits

FLOATS = sorted(name for name, form in bits.FORMATS.items() if form.kind == "float")
NUMBERS = sorted(name for name, form in bits.FORMATS.items() if form.kind != "bool")


def drawn(data: st.DataObject, name: str, size: int) -> np.ndarray:
    raw = data.draw(st.binary(min_size=size * 8, max_size=size * 8))
    dtype = bits.np_dtype(name)
    return np.frombuffer(raw, np.uint8)[: size * dtype.itemsize].view(dtype)


@pytest.mark.parametrize("name", sorted(bits.FORMATS))
def test_names_and_dtypes_are_inverse(name: str) -> None:
    assert bits.name_of(bits.np_dtype(name)) == name
    assert bits.np_dtype(name).itemsize * 8 == bits.FORMATS[name].bits


@pytest.mark.parametrize("name", FLOATS)
def test_the_table_agrees_with_the_library(name: str) -> None:
    form, info = bits.FORMATS[name], ml_dtypes.finfo(bits.np_dtype(name))
    assert form.mantissa_bits == info.nmant
    assert form.largest == float(info.max)
    assert 2.0**form.min_exponent == float(info.smallest_normal)
    assert 2.0**form.max_exponent <= form.largest < 2.0**form.max_exponent * 2
    with np.errstate(over="ignore"):
        assert form.has_infinity == bool(np.isinf(np.array(np.inf, np.float64).astype(info.dtype)))


@pytest.mark.parametrize("name", [n for n in NUMBERS if n not in FLOATS])
def test_the_table_agrees_with_numpy_on_integers(name: str) -> None:
    assert bits.FORMATS[name].largest == np.iinfo(name).max


@pytest.mark.parametrize("name", sorted(bits.FORMATS))
def test_masks_cover_each_bit_once(name: str) -> None:
    form = bits.FORMATS[name]
    parts = (form.sign_mask, form.exponent_mask, form.mantissa_mask)
    assert parts[0] & parts[1] == parts[0] & parts[2] == parts[1] & parts[2] == 0
    if form.kind == "float":
        assert sum(parts) == (1 << form.bits) - 1


@pytest.mark.parametrize("bad", ["complex64", ">f4", "U3"])
def test_an_unknown_or_foreign_dtype_is_refused(bad: str) -> None:
    with pytest.raises(ValueError, match="dtype must be one of"):
        bits.name_of(bad)
    with pytest.raises(ValueError, match="dtype must be one of"):
        bits.np_dtype(bad)


@given(st.data(), st.sampled_from(sorted(bits.FORMATS)))
def test_a_flip_changes_one_bit_and_flips_back(data: st.DataObject, name: str) -> None:
    array = drawn(data, name, 6).reshape(2, 3).T if name != "bool" else np.eye(3, dtype=bool)
    index = data.draw(st.integers(0, 5))
    bit = data.draw(st.integers(0, 0 if name == "bool" else bits.FORMATS[name].bits - 1))
    before = array.copy()
    flipped = bits.flip_bit(array, index=index, bit=bit)
    xor = (bits.as_uint(flipped) ^ bits.as_uint(array)).reshape(-1)
    assert int(xor[index]) == 1 << bit
    assert np.count_nonzero(xor) == 1
    again = bits.flip_bit(flipped, index=np.unravel_index(index, array.shape), bit=bit)
    np.testing.assert_array_equal(bits.as_uint(again), bits.as_uint(before))
    np.testing.assert_array_equal(bits.as_uint(array), bits.as_uint(before))


def test_a_bit_that_does_not_exist_is_refused() -> None:
    with pytest.raises(ValueError, match="bit must lie in"):
        bits.flip_bit(np.ones(3, bool), index=0, bit=1)
    with pytest.raises(ValueError, match="bit must lie in"):
        bits.flip_bit(np.ones(3, np.int8), index=0, bit=8)


def test_a_view_keeps_shape_for_any_strides_and_no_axes() -> None:
    array = np.arange(24, dtype=np.float32).reshape(2, 3, 4)[:, ::2, ::-1]
    assert bits.as_uint(array).shape == array.shape
    assert bits.as_uint(array).dtype == np.uint32
    assert bits.as_uint(np.array(1.0, ml_dtypes.bfloat16)).item() == 0x3F80


@given(st.data(), st.sampled_from(sorted(bits.FORMATS)))
def test_distance_is_symmetric_and_zero_for_the_same(data: st.DataObject, name: str) -> None:
    if name == "bool":
        one, two = np.array([False, True]), np.array([True, True])
    else:
        one, two = drawn(data, name, 8), drawn(data, name, 8)
    np.testing.assert_array_equal(bits.ulp_distance(one, two), bits.ulp_distance(two, one))
    assert not bits.ulp_distance(one, one).any()
    assert bits.ulp_distance(one, two).dtype == np.uint64


@given(st.floats(allow_nan=False, width=32), st.floats(allow_nan=False, width=32))
def test_distance_of_floats_counts_neighbours(x: float, y: float) -> None:
    a = np.array([x], np.float32)
    up = np.nextafter(a, np.float32(np.inf))
    assert int(bits.ulp_distance(a, up)[0]) == (0 if x == np.inf else 1)
    b = np.array([y], np.float32)
    assert (int(bits.ulp_distance(a, b)[0]) == 0) == (x == y)


@pytest.mark.parametrize("name", NUMBERS)
def test_distance_adds_up_along_a_line(name: str) -> None:
    values = np.array([-2, -1, 0, 1, 2] if name[0] != "u" else [0, 1, 2, 3, 4], np.float32)
    line = values.astype(bits.np_dtype(name))
    steps = bits.ulp_distance(line[1:], line[:-1])
    assert int(bits.ulp_distance(line[-1:], line[:1])[0]) == sum(steps.tolist())


@pytest.mark.parametrize("name", FLOATS)
def test_nan_on_one_side_is_farthest_and_zeros_are_equal(name: str) -> None:
    array = np.array([np.nan, 1.0, np.nan, 0.0], np.float32).astype(bits.np_dtype(name))
    other = np.array([1.0, np.nan, np.nan, -0.0], np.float32).astype(bits.np_dtype(name))
    distance = bits.ulp_distance(array, other).tolist()
    assert distance[:3] == [bits.LARGEST_DISTANCE, bits.LARGEST_DISTANCE, 0]
    assert distance[3] == 0


def test_distance_between_two_dtypes_is_refused() -> None:
    with pytest.raises(ValueError, match="dtypes must be equal"):
        bits.ulp_distance(np.ones(1, np.float32), np.ones(1, np.int32))


def test_integer_distance_spans_the_whole_range() -> None:
    ends = np.array([np.iinfo(np.int64).min]), np.array([np.iinfo(np.int64).max])
    assert int(bits.ulp_distance(*ends)[0]) == (1 << 64) - 1


@pytest.mark.parametrize("name", [n for n in FLOATS if not n.endswith("fnuz")])
def test_canonical_zero_changes_only_the_sign_of_zero(name: str) -> None:
    values = np.array([-0.0, 0.0, -1.5, np.nan, 2.0], np.float32).astype(bits.np_dtype(name))
    out = bits.as_uint(bits.canonical_zero(np, values))
    assert out[0] == 0
    np.testing.assert_array_equal(out[1:], bits.as_uint(values)[1:])


def test_canonical_zero_works_in_torch_and_keeps_the_dtype() -> None:
    torch = pytest.importorskip("torch")
    for dtype in (torch.float32, torch.bfloat16, torch.int32, torch.bool):
        out = bits.canonical_zero(torch, torch.tensor([-0.0, 1.0]).to(dtype))
        assert out.dtype == dtype
        assert not out.float().signbit().any()
