# SPDX-License-Identifier: Apache-2.0
"""Measure several things in turn, so that a busy moment of the machine meets all of them alike."""

from __future__ import annotations

import gc
import statistics
from collections.abc import Callable, Mapping
from time import perf_counter, sleep


def medians(
    subjects: Mapping[str, Callable[[], object]],
    *,
    rounds: int,
    warm_up: int = 3,
    turn: int = 1,
    pause: float = 0.0,
) -> dict[str, float]:
    """
    Return the median seconds of each subject, which take turns, round by round.

    turn: how often a subject is timed before the next one's turn. pause: seconds of rest before a
    turn, which then begins with a call that is not timed: the processes of a server that was
    busy look for work for a while, and a server that has rested is slow at first.

    The order alternates, and no garbage is collected while something is timed.
    """
    times: dict[str, list[float]] = {name: [] for name in subjects}
    # What is there stays there: to look through all of vLLM takes longer than what is timed.
    gc.freeze()
    for number in range(-warm_up, rounds):
        order = list(subjects)
        for name in order if number % 2 else reversed(order):
            if pause:
                sleep(pause)
                subjects[name]()
            timed = [_seconds(subjects[name]) for _ in range(turn)]
            if number >= 0:
                times[name] += timed
    return {name: statistics.median(found) for name, found in times.items()}


def _seconds(call: Callable[[], object]) -> float:
    gc.collect()
    gc.disable()
    begin = perf_counter()
    call()
    seconds = perf_counter() - begin
    gc.enable()
    return seconds
