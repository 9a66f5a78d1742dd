# SPDX-License-Identifier: Apache-2.0
"""The errors that Truestep raises. A device that fails is data (a `Verdict`), never one of these.

    TruestepError
    |-- ConfigError (also ValueError)   the user asked for something that cannot be
    |-- UnsupportedError                this backend or device cannot do the operation
    |-- BackendError                    the library under the backend broke; that is no evidence
    |-- RecordError (also ValueError)   a record, journal or evidence file is not what it must be
    `-- BoundError (also ValueError)    an exactness bound does not hold for these operands

A message says what must hold, what was got, and what to do, in that order.
"""

from __future__ import annotations


class TruestepError(Exception):
    """Base of every error raised on purpose by this package."""


class ConfigError(TruestepError, ValueError):
    """The request cannot be carried out as written; the message says what to change."""


class UnsupportedError(TruestepError):
    """The backend or device lacks the operation; nothing was computed."""


class BackendError(TruestepError):
    """A library call failed for a reason that says nothing about the hardware."""


class RecordError(TruestepError, ValueError):
    """Stored bytes do not hold what they must hold; nothing was changed on disk."""


class BoundError(TruestepError, ValueError):
    """Operands break the bound under which a result is known exactly."""
