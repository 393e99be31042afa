"""Line magics that show the run, and change it from outside of the program (`%name`; in Python `%prose name`).

No magic is ignored silently: an unknown name or wrong use is a `UsageError` whose hint says what to type instead.
"""

from __future__ import annotations

import asyncio
import importlib.util
import shlex
import shutil
import sys
from contextlib import suppress
from pathlib import Path

from prose_kernel.access import plain_files
from prose_kernel.errors import ImportProgramError, UsageError
from prose_kernel.language.nearest import nearest_hint
from prose_kernel.notebook import inspection
from prose_kernel.notebook.magics import tables
from prose_kernel.notebook.magics.registry import (
    MagicCall,
    all_magics,
    cell_magics,
    find,
    grouped,
    magic,
    on_or_off,
    read_program,
    resolve_path,
)
from prose_kernel.runtime.ports import CommandRequest
from prose_kernel.runtime.values import ExecText
from prose_kernel.views import document as doc
from prose_kernel.views.display import Display
from prose_kernel.views.file_displays import image_display

# ---------------------------------------------------------------- show


@magic("%binding NAME", "show one binding in full")
async def binding(call: MagicCall) -> None:
    call.check_word_count(1, 1)
    call.show(tables.binding(call.cells, call.words[0]))
    value = call.cells.values().get(call.words[0])
    if isinstance(value, ExecText) and value.result.image:
        call.show(image_display(value.result.image))


@magic("%agents", "list all agents with their properties")
async def agents(call: MagicCall) -> None:
    call.check_word_count(0, 0)
    call.show(tables.agents(call.cells))


@magic("%blocks", "list all blocks and functions with their parameters")
async def blocks(call: MagicCall) -> None:
    call.check_word_count(0, 0)
    call.show(tables.blocks(call.cells))


@magic("%state", "show where the run is stored, and its log")
async def state(call: MagicCall) -> None:
    call.check_word_count(0, 0)
    run = call.cells.current
    if run is not None and run.transcript is not None:
        return call.show(tables.state(None, run.transcript))
    if run is None or run.directory is None:
        lives = "in memory" if call.cells.settings.state.kind == "in-context" else "not on disk yet"
        bound = doc.counted(len(call.cells.values()), "binding")
        return call.show(doc.paragraph(f"The run is {lives}: {bound}."))
    directory = tables.short_path(run.directory, call.cells.cwd)
    call.show(tables.state(directory, run.trace_text, run.database))
    return None


@magic(
    "%help [WORD|all]",
    "name all magics; all: with options; WORD: explain a keyword, property, magic, binding, agent, block or function",
)
async def help_(call: MagicCall) -> None:
    call.check_word_count(0, 1)
    if not call.words:
        return call.show(tables.overview(grouped(), cell_magics()))
    if call.words == ("all",):
        return call.show(tables.magics(all_magics().values(), cell_magics()))
    found = inspection.describe(call.cells, call.words[0], call.view.language)
    if found is None:
        if call.words[0].startswith("%"):
            find(call.words[0][1:], call.view.language)  # its error says what to type
        known = tables.helpful_words(call.view.language)
        hint = nearest_hint(call.words[0].lstrip("%"), known, "%help lists all magics")
        raise UsageError(f"there is no help for {call.words[0]}", hint=hint)
    call.show(found)
    return None


@magic("%boundaries", "show which shell runs commands, and which limits this system enforces on programs of agents")
async def boundaries(call: MagicCall) -> None:
    call.check_word_count(0, 0)
    from prose_kernel.processes.sandbox import probe
    from prose_kernel.processes.shell import resolve_shell

    settings = call.cells.settings
    rows = [
        ("shell", "yes", resolve_shell(settings.shell)),
        ("Exec", "yes" if settings.exec.enabled else "no", "for agents with `execute:` rules; [exec] enabled"),
    ]
    for finding in await asyncio.to_thread(probe):
        rows.append((finding.subject, "yes" if finding.state == "ok" else "no", finding.text))
    call.show(doc.Table(("what", "here", "what follows"), rows))


# ---------------------------------------------------------------- change


@magic("%run FILE", "run a program file as a cell of this notebook")
async def run(call: MagicCall) -> None:
    call.check_word_count(1, 1)
    source, language = read_program(call, call.words[0])
    value = await call.cells.run_text(source.text, call.view, call.words[0], language)
    call.view.result_of_part(value)


@magic("%input NAME=VALUE", "set the value of an input, from the next statement on")
async def input_(call: MagicCall) -> None:
    name, equals, _ = call.text.partition("=")
    name = name.strip()
    if not equals or not name or " " in name:
        raise UsageError("%input needs NAME=VALUE", hint=f"usage: {input_.usage}")
    words = call.words
    value = words[0].partition("=")[2] if len(words) == 1 else call.text.partition("=")[2].strip()
    call.cells.workspace.supply(name, value)


@magic(
    "%trust [URL|HANDLE/NAME|SHA-256|all]",
    "agree to programs from elsewhere before a cell uses them; without words: what this project has agreed to",
)
async def trust(call: MagicCall) -> None:
    call.check_word_count(0, 1)
    try:
        resolver = call.cells.workspace.imports.from_elsewhere()
        if call.words:
            return resolver.trust.add(call.words, resolver.registry)
        pins = await asyncio.to_thread(resolver.lock.pins)
    except ImportProgramError as problem:
        raise UsageError(problem.message, hint=problem.hint) from None
    rows = [(resolver.name(url), pin.sha256, f"{pin.size:,}", ", ".join(pin.holds)) for url, pin in pins.items()]
    none = "No programs from elsewhere are pinned here."
    return call.show(doc.Table(("program", "sha256", "bytes", "holds"), rows, empty=none))


@magic("%gate approve|reject NAME [--comment TEXT] [--as NAME]", "decide the next instance of a gate in advance")
async def gate(call: MagicCall) -> None:
    from prose_kernel.storage.gates.answers import GateAnswer

    words = list(call.words)
    comment, who = (call.take_option(words, option) for option in ("--comment", "--as"))
    if len(words) != 2 or words[0] not in ("approve", "reject"):
        raise UsageError("%gate needs approve or reject, and the name of a gate", hint=f"usage: {gate.usage}")
    answer = GateAnswer(words[0] == "approve", "user" if who is None else who, comment or "")
    call.cells.workspace.opened.gates.prior.give(words[1], answer)


@magic("%pip install NAME…", "run pip in the Python environment of this kernel", raw=True)
async def pip(call: MagicCall) -> None:
    if not call.text:
        raise call.wrong("too few words")
    workspace = call.cells.workspace
    command = f"{_pip_command()} {call.text}"
    shown = call.view.command_view()
    before = _installed()
    try:
        request = CommandRequest(command, str(workspace.cwd), _PIP_SECONDS, track=False)
        result = await workspace.opened.local_commands.run(request, shown.feed)
    finally:
        shown.finish("run it in a terminal to see all of it")
    if result.exit_code:
        raise UsageError(f"%pip: pip failed with exit code {result.exit_code}")
    changed = before ^ _installed()
    if loaded := sorted(_loaded(changed)):
        call.say(f"Restart the kernel to use {', '.join(loaded)}: the former version is loaded.")
    elif changed:
        call.say("No restart is needed.")


_PIP_SECONDS = 3600.0


def _pip_command() -> str:
    """Return the command of pip for the kernel's interpreter, or of uv. Raises `UsageError` if both are missing."""
    python = shlex.quote(sys.executable)
    if importlib.util.find_spec("pip") is not None:
        return f"PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_ROOT_USER_ACTION=ignore {python} -m pip"
    if (uv := shutil.which("uv")) is None:
        raise UsageError("%pip: the Python of this kernel has no pip", hint=f'exec "{python} -m ensurepip"')
    return f"VIRTUAL_ENV={shlex.quote(sys.prefix)} {shlex.quote(uv)} pip"


def _installed() -> set[Path]:
    """Return the metadata directories of installed distributions. Their names contain the distribution's name and
    version: reading these from the files inside takes seventy times as long."""
    importlib.invalidate_caches()
    found: set[Path] = set()
    for place in map(Path, sys.path):
        with suppress(OSError):  # not there, or a zip file
            found.update(path for path in place.iterdir() if path.suffix in (".dist-info", ".egg-info"))
    return found


def _loaded(changed: set[Path]) -> set[str]:
    """Return the names of changed distributions that are installed now, if this process has loaded a module of them."""
    import importlib.metadata

    names = set()
    for found in (importlib.metadata.Distribution.at(path) for path in changed if path.exists()):
        files = [path.parts[0].partition(".")[0] for path in found.files or ()]
        modules = (found.read_text("top_level.txt") or "").split() or files or [found.name]
        if any(module in sys.modules for module in modules):
            names.add(found.name)
    return names


@magic("%cd [DIRECTORY]", "show or change the directory in which commands run", "cwd")
async def cd(call: MagicCall) -> None:
    call.check_word_count(0, 1)
    workspace = call.cells.workspace
    if call.words:
        path = resolve_path(call.cells, call.words[0])
        if not plain_files.is_directory(path):
            raise UsageError(f"%cd: {call.words[0]} is not a directory")
        workspace.cwd = path.resolve()
    text = tables.short_path(workspace.cwd, call.cells.cwd)
    call.show(Display({"text/plain": text}, {"directory": str(workspace.cwd)}))


@magic(
    "%remote [connect ADDRESS|connect local|disconnect]",
    "which machines run commands, or change that from now on: the workers of a Dask scheduler, or this machine",
)
async def remote(call: MagicCall) -> None:
    call.check_word_count(0, 2)
    match call.words:
        case ():
            call.show(_machines(call))
        case ("connect", address):
            await call.cells.connect(address)
            call.show(_machines(call))
        case ("disconnect",):
            await call.cells.connect("off")
            call.say("Commands run on this machine.")
        case _:
            raise call.wrong("connect ADDRESS, connect local, or disconnect")


def _machines(call: MagicCall) -> doc.Block | Display:
    """Return the state of remote commands. Addresses and machine names differ from run to run, so they are in the
    metadata."""
    settings = call.cells.settings
    workspace = call.cells.started_workspace
    state = workspace.remote if workspace is not None else None
    if state is None:
        later = f"Commands will run on the workers of {settings.remote.scheduler}, from the next cell on."
        here = "Commands run on this machine."
        return Display({"text/plain": later if settings.on_other_machines else here})
    rows = [
        ("scheduler", state.url),
        ("encrypted", "yes" if state.encrypted else "no"),
        ("workers", str(len(state.workers))),
        ("commands in parallel", str(state.places)),
        *(("not used", reason) for reason in state.refused),
    ]
    workers = [f"{worker.host} {worker.address}" for worker in state.workers]
    return doc.group(doc.Table(("commands on other machines", ""), rows, ()), facts={"workers": workers})


@magic("%reset", "end the run and forget all names; the next cell starts a new run")
async def reset(call: MagicCall) -> None:
    call.check_word_count(0, 0)
    await call.cells.reset()


@magic("%clear", "remove the outputs of this cell so far")
async def clear(call: MagicCall) -> None:
    call.check_word_count(0, 0)
    call.output.clear()


@magic("%warnings [on|off]", "show or hide the compiler's warnings about a cell")
async def warnings(call: MagicCall) -> None:
    call.cells.show_warnings = on_or_off(call, call.cells.show_warnings)
