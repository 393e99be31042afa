"""The process that converts one page of HTML to text: HTML on standard input, markdown on standard output (A37).

A page is untrusted, and the conversion libraries take quadratic time for some pages. So the conversion runs in a
separate process with limits on memory and processor time, which ends when its caller does. It imports nothing of the
package.
"""

from __future__ import annotations

import os
import resource
import signal
import sys

MEMORY = 1 << 30
"""The memory limit of the process, in bytes."""

LONGEST = 4_000_000
"""The length limit of the result, in characters: indentation makes nested lists grow."""


def main(seconds: int, parent: int) -> int:
    resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    signal.signal(signal.SIGALRM, lambda *_: None if os.getppid() == parent else os._exit(1))
    signal.setitimer(signal.ITIMER_REAL, 0.5, 0.5)
    import markdownify

    html = sys.stdin.buffer.read().decode("utf-8", "replace")
    text = markdownify.markdownify(html, heading_style="ATX", strip=["script", "style"]).strip()
    sys.stdout.buffer.write(text[:LONGEST].encode("utf-8", "replace"))
    return 0


if __name__ == "__main__":
    try:
        status = main(int(sys.argv[1]), int(sys.argv[2]))
    except (ImportError, RecursionError, ValueError, MemoryError):
        status = 1
    sys.stdout.flush()
    os._exit(status)
