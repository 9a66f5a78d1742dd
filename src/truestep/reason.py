# SPDX-License-Identifier: Apache-2.0
"""Why a verdict is what it is: permanent codes, each with an owner and a next action.

A code is never renamed and never reused. `docs/reason_codes.md` lists them all.
"""

from __future__ import annotations

from enum import StrEnum


class Owner(StrEnum):
    """Who acts on a reason."""

    NOBODY = "nobody"
    HARDWARE = "hardware operations"
    PLATFORM = "platform and software"
    USER = "whoever started the run"


class Reason(StrEnum):
    """A permanent code; `owner` and `next_action` say what follows from it."""

    owner: Owner
    next_action: str

    def __new__(cls, code: str, owner: Owner, next_action: str) -> Reason:
        """Bind the owner and the next action to a code."""
        member = str.__new__(cls, code)
        member._value_ = code
        member.owner = owner
        member.next_action = next_action
        return member

    PASSED = "passed", Owner.NOBODY, "None."

    MISCOMPARE_REPEATED = (
        "miscompare_repeated",
        Owner.HARDWARE,
        "Take the device out of service; replay the evidence on another device.",
    )
    MISCOMPARE_INTERMITTENT = (
        "miscompare_intermittent",
        Owner.HARDWARE,
        "Take the device out of service; screen it at a longer level to learn the rate.",
    )
    MISCOMPARE_NOT_REPEATED = (
        "miscompare_not_repeated",
        Owner.HARDWARE,
        "Screen again at a longer level and under load; the evidence stays.",
    )
    HARDWARE_REPORTED = (
        "hardware_reported",
        Owner.HARDWARE,
        "Follow the vendor's advice for the counter that rose with the miscompare.",
    )
    ROW_REMAP_FAILED = (
        "row_remap_failed",
        Owner.HARDWARE,
        "Replace the device: its memory has no spare rows left.",
    )
    RECOVERY_REQUIRED = (
        "recovery_required",
        Owner.HARDWARE,
        "Carry out the recovery action that the driver asks for, then screen again.",
    )
    RESET_NEEDED = (
        "reset_needed",
        Owner.HARDWARE,
        "Reset the device so that pending row remaps take effect, then screen again.",
    )
    ALL_ALIKE = (
        "all_alike",
        Owner.PLATFORM,
        "Look at the library, driver or platform: every party differs in the same way.",
    )
    INPUT_DAMAGED = (
        "input_damaged",
        Owner.PLATFORM,
        "Fetch the input again and check the storage and memory of this host.",
    )
    CONTRAST_NEEDED = (
        "contrast_needed",
        Owner.USER,
        "Run the experiment that the verdict names; until then nobody can be blamed.",
    )
    NOT_CERTIFIED = (
        "not_certified",
        Owner.USER,
        "Show first that this set-up repeats its own bits; a difference means nothing yet.",
    )
    NO_REFERENCE = (
        "no_reference",
        Owner.USER,
        "Mint a golden for this environment; none matches it.",
    )
    WEAK_EVIDENCE = (
        "weak_evidence",
        Owner.USER,
        "Look for stronger evidence: a departure from the run's own past convicts nobody.",
    )
    NO_COMPARISONS = (
        "no_comparisons",
        Owner.USER,
        "Give the test more time or memory: nothing was compared.",
    )
    SELFTEST_MISSED = (
        "selftest_missed",
        Owner.PLATFORM,
        "Do not trust this installation: a planted fault was not caught.",
    )
    NO_DEVICES = (
        "no_devices",
        Owner.USER,
        "Grant at least one device, or choose another backend.",
    )
    UNATTRIBUTED = (
        "unattributed",
        Owner.PLATFORM,
        "Find out which run sent this result; it names none and was booked on nobody.",
    )
    CRASHED = (
        "crashed",
        Owner.PLATFORM,
        "Read the saved error output; if it recurs on this device alone, suspect the device.",
    )
    TIMED_OUT = (
        "timed_out",
        Owner.PLATFORM,
        "Repeat alone; if it recurs on this device alone, suspect the device.",
    )
    DRIVER_HUNG = (
        "driver_hung",
        Owner.HARDWARE,
        "Reboot the node: a process is stuck in the driver and cannot be ended.",
    )
    OUT_OF_MEMORY = (
        "out_of_memory",
        Owner.USER,
        "Free memory on the device or grant more, then repeat.",
    )
    INTERRUPTED = ("interrupted", Owner.USER, "Repeat the run; what was finished is kept.")
    MISSING_CAPABILITY = (
        "missing_capability",
        Owner.USER,
        "Choose a backend or device that has the operation.",
    )
    IN_USE = (
        "in_use",
        Owner.USER,
        "Wait until the device is free, or repeat with --allow-busy.",
    )
    LOCKED = (
        "locked",
        Owner.USER,
        "Wait for the other screening of this device to end.",
    )
    INSTALLED = ("installed", Owner.NOBODY, "Screen the node before its first use.")
    JOB_STARTED = ("job_started", Owner.NOBODY, "None.")
    JOB_ENDED = ("job_ended", Owner.NOBODY, "Screen the node before its next use.")
    SCREENING_DUE = ("screening_due", Owner.NOBODY, "None.")
    SCREENING_STALE = (
        "screening_stale",
        Owner.USER,
        "Screen again: the evidence is too old to act on.",
    )
    RETEST_FAILED = (
        "retest_failed",
        Owner.HARDWARE,
        "Quarantine the node; it failed again in a fresh process.",
    )
    REPAIR_STARTED = ("repair_started", Owner.HARDWARE, "Repair, then put the node on probation.")
    REPAIR_DONE = ("repair_done", Owner.NOBODY, "Screen at the extended level.")
    BOUND_REACHED = (
        "bound_reached",
        Owner.HARDWARE,
        "Return or retire nodes, or raise the bound; this one waits.",
    )
    PERSON_DECIDED = ("person_decided", Owner.NOBODY, "None.")
    NOT_STARTED = (
        "not_started",
        Owner.USER,
        "Give the run more time: it ended before this test.",
    )
    TOOL_PASSED = (
        "tool_passed",
        Owner.NOBODY,
        "None: a pass of another tool says nothing about silent corruption.",
    )
    TOOL_REPORTED = (
        "tool_reported",
        Owner.HARDWARE,
        "Screen the node: another tool calls it faulty, which is evidence and no verdict.",
    )
    TOOL_CONTRADICTS = (
        "tool_contradicts",
        Owner.PLATFORM,
        "Run the other tool once more; if it contradicts itself again, let a person read it.",
    )
    TOOL_IMPLAUSIBLE = (
        "tool_implausible",
        Owner.PLATFORM,
        "Repair or replace the other tool: what it printed cannot be.",
    )
    TOOL_DID_NOT_RUN = (
        "tool_did_not_run",
        Owner.PLATFORM,
        "Find out why the other tool did no work, then run it again.",
    )
    SLOW = (
        "slow",
        Owner.HARDWARE,
        "Look at links, clocks and cooling: the node is slower than its equals, not wrong.",
    )
    APPLICATION_ERROR = (
        "application_error",
        Owner.USER,
        "Look at the program: an error of one program is no evidence against the device.",
    )
    APPLICATION_ERRORS_SPREAD = (
        "application_errors_spread",
        Owner.HARDWARE,
        "Screen the node: programs of several users met the same error on one device.",
    )
