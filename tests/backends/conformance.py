# SPDX-License-Identifier: Apache-2.0
"""What every backend promises, as functions of a backend: named as claims, collected in `CLAIMS`.

A new backend is held to them by one entry in `test_conformance.py`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from truestep.backends.protocol import Backend
from truestep.device import Device
from truestep.errors import UnsupportedError
from truestep.numerics import digest
from truestep.numerics.bits import FORMATS, as_uint, canonical_zero, np_dtype
from truestep.numerics.exact import (
    PRECISIONS,
    Product,
    ValueClass,
    integer_product,
    permutation_product,
)
from truestep.numerics.inputs import random_words

Claim = Callable[[Backend, Device], None]
SHAPES = ((), (0,), (7,), (3, 0, 2), (4, 5), (2, 3, 4))
FEW_SHAPES = ((), (3, 0, 2), (3, 5))
"""Where a compiler takes its time over each dtype and shape."""


def random_bits(name: str, shape: tuple[int, ...], *, seed: int = 1) -> Any:
    """Every bit pattern is drawn: NaN payloads, infinities, subnormals, both zeros."""
    form = FORMATS[name]
    words = random_words(np, int(np.prod(shape)), seed=seed).reshape(shape)
    if form.kind == "bool":
        return (words & 1).astype(np.bool_)
    return (
        (words.astype(np.uint64) >> np.uint64(64 - form.bits))
        .astype(f"u{form.bits // 8}")
        .view(np_dtype(name))
    )


def special_values(name: str) -> Any:
    """NaNs of both signs and several payloads, infinities, both zeros, the smallest subnormal."""
    form = FORMATS[name]
    full = form.sign_mask | form.exponent_mask
    patterns = [0, form.sign_mask, 1, full | 1, full | form.mantissa_mask, form.exponent_mask]
    patterns += [form.exponent_mask | form.mantissa_mask, form.exponent_mask | 2, full]
    return np.array(patterns, dtype=f"u{form.bits // 8}").view(np_dtype(name))


def formats_of(backend: Backend, device: Device, op: str = "cast") -> list[str]:
    return [name for name in FORMATS if backend.supports(op, name, device)]


def floats_of(backend: Backend, device: Device) -> list[str]:
    return [n for n in formats_of(backend, device) if FORMATS[n].kind == "float"]


def assert_bits(actual: Any, expected: Any) -> None:
    assert isinstance(actual, np.ndarray)
    assert actual.dtype == expected.dtype
    assert actual.shape == expected.shape
    assert np.array_equal(as_uint(actual), as_uint(expected))


def what_is_put_is_got_bit_for_bit(backend: Backend, device: Device) -> None:
    for name in formats_of(backend, device):
        for shape in SHAPES:
            host = random_bits(name, shape)
            assert_bits(backend.get(backend.put(host, device)), host)


def every_nan_keeps_its_payload(backend: Backend, device: Device) -> None:
    for name in floats_of(backend, device):
        host = special_values(name)
        assert_bits(backend.get(backend.put(host, device)), host)


def strides_do_not_matter(backend: Backend, device: Device) -> None:
    for name in formats_of(backend, device):
        host = random_bits(name, (6, 8))
        for view in (host.T, host[::2, 1::3], host[::-1], host[:, None, 3]):
            assert_bits(backend.get(backend.put(view, device)), view)
        turned = backend.xp.matrix_transpose(backend.put(host, device))
        assert_bits(backend.get(turned), host.T)


def what_is_put_is_a_copy(backend: Backend, device: Device) -> None:
    for name in ("float32", "bool"):
        host = random_bits(name, (5,))
        before = host.copy()
        array = backend.put(host, device)
        as_uint(host)[:] ^= 1
        assert_bits(backend.get(array), before)


def words_hold_the_bytes_in_row_major_order(backend: Backend, device: Device) -> None:
    for name in formats_of(backend, device):
        for shape in FEW_SHAPES:
            host = random_bits(name, shape)
            words = backend.get(backend.words(backend.put(host, device)))
            assert_bits(words, digest.host_words(host))
        turned = backend.xp.matrix_transpose(backend.put(random_bits(name, (3, 5)), device))
        words = backend.get(backend.words(turned))
        assert_bits(words, digest.host_words(random_bits(name, (3, 5)).T))


def casts_round_to_nearest_even(backend: Backend, device: Device) -> None:
    one = np.float32(1.0)
    for name in floats_of(backend, device):
        form = FORMATS[name]
        if form.bits >= 32:
            continue
        unit = np.float32(2.0 ** (1 - form.significand_bits))
        tied = np.array([one + unit / 2, one + 3 * unit / 2, -one - unit / 2], np.float32)
        found = backend.get(backend.cast(backend.put(tied, device), name, site="cast"))
        assert found.astype(np.float64).tolist() == [1.0, 1.0 + 2 * float(unit), -1.0]
        values = np.random.default_rng(1).normal(size=500).astype(np.float32)
        found = backend.get(backend.cast(backend.put(values, device), name, site="cast"))
        assert_bits(found, values.astype(np_dtype(name)))


def casts_to_wider_formats_change_no_value(backend: Backend, device: Device) -> None:
    for name in floats_of(backend, device):
        host = np.array([0.0, -0.0, 1.0, -1.5, 0.25]).astype(np_dtype(name))
        found = backend.get(backend.cast(backend.put(host, device), "float64", site="cast"))
        assert_bits(found, host.astype(np.float64))


def products(name: str, shape: tuple[int, ...]) -> list[Product]:
    precision, out = PRECISIONS[name], PRECISIONS[name].natural_output
    found = [
        integer_product(shape, precision=precision, out=out, value_class=value_class, seed=4)
        for value_class in (ValueClass.ACCUMULATOR_EXACT, ValueClass.OUTPUT_EXACT)
    ]
    if name != "int8":
        found.append(permutation_product(shape, precision=precision, out=out, seed=4))
    return found


def multiplied(backend: Backend, a: Any, b: Any, name: str) -> Any:
    found = backend.matmul(a, b, precision=name, out=PRECISIONS[name].natural_output, site="matmul")
    return canonical_zero(np, backend.get(found))


def products_are_exact_in_every_precision(backend: Backend, device: Device) -> None:
    names = [n for n in PRECISIONS if backend.supports("matmul", n, device)]
    assert {"fp64", "fp32", "int8"} <= set(names)
    for name in names:
        for shape in ((32, 48, 64), (3, 16, 32, 16), (2, 2, 16, 32, 16)):
            for product in products(name, shape):
                a, b = backend.put(product.a, device), backend.put(product.b, device)
                assert_bits(multiplied(backend, a, b, name), product.expected)


def operands_may_be_transposed(backend: Backend, device: Device) -> None:
    turn = backend.xp.matrix_transpose
    for name in PRECISIONS:
        if not backend.supports("matmul", name, device):
            continue
        for product in products(name, (32, 48, 64)):
            a, b = (
                turn(backend.put(np.ascontiguousarray(side.T), device))
                for side in (product.a, product.b)
            )
            assert_bits(multiplied(backend, a, b, name), product.expected)


def another_output_is_unsupported(backend: Backend, device: Device) -> None:
    host = np.eye(16, dtype=np.float32)
    a = backend.put(host, device)
    with pytest.raises(UnsupportedError, match="must give"):
        backend.matmul(a, a, precision="fp32", out="float64", site="matmul")


def an_unsupported_precision_says_so(backend: Backend, device: Device) -> None:
    for name, precision in PRECISIONS.items():
        if backend.supports("matmul", name, device):
            continue
        a = backend.put(np.ones((16, 16), np_dtype(precision.operand)), device)
        with pytest.raises(UnsupportedError):
            backend.matmul(a, a, precision=name, out=precision.natural_output, site="matmul")
    assert not backend.supports("matmul", "no such precision", device)
    assert not backend.supports("cast", "no such dtype", device)


FLOAT_OPERATIONS = {
    "add": np.add,
    "subtract": np.subtract,
    "multiply": np.multiply,
    "divide": np.divide,
}
INTEGER_OPERATIONS = {
    "add": np.add,
    "subtract": np.subtract,
    "multiply": np.multiply,
    "bitwise_and": np.bitwise_and,
    "bitwise_or": np.bitwise_or,
    "bitwise_xor": np.bitwise_xor,
    "bitwise_left_shift": np.left_shift,
    "bitwise_right_shift": np.right_shift,
}


def floats_are_computed_element_by_element(backend: Backend, device: Device) -> None:
    rng = np.random.default_rng(2)
    for name in ("float64", "float32", "float16", "bfloat16"):
        x, y = (rng.uniform(1, 2, (5, 6)).astype(np_dtype(name)) for _ in range(2))
        on_device = backend.put(x, device), backend.put(y, device)
        for op, function in FLOAT_OPERATIONS.items():
            found = backend.get(backend.elementwise(op, *on_device, site=op))
            assert_bits(found, function(x, y))


def integers_wrap(backend: Backend, device: Device) -> None:
    for name in ("int32", "int64"):
        x, y = (random_bits(name, (300,), seed=s) for s in (5, 6))
        for op, function in INTEGER_OPERATIONS.items():
            other = np.abs(y % 31) if "shift" in op else y
            on_device = backend.put(x, device), backend.put(other, device)
            found = backend.get(backend.elementwise(op, *on_device, site=op))
            assert_bits(found, function(x, other))


def reductions_keep_the_dtype(backend: Backend, device: Device) -> None:
    values = np.random.default_rng(3).integers(-7, 8, (4, 5, 6))
    for name in ("float64", "float32", "float16", "bfloat16", "int32", "int64"):
        array = backend.put(values.astype(np_dtype(name)), device)
        for op in ("sum", "max", "min"):
            for axis in (0, 1, -1):
                found = backend.get(backend.reduce(op, array, axis=axis, site=op))
                expected = getattr(np, op)(values, axis=axis).astype(np_dtype(name))
                assert_bits(canonical_zero(np, found), expected)


def copies_are_bit_for_bit_and_apart(backend: Backend, device: Device) -> None:
    for name in formats_of(backend, device):
        for shape in FEW_SHAPES:
            host = random_bits(name, shape)
            source = backend.put(host, device)
            fresh = backend.copy(source, device, site="copy")
            again = backend.put(random_bits(name, shape, seed=2), device)
            again = backend.copy(source, device, site="copy", into=again)
            backend.synchronize(device)
            assert fresh is not source
            assert again is not source
            assert_bits(backend.get(fresh), host)
            assert_bits(backend.get(again), host)


def a_copy_does_not_follow_its_source(backend: Backend, device: Device) -> None:
    one, two = (backend.put(random_bits("int64", (9,), seed=s), device) for s in (1, 2))
    copied = backend.copy(one, device, site="copy")
    backend.copy(two, device, site="copy", into=one)
    assert_bits(backend.get(copied), random_bits("int64", (9,), seed=1))


def equality_is_by_value(backend: Backend, device: Device) -> None:
    for name in floats_of(backend, device):
        zeros = np.zeros(3, np_dtype(name))
        ones = np.ones(3, np_dtype(name))
        nans = zeros.copy()
        nans[1] = np.nan
        zero, one, nan = (backend.put(side, device) for side in (zeros, ones, nans))
        assert backend.equal(zero, backend.put(zeros, device))
        assert not backend.equal(zero, one)
        assert not backend.equal(nan, backend.put(nans, device))
        assert not backend.equal(nan, nan)
        if not name.endswith("fnuz"):
            assert backend.equal(zero, backend.put(-zeros, device))


def equality_of_integers_and_bools_is_by_bits(backend: Backend, device: Device) -> None:
    for name in formats_of(backend, device):
        if FORMATS[name].kind == "float":
            continue
        host = random_bits(name, (40,))
        array = backend.put(host, device)
        assert backend.equal(array, backend.put(host, device))
        for bit in range(1 if name == "bool" else FORMATS[name].bits):
            changed = host.copy()
            as_uint(changed)[17] ^= as_uint(host).dtype.type(1 << bit)
            assert not backend.equal(array, backend.put(changed, device))


def empty_arrays_are_equal(backend: Backend, device: Device) -> None:
    for name in formats_of(backend, device):
        one, two = (backend.put(np.zeros((0, 3), np_dtype(name)), device) for _ in range(2))
        assert backend.equal(one, two)


def digests_are_those_of_the_definition(backend: Backend, device: Device) -> None:
    hosts = [random_bits(n, s) for n in formats_of(backend, device) for s in FEW_SHAPES]
    hosts.append(random_bits("float32", (40, 50)))
    found = backend.digest_many([backend.put(host, device) for host in hosts])
    assert found == tuple(map(digest.digest, hosts))
    assert backend.digest_many([]) == ()


def determinism_is_restored(backend: Backend, device: Device) -> None:
    before = backend.environment(device)
    with backend.deterministic():
        pass
    assert backend.environment(device) == before
    with pytest.raises(RuntimeError, match="stop"), backend.deterministic():
        raise RuntimeError("stop")
    assert backend.environment(device) == before


def switches_change_the_key_of_the_environment(backend: Backend, device: Device) -> None:
    keys = {backend.environment(device).key}
    for switch in ("OMP_NUM_THREADS", "MKL_NUM_THREADS"):
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv(switch, "7")
            keys.add(backend.environment(device).key)
    assert len(keys) == 3
    assert backend.environment(device).key in keys


def an_environment_names_library_and_device(backend: Backend, device: Device) -> None:
    entries = backend.environment(device).entries
    assert entries["backend"] == backend.name
    assert entries["device_model"] == device.model
    assert entries[backend.name]


def there_are_devices_with_memory(backend: Backend, device: Device) -> None:
    ids = [d.id for d in backend.devices()]
    assert device.id in ids
    assert len(set(ids)) == len(ids)
    assert backend.free_memory_bytes(device) > 0


CLAIMS: tuple[Claim, ...] = (
    what_is_put_is_got_bit_for_bit,
    every_nan_keeps_its_payload,
    strides_do_not_matter,
    what_is_put_is_a_copy,
    words_hold_the_bytes_in_row_major_order,
    casts_round_to_nearest_even,
    casts_to_wider_formats_change_no_value,
    products_are_exact_in_every_precision,
    operands_may_be_transposed,
    another_output_is_unsupported,
    an_unsupported_precision_says_so,
    floats_are_computed_element_by_element,
    integers_wrap,
    reductions_keep_the_dtype,
    copies_are_bit_for_bit_and_apart,
    a_copy_does_not_follow_its_source,
    equality_is_by_value,
    equality_of_integers_and_bools_is_by_bits,
    empty_arrays_are_equal,
    digests_are_those_of_the_definition,
    determinism_is_restored,
    switches_change_the_key_of_the_environment,
    an_environment_names_library_and_device,
    there_are_devices_with_memory,
)
