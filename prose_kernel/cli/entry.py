"""The entry point of the command `prose`.

Neither this module nor its package imports anything, so that Ctrl-C during the imports of the command line has the same
effect as later: status 130, without a traceback.
"""

from __future__ import annotations


def main() -> int:
    """Run the command line and return the exit status."""
    try:
        import gc

        gc.set_threshold(20_000)  # by default a twentieth of the start goes into looking for garbage of imports
        from prose_kernel.cli.main import main as run

        return run()
    except KeyboardInterrupt:
        return 130
