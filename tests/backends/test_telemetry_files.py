# SPDX-License-Identifier: Apache-2.0
import json
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from truestep.backends.telemetry_files import read_csv, read_telemetry, readings_from
from truestep.context import NOT_REPORTED, Sample, encode_reversibly
from truestep.judging.health import health
from truestep.reason import Reason

REMAP_FAILED = json.dumps({"gpus": [{"gpu": 0, "395": 0}, {"gpu": 3, "393": 12, "395": 1}]})
PENDING = "GPU: 2\nDCGM_FI_DEV_ROW_REMAP_PENDING: Yes\nremapped_rows.correctable = 4\n"
ACTION = json.dumps(
    {
        "overall": "Healthy",
        "devices": [
            {"index": 0, "gpu_recovery_action": "None", "xid": 0},
            {"index": 1, "gpu_recovery_action": "Reset", "xid": 120, "health": "Healthy"},
        ],
    }
)
OLD_CARD = json.dumps(
    {
        "gpu": 0,
        "393": 0x7FFFFFFFFFFFFFF2,
        "394": 140737488355330.0,
        "395": 0x7FFFFFF2,
        "396": "[N/A]",
        "1523": 2147483647,
        "150": math.nan,
    }
)


def unhealthy(text: str) -> dict[int, Reason]:
    found = {}
    for index, readings in read_telemetry(text.encode()).items():
        reason = health(Sample(time_s=0.0, readings=readings))
        if reason is not None:
            found[index] = reason
    return found


def test_c04_a_failed_remap_names_its_gpu() -> None:
    assert unhealthy(REMAP_FAILED) == {3: Reason.ROW_REMAP_FAILED}


def test_c04_a_pending_remap_needs_a_reset() -> None:
    assert unhealthy(PENDING) == {2: Reason.RESET_NEEDED}


def test_c04_a_recovery_action_names_its_gpu_though_the_agent_says_healthy() -> None:
    assert unhealthy(ACTION) == {1: Reason.RECOVERY_REQUIRED}


def test_c04_an_old_card_with_blanks_is_not_reported_and_neither_fails_nor_passes() -> None:
    found = read_telemetry(OLD_CARD.encode())
    assert found == {0: {}}
    sample = Sample(time_s=0.0, readings=found[0])
    assert health(sample) is None
    assert sample.shown("rows_remap_failure") == NOT_REPORTED
    assert sample.shown("recovery_action") == NOT_REPORTED


def test_each_remap_field_keeps_its_own_meaning() -> None:
    assert readings_from({393: 1, 394: 2, 395: 0, 396: 1}) == {
        "rows_remapped_uncorrected": 1,
        "rows_remapped_corrected": 2,
        "rows_remapped": 3,
        "rows_remap_failure": 0,
        "rows_remap_pending": 1,
    }


def test_rows_remapped_for_uncorrectable_errors_are_no_failed_remap() -> None:
    assert health(Sample(time_s=0.0, readings=readings_from({393: 5}))) is None


@pytest.mark.parametrize(
    "name", [395, "395", "dcgm_fi_dev_row_remap_failure", "ROWS_REMAP_FAILURE"]
)
def test_a_field_is_known_by_number_and_by_name(name: object) -> None:
    assert readings_from({name: 1}) == {"rows_remap_failure": 1}


def test_numbers_of_actions_and_reasons_become_words() -> None:
    assert readings_from({1523: 2, 112: 8}) == {
        "recovery_action": "node reboot",
        "throttle_reasons": "hw slowdown",
    }
    assert readings_from({1523: 77}) == {"recovery_action": "action 77"}
    assert readings_from({1523: 0}) == {"recovery_action": "none"}


def test_xid_0_is_no_xid() -> None:
    assert readings_from({230: 0}) == {}
    assert readings_from({230: "0"}) == {}
    assert readings_from({230: 79}) == {"last_xid": 79}


def test_c36_a_csv_with_bom_and_crlf_keeps_names_and_values() -> None:
    raw = (
        b"\xef\xbb\xbfindex, name, power.draw [W], clocks.sm [MHz], remapped_rows.failure\r\n"
        b"0, \xf8\x95 Accel\xb5erator, 250.00 W, 1410 MHz, 1\r\n"
        b'1, "Accel, two", [Not Supported], [N/A], 0\r\n'
        b"\r\n"
    )
    first, second = read_csv(raw)
    assert first["index"] == "0"
    assert encode_reversibly(first["name"]) == b"\xf8\x95 Accel\xb5erator"
    assert second["name"] == "Accel, two"
    assert readings_from(first) == {
        "device_name": "\\xf8\\x95 Accel\\xb5erator",
        "power_watts": 250,
        "clock_mhz": 1410,
        "rows_remap_failure": 1,
    }
    assert readings_from(second) == {"device_name": "Accel, two", "rows_remap_failure": 0}


@given(st.binary(min_size=1, max_size=20).filter(lambda raw: not set(raw) & set(b'\r\n,"')))
def test_bytes_between_two_words_of_a_cell_come_back_and_join_nothing(raw: bytes) -> None:
    (row,) = read_csv(b"name\r\nleft" + raw + b"right\r\n")
    assert encode_reversibly(row["name"]) == b"left" + raw + b"right"


@given(st.binary(max_size=200))
def test_no_bytes_raise(raw: bytes) -> None:
    read_csv(raw)
    read_telemetry(raw)


def test_c36_bytes_that_are_no_text_in_a_document_are_kept_reversibly() -> None:
    found = read_telemetry(b'\xef\xbb\xbf{"gpu": 1, "name": "\xf8\x95 X", "395": 1}\r\n')
    assert encode_reversibly(str(found[1]["device_name"])) == b"\xf8\x95 X"
    assert found[1]["rows_remap_failure"] == 1


def test_a_lone_half_character_does_not_raise() -> None:
    assert "\\ud800" in str(read_telemetry(b'{"name": "a\\ud800b"}')[0]["device_name"])


def test_other_lists_beside_the_gpus_are_left() -> None:
    text = json.dumps(
        {"processes": [{"name": "x"}, 3], "gpus": [{"gpu": 6, "uuid": "u", "395": 1}]}
    )
    assert unhealthy(text) == {6: Reason.ROW_REMAP_FAILED}


def test_a_second_entry_of_a_gpu_does_not_hide_the_first() -> None:
    text = json.dumps([{"gpu": 6, "395": 1}, {"gpu": 6, "150": 40}])
    assert unhealthy(text) == {6: Reason.ROW_REMAP_FAILED}


def test_a_document_of_any_other_shape_gives_no_gpu() -> None:
    assert read_telemetry(b"[1, 2]") == {}
    assert read_telemetry(b"null") == {}
    assert read_telemetry(b"") == {}
    assert read_telemetry(b"[" * 100_000) == {}
