# SPDX-License-Identifier: Apache-2.0
"""Tables for people, at most 100 columns wide. Colour only repeats what a word says."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

from rich.table import Table

from truestep.device import Device
from truestep.judging.power import excluded_rate
from truestep.record import Record
from truestep.report.text import shown
from truestep.verdict import Outcome, Verdict, merge_outcomes

WIDTH = 100

_STYLE = {Outcome.PASS: "green", Outcome.FAIL: "bold red", Outcome.UNKNOWN: "yellow"}


def outcome_text(outcome: Outcome) -> str:
    """The word, coloured."""
    return f"[{_STYLE[outcome]}]{outcome.value}[/]"


def device_table(records: Sequence[Record], elapsed_s: float) -> Table:
    """One row a device: tests, comparisons, outcome, power, time."""
    table = Table(
        title="Devices",
        title_justify="left",
        caption="weakest power: of every operation and unit, more wrong calls would have shown "
        "with 95 %",
        caption_justify="left",
        width=WIDTH,
    )
    for name, justify in (
        ("device", "left"),
        ("model", "left"),
        ("tests", "right"),
        ("comparisons", "right"),
        ("outcome", "left"),
        ("weakest power", "right"),
        ("time", "right"),
    ):
        table.add_column(name, justify=justify, overflow="fold")  # type: ignore[arg-type]
    for device, own in _by_device(records):
        verdicts = [r.verdict for r in own if r.verdict is not None]
        table.add_row(
            shown(device.id) + (" (simulated)" if device.is_simulated else ""),
            shown(device.model[:28]),
            str(len(verdicts)),
            f"{sum(v.num_comparisons for v in verdicts):,}",
            outcome_text(merge_outcomes(v.outcome for v in verdicts)),
            weakest_power(own),
            f"{elapsed_s:.0f} s",
        )
    return table


def power_table(records: Sequence[Record]) -> Table:
    """One row for each operation, dtype and value class of a device, over all its tests."""
    table = Table(
        title="Detection power: wrong calls that would have shown with 95 %",
        title_justify="left",
        width=WIDTH,
    )
    table.add_column("device", overflow="fold")
    table.add_column("operation", overflow="fold")
    table.add_column("values", overflow="fold")
    table.add_column("comparisons", justify="right")
    table.add_column("more often than 1 in", justify="right")
    for device, own in _by_device(records):
        for (site, value_class), num in comparisons_by_site(own).items():
            table.add_row(
                shown(device.id),
                shown(site),
                shown(value_class),
                f"{num:,}",
                f"{1 / excluded_rate(num):,.0f}",
            )
    return table


def comparisons_by_site(records: Iterable[Record]) -> dict[tuple[str, str], int]:
    """Clean comparisons of each operation and value class, added up over tests."""
    counts: Counter[tuple[str, str]] = Counter()
    for record in records:
        for power in record.verdict.power if record.verdict else ():
            counts[power.site, power.value_class] += power.num_comparisons
    return dict(counts)


def findings_table(records: Iterable[Record]) -> Table | None:
    """One block for each verdict that is not a pass; None where all passed."""
    open_records = [r for r in records if r.verdict and r.verdict.outcome is not Outcome.PASS]
    if not open_records:
        return None
    table = Table(title="What was found", title_justify="left", width=WIDTH, show_lines=True)
    table.add_column("device", overflow="fold")
    table.add_column("test", overflow="fold")
    table.add_column("outcome")
    table.add_column("what, and what to do", overflow="fold", ratio=1)
    for record in open_records:
        verdict = record.verdict
        assert verdict is not None
        table.add_row(
            shown(record.device.id if record.device else "-"),
            shown(record.subject),
            outcome_text(verdict.outcome),
            "\n".join(map(shown, finding_lines(verdict))),
        )
    return table


def finding_lines(verdict: Verdict) -> list[str]:
    """Reason, detail, suspect and next action."""
    lines = [verdict.reason.value]
    if verdict.detail and verdict.detail != verdict.reason.next_action:
        lines += verdict.detail.strip().splitlines()[-1:]
    if verdict.suspect is not None:
        name = f" {verdict.suspect.name}" if verdict.suspect.name else ""
        lines.append(f"suspect: {verdict.suspect.scope}{name}: {verdict.suspect.because}")
    if verdict.untested:
        lines.append(f"not varied, so still possible: {', '.join(verdict.untested)}")
    lines.append(f"next: {verdict.reason.next_action}")
    return lines


def repeat_commands(records: Iterable[Record]) -> list[str]:
    """The commands that repeat what failed, each whole on a line of its own."""
    return [r.replay for r in records if r.verdict and r.verdict.outcome is Outcome.FAIL]


def weakest_power(records: Iterable[Record]) -> str:
    """The largest rate that any operation leaves open, as `1 in n`; `-` if none is known."""
    fewest = min(comparisons_by_site(records).values(), default=0)
    return f"1 in {1 / excluded_rate(fewest):,.0f}" if fewest else "-"


def _by_device(records: Iterable[Record]) -> list[tuple[Device, list[Record]]]:
    grouped: dict[str, tuple[Device, list[Record]]] = {}
    for record in records:
        if record.device is not None:
            grouped.setdefault(record.device.id, (record.device, []))[1].append(record)
    return list(grouped.values())
