# SPDX-License-Identifier: Apache-2.0
"""All screening tests, by id and by group."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from truestep.errors import ConfigError
from truestep.screening.spec import ScreeningTest
from truestep.screening.suite import (
    arithmetic,
    attention,
    casts,
    copies,
    exact_training,
    exercises,
    functions,
    indexing,
    integers,
    matmul,
    memory,
    reductions,
    stress,
)


def all_tests() -> tuple[ScreeningTest, ...]:
    """Every test, cheap ones first, so that a quick find is a quick answer."""
    return (
        *matmul.TESTS,
        *arithmetic.TESTS,
        *casts.TESTS,
        *integers.TESTS,
        *reductions.TESTS,
        *indexing.TESTS,
        *functions.TESTS,
        *attention.TESTS,
        *copies.TESTS,
        *memory.TESTS,
        *stress.TESTS,
        *exact_training.TESTS,
    )


def by_id(test_id: str) -> ScreeningTest:
    """The test of that id.

    Raises:
        ConfigError: There is none.
    """
    for test in (*all_tests(), *exercises.TESTS):
        if test.id == test_id:
            return test
    raise ConfigError(
        f"a test id must be one that `truestep tests` lists, got {test_id!r}. "
        "It may have been spelt differently."
    )


def choose(names: Iterable[str], *, level: int) -> tuple[ScreeningTest, ...]:
    """The tests of a level, or those that are named by id or group, each once.

    Args:
        names: Ids and groups. Named tests are chosen whatever their level.
        level: 1 to 4, used where nothing is named.

    Raises:
        ConfigError: A name is neither an id nor a group.
    """
    wanted = list(names)
    # An exercise is reached by its id alone: it belongs to no level and is not listed.
    tests = (*all_tests(), *(t for t in exercises.TESTS if t.id in wanted))
    known = {t.id for t in tests} | groups(tests)
    for name in wanted:
        if name not in known:
            raise ConfigError(
                f"--test must name an id or a group that `truestep tests` lists, got {name!r}. "
                f"Groups are {', '.join(sorted(groups(tests)))}."
            )
    if not wanted:
        return tuple(t for t in tests if t.level <= level)
    return tuple(t for t in tests if t.id in wanted or set(t.groups) & set(wanted))


def groups(tests: Sequence[ScreeningTest]) -> set[str]:
    """All group names."""
    return {group for test in tests for group in test.groups}
