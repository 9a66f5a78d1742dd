# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import contextlib
import dataclasses
import json
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

import strategies
import truestep as ts
from truestep.errors import RecordError
from truestep.record import SCHEMA_VERSION
from truestep.store.schema import dumps, from_plain, loads, record_from, to_plain

RECORD = ts.Record(id="r1", kind=ts.RecordKind.SCREENING, run_id="u", time_s=1.0, subject="t")
EXACT = ts.Reference(kind=ts.ReferenceKind.EXACT, provenance="int64")


def refuse_constant(word: str) -> None:
    raise AssertionError(f"{word} is not strict JSON")


def observation(**changes: object) -> ts.Observation:
    return ts.Observation(**{"name": "n", "reference": EXACT, "parties": (), **changes})


def test_every_dataclass_among_the_nouns_has_a_strategy():
    exported = {getattr(ts, name) for name in ts.__all__}
    assert {noun for noun in exported if dataclasses.is_dataclass(noun)} == set(
        strategies.ALL_NOUNS
    )


@pytest.mark.parametrize("noun", strategies.ALL_NOUNS, ids=lambda noun: noun.__name__)
@given(data=st.data())
def test_every_noun_survives_the_round_trip(noun, data):
    before = data.draw(strategies.ALL_NOUNS[noun])
    text = dumps(before)
    after = from_plain(noun, loads(text))
    assert type(after) is noun
    assert dumps(after) == text
    if "NaN" not in text:
        assert after == before


@given(strategies.records())
def test_written_json_is_one_strict_sorted_ascii_line(record):
    text = dumps(record)
    assert text.isascii()
    assert "\n" not in text
    plain = json.loads(text, parse_constant=refuse_constant)
    assert list(plain) == sorted(plain)
    assert plain == to_plain(record)


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_values_that_are_not_finite_are_written_as_text_and_read_as_numbers(value):
    text = dumps(observation(value=value))
    assert loads(text)["value"] in ("NaN", "Infinity", "-Infinity")
    assert repr(from_plain(ts.Observation, loads(text)).value) == repr(value)


@pytest.mark.parametrize(
    "literal", ["NaN", '"nan"', '"NaN"', "Infinity", '"inf"', "-Infinity", "1e400", "9" * 400]
)
def test_readers_keep_every_spelling_of_a_value_that_is_not_finite(literal):
    sample = from_plain(
        ts.Sample, loads(f'{{"time_s": {literal}, "readings": {{"loss": {literal}}}}}')
    )
    assert not math.isfinite(sample.time_s)
    assert not math.isfinite(sample.readings["loss"])


def test_a_null_reading_is_missing_and_not_zero():
    sample = from_plain(
        ts.Sample, loads('{"time_s": 1, "readings": {"loss": null, "power_watts": 0}}')
    )
    assert sample.readings == {"power_watts": 0}
    assert sample.shown("loss") == "not reported"


def test_a_null_number_is_refused_rather_than_read_as_the_default():
    with pytest.raises(RecordError, match=r"^value must be a number, got null"):
        from_plain(ts.Observation, to_plain(observation()) | {"value": None})


@pytest.mark.parametrize("value", [2**53 + 1, 2**63 - 1, 2**64, -(2**64) - 1, 2**200 + 1])
def test_integers_beyond_a_double_survive(value):
    assert from_plain(ts.Observation, loads(dumps(observation(seed=value)))).seed == value


def test_of_two_equal_keys_the_last_wins():
    assert loads('{"a": 1, "a": 2}') == {"a": 2}


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "nan",
        '{"a": 1',
        "[" * 100_000,
        '{"a":' * 100_000,
        "[" * 50_000 + "]" * 50_000,
        "9" * 100_000,
        b"\xff\xfe",
        b"",
    ],
    ids=lambda text: repr(text[:8]),
)
def test_what_is_no_json_is_a_record_error(text):
    with pytest.raises(RecordError):
        loads(text)


@given(st.binary(max_size=60) | st.text(max_size=60))
def test_any_text_is_read_or_refused_as_a_record_error(text):
    with contextlib.suppress(RecordError):
        dumps(loads(text))


def test_bytes_that_are_no_text_are_kept_as_escapes():
    assert loads(b'{"name": "a\xf8\xb5b"}') == {"name": "a\\xf8\\xb5b"}
    assert loads(b"\xef\xbb\xbf[1]") == [1]


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner),
    max_leaves=8,
)


@given(st.data())
def test_a_record_with_any_field_replaced_is_read_or_refused_as_a_record_error(data):
    plain = to_plain(data.draw(strategies.records()))
    plain[data.draw(st.sampled_from(sorted(plain)))] = data.draw(JSON)
    with contextlib.suppress(RecordError):
        assert isinstance(record_from(loads(dumps(plain))), ts.Record)


def test_the_message_about_a_hostile_text_stays_short():
    with pytest.raises(RecordError) as caught:
        loads("[" * 1_000_000)
    assert len(str(caught.value)) < 500


def test_a_newer_schema_is_refused_with_the_advice_to_upgrade():
    with pytest.raises(RecordError, match=r"Upgrade truestep"):
        record_from(to_plain(RECORD) | {"schema_version": SCHEMA_VERSION + 1})


@pytest.mark.parametrize("version", [None, True, "1", 0, 1.0])
def test_a_schema_version_is_a_positive_integer(version):
    with pytest.raises(RecordError, match=r"^schema_version must be a positive integer"):
        record_from(to_plain(RECORD) | {"schema_version": version})


def test_a_record_without_schema_version_is_refused():
    plain = to_plain(RECORD)
    del plain["schema_version"]
    with pytest.raises(RecordError, match="schema_version"):
        record_from(plain)


def test_unknown_fields_are_ignored_at_every_depth():
    plain = to_plain(dataclasses.replace(RECORD, observations=(observation(),)))
    plain["later"] = [1]
    plain["observations"][0]["later"] = {"x": None}
    assert record_from(plain).observations == (observation(),)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"seed": "7"}, r"^observations\[0\]\.seed must be an integer, got '7'"),
        ({"seed": 7.0}, r"^observations\[0\]\.seed must be an integer, got 7\.0"),
        ({"num_comparisons": True}, r"num_comparisons must be an integer, got True"),
        ({"value": "many"}, r"observations\[0\]\.value must be a number, got 'many'"),
        ({"value": False}, r"observations\[0\]\.value must be a number"),
        ({"name": 3}, r"observations\[0\]\.name must be text, got 3"),
        ({"parties": {}}, r"observations\[0\]\.parties must be a list"),
        ({"parties": [{}]}, r"observations\[0\]\.parties\[0\]\.device must be given"),
        ({"reference": None}, r"observations\[0\]\.reference must be an object \(Reference\)"),
        ({"conditions": []}, r"observations\[0\]\.conditions must be an object"),
        ({"conditions": {"t": 1}}, r"observations\[0\]\.conditions\.t must be text, got 1"),
        (
            {"reference": {"kind": "guess", "provenance": ""}},
            r"observations\[0\]\.reference\.kind must be one of: exact, golden",
        ),
    ],
)
def test_a_wrong_type_names_the_path_what_must_hold_and_what_was_got(change, message):
    plain = to_plain(dataclasses.replace(RECORD, observations=(observation(),)))
    plain["observations"][0].update(change)
    with pytest.raises(RecordError, match=message):
        record_from(plain)


def test_a_noun_that_breaks_its_own_rule_is_a_record_error():
    plain = to_plain(RECORD) | {"withdraws": "r0"}
    with pytest.raises(RecordError, match="a withdrawal must name"):
        record_from(plain)


def test_a_pair_of_numbers_must_have_two():
    verdict = ts.Verdict(
        outcome=ts.Outcome.UNKNOWN, status=ts.Status.ERROR, reason=ts.Reason.CRASHED
    )
    with pytest.raises(RecordError, match=r"repeats must be a list of 2"):
        from_plain(ts.Verdict, to_plain(verdict) | {"repeats": [1, 2, 3]})


def test_a_reading_is_a_number_or_text_and_nothing_else():
    with pytest.raises(RecordError, match=r"readings\.x must be a number or text, got \[\]"):
        from_plain(ts.Sample, {"time_s": 0, "readings": {"x": []}})


def deeply_nested() -> list[object]:
    nested: list[object] = []
    for _ in range(100_000):
        nested = [nested]
    return nested


@pytest.mark.parametrize(
    "value",
    [{1: 2}, object(), {"a": {3}}, b"bytes", deeply_nested(), 10**5000],
    ids=["key", "object", "set", "bytes", "deep", "huge"],
)
def test_what_is_no_plain_data_is_not_written(value):
    with pytest.raises(RecordError):
        dumps(value)


def test_only_a_noun_has_a_plain_dict():
    with pytest.raises(RecordError, match="needs a dataclass"):
        to_plain({"a": 1})
