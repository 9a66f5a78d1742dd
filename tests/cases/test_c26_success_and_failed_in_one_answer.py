# SPDX-License-Identifier: Apache-2.0
"""A tool that says success and failed of one run leaves nobody healthy."""

from __future__ import annotations

import json

import pytest

from truestep.fleet.vendor_tools import Claim, read_output
from truestep.reason import Reason

CODE = {"category": "memory", "results": [{"gpu_id": "0", "status": "PASS", "error_code": 12}]}
WARNED = {"gpu_id": "0", "status": "Pass", "warnings": [{"error_id": 28, "warning": "no memory"}]}


@pytest.mark.parametrize(
    "raw",
    [
        json.dumps(CODE).encode(),
        json.dumps({"tests": [{"name": "memory", "results": [WARNED]}]}).encode(),
        b"ABORT: GPUs in use\nSUCCESS\nFailed\n",
        b'{"result": "SUCCESS", "output": "diag aborted"}',
        b"GPU 0: FAILED\nall tests passed\n",
    ],
)
def test_it_is_inconclusive_and_says_so(raw: bytes) -> None:
    found = read_output(raw)
    assert found.claim is Claim.CONTRADICTS
    assert found.reason is Reason.TOOL_CONTRADICTS
    assert found.detail


def test_a_timeout_without_a_body_did_not_run() -> None:
    for raw in (b"", b"\n \n", b"timed out"):
        assert read_output(raw).claim is Claim.DID_NOT_RUN


def test_a_report_of_which_all_is_good_is_sound() -> None:
    good = {"gpu_id": "0", "status": "Pass", "error_code": 0}
    assert read_output(json.dumps({"tests": [{"results": [good]}]}).encode()).claim is Claim.SOUND
    assert read_output(b"[" * 100_000).claim is Claim.DID_NOT_RUN
