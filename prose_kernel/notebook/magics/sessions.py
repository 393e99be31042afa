"""Line magics about sessions: providers, judges, recordings, usage."""

from __future__ import annotations

from typing import TYPE_CHECKING
from uuid import uuid4

from prose_kernel.errors import UsageError
from prose_kernel.notebook.magics.registry import MagicCall, magic
from prose_kernel.views import document as doc
from prose_kernel.views.bundle import bundle
from prose_kernel.views.escaping import clip
from prose_kernel.views.usage import usage_table

if TYPE_CHECKING:
    from prose_kernel.runtime.budgets import Budget

RULES = ("first", "only", "off")
_PROBLEMS = 5
_MODES = ("off", "auto", "record", "replay")
_REASONS = 50
"""The most judgements that `%judge why` shows."""
_STEP = 20
"""The number of answers after which a notebook updates the progress of a calibration."""
_CASSETTE_OPTIONS = {"mode": _MODES, "stale": ("warn", "fail", "ignore")}


# ---------------------------------------------------------------- providers and judges


@magic(
    "%provider [scripted [FILE]|human|dry-run|replay|SERVER[:MODEL]|acp:AGENT|auto]",
    "choose the provider of sessions; auto: the one with an API key in the environment, else a person; without a "
    "name: the current one, and the choices",
)
async def provider(call: MagicCall) -> None:
    call.check_word_count(0, 2)
    if not call.words:
        return call.show(_providers(call))
    name, *given = call.words
    scripted = name == "scripted"
    script = given[0] if given else call.cells.settings.script if scripted else None
    if scripted != bool(script):
        raise call.wrong("only `scripted` takes a script, and needs one, here or as the setting `script`")
    call.cells.choose(provider=name, script=script)
    return None


def _providers(call: MagicCall) -> doc.Table:
    from prose_kernel.models.providers.provider_choice import known_names
    from prose_kernel.runs.session_description import who

    settings, services = call.cells.settings, call.cells.workspace.opened.services
    options = services.context.options
    rows = [("answers now", who(services)), ("chosen", settings.provider or "auto")]
    if settings.script:
        rows.append(("script", settings.script))
    rows.append(("model servers in prose.toml", ", ".join(options.servers) or "none"))
    rows.append(("CLI agents in prose.toml", ", ".join(f"acp:{name}" for name in options.agents) or "none"))
    rows.append(("can be chosen", ", ".join(["auto", *known_names(options)])))
    return doc.Table(("sessions", ""), rows, ())


@magic(
    "%judge [first|only|off] [SERVER[:MODEL]|acp:AGENT|human|auto] | why "
    "| calibrate [FILE] [--least PERCENT] [--only NAME]",
    "choose the judge of conditions: whether rules come first, alone or not at all, and who decides the rest; "
    "why: the last answers with their reasons; calibrate: how often that judge is right",
)
async def judge(call: MagicCall) -> None:
    if call.words[:1] == ("calibrate",):
        return await _calibrate(call)
    call.check_word_count(0, 2)
    if not call.words:
        return call.show(_judges(call))
    if call.words == ("why",):
        return call.show(_reasons(call))
    words = list(call.words)
    chosen: dict[str, object] = {}
    if words[0] in RULES:
        chosen["judge_rules"] = words.pop(0)
    if words:
        name = words.pop(0)
        chosen["judge"] = "off" if name in ("human", "off") else name
    if words:
        raise call.wrong(f"{words[0]} is one word too many")
    call.cells.choose(**chosen)
    return None


def _reasons(call: MagicCall) -> doc.Table:
    """Return the last decisions in the run, with their judges and reasons."""
    activities = [one for cell in call.cells.record.cells for one in cell.activities if one.kind == "judgement"]
    rows = [(clip(one.label, 100), one.verdict[0], one.by, one.verdict[1]) for one in activities[-_REASONS:]]
    head = ("question", "answer", "by", "reason")
    return doc.Table(head, rows, (), empty="Nothing has been judged in this run.")


def _judges(call: MagicCall) -> doc.Table:
    from prose_kernel.models.providers.provider_choice import AGENT, judge_choice, judge_model

    settings, services = call.cells.settings, call.cells.workspace.opened.services
    choice = judge_choice(services.context.options)
    live = f"{AGENT}{choice.name}" if choice.kind == "agent" else choice.name
    if choice.model:
        live = f"{live}:{choice.model}"
    if choice.live and (model := judge_model(choice, services.context.options)):
        live += f", model {model}"
    rules = {"first": "rules come first", "only": "only rules", "off": "no rules"}[settings.judge.rules]
    chain = [] if settings.judge.rules == "off" else ["rules"]
    if settings.judge.rules != "only":
        chain += ["script"] if settings.script else []
        chain += ["recordings"] if services.choice.recorded else []
        chain += [live] if live else []
        chain += ["the person here"] if services.asker.available else []
    rows = [
        ("rules", f"{settings.judge.rules}: {rules}"),
        ("model or agent", live or "none"),
        ("asked in turn", " → ".join(chain) or "nobody"),
    ]
    return doc.Table(("conditions", ""), rows, ())


async def _calibrate(call: MagicCall) -> None:
    from prose_kernel.runs.calibrating import calibrate
    from prose_kernel.views import calibration as shown

    words = list(call.words[1:])
    given = {option: call.take_option(words, option, "judge calibrate") for option in ("--least", "--only")}
    if len(words) > 1 or any(word.startswith("-") for word in words):
        raise UsageError("%judge calibrate: one file, --least and --only", hint=f"usage: {judge.usage}")
    minimum = _percent(given["--least"])
    progress, done = f"prose-calibrate-{uuid4().hex}", 0

    def begin() -> None:
        call.output.display(bundle(doc.paragraph("The judge is asked.")), progress)

    def count(answer: object, of: int) -> None:
        nonlocal done
        done += 1
        if done % _STEP == 0:
            call.output.update(bundle(doc.paragraph(f"{done:,} of {of:,} asked.")), progress)

    found = await calibrate(call.cells.workspace, words[0] if words else None, given["--only"], count, begin)
    first, *rest = shown.parts(found)
    call.output.update(bundle(doc.group(first, facts={"consumed": shown.consumed(found)})), progress)
    for part in rest:
        call.show(part)
    if minimum is not None and 100 * found.accuracy.share < minimum:
        raise UsageError(f"%judge calibrate: it is right less often than in {minimum:g} %")


def _percent(figure: str | None) -> float | None:
    if figure is None:
        return None
    try:
        minimum = float(figure.rstrip("%"))
    except ValueError:
        minimum = -1.0
    if not 0 <= minimum <= 100:
        raise UsageError("%judge calibrate: --least is a percentage from 0 to 100", hint=f"usage: {judge.usage}")
    return minimum


# ---------------------------------------------------------------- recordings


@magic(
    "%cassette [NAME] [--mode off|auto|record|replay] [--stale warn|fail|ignore]",
    "choose the recording, and whether recorded answers are used; without words: its state",
)
async def cassette(call: MagicCall) -> None:
    words, chosen = list(call.words), dict[str, object]()
    for option, allowed in _CASSETTE_OPTIONS.items():
        if f"--{option}" in words:
            at = words.index(f"--{option}")
            value = words[at + 1] if at + 1 < len(words) else ""
            if value not in allowed:
                raise UsageError(f"%cassette --{option}: one of {', '.join(allowed)}", hint=f"usage: {cassette.usage}")
            chosen[f"cassette_{option}"] = value
            del words[at : at + 2]
    if len(words) > 1 or any(word.startswith("-") for word in words):
        raise call.wrong("one name, --mode and --stale")
    if words:
        chosen["cassette"] = words[0]
    if chosen:
        return call.cells.choose(**chosen)
    return call.show(_cassette(call))


def _cassette(call: MagicCall) -> doc.Table:
    from prose_kernel.cassettes.records import ANSWERS

    services = call.cells.workspace.opened.services
    store = services.cassettes.store
    mode = services.cassettes.mode(services.asker)
    files = list(store.cassettes)
    entries = [entry for entry in store.entries() if entry.record.t in ANSWERS and not entry.replaced]
    problems = [warning for file in files for warning in file.warnings]
    recorded = services.choice.recorded
    writes = recorded and mode in ("auto", "record")
    rows = [
        ("is written", store.own_name if writes else f"nothing (it would be {store.own_name})"),
        ("mode", mode if recorded else f"{mode} (provider {services.choice.kind} is not recorded)"),
        ("records", f"{sum(entry.line > 0 for entry in entries):,} in {doc.counted(len(files), 'file')}"),
        ("used in this run", f"{sum(entry.used for entry in entries):,}"),
        ("not used", f"{len(services.cassettes.unused()):,} of the files in use"),
        *(("left out", problem) for problem in problems[:_PROBLEMS]),
    ]
    return doc.Table(("recording", ""), rows, ())


# ---------------------------------------------------------------- usage


@magic("%usage", "what this run has consumed: sessions, judgements, tokens and cost by provider and model")
async def usage(call: MagicCall) -> None:
    call.check_word_count(0, 0)
    totals = call.cells.workspace.opened.services.usage
    call.show(usage_table((*totals.lines, totals.total) if len(totals.lines) > 1 else totals.lines))


@magic(
    "%budget [LIMITS|off]",
    "the limits of the run: 2 usd, 200k tokens, 30 min, 100 sessions, or some of them; without words: its consumption",
    raw=True,
)
async def budget(call: MagicCall) -> None:
    workspace = call.cells.workspace
    if call.text.strip():
        workspace.limit(call.text.strip().strip("\"'"))
    found = workspace.opened.budget
    if found is None:
        return call.show(doc.paragraph("The run has no budget."))
    rows = [(name, f"{limit:,g}", f"{used:,g}") for name, limit, used in _budget_rows(found)]
    return call.show(doc.Table(("budget of the run", "allowed", "consumed"), rows, ()))


def _budget_rows(found: Budget) -> list[tuple[str, float, float]]:
    limits, spent = found.limits, found.spent
    every = (
        ("US dollars", limits.usd, round(spent.usd, 4)),
        ("tokens", limits.tokens, spent.tokens),
        ("seconds", limits.seconds, round(found.seconds)),
        ("sessions", limits.sessions, spent.sessions),
    )
    return [(name, float(limit), float(used)) for name, limit, used in every if limit is not None]
