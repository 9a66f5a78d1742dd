# SPDX-License-Identifier: Apache-2.0
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from truestep.context import Sample
from truestep.judging.health import health
from truestep.reason import Reason

WORST = {"rows_remap_failure": 1.0, "recovery_action": "gpu reset", "rows_remap_pending": 1.0}


def health_of(**readings: float | str) -> Reason | None:
    return health(Sample(time_s=0.0, readings=readings))


def test_the_gravest_reason_is_given() -> None:
    assert health_of(**WORST) is Reason.ROW_REMAP_FAILED
    assert health_of(**(WORST | {"rows_remap_failure": 0.0})) is Reason.RECOVERY_REQUIRED
    assert health_of(rows_remap_pending=1.0) is Reason.RESET_NEEDED


def test_nothing_reported_is_neither_failure_nor_pass() -> None:
    assert health(None) is None
    assert health_of() is None


def test_healthy_words_of_an_agent_never_override() -> None:
    for name in ("health", "overall", "status"):
        assert health_of(**WORST, **{name: "Healthy"}) is Reason.ROW_REMAP_FAILED


@pytest.mark.parametrize("action", ["none", "None", "N/A", "[Not Supported]", "", 0.0, "0"])
def test_no_action_asks_for_nothing(action: float | str) -> None:
    assert health_of(recovery_action=action) is None


@pytest.mark.parametrize(
    "action", ["Reset", "gpu reset", "DRAIN_P2P", "system reboot", "action 77", 3.0]
)
def test_any_other_action_is_asked_for(action: float | str) -> None:
    assert health_of(recovery_action=action) is Reason.RECOVERY_REQUIRED


@given(
    st.one_of(
        st.sampled_from([math.nan, math.inf, -math.inf, -1.0, 0.0, 140737488355328.0, "N/A", ""]),
        st.integers(0x7FFFFFF0, 0x7FFFFFFF).map(float),
    )
)
def test_a_blank_that_came_through_is_no_failure(value: float | str) -> None:
    assert health_of(rows_remap_failure=value, rows_remap_pending=value) is None


@given(st.dictionaries(st.text(), st.one_of(st.floats(), st.text())))
def test_no_other_reading_decides_and_none_raises(readings: dict[str, float | str]) -> None:
    known = {"rows_remap_failure", "recovery_action", "rows_remap_pending"}
    if not known & set(readings):
        assert health(Sample(time_s=0.0, readings=readings)) is None
