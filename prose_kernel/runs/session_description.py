"""Descriptions of sessions without running them (message, provider, tools, rules, recordings), and the dry run.

In a dry run every session and command is shown and yields a visible marker. No rule can decide a condition that depends
on a marker; the judge of a dry run reports it as undecided.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import PurePath
from typing import TYPE_CHECKING

from msgspec import Struct, field

from prose_kernel.access.session_permissions import shown
from prose_kernel.errors import NON_INTERACTIVE, ProseError, ProviderError
from prose_kernel.language.structs import replace
from prose_kernel.language.text import one_line, printable
from prose_kernel.models.providers import vendors
from prose_kernel.models.providers.provider_choice import AGENT, Choice
from prose_kernel.models.session_prompt import Assembled, assemble, headline, in_message, summarise, with_row_texts
from prose_kernel.runtime import budgets
from prose_kernel.runtime.ports import (
    CommandRequest,
    CommandResult,
    ContextItem,
    OnOutput,
    SessionProgress,
    SessionRequest,
    SessionResult,
)
from prose_kernel.runtime.session_options import CassetteMode, SessionOptions, Surroundings
from prose_kernel.runtime.typed_answers import example_answer
from prose_kernel.runtime.value_text import marker
from prose_kernel.runtime.values import full_text

if TYPE_CHECKING:
    from prose_kernel.cassettes.recorded_requests import Found, Miss
    from prose_kernel.models.provider_pool import ProviderContext
    from prose_kernel.runs.provider_chain import SessionServices

RUN = "«run»"
"""A placeholder for the run's id."""


class ContextSize(Struct, frozen=True):
    """An item of the context, with its size in characters, None if it isn't known in advance."""

    name: str
    characters: int | None
    place: str = ""


class Description(Struct, frozen=True):
    """A session as it would be sent.

    - `who`: the provider, in words. `model`: the alias and its meaning, for a model or an agent.
    - `system`: the agent's prompt and the rules. `message`: the other sections. `sizes`: characters of each section.
    - `schemas`: the tools as a model gets them, one JSON object a line; a program's own tools once their servers run.
    - `permissions`: the rules in force, one line for each kind.
    - `mode`, `found`: the mode of the recordings, and the recorded answer or miss; None if nothing is recorded.
    - `problem`: the error that prevents the session from running.
    """

    request: SessionRequest
    who: str
    model: str
    system: str | None
    message: Assembled
    context: tuple[ContextSize, ...] = ()
    tools: tuple[str, ...] = ()
    permissions: tuple[str, ...] = ()
    mode: CassetteMode | None = None
    found: Found | Miss | None = None
    problem: ProseError | None = None
    sizes: Mapping[str, int] = field(default_factory=dict)
    schemas: str = ""

    @property
    def facts(self) -> tuple[tuple[str, str], ...]:
        """Everything except the message, as pairs of a name and a short text, in the order of display."""
        found = [("answered by", self.who)]
        if self.model:
            found.append(("model", self.model))
        found.append(("sizes", ", ".join(f"{name} {count:,}" for name, count in self.sizes.items())))
        if self.context:
            found.append(("context", ", ".join(_size_text(item) for item in self.context)))
        found.append(("tools", ", ".join(self.tools) or "none"))
        found += [("permissions" if not at else "", line) for at, line in enumerate(self.permissions)]
        if self.request.skills:
            found.append(("skills", ", ".join(self.request.skills)))
        found += [(name, one_line(str(value))) for name, value in self.request.settings.items()]
        found.append(("recording", self.recording))
        if self.problem is not None:
            found.append(("problem", str(self.problem)))
        return tuple(found)

    @property
    def recording(self) -> str:
        """The result of the look-up in the recordings, on one line."""
        from prose_kernel.cassettes.recorded_requests import Miss

        match self.found:
            case None:
                return f"not looked up (mode {self.mode})" if self.mode else "none: this provider is not recorded"
            case Miss():
                return f"miss · {self.found.key} · mode {self.mode}"
            case found:
                entry, origin = found.entry, f", origin {found.meta.origin}" if found.meta.origin else ""
                return f"hit: {entry.file} line {entry.line}{origin} · {entry.record.key} · mode {self.mode}"

    @property
    def text(self) -> str:
        """The whole description for people, as plain lines."""
        width = max(len(name) for name, _ in self.facts)
        lines = [headline(self.request)]
        lines += [f"  {name:<{width}}  {fact}" for name, fact in self.facts]
        if self.schemas:
            lines += ["", "Tools:", self.schemas]
        if self.system:
            lines += ["", "System prompt:", self.system.strip("\n")]
        lines += ["", "Message:", self.message.text]
        return printable("\n".join(lines))


def describe(request: SessionRequest, services: SessionServices) -> Description:
    """Describe a session as it would be sent to its provider. An error of the session becomes its `problem`."""
    context, choice = services.context, services.choice
    problem: ProseError | None = None
    model = ""
    try:
        model = model_line(request, choice, context.options)
    except ProviderError as found:
        problem = found
    tools: tuple[str, ...] = ()
    permissions: tuple[str, ...] = ()
    try:
        # notebooks keep the description, so without a provider it must not depend on whether a person is present
        person = choice.kind != "model" or services.asker.available
        tools, policy = context.offered(request, person=person), context.policy(request)
        permissions = tuple(f"{kind}: {shown(policy.rule(kind))}" for kind in policy.kinds)
    except ProviderError as found:
        problem = problem or found
    if choice.kind == "model" and not vendors.find(choice.name, context.options).tools:
        tools = ()
    parts = _message(request, tools, context, by_files=choice.kind == "agent").parts
    message = Assembled(tuple(replace(part, text=_shown_place(part.text, context.where)) for part in parts))
    rules = message.section("rules")
    by_person = choice.kind in ("agent", "human", "scripted", "function")
    schemas = "" if by_person else _schemas(request, tools, context)
    sizes = {"tools": len(schemas), **message.sizes} if schemas else message.sizes
    recorded = choice.kind not in ("scripted", "function")
    mode = services.cassettes.mode(services.asker) if recorded else None
    return Description(
        request,
        who(services),
        model,
        "\n\n".join(filter(None, (request.system, rules))) or None,
        message.without("system", "rules"),
        tuple(_size(item, context.where) for item in request.context or ()),
        tuple(name.removeprefix("tools:") for name in tools),
        permissions,
        mode,
        services.cassettes.store.session(request).replay_result() if recorded and mode != "off" else None,
        problem,
        sizes,
        schemas,
    )


def _message(request: SessionRequest, tools: Sequence[str], context: ProviderContext, *, by_files: bool) -> Assembled:
    """Return the message for a CLI agent (`by_files`), or for a model or any other provider."""
    if by_files:
        return assemble(with_row_texts(request))
    files: Mapping[str, str] = {}
    if request.given is not None and request.given.references:
        try:
            files = context.session_tools(request, lambda _: None).referenced()
        except ProviderError:  # the rules are invalid, which is reported as a problem
            files = {}
    return in_message(request, reads="read" in tools, files=files)


def _schemas(request: SessionRequest, tools: Sequence[str], context: ProviderContext) -> str:
    """Return the offered tools in the form in which they are sent."""
    if not tools:
        return ""
    from prose_kernel.models.tools.session_tools import specs_of

    specs = specs_of(tools, context.further_tools(request, context.policy(request)))
    made = ({"name": spec.name, "description": spec.description, "parameters": spec.parameters} for spec in specs)
    return "\n".join(json.dumps(each, ensure_ascii=False, separators=(",", ":")) for each in made)


def max_cost(description: Description, services: SessionServices) -> float | None:
    """Return the most that the first request of a session can cost, in US dollars; None if that is not known.

    A token is at least one byte, and an answer is no longer than `max_tokens` or the model's window. A session without
    tools makes one request. The requests of a CLI agent are not known.
    """
    choice, options = services.choice, services.context.options
    if choice.kind == "none" and services.detected is not None:
        choice = services.detected.choice
    from prose_kernel.cassettes.recorded_requests import Found

    if isinstance(description.found, Found) and description.mode in ("auto", "replay"):
        return 0.0
    if choice.kind in ("human", "scripted", "replay", "dry-run", "none", "function"):
        return 0.0
    if choice.kind != "model" or description.problem is not None:
        return None
    from prose_kernel.models.usage_and_prices import highest_cost

    sent = len(f"{description.system or ''}{description.schemas}{description.message.text}".encode("utf-8", "replace"))
    costs = []
    for meant in vendors.chain(choice.name, options, description.request.model, choice.model):
        limits = [meant.options.max_tokens or meant.server.max_tokens, description.request.settings.get("max_tokens")]
        known = [limit for limit in limits if isinstance(limit, int)]
        costs.append(highest_cost(meant.name, meant.model, sent, min(known) if known else None, meant.options.price))
    return None if None in costs else max(cost for cost in costs if cost is not None)


def who(services: SessionServices) -> str:
    """Return a short description of the provider of sessions."""
    choice = services.choice
    match choice.kind:
        case "none" if not services.asker.available:
            return "no provider (none is chosen)"
        case "none" if services.detected is not None:
            return f"{services.detected.choice.name}, because {services.detected.variable} is set"
        case "none":
            return "the person here: no provider is chosen"
        case "human":
            return "the person here" if services.asker.available else f"no person ({NON_INTERACTIVE})"
        case "agent":
            return f"{AGENT}{choice.name}"
        case "model":
            return choice.name
        case "replay":
            return "only recordings"
        case "dry-run":
            return "placeholders (this is a dry run)"
        case "function":
            return "a Python function"
        case _:
            return choice.kind


def model_line(request: SessionRequest, choice: Choice, options: SessionOptions) -> str:
    """Return the model of a session: its name, and the provider's meaning of that name. Raises `ProviderError`."""
    alias = request.model
    if choice.kind == "model":
        first, *others = vendors.chain(choice.name, options, alias, choice.model)
        named, meant = alias or choice.model, first.model
        shown = f"{named} → {meant}" if named and named != meant else meant
        return ", else ".join((shown, *(f"{other.name} {other.model}" for other in others)))
    if choice.kind == "agent":
        return _mapped(alias, options.agents[choice.name].aliases.get(alias or "")) if alias else "the agent's own"
    if choice.kind == "dry-run":
        return _mappings(alias, options)
    return alias or ""


def _mapped(alias: str, meant: str | None) -> str:
    return f"{alias} → {meant}" if meant is not None else f"{alias} (means nothing there)"


def _mappings(alias: str | None, options: SessionOptions) -> str:
    """Return the meaning of an alias for each server that has aliases."""
    lines = []
    for name in dict.fromkeys((*options.servers, *(n for n, server in vendors.BUILT_IN.items() if server.aliases))):
        try:
            lines.append(f"{name}: {vendors.model_id(name, vendors.find(name, options), alias)}")
        except ProseError:
            lines.append(f"{name}: none")
    return f"{alias or 'none named'} ({', '.join(lines)})"


def _size(item: ContextItem, where: Surroundings) -> ContextSize:
    if item.missing:
        return ContextSize(item.name, 0, "no result")
    if item.text is not None:
        return ContextSize(item.name, len(item.text))
    place = _shown_place(item.location or "", where)
    if item.content is None:
        return ContextSize(item.name, None, place)
    try:
        return ContextSize(item.name, len(full_text(item.content)), place)
    except ProseError:  # a binding that cannot be read
        return ContextSize(item.name, None, place)


def _shown_place(text: str, where: Surroundings) -> str:
    """Return the text with a placeholder for the run's id, so that all runs show the same text."""
    return text.replace(PurePath(where.run_directory).name, RUN) if where.run_directory else text


def _size_text(item: ContextSize) -> str:
    size = "size unknown" if item.characters is None else f"{item.characters:,}"
    return f"{item.name} {size}" + (f" ({item.place})" if item.place else "")


# ---------------------------------------------------------------- the dry run


class DryRunSessions:
    """The `Sessions` port of a dry run: reports each session's description, and answers `⟦dry-run c2/s1⟧`."""

    def __init__(self, describe: Callable[[SessionRequest], Description]) -> None:
        self._describe = describe

    async def run(self, request: SessionRequest, on_progress: Callable[[SessionProgress], None]) -> SessionResult:
        await budgets.placed()
        description = self._describe(request)
        on_progress(SessionProgress("note", description.text))
        details = {
            "model": description.model,
            "permissions": list(description.permissions),
            "tools": list(description.tools),
            "skills": list(request.skills),
            "sizes": dict(description.sizes),
            "recording": description.recording,
        }
        value = marker(request.at)
        if request.output is not None:
            return SessionResult(example_answer(request.output, value), value, "dry-run", "dry-run", details)
        return SessionResult(value, value, "dry-run", "dry-run", details)


class DryRunCommands:
    """The `Commands` port of a dry run: no process; a command succeeds with a marker as its output."""

    async def run(self, request: CommandRequest, on_output: OnOutput | None = None) -> CommandResult:
        text = marker(f"exec {summarise(request.command)}") + "\n"
        if on_output is not None:
            on_output("stdout", text)
        return CommandResult("exited", 0, stdout=text, stdout_bytes=len(text.encode()))
