# SPDX-License-Identifier: Apache-2.0
"""Errors that programs meet on a device: one program's are its own, several users' are a doubt."""

from __future__ import annotations

from collections.abc import Collection, Iterable

from truestep.reason import Reason

SUBJECT = "application_error"
"""Subject of the watch records that keep them."""

USERS = 5
"""So many users make a doubt."""


def subject_of(pci: str, xid: int) -> str:
    """What a record of one error on one device is about."""
    return f"{SUBJECT}/{pci}/{xid}"


def reason_of(users: Iterable[str], *, known: Collection[str] = ()) -> Reason:
    """What the same error on the same device means, by the users whose programs met it.

    Args:
        users: Those of now; empty text where it is not known whose it was, which counts for nobody.
        known: Those of earlier records.

    Guarantees: never more than a reason to screen the device.
    """
    different = {user for user in (*users, *known) if user}
    return Reason.APPLICATION_ERRORS_SPREAD if len(different) >= USERS else Reason.APPLICATION_ERROR
