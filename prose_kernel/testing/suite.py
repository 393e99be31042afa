"""Find the notebooks and programs to test, and run them, optionally in several processes."""

from __future__ import annotations

import os
import shutil
import signal
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing, suppress
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import Struct

from prose_kernel.access import plain_files
from prose_kernel.errors import UsageError, reason_of
from prose_kernel.language.contracts import SUFFIX as CONTRACT
from prose_kernel.language.text import escaped
from prose_kernel.programs import missing_files
from prose_kernel.runs import languages
from prose_kernel.testing import snapshot_file
from prose_kernel.testing.options import SuiteOptions
from prose_kernel.testing.snapshot_file import SUFFIX
from prose_kernel.views.test_results import Outcome, StateDifference, Tested

if TYPE_CHECKING:
    from concurrent.futures import ProcessPoolExecutor

LEFT_OUT = frozenset({"node_modules", "__pycache__", "build", "dist", "site-packages"})
STATE = (".prose", ".vvm")


class TestedFile(Struct, frozen=True):
    """A file to test, and its name in messages."""

    path: Path
    name: str

    @property
    def is_notebook(self) -> bool:
        return self.name.endswith(".ipynb")


# ---------------------------------------------------------------- find tests


def targets(given: Sequence[str], cwd: Path, *, update: bool = False, recursive: bool = False) -> list[TestedFile]:
    """Return the tests for arguments: files, directories, patterns; without arguments, those below `cwd`.

    The tests below a directory are the notebooks of Prose and VVM kernels, and the programs with a snapshot. Contract
    files of kind `test` count only directly in it, unless `recursive`. Raises `UsageError` for a name without tests.
    """
    found: dict[Path, TestedFile] = {}
    for word in given or (".",):
        for path in _tests_for(word, cwd, update=update, recursive=recursive):
            typed = path == cwd / os.path.expanduser(word)
            place = path.resolve() if typed and not update else path.parent.resolve() / path.name
            relative = os.path.relpath(path, cwd)
            is_far = relative.startswith(os.pardir + os.sep + os.pardir)
            found.setdefault(place, TestedFile(place, str(path) if is_far else relative))
    return list(found.values())


def _tests_for(word: str, cwd: Path, *, update: bool, recursive: bool) -> list[Path]:
    if not word.strip():
        raise UsageError(
            "the name of a notebook or program is empty", hint="prose test without names tests all files here"
        )
    path, shown = cwd / os.path.expanduser(word), escaped(word)
    try:
        if path.is_dir():
            below = _tests_below(path)
            return [one for one in below if recursive or one.parent == path or not is_contract_test(one)]
        if not path.exists() and any(c in word for c in "*?["):
            matches = sorted(_matching(cwd, word))
            named = [one for one in matches if one.is_file() and ((update and _is_program(one)) or is_test(one))]
            below = [one for match in matches if match.is_dir() for one in _tests_below(match)]
            if named or below:
                return [*named, *below]
            raise UsageError(f"{shown} matches no notebook, and no program with a snapshot")
        exists = path.exists()
    except (OSError, ValueError) as problem:
        raise UsageError(f"cannot read {shown}: {reason_of(problem, str(problem))}") from None
    if word.endswith(SUFFIX) and exists:
        path = path.with_name(path.name.removesuffix(SUFFIX))
        word = word.removesuffix(SUFFIX)
        exists = path.exists()
    if not exists:
        raise UsageError(
            f"there is no file {escaped(word)}", hint=missing_files.hint(word, languages.runnable_suffixes())
        )
    if path.suffix != ".ipynb" and not _is_program(path):
        kinds = ", ".join(languages.runnable_suffixes())
        raise UsageError(f"{escaped(word)} is neither a notebook nor a program", hint=f"names end with {kinds}")
    return [path]


def _matching(cwd: Path, pattern: str) -> Iterable[Path]:
    import glob

    found = [Path(name) for name in glob.glob(pattern, root_dir=cwd, recursive=True)]  # noqa: PTH207 - with root_dir
    return [cwd / path for path in found if not any(_is_left_out(cwd / place) for place in path.parents)]


def _is_left_out(place: Path) -> bool:
    """Return whether a directory is not searched: hidden, of packages, or a virtual environment."""
    hidden = place.name.startswith(".") and place.name not in ("", ".", "..")
    return hidden or place.name in LEFT_OUT or Path(place, "pyvenv.cfg").exists()


def _is_program(path: Path) -> bool:
    return path.name.endswith(languages.suffixes())


def _below(directory: Path) -> Iterator[Path]:
    """Yield all files below a directory, except hidden ones and those of packages. Links are not followed."""
    for place, inner, names in os.walk(directory):
        inner[:] = sorted(name for name in inner if not _is_left_out(Path(place, name)))
        yield from (Path(place, name) for name in names if not name.startswith("."))


def _tests_below(directory: Path) -> list[Path]:
    return sorted({test for path in _below(directory) if (test := found_test(path)) is not None})


def found_test(path: Path) -> Path | None:
    """Return the file to test for a file that was found: itself if it is a test, or for a snapshot without a program
    the missing program, whose test fails."""
    program = path.with_name(path.name.removesuffix(SUFFIX))
    if program != path and _is_program(program) and not os.path.lexists(program):
        return program
    return path if is_test(path) else None


def is_test(path: Path) -> bool:
    """Return whether a found file is a test: a Prose or VVM notebook, a program with a snapshot, a contract test."""
    if path.suffix == ".ipynb":
        return _is_prose_notebook(path)
    return _is_program(path) and (path.with_name(path.name + SUFFIX).is_file() or is_contract_test(path))


def is_contract_test(path: Path) -> bool:
    """Return whether a file is a contract file of kind `test`, by its front matter."""
    if not path.name.endswith(CONTRACT):
        return False
    from prose_kernel.language.contracts.reader import own_field
    from prose_kernel.programs.contract_files import head_of

    return own_field(head_of(path), "kind") == "test"


def _is_prose_notebook(path: Path) -> bool:
    from prose_kernel.testing.notebook_source import read

    try:
        data = plain_files.read(path)
    except OSError:
        return False
    if not any(f'"{one.magic}"'.encode() in data for one in languages.LANGUAGES.values()):
        return False
    try:
        return read(path).language is not None
    except UsageError:
        return True  # the test reports the problem


WHOLE = ("notebook", "recording")
"""The names of outcomes about a whole notebook: its execution counts, its recording."""


def names_of(path: Path) -> list[str]:
    """Return the names of the possible outcomes of a file. Raises `UsageError` if it cannot be tested."""
    if path.suffix == ".ipynb":
        from prose_kernel.testing.notebook_source import read

        return [*(cell.name for cell in read(path, path.name).cells if not cell.empty), *WHOLE]
    if is_contract_test(path):
        return ["test"]
    if not path.exists():
        from prose_kernel.testing.program_snapshots import PROGRAM

        return [PROGRAM]
    return [case.name for case in snapshot_file.read(path.with_name(path.name + SUFFIX))]


def name_matches(name: str, expression: str) -> bool:
    """Return whether a name matches an expression like pytest's `-k`: words with `and`, `or`, `not`. Case is ignored.
    Raises `UsageError` for an invalid expression."""
    words = expression.casefold().split()
    ways: list[list[tuple[bool, str]]] = [[]]
    wanted, incomplete = True, True
    for word in words:
        if word == "not":
            wanted, incomplete = not wanted, True
        elif word not in ("and", "or"):
            ways[-1].append((wanted, word))
            wanted, incomplete = True, False
        elif incomplete:
            break
        else:
            ways += [[]] if word == "or" else []
            incomplete = True
    if incomplete:
        raise UsageError(f"-k {expression!r} isn't an expression", hint="-k 'tour and not vvm'")
    return any(all((word in name.casefold()) is wanted for wanted, word in way) for way in ways)


# ---------------------------------------------------------------- run tests


def run_one(target: TestedFile, options: SuiteOptions) -> Tested:
    if target.is_notebook:
        from prose_kernel.testing.notebooks import test_notebook

        return test_notebook(target.path, target.name, options)
    if is_contract_test(target.path):
        from prose_kernel.testing.contract_tests import test_contract

        return test_contract(target.path, target.name, options)
    from prose_kernel.testing.program_snapshots import test_program

    return test_program(target.path, target.name, options)


def run_all(
    found: Sequence[TestedFile], options: SuiteOptions, workers: int, each: Callable[[Tested], None]
) -> list[Tested]:
    """Test all files; `each` is called with their results, in order. State directories that the runs create next to the
    files are removed at the end, unless another process keeps a run there."""
    made = [
        state for place in {one.path.parent for one in found} for name in STATE if not (state := place / name).exists()
    ]
    try:
        results = _parallel(found, options, workers, each) if workers > 1 else _in_turn(found, options, each)
    finally:
        if not options.live:
            for state in made:
                if not any((state / "runs").glob("*")):
                    shutil.rmtree(state, ignore_errors=True)
    return [*results, *_shared_recordings(results)]


def _in_turn(found: Sequence[TestedFile], options: SuiteOptions, each: Callable[[Tested], None]) -> list[Tested]:
    results = []
    for target in found:
        results.append(run_one(target, options))
        each(results[-1])
        if results[-1].interrupted or (options.first and results[-1].failed):
            break
    return results


def _parallel(
    found: Sequence[TestedFile], options: SuiteOptions, workers: int, each: Callable[[Tested], None]
) -> list[Tested]:
    from concurrent.futures import ThreadPoolExecutor

    from prose_kernel.cli.streams import interrupts

    results: list[Tested] = []
    count = min(workers, len(found)) or 1
    with (
        closing(_Processes(count)) as processes,
        interrupts(processes.interrupt, (signal.SIGINT,)) as received,
        ThreadPoolExecutor(count) as threads,
    ):
        for future in [threads.submit(processes.run, target, options) for target in found]:
            results.append(future.result())
            each(results[-1])
            if results[-1].interrupted or (options.first and results[-1].failed):
                break
        threads.shutdown(cancel_futures=True)
    return [*results, Tested("", interrupted=True)] if received else results


class _Processes:
    """Processes that test one file at a time, in separate pools: if one is killed, only its file has no result."""

    def __init__(self, count: int) -> None:
        from queue import SimpleQueue

        self._interrupted = False
        self._free: SimpleQueue[ProcessPoolExecutor] = SimpleQueue()
        for _ in range(count):
            self._free.put(_new_process())

    def run(self, target: TestedFile, options: SuiteOptions) -> Tested:
        from concurrent.futures.process import BrokenProcessPool

        signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT])  # inherited by a process that this thread starts
        process = self._free.get()
        try:
            if self._interrupted:
                return Tested(target.name, interrupted=True)
            return process.submit(_run_in_process, target, options).result()
        except BrokenProcessPool:
            process.shutdown()
            process = _new_process()
            finding = StateDifference(
                "the process that ran it was killed, by one of its commands or for lack of memory"
            )
            return Tested(target.name, (Outcome("process", "failed", (finding,)),))
        finally:
            self._free.put(process)

    def interrupt(self, frame: object) -> None:
        """Interrupt the running tests, and begin no more."""
        import multiprocessing

        self._interrupted = True
        for pid in filter(None, (process.pid for process in multiprocessing.active_children())):
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGINT)

    def close(self) -> None:
        while not self._free.empty():
            self._free.get().shutdown()


def _new_process() -> ProcessPoolExecutor:
    import multiprocessing
    from concurrent.futures import ProcessPoolExecutor

    return ProcessPoolExecutor(1, multiprocessing.get_context("spawn"), initializer=_begin_process)


def _begin_process() -> None:
    """Leave Ctrl-C to the parent, which interrupts this process. End when the parent has been killed; otherwise this
    process would wait for a file forever."""
    import multiprocessing
    import threading

    def wait() -> None:
        if (parent := multiprocessing.parent_process()) is not None:
            parent.join()
            os.kill(os.getpid(), signal.SIGKILL)  # the watchdog ends its commands

    os.setpgid(0, 0)
    threading.Thread(target=wait, daemon=True).start()


def _run_in_process(target: TestedFile, options: SuiteOptions) -> Tested:
    """Test a file. Interrupts are blocked except here, so that none is lost before a file begins."""
    try:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGINT])
        return run_one(target, options)
    except KeyboardInterrupt:
        return Tested(target.name, interrupted=True)
    finally:
        signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT])


def _shared_recordings(results: Sequence[Tested]) -> list[Tested]:
    """Return notes about shared records that no tested program has used (other programs may use them)."""
    used = frozenset().union(*(one.used for one in results)) if results else frozenset()
    unused = {(file, raw): text for one in results for file, raw, text in one.unused if (file, raw) not in used}
    if not unused or any(one.interrupted for one in results):
        return []
    return [Tested("", notes=tuple(f"{text} is used by none of these tests" for text in unused.values()))]
