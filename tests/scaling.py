"""Measures how cost grows with size, for two sizes in the same test on the same machine."""

from __future__ import annotations

import gc
import time
from collections.abc import Callable


def seconds(action: Callable[[], object], rounds: int = 1) -> float:
    """Return the least processor time of this thread in several rounds, without garbage collection, which depends on all
    loaded tests.

    Objects of earlier rounds are in the youngest generation, because the collector was off; only this is collected.
    """
    times: list[float] = []
    gc.collect(0)
    gc.disable()
    try:
        for _ in range(rounds):
            began = time.thread_time()
            action()
            times.append(time.thread_time() - began)
    finally:
        gc.enable()
    return min(times)


def assert_linear(work: Callable[[int], Callable[[], object]], size: int) -> None:
    """Assert that eight times the size takes less than 24 times the time; quadratic cost would take 64 times.

    `work` prepares the measured action for a size: half of `size`, and four times `size`. Only processor time of this
    thread counts. Other work on the machine slows it down through caches, rarely by half; the bound allows a factor of
    three. Both sizes are measured in turn until the least times satisfy the bound.
    """
    small, large = work(size // 2), work(4 * size)
    least = [float("inf"), float("inf")]
    for _ in range(5):
        least = [min(least[0], seconds(small, 3)), min(least[1], seconds(large))]
        if least[1] < 24 * least[0] + 0.02:
            return
    raise AssertionError(f"{least[0]:.4f} s for {size // 2}, {least[1]:.4f} s for {4 * size}: more than linear")
