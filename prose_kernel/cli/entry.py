"""The entry point of the command `prose`. Neither it nor the package around it imports anything, so that Ctrl-C while
the command line is imported ends it as Ctrl-C does later: with status 130, and without a traceback."""

from __future__ import annotations


def main() -> int:
    """Run the command line; the exit status is returned."""
    try:
        from prose_kernel.cli.main import main as run

        return run()
    except KeyboardInterrupt:
        return 130
