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
