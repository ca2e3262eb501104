# SPDX-License-Identifier: Apache-2.0
"""Measure several things in turn, so that a busy moment of the machine meets all of them alike."""

from __future__ import annotations

import gc
import statistics
from collections.abc import Callable, Mapping
from time import perf_counter


def medians(
    subjects: Mapping[str, Callable[[], object]], *, rounds: int, warm_up: int = 3
) -> dict[str, float]:
    """
    Return the median seconds of each subject, which are called one after the other, round by round.

    The order alternates, and no garbage is collected while something is timed.
    """
    times: dict[str, list[float]] = {name: [] for name in subjects}
    # What is there stays there: to look through all of vLLM takes longer than what is timed.
    gc.freeze()
    for number in range(-warm_up, rounds):
        order = list(subjects)
        for name in order if number % 2 else reversed(order):
            gc.collect()
            gc.disable()
            begin = perf_counter()
            subjects[name]()
            seconds = perf_counter() - begin
            gc.enable()
            if number >= 0:
                times[name].append(seconds)
    return {name: statistics.median(found) for name, found in times.items()}
