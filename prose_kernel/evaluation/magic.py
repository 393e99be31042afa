"""`%eval`: run an evaluation in a notebook, and show its report (docs/how-to/evaluation.md)."""

from __future__ import annotations

from uuid import uuid4

from prose_kernel.language.structs import replace
from prose_kernel.notebook.magics.registry import MagicCall, magic, resolve_path
from prose_kernel.runs.settings import ANSWER_SOURCES, Settings
from prose_kernel.views.bundle import bundle
from prose_kernel.views.document import paragraph

_STEP = 5
_FILES = ("--baseline", "--save-baseline", "--html")


@magic(
    "%eval SPEC [-n N] [--fresh] [--baseline FILE] [--save-baseline FILE] [--html FILE]",
    "run a program over a data set: pass rates, differences between variants, what has become worse",
)
async def evaluate(call: MagicCall) -> None:
    from prose_kernel.evaluation.report import document, html_page
    from prose_kernel.evaluation.runner import Evaluation, EvaluationOptions
    from prose_kernel.evaluation.spec import read
    from prose_kernel.runtime.python_calls import in_daemon_thread
    from prose_kernel.views.page import check_page, write_page

    words = list(call.words)
    if any("\0" in word for word in words):
        raise call.wrong("a file name has no character U+0000")
    files = {option: call.take_option(words, option) for option in _FILES}
    at_once = call.take_option(words, "-n")
    fresh = "--fresh" in words
    words = [word for word in words if word != "--fresh"]
    if unknown := [word for word in words if word.startswith("-")]:
        raise call.wrong(f"{unknown[0]} is not understood")
    replace(call, words=tuple(words)).check_word_count(1, 1)
    if at_once is not None and not (at_once.isdecimal() and int(at_once)):
        raise call.wrong("-n takes a whole number above 0")
    paths = {option: resolve_path(call.cells, name) if name is not None else None for option, name in files.items()}
    if (page := paths["--html"]) is not None:
        check_page(page, force=False)
    default = Settings().answer_sources
    chosen = {name: value for name, value in call.cells.overrides.items() if name in ANSWER_SOURCES}
    options = EvaluationOptions(
        parallel=int(at_once) if at_once is not None else None,
        fresh=fresh,
        baseline=paths["--baseline"],
        save_baseline=paths["--save-baseline"],
        overrides={name: value for name, value in chosen.items() if value != default[name]},
    )
    progress = f"prose-eval-{uuid4().hex}"

    def count(result: object, done: int, planned: int) -> None:
        if done % _STEP == 0:
            call.output.update(bundle(paragraph(f"{done:,} of {planned:,} runs")), progress)

    spec = read(resolve_path(call.cells, words[0]), words[0])
    evaluation = await in_daemon_thread(lambda: Evaluation(spec, options, count), "reading an evaluation")
    call.output.display(bundle(paragraph(f"{evaluation.planned:,} runs")), progress)
    summary = await evaluation.run()
    call.output.update(bundle(paragraph(f"{evaluation.planned:,} runs")), progress)
    call.show(document(summary))
    if evaluation.used:
        call.cells.workspace.opened.services.cassettes.note_used(evaluation.used)
    if page is not None:
        write_page(page, html_page(summary), force=False)
