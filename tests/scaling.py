"""How the cost of something grows with its size: two sizes, measured in the same test, on the same machine."""

from __future__ import annotations

import gc
import time
from collections.abc import Callable


def seconds(action: Callable[[], object], rounds: int = 3, enough: float = 0.0) -> float:
    """The least processor time of several rounds, in seconds; without the collector, whose work all live tests share.

    One round that is quicker than `enough` is enough.
    """
    times: list[float] = []
    gc.collect()
    gc.disable()
    try:
        while len(times) < rounds and not (times and times[-1] < enough):
            began = time.process_time()
            action()
            times.append(time.process_time() - began)
    finally:
        gc.enable()
    return min(times)


def assert_linear(work: Callable[[int], Callable[[], object]], size: int) -> None:
    """Four times the size costs less than eight times the time. `work` prepares what is measured for a size.

    Processor time is counted, so other work on the machine hardly shows; a machine that is very busy elsewhere gets a
    second and a third chance. What grows with the square never passes.
    """
    for _ in range(3):
        small = seconds(work(size))
        bound = 8 * small + 0.02
        large = seconds(work(4 * size), enough=bound)
        if large < bound:
            return
    raise AssertionError(f"{small:.4f} s for {size}, {large:.4f} s for {4 * size}: more than linear")
