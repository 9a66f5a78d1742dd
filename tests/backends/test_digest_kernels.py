# SPDX-License-Identifier: Apache-2.0
"""Every fast kernel gives the bits of the digest's definition."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from truestep.backends import digest_native, digest_numpy
from truestep.numerics import bits, digest

torch = pytest.importorskip("torch")

from truestep.backends import digest_torch  # noqa: E402  (needs torch)

BIG = digest_numpy.CHUNK_WORDS
NAMES = sorted(bits.FORMATS)


def random_words(size: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).integers(-(1 << 63), 1 << 63, size, np.int64)


def random_array(name: str, shape: tuple[int, ...], seed: int = 0) -> np.ndarray:
    dtype = bits.np_dtype(name)
    raw = np.random.default_rng(seed).integers(0, 256, int(np.prod(shape)) * dtype.itemsize)
    if name == "bool":
        raw = raw % 2
    return raw.astype(np.uint8).view(dtype).reshape(shape)


def to_torch(array: np.ndarray) -> torch.Tensor:
    dtype = getattr(torch, bits.name_of(array.dtype))
    tensor = torch.zeros(array.shape, dtype=dtype)
    raw = torch.from_numpy(np.ascontiguousarray(array).reshape(-1).view(np.uint8).copy())
    tensor.reshape(-1).view(torch.uint8)[:] = raw
    return tensor


def eager_sums(words: np.ndarray, offset: int = 0) -> digest.Sums:
    """The eager code that an accelerator runs, on the CPU."""
    rows = torch.from_numpy(words)[None, :]
    first, second = digest_torch._block(rows, torch.tensor([offset]))
    return int(first[0]) & digest.MASK, int(second[0]) & digest.MASK


@settings(deadline=None)
@given(st.lists(st.integers(-(1 << 63), (1 << 63) - 1), max_size=50), st.integers(0, 1 << 40))
def test_numpy_and_torch_kernels_equal_the_definition(values: list[int], offset: int) -> None:
    words = np.array(values, np.int64)
    wanted = digest.lane_sums(np, words, offset=offset)
    assert digest_numpy.lane_sums(words, offset=offset) == wanted
    assert digest_torch.lane_sums(torch.from_numpy(words), offset=offset) == wanted
    assert eager_sums(words, offset) == wanted


@pytest.mark.parametrize("size", [BIG - 1, BIG, BIG + 1, 2 * BIG, 3 * BIG + 17])
@pytest.mark.parametrize("offset", [0, 5])
def test_kernels_equal_the_definition_across_chunks(size: int, offset: int) -> None:
    words = random_words(size)
    before = words.copy()
    wanted = digest.lane_sums(np, words, offset=offset)
    assert digest_numpy.lane_sums(words, offset=offset) == wanted
    assert eager_sums(words, offset) == wanted
    np.testing.assert_array_equal(words, before)
    cut = size // 3
    parts = [
        digest_numpy.lane_sums(words[cut:], offset=offset + cut),
        digest_numpy.lane_sums(words[:cut], offset=offset),
    ]
    assert digest.combine(*parts) == wanted


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("shape", [(), (0,), (0, 3), (1,), (7,), (5, 3), (2, 3, 4), (64, 33)])
def test_every_dtype_and_shape_has_one_digest(name: str, shape: tuple[int, ...]) -> None:
    array = random_array(name, shape)
    wanted = digest.digest(array)
    assert digest_numpy.digest(array) == wanted
    assert digest_torch.digest(to_torch(array)) == wanted
    assert digest_numpy.digest_many([array]) == digest_torch.digest_many([to_torch(array)])


@pytest.mark.parametrize("name", NAMES)
def test_strides_and_storage_offsets_do_not_matter(name: str) -> None:
    array = random_array(name, (12, 10))
    tensor = to_torch(array)
    cuts = [np.s_[1:, 1:], np.s_[::2, 3:], np.s_[3:4], np.s_[1:2, 1:9], np.s_[3:4, 5:6]]
    for cut in [*cuts, np.s_[3:4, 5:5], np.s_[:, 2:3]]:
        assert digest_torch.digest(tensor[cut]) == digest.digest(array[cut])
        assert digest_numpy.digest(array[cut].T) == digest.digest(array[cut].T)
        assert digest_torch.digest(tensor[cut].mT) == digest.digest(array[cut].T)


def test_a_tensor_that_needs_gradients_is_only_read() -> None:
    tensor = torch.ones(9, requires_grad=True)
    assert digest_torch.digest(tensor) == digest.digest(np.ones(9, np.float32))
    assert digest_torch.digest_many([tensor * 1]) == (digest.digest(np.ones(9, np.float32)),)
    assert tensor.grad is None


@pytest.mark.parametrize("compiled", [False, True])
def test_a_sign_that_torch_has_put_off_is_digested(compiled: bool) -> None:
    tensor = torch.complex(torch.ones(4), torch.ones(4)).conj().imag
    assert tensor.is_neg()
    wanted = digest.digest(-np.ones(4, np.float32))
    assert digest_torch.digest(tensor, compiled=compiled) == wanted
    assert digest_torch.digest_many([tensor], compiled=compiled) == (wanted,)


@pytest.mark.parametrize("compiled", [False, True])
def test_strided_words_are_read_by_their_strides(compiled: bool) -> None:
    words = random_words(64)
    found = digest_torch.lane_sums(torch.from_numpy(words)[::2], compiled=compiled)
    assert found == digest.lane_sums(np, words[::2])


def test_a_dtype_without_a_format_is_refused() -> None:
    for call in (digest_torch.digest, lambda t: digest_torch.digest_many([t])):
        with pytest.raises(ValueError, match="dtype must be one of"):
            call(torch.zeros(2, dtype=torch.complex64))
    with pytest.raises(ValueError, match="dtype must be one of"):
        digest_numpy.digest_many([np.zeros(2, np.complex64)])


def mixed_arrays() -> list[np.ndarray]:
    shapes = [(), (0,), (4,), (2, 2), (16, 8), (128,), (7,), (1000, 9), (9, 1000), (4,)] * 2
    names = ["float32", "bfloat16", "bool", "float64", "float8_e5m2"]
    arrays = [
        random_array(name, shape, seed=j)
        for j, (shape, name) in enumerate((s, n) for s in shapes for n in names)
    ]
    return [*arrays, random_array("float32", (1 << 18,)), random_array("float32", (1 << 18,), 1)]


def test_many_at_once_give_what_each_gives_alone() -> None:
    arrays = mixed_arrays()
    wanted = tuple(digest.digest(array) for array in arrays)
    assert digest_numpy.digest_many(arrays) == wanted
    assert digest_torch.digest_many([to_torch(array) for array in arrays]) == wanted
    assert digest_numpy.digest_many([]) == digest_torch.digest_many([]) == ()


@given(st.integers(0, digest.MASK), st.integers(0, digest.MASK))
def test_finishing_many_equals_finishing_one(one: int, two: int) -> None:
    sums = np.array([[one, two], [two, one]], np.uint64)
    shapes = [(3, 4), ()]
    found = digest_numpy.finish_many(sums, dtypes=["int8", "float64"], shapes=shapes)
    assert found == (
        digest.finish((one, two), dtype="int8", shape=(3, 4)),
        digest.finish((two, one), dtype="float64", shape=()),
    )


def test_eager_blocks_add_up_beyond_one_block(monkeypatch: pytest.MonkeyPatch) -> None:
    # The path of an accelerator, on the CPU and with blocks of two rows.
    words = random_words(5 * digest_torch.ROW_WORDS + 3)
    monkeypatch.setattr(digest_torch, "BLOCK_BYTES", 2 * digest_torch.ROW_WORDS * 8)
    found = digest_torch._sums_by_rows(torch.from_numpy(words), offset=7, compiled=False)
    assert found == digest.lane_sums(np, words, offset=7)


def test_nothing_is_compiled_unless_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise AssertionError("something was compiled")

    monkeypatch.setattr(digest_torch, "_compiled_block", refuse)
    monkeypatch.setattr(digest_native, "_library", refuse)
    tensors = [to_torch(random_array("float32", (1 << 16,), j)) for j in range(3)]
    digest_torch.digest(tensors[0])
    digest_torch.digest_many(tensors)
    digest_torch._sums_by_rows(digest_torch.words(tensors[0]), offset=0, compiled=False)


def test_without_a_compiler_the_digest_is_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(digest_native, "_library", lambda: None)
    array = random_array("float32", (33, 7))
    wanted = digest.digest(array)
    assert digest_torch.digest(to_torch(array), compiled=True) == wanted
    assert digest_torch.digest_many([to_torch(array)], compiled=True) == (wanted,)


@pytest.mark.parametrize("failing", ["/bin/false", None])
def test_a_compiler_that_fails_or_is_missing_is_no_error(
    monkeypatch: pytest.MonkeyPatch, failing: str | None
) -> None:
    monkeypatch.setattr(digest_native.shutil, "which", lambda _: failing)
    assert digest_native._library.__wrapped__() is None


needs_compiler = pytest.mark.skipif(not digest_native.is_available(), reason="no C compiler")


@needs_compiler
@settings(deadline=None)
@given(st.binary(max_size=100), st.integers(0, 7), st.integers(0, 1 << 40))
def test_the_c_kernel_equals_the_definition_at_any_alignment(
    raw: bytes, shift: int, offset: int
) -> None:
    array = np.frombuffer(b"x" * shift + raw, np.uint8)[shift:]
    found = digest_native.lane_sums_at([array.ctypes.data], [array.size], offsets=[offset])
    wanted = digest.lane_sums(np, digest.host_words(array), offset=offset)
    assert tuple(found[:, 0].tolist()) == wanted


@needs_compiler
def test_the_c_kernel_digests_many_tensors() -> None:
    arrays = [*mixed_arrays(), *(random_array(n, (5, 3)) for n in NAMES)]
    wanted = tuple(digest.digest(array) for array in arrays)
    tensors = [to_torch(array) for array in arrays]
    assert digest_torch.digest_many(tensors, compiled=True) == wanted
    assert tuple(digest_torch.digest(t, compiled=True) for t in tensors) == wanted
    grid = to_torch(random_array("bfloat16", (9, 9)))[1:, ::2].requires_grad_()
    assert digest_torch.digest_many([grid], compiled=True) == (digest_torch.digest(grid),)


def alike_tensors() -> list[torch.Tensor]:
    return [to_torch(random_array("bfloat16", (8, 50), j)) for j in range(5)]


def test_stacked_tensors_have_the_sums_of_each() -> None:
    found = digest_torch._stack_sums(alike_tensors(), compiled=False)
    wanted = digest_numpy.lane_sums_many([digest_torch.words(t).numpy() for t in alike_tensors()])
    np.testing.assert_array_equal(found, wanted)


@pytest.mark.slow
def test_code_compiled_for_accelerators_equals_the_definition() -> None:
    for size in (0, 1, 2 * digest_torch.ROW_WORDS, 5 * digest_torch.ROW_WORDS + 11):
        words = random_words(size)
        found = digest_torch._sums_by_rows(torch.from_numpy(words), offset=3, compiled=True)
        assert found == digest.lane_sums(np, words, offset=3)
    found = digest_torch._stack_sums(alike_tensors(), compiled=True)
    np.testing.assert_array_equal(found, digest_torch._stack_sums(alike_tensors(), compiled=False))


@pytest.mark.slow
def test_one_compilation_serves_all_sizes() -> None:
    torch._dynamo.reset()
    digest_torch._compiled_block.cache_clear()
    torch._dynamo.utils.counters.clear()
    for rows, size in ((3, 50), (7, 64), (2, 1001), (64, 8192), (5, 2)):
        words = torch.from_numpy(random_words(rows * size)).view(rows, size)
        found = digest_torch._rows_sums(words, torch.arange(rows), compiled=True)
        assert torch.equal(found, digest_torch._block(words, torch.arange(rows)))
    assert torch._dynamo.utils.counters["stats"]["unique_graphs"] <= 2
