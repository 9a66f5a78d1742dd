# SPDX-License-Identifier: Apache-2.0
"""What other diagnostic tools say, read as evidence. It is never a verdict of ours."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from statistics import median

from truestep.reason import Reason

PREFIX = "tool/"
"""Subjects of watch records that keep what a tool said begin so."""

FEWEST_ALIKE = 3
"""So many nodes are needed before it can be said that all of one model fail alike."""
NEAR = 0.1
"""Speeds that differ by less than this share are alike."""
_DEEPEST = 64
_MOST_DETAIL = 300


class Claim(StrEnum):
    """What the output of a tool amounts to, whatever its exit code."""

    SOUND = "sound"
    FAULTY = "faulty"
    SLOW = "slow"
    CONTRADICTS = "contradicts"
    IMPLAUSIBLE = "implausible"
    DID_NOT_RUN = "did_not_run"
    ALL_ALIKE = "all_alike"


REASONS = {
    Claim.SOUND: Reason.TOOL_PASSED,
    Claim.FAULTY: Reason.TOOL_REPORTED,
    Claim.SLOW: Reason.SLOW,
    Claim.CONTRADICTS: Reason.TOOL_CONTRADICTS,
    Claim.IMPLAUSIBLE: Reason.TOOL_IMPLAUSIBLE,
    Claim.DID_NOT_RUN: Reason.TOOL_DID_NOT_RUN,
    Claim.ALL_ALIKE: Reason.ALL_ALIKE,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """What one tool said of one node.

    Attributes:
        claim: What it amounts to.
        devices: Those that it calls faulty, as the tool names them.
        detail: Why it is read so.
    """

    claim: Claim
    devices: tuple[str, ...] = ()
    detail: str = ""

    @property
    def reason(self) -> Reason:
        """The code under which it is kept."""
        return REASONS[self.claim]


@dataclass(frozen=True, slots=True)
class _Statement:
    """One line of text, or one object of JSON: what it says, and of which device."""

    device: str
    text: str


_GOOD = re.compile(r"(?i)\b(ok|pass|passed|success|succeeded|successful|healthy)\b")
_BAD = re.compile(r"(?i)\b(fail|fails|failed|failure|faulty|unhealthy|mismatch(?:es)?)\b")
_ABSENT = re.compile(
    r"(?i)\b(abort|aborted|timeout|timed out|died|not run|did not run|"
    r"init(?:ialization)? (?:failed|error)|couldn't init\w*|could not init\w*)\b",
)
_ERRORS = re.compile(r"(?i)\berrors?\b[\"']?\s*[:=]\s*(-?\d[\d,]*)")
_CODE = re.compile(r"(?i)\berror_?(?:id|code)\b[\"']?\s*[:=]\s*[\"']?(-?\d+)")
_WORK = re.compile(r"(?i)(-?\d+(?:\.\d+)?)\s*(?:[kMGTP]?flops?(?:/s)?|[KMGT]i?B/s|processed)\b")
_DEVICE = re.compile(r"(?i)\b(?:gpu|device|card)[\s_#:]*(\d{1,4})\b")
_DEVICE_KEYS = ("gpu", "gpu_id", "gpu_ids", "entity_id", "device")


def read_output(raw: bytes) -> Reading:
    """What the output of a tool amounts to: text, or JSON such as that of `dcgmi diag -j`.

    An exit code is not asked for: tools are known to exit 0 with every device faulty.

    Guarantees:
        SOUND only where something is called good, nothing bad or broken off, no error code or count
        is given, and no work is stated to be none. Any bytes can be read.
    """
    if b"\x00" in raw:
        return _reading(Claim.IMPLAUSIBLE, "the output is no text")
    text = raw.decode("utf-8", "replace")
    statements = [s for s in _statements(text) if s.text.strip()]
    if not statements:
        return Reading(claim=Claim.DID_NOT_RUN, detail="the output is empty")
    least = min((n for s in statements for n in _counts(s.text)), default=0)
    if least < 0:
        return _reading(Claim.IMPLAUSIBLE, f"a count of errors is negative: {least}")
    works: dict[str, float] = {}
    for s in statements:
        for work in map(float, _WORK.findall(s.text)):
            works[s.device] = max(work, works.get(s.device, work))
    if any(work <= 0 for work in works.values()):
        return _reading(Claim.DID_NOT_RUN, "the work that it states is none")
    return _weighed(statements)


def read_speeds(figures: Mapping[str, float], *, least: float) -> dict[str, Reading]:
    """What speeds of nodes of one model amount to.

    Args:
        figures: By node, in whatever unit.
        least: What the tool asks for.

    Guarantees:
        Where most nodes stay below it and near each other, the test or its set-up is suspected and
        no node. A node that stays below while most do not is slow, and never called faulty.
    """
    slow = {node for node, figure in figures.items() if not figure >= least}
    is_common = len(figures) >= FEWEST_ALIKE and 2 * len(slow) > len(figures)
    usual = median(figures.values()) if figures else 0.0
    found = {}
    for node, figure in figures.items():
        said = f"{figure:g} of at least {least:g}"
        if node not in slow:
            found[node] = _reading(Claim.SOUND, said)
        elif is_common and abs(figure - usual) <= NEAR * abs(usual):
            found[node] = _reading(Claim.ALL_ALIKE, f"{said}; most nodes reach {usual:g}")
        else:
            found[node] = _reading(Claim.SLOW, said)
    return found


def together(readings: Mapping[str, Reading]) -> dict[str, Reading]:
    """Readings of one tool on nodes of one model, seen side by side.

    Where most nodes are called faulty, the test or its set-up is suspected and no node.
    """
    counts = Counter(reading.claim for reading in readings.values())
    if len(readings) < FEWEST_ALIKE or 2 * counts[Claim.FAULTY] <= len(readings):
        return dict(readings)
    said = f"{counts[Claim.FAULTY]} of {len(readings)} nodes"
    return {
        node: replace(r, claim=Claim.ALL_ALIKE, detail=f"{r.detail}; so are {said}"[:_MOST_DETAIL])
        if r.claim is Claim.FAULTY
        else r
        for node, r in readings.items()
    }


def _weighed(statements: Sequence[_Statement]) -> Reading:
    good = [s for s in statements if _is_good(s)]
    bad = [s for s in statements if _is_bad(s)]
    absent = [s for s in statements if _ABSENT.search(s.text)]
    if _contradict(good, [*bad, *absent]):
        return _reading(Claim.CONTRADICTS, "it says good and bad of the same run")
    if bad:
        devices = tuple(dict.fromkeys(s.device for s in bad if s.device))
        return Reading(claim=Claim.FAULTY, devices=devices, detail=bad[0].text[:_MOST_DETAIL])
    if absent or not good:
        said = absent[0].text if absent else "nothing is called good or bad"
        return _reading(Claim.DID_NOT_RUN, said)
    return _reading(Claim.SOUND, good[-1].text)


def _reading(claim: Claim, detail: str) -> Reading:
    return Reading(claim=claim, detail=detail.strip()[:_MOST_DETAIL])


def _counts(text: str) -> list[int]:
    return [int(n.replace(",", "")[:20]) for n in _ERRORS.findall(text)]


def _is_good(s: _Statement) -> bool:
    return bool(_GOOD.search(s.text))


def _is_bad(s: _Statement) -> bool:
    has_code = any(int(code[:20]) for code in _CODE.findall(s.text))
    return has_code or bool(_BAD.search(_ABSENT.sub("", s.text))) or any(_counts(s.text))


def _contradict(good: Iterable[_Statement], ill: Iterable[_Statement]) -> bool:
    """Whether good and ill are said of the same thing: one device, or the run as a whole.

    Good of the run as a whole does not bear ill of any device in it; good of one device bears ill
    of another.
    """
    called_good = {s.device for s in good}
    called_ill = {s.device for s in ill}
    return bool(called_good & called_ill) or bool("" in called_good and called_ill)


def _statements(text: str) -> Iterator[_Statement]:
    try:
        document = json.loads(text)
    except (ValueError, RecursionError):
        yield from _of_lines(text)
        return
    yield from _of_json(document, "", 0)


def _of_lines(text: str) -> Iterator[_Statement]:
    for line in text.splitlines():
        found = _DEVICE.search(line)
        yield _Statement(found[1] if found else "", line)


def _of_json(value: object, device: str, depth: int) -> Iterator[_Statement]:
    if depth > _DEEPEST:
        yield _Statement(device, "aborted: nested too deep")
    elif isinstance(value, dict):
        own = next((str(value[key]) for key in _DEVICE_KEYS if _is_name(value.get(key))), device)
        plain = {k: v for k, v in value.items() if not isinstance(v, dict | list)}
        yield _Statement(own, ", ".join(f"{k}: {v}" for k, v in plain.items() if v is not None))
        for each in value.values():
            if isinstance(each, dict | list):
                yield from _of_json(each, own, depth + 1)
    elif isinstance(value, list):
        for each in value:
            yield from _of_json(each, device, depth + 1)
    else:
        yield _Statement(device, str(value))


def _is_name(value: object) -> bool:
    return isinstance(value, str | int) and not isinstance(value, bool) and value != ""
