# SPDX-License-Identifier: Apache-2.0
"""What the driver knows of a device becomes a record and an exit code, whatever else passes.

Source: https://github.com/aws/eks-node-monitoring-agent/issues/245
"""

from __future__ import annotations

from rehearsal import screened
from truestep.cli.exit_codes import DEFECT, NOT_JUDGED, ExitStyle, exit_code
from truestep.reason import Reason
from truestep.screening.runner import HEALTH
from truestep.verdict import Outcome


def test_four_reports_of_drivers_become_records():
    report = screened(reader="health_readers:four_gpus", tests=("exercise_sound",), num_simulated=4)
    told = {r.device.id: r.verdict for r in report.records if r.subject == HEALTH}
    assert {d: (v.outcome, v.reason) for d, v in told.items()} == {
        "sim:0": (Outcome.FAIL, Reason.ROW_REMAP_FAILED),
        "sim:1": (Outcome.UNKNOWN, Reason.RESET_NEEDED),
        "sim:2": (Outcome.FAIL, Reason.RECOVERY_REQUIRED),
    }
    assert all(r.context.before is not None for r in report.records if r.subject == HEALTH)
    assert [r.verdict.outcome for r in report.records if r.subject != HEALTH] == [Outcome.PASS] * 4
    assert exit_code(report.outcome, report.records, ExitStyle.STANDARD) == DEFECT
    assert exit_code(report.outcome, report.records, ExitStyle.SLURM) == DEFECT


def test_a_needed_reset_alone_is_neither_a_defect_nor_a_pass():
    report = screened(reader="health_readers:pending", tests=("exercise_sound",), num_simulated=1)
    assert exit_code(report.outcome, report.records, ExitStyle.STANDARD) == NOT_JUDGED
    assert exit_code(report.outcome, report.records, ExitStyle.SLURM) == 0


def test_the_command_that_repeats_a_finding_of_the_driver_names_no_test():
    report = screened(reader="health_readers:pending", tests=("exercise_sound",), num_simulated=1)
    (record,) = (r for r in report.records if r.subject == HEALTH)
    assert record.replay.startswith("truestep screen --seed")
    assert "--device sim:0" in record.replay
