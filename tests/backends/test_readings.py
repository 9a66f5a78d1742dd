# SPDX-License-Identifier: Apache-2.0
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from truestep.backends.readings import TEXT_READINGS, is_blank, reported

NAMES = st.sampled_from(
    [
        "temperature_celsius",
        "power_watts",
        "clock_mhz",
        "ecc_uncorrected_count",
        "rows_remap_failure",
        "load",
        *sorted(TEXT_READINGS),
    ]
)
SENTINELS = st.one_of(
    st.integers(0x7FFFFFF0, 0x7FFFFFFF),
    st.integers(0x7FFFFFFFFFFFFFF0, 0x7FFFFFFFFFFFFFFF),
    st.sampled_from([0xFFFFFFFF, 0xFFFFFFFFFFFFFFFF, math.nan, math.inf, -math.inf]),
    st.integers(0, 15).map(lambda kind: 140737488355328.0 + kind),
)
BLANK_TEXTS = st.sampled_from(
    [
        "N/A",
        "[N/A]",
        "[Not Supported]",
        "Not Supported",
        "[Unknown Error]",
        "<<<NULL>>>",
        "<<<NOT_FOUND>>>",
        "<<<NOT_SUPPORTED>>>",
        "<<<NOT_PERMISSIONED>>>",
        "nan",
        "",
        "  ",
    ]
)


@given(NAMES, SENTINELS)
def test_a_sentinel_is_never_a_reading(name: str, value: float) -> None:
    assert is_blank(float(value))
    assert reported({name: value}) == {}
    assert reported({name: str(value)}) == {}


@given(NAMES, BLANK_TEXTS)
def test_a_blank_text_is_never_a_reading(name: str, text: str) -> None:
    assert reported({name: text}) == {}
    assert reported({name: text.encode()}) == {}


@given(
    NAMES,
    st.one_of(st.none(), st.integers(), st.floats(), st.text(), st.binary(), st.lists(st.none())),
)
def test_whatever_comes_only_finite_numbers_and_texts_that_say_something_stay(
    name: str, value: object
) -> None:
    for kept in reported({name: value}).values():
        if isinstance(kept, str):
            assert name in TEXT_READINGS
            assert kept.strip()
        else:
            assert name not in TEXT_READINGS
            assert math.isfinite(kept)
            assert not is_blank(kept)


@given(st.floats(-100, 150))
def test_a_possible_temperature_stays_as_it_is(value: float) -> None:
    assert reported({"temperature_celsius": value}) == {"temperature_celsius": value}


@given(st.one_of(st.floats(max_value=-100, exclude_max=True), st.floats(min_value=150.001)))
def test_an_absurd_temperature_is_not_reported(value: float) -> None:
    assert reported({"temperature_celsius": value}) == {}


@pytest.mark.parametrize("name", ["temperature_celsius", "power_watts", "clock_mhz", "x_percent"])
def test_all_ones_of_16_bits_are_not_reported(name: str) -> None:
    assert reported({name: 65535}) == {}


@given(st.integers(max_value=-1))
def test_a_negative_count_is_not_reported(value: int) -> None:
    assert reported({"xid_count": value}) == {}


@pytest.mark.parametrize(
    ("text", "expected"),
    [("250.00 W", 250.0), ("1410 MHz", 1410.0), ("0x1F", 31.0), ("98 %", 98.0), (" 7 ", 7.0)],
)
def test_a_number_may_carry_its_unit(text: str, expected: float) -> None:
    assert reported({"load": text}) == {"load": expected}


@pytest.mark.parametrize("text", ["1_000", "12 34", "five", "0x", "--3", "1e999"])
def test_what_is_no_number_is_not_reported(text: str) -> None:
    assert reported({"load": text}) == {}


@pytest.mark.parametrize(
    ("value", "expected"), [("Yes", 1.0), ("no", 0.0), (3, 1.0), (0, 0.0), ("1", 1.0), (True, 1.0)]
)
def test_a_flag_is_one_or_zero(value: object, expected: float) -> None:
    assert reported({"rows_remap_failure": value}) == {"rows_remap_failure": expected}


def test_no_action_is_something_the_driver_said() -> None:
    assert reported({"recovery_action": "None"}) == {"recovery_action": "None"}
