# SPDX-License-Identifier: Apache-2.0
"""An incident and a hand-off as Markdown. Text of others is escaped: it stays text."""

from __future__ import annotations

import html
import re
from collections.abc import Iterable, Mapping
from typing import Any

from truestep.report.fleet_tables import when

_SPECIAL = re.compile(r"([\\`*_{}\[\]()#+!|~-])")


def escaped(text: object) -> str:
    """Text that Markdown and HTML show as it is, on one line."""
    plain = "".join(c if c.isprintable() else f"<{ord(c):x}>" for c in str(text))
    return _SPECIAL.sub(r"\\\1", html.escape(plain, quote=False))


def incident_page(document: Mapping[str, Any]) -> str:
    """The page of an incident, from its JSON document."""
    i = document["incident"]
    lines = [f"# Incident {escaped(i['id'])}", ""]
    if i["is_simulated"]:
        lines += ["**Simulated: a rehearsal, no finding.**", ""]
    identity = f" ({escaped(i['identity'])})" if i["identity"] else ""
    lines += [
        f"- Node: {escaped(i['node'])}{identity}",
        f"- Devices: {_listed(i['devices'])}",
        f"- Trigger: {escaped(i['trigger'] or 'unknown')}, run {escaped(i['run_id'] or 'none')}",
        f"- Suspect: {_listed(i['suspects'])}",
        (
            f"- Went bad between {when(i['sound_s'])} (last pass) and {when(i['bad_s'])} (first "
            "confirmed fail), UTC"
        ),
        f"- Time to detection: {_duration(document['time_to_detection_s'])} at most",
        f"- Time to repair: {_duration(document['time_to_repair_s'])}",
        f"- Vendor: {_listed(i['vendor'])}",
        f"- Follow-up: {escaped(i['follow_up'])}",
        "",
        *_section("Symptoms", (_symptom(s) for s in i["symptoms"])),
        *_section("Jobs to distrust", (_job(j) for j in i["jobs"])),
        *_section("Actions", (_step(s) for s in i["steps"])),
        *_section("Lessons", map(escaped, i["lessons"])),
        *_section("Evidence", map(escaped, i["evidence"])),
        *_section("Earlier incidents like this one", (_likeness(x) for x in document["similar"])),
    ]
    return "\n".join(lines).rstrip() + "\n"


def hand_off_page(document: Mapping[str, Any]) -> str:
    """The page of a hand-off, from its JSON document."""
    h = document["hand_off"]
    lines = [f"# Hand-off of {escaped(h['serial'])}", ""]
    if h["is_simulated"]:
        lines += ["**Simulated: a rehearsal, no finding.**", ""]
    lines += [
        "Every comparison is with exact arithmetic: each correct device gives the same bits.",
        "",
        *_section("Where it was", (_placement(p) for p in h["placements"])),
        *_section("Tests", (_count(t) for t in h["tests"])),
        *_section("Symptoms", (_symptom(s) for s in h["symptoms"])),
        *_section("Time line (UTC)", (_moment(m) for m in h["time_line"])),
        *_section("Readings while it failed, and while it passed", map(_reading, h["context"])),
        *_section("Said by other tools: evidence, no verdict of ours", map(escaped, h["said"])),
        *_section("Attached files", (_file(a) for a in document["attached"])),
        "## To repeat it",
        "",
        "`python3 reproducer.py --device cuda:0 --minutes 10` multiplies small integers in the",
        "element types that failed. It needs numpy, and torch for a device that is no CPU; it ends",
        "with 1 when a product is wrong, with 0 when none is. It holds no data of anybody. Where",
        "the failing tests above are no matrix products, it need not show the fault: repeat them",
        "with `truestep screen --test TEST`. `records.jsonl` holds the failing records whole.",
    ]
    return "\n".join(lines).rstrip() + "\n"


def _placement(p: Mapping[str, Any]) -> str:
    firmware = f", firmware {escaped(p['firmware'])}" if p["firmware"] else ""
    model = escaped(p["model"] or "model not known")
    return (
        f"{escaped(p['serial'])}, {model}{firmware}, in {escaped(p['name'])} from "
        f"{when(p['from_s'])} to {when(p['to_s'])}"
    )


def _count(t: Mapping[str, Any]) -> str:
    return (
        f"{escaped(t['test'])}: failed in {t['num_failing']} of {t['num_runs']} runs (95 % "
        f"interval of the rate {t['low']:.1%} to {t['high']:.1%}); of other nodes alike "
        f"{t['sound_elsewhere']} pass and {t['failing_elsewhere']} fail"
    )


def _moment(m: Mapping[str, Any]) -> str:
    tests = f": {_listed(m['tests'])}" if m["tests"] else ""
    return f"{when(m['time_s'])}: {escaped(m['outcome'])} in {escaped(m['node'])}{tests}"


def _reading(r: Mapping[str, Any]) -> str:
    failing, passing = (
        "not read" if ends is None else f"{ends[0]:g} to {ends[1]:g}"
        for ends in (r["failing"], r["passing"])
    )
    return f"{escaped(r['name'])}: {failing}; {passing}"


def _file(a: Mapping[str, Any]) -> str:
    return f"{escaped(a['name'])}, {a['size_bytes']} bytes, sha256 {escaped(a['sha256'])}"


def _section(title: str, items: Iterable[str]) -> list[str]:
    rows = [f"- {item}" for item in items]
    return [f"## {title}", "", *(rows or ["None."]), ""]


def _listed(texts: Iterable[object]) -> str:
    return ", ".join(map(escaped, texts)) or "not known"


def _symptom(s: Mapping[str, Any]) -> str:
    seen = [*s["sites"], *s["dtypes"], *s["spreads"], *s["changes"]]
    bits = f"; bits {', '.join(map(str, s['bits']))}" if s["bits"] else ""
    against = f"; against {_listed(s['references'])}" if s["references"] else ""
    return (
        f"{escaped(s['test'])} on {escaped(s['device'])}: {s['num_failing']} of {s['num_runs']} "
        f"runs failed; {_listed(seen)}{bits}{against}"
    )


def _job(job: Mapping[str, Any]) -> str:
    owner = f" of user {escaped(job['uid'])}" if job["uid"] else ""
    return f"job {escaped(job['id'])}{owner}, ended {when(job['end_s'])}"


def _step(step: Mapping[str, Any]) -> str:
    return f"{when(step['time_s'])}: {escaped(step['what'])} ({escaped(step['reason'])})"


def _likeness(likeness: Mapping[str, Any]) -> str:
    return (
        f"{escaped(likeness['id'])} on {escaped(likeness['node'])}, {likeness['share']:.0%} alike: "
        f"{_listed(likeness['features'])}"
    )


def _duration(seconds: float | None) -> str:
    return "not known" if seconds is None else f"{seconds / 3600:.1f} h"
