# SPDX-License-Identifier: Apache-2.0
"""A failure that is noticed late is charged to the device it came from, not to the next one.

Source: https://github.com/sp00n/CoreCycler/issues/43
"""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from judging.trials import alone
from rehearsal import Onlooker, runner
from truestep.reason import Reason
from truestep.screening.pool import Bookings
from truestep.screening.tasks import Result, Task
from truestep.verdict import Outcome


def failed(task_id: str, device: str) -> Result:
    return Result(task_id=task_id, observations=(alone(device, wrong=1),))


def test_a_result_that_comes_after_the_next_device_began_is_booked_on_its_own():
    bookings = Bookings()
    bookings.expect(Task(id="task-2", test_id="t"), "sim:2")
    bookings.expect(Task(id="task-3", test_id="t"), "sim:3")
    assert bookings.book(failed("task-2", "sim:2")) == "sim:2"
    assert bookings.is_open("task-3")
    assert bookings.book(Result(task_id="task-3")) == "sim:3"
    assert bookings.results["task-2"].observations[0].is_miscompare
    assert bookings.results["task-3"].observations == ()


@given(st.permutations(range(6)), st.lists(st.sampled_from(["", "task-0", "gone"]), max_size=4))
def test_the_order_of_arrival_never_decides_and_a_stray_takes_no_place(order, strays):
    bookings = Bookings()
    for number in range(6):
        bookings.expect(Task(id=f"task-{number}", test_id="t"), f"sim:{number}")
    for number in order:
        assert bookings.book(failed(f"task-{number}", f"sim:{number}")) == f"sim:{number}"
    for stray in strays:
        # A second result of a task is a stray, too: the first one stands.
        assert bookings.book(Result(task_id=stray)) is None
    assert len(bookings.unattributed) == len(strays)
    for number in range(6):
        (seen,) = bookings.results[f"task-{number}"].observations
        assert seen.parties[0].device == f"sim:{number}"


def test_a_result_without_a_task_becomes_a_record_that_blames_nobody():
    def arrive(test_id: str) -> None:
        stray = failed("of-an-earlier-run", "sim:1")
        screening.pool.bookings.book(stray)

    onlooker = Onlooker(on_start=arrive)
    screening = runner(onlooker, tests=("exercise_sound",), num_simulated=2)
    report = screening.run()
    *own, stray = report.records
    assert [r.verdict.outcome for r in own] == [Outcome.PASS, Outcome.PASS]
    assert stray.device is None
    assert (stray.verdict.outcome, stray.verdict.reason) == (Outcome.UNKNOWN, Reason.UNATTRIBUTED)
    assert stray.verdict.suspect is None
    assert stray.observations[0].is_miscompare, "what it saw is kept"
    assert "of-an-earlier-run" in stray.verdict.detail
    assert report.outcome is Outcome.UNKNOWN
