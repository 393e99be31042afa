"""Sessions and judgements answered from a script: the test double of the documentation and of our own suite.

A script is a mapping, in a YAML file or in Python, of a pattern or an execution path to a reply::

    sessions:
      "Write a haiku*": "Old pond"             # the task; `*` matches anything
      "/review (the )?code/": "LGTM"           # a regular expression found in the task
      c2/s1: {reply: "late", delay: 200ms}     # the session at this execution path
      "Fetch": [{error: "overloaded"}, "ok"]   # one entry a call; the last one stays
      "Sort": {kind: bug, score: 3}            # a typed answer; in `reply:` if its fields have these names
    judge:
      "the tests pass": [no, yes]              # yes, no, uncertain, no progress; for a choice: its label
    extract:
      summary.title: "Frogs"                   # the member path
    items:
      "*": [one, two]                          # the items found in a text

A mapping with other top-level keys is only the `sessions` part. An execution path beats a pattern; of several patterns
the first one in the script wins. A key without `*` matches every text that contains it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Generic, TypeVar

from msgspec import Struct

from prose_kernel.access import plain_files
from prose_kernel.errors import NoProvider, ProviderError, UsageError, reason_of
from prose_kernel.models.session_prompt import answered, summarise
from prose_kernel.runtime import budgets
from prose_kernel.runtime.clock import SystemClock
from prose_kernel.runtime.json_data import json_text
from prose_kernel.runtime.ports import Clock, SessionProgress, SessionRequest, SessionResult
from prose_kernel.runtime.typed_answers import from_words

_SECTIONS = ("sessions", "judge", "extract", "items")
_DELAY = re.compile(r"(\d+(?:\.\d+)?)\s*(ms|s|m|h|)")
_SECONDS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "": 1.0}

_DEEPEST = 200
"""The nesting limit of brackets in a script."""

_PARTS = frozenset({"reply", "delay", "error", "retryable"})

Answer = str | Mapping[str, object] | Callable[[SessionRequest], str]
Entry = TypeVar("Entry")


class Reply(Struct, frozen=True):
    """One scripted answer after `delay` seconds: a text, the fields of a typed answer, a function that returns text for
    the request, or an error."""

    answer: Answer = ""
    delay: float = 0.0
    error: str | None = None
    retryable: bool = True


class _Table(Generic[Entry]):
    """Keys in script order, each with the entries for its successive calls."""

    def __init__(self, entries: Mapping[str, tuple[Entry, ...]]) -> None:
        self._entries = entries
        self._matchers = [(key, _matcher(key)) for key in entries]
        self._calls = dict.fromkeys(entries, 0)

    def next(self, text: str, path: str = "") -> Entry | None:
        """Return the entry for the next call of the matching key; None if none matches."""
        key = path if path in self._entries else next((k for k, matches in self._matchers if matches(text)), None)
        if key is None:
            return None
        entries, call = self._entries[key], self._calls[key]
        self._calls[key] = call + 1
        return entries[min(call, len(entries) - 1)]


def _matcher(key: str) -> Callable[[str], bool]:
    if len(key) > 2 and key.startswith("/") and key.endswith("/"):
        try:
            found = re.compile(key[1:-1], re.DOTALL)
        except re.error as problem:
            raise UsageError(f"script: `{key}` is not a regular expression: {problem}") from None
        return lambda text: found.search(text) is not None
    if "*" in key:
        whole = re.compile(".*".join(map(re.escape, key.split("*"))), re.DOTALL)
        return lambda text: whole.fullmatch(text.strip()) is not None
    return lambda text: key in text


class Script:
    """A loaded script. Raises `UsageError` for an invalid entry, naming the key."""

    def __init__(self, entries: Mapping[str, object]) -> None:
        parts = entries if entries and all(key in _SECTIONS for key in entries) else {"sessions": entries}
        self._sessions = _Table({k: tuple(_reply(k, e) for e in _calls(k, v)) for k, v in _part(parts, "sessions")})
        self._judge = _Table({k: tuple(_word(k, e) for e in _calls(k, v)) for k, v in _part(parts, "judge")})
        self._extract = _Table({k: tuple(_word(k, e) for e in _calls(k, v)) for k, v in _part(parts, "extract")})
        self._items = _Table({k: (tuple(_word(k, e) for e in _calls(k, v)),) for k, v in _part(parts, "items")})

    def reply(self, request: SessionRequest) -> Reply | None:
        return self._sessions.next(request.task, request.at)

    def judgement(self, text: str, at: str = "") -> str | None:
        return self._judge.next(text, at)

    def extracted(self, path: str, at: str = "") -> str | None:
        return self._extract.next(path, at)

    def items(self, value: str, at: str = "") -> tuple[str, ...] | None:
        return self._items.next(value, at)


def _part(parts: Mapping[str, object], name: str) -> list[tuple[str, object]]:
    part = parts.get(name)
    if part is None or part == "":
        return []
    if not isinstance(part, Mapping):
        raise UsageError(f"script: `{name}` isn't a mapping of a pattern to a reply")
    return [(str(key), value) for key, value in part.items()]


def _calls(key: str, value: object) -> list[object]:
    entries = list(value) if isinstance(value, list | tuple) else [value]
    if not entries:
        raise UsageError(f"script: `{key}` has an empty list of replies")
    return entries


def _word(key: str, entry: object) -> str:
    match entry:
        case bool():
            return "yes" if entry else "no"
        case str() | int() | float():
            return str(entry)
        case _:
            raise UsageError(f"script: the answer of `{key}` is not text")


def _reply(key: str, entry: object) -> Reply:
    if isinstance(entry, Reply):
        return entry
    if isinstance(entry, Mapping) and entry.keys() <= _PARTS:
        error = entry.get("error")
        return Reply(
            _answer(key, entry.get("reply", "")),
            _seconds(key, entry.get("delay", 0)),
            None if error is None else _word(key, error),
            str(entry.get("retryable", True)).lower() not in ("false", "no"),
        )
    return Reply(_answer(key, entry))


def _answer(key: str, entry: object) -> Answer:
    if isinstance(entry, Mapping):
        return {str(name): value for name, value in entry.items()}
    return entry if callable(entry) else _word(key, entry)


def _text_of(reply: Reply, request: SessionRequest) -> str:
    """Return the text of an answer. Raises `UsageError` for fields if the session has no `output`."""
    answer = reply.answer
    if not isinstance(answer, Mapping):
        return answer(request) if callable(answer) else answer
    if request.output is None:
        fields = ", ".join(answer) or "none"
        raise UsageError(
            f'script: the reply for "{summarise(request.task)}" has fields ({fields}), but the session has no `output`',
            hint="write the reply as text; the words of a reply are reply, delay, error, retryable",
        )
    return json_text(from_words(answer, request.output))


def _seconds(key: str, delay: object) -> float:
    match = _DELAY.fullmatch(str(delay).strip())
    if match is None:
        raise UsageError(f"script: the delay of `{key}` isn't a duration", hint='write "200ms" or "2s"')
    return float(match[1]) * _SECONDS[match[2]]


def load_script(path: str | Path) -> Script:
    """Load the script in a YAML file (JSON is YAML too). Raises `UsageError` if it cannot be read or is invalid."""
    import yaml  # only if there is a script: the kernel must start fast

    class Loader(yaml.BaseLoader):  # type: ignore[misc]  # it has no types
        def fetch_flow_collection_start(self, token: type[yaml.Token]) -> None:
            if self.flow_level == _DEEPEST:  # the scanner checks all open brackets for each token
                raise RecursionError
            super().fetch_flow_collection_start(token)

    name = Path(path).name
    try:
        # scalars stay text: `no`, `1.10`
        loaded = yaml.load(plain_files.read_named(path, plain_files.SMALL, follow=False), Loader=Loader)  # noqa: S506 - it makes only text, lists and mappings
    except OSError as problem:
        raise UsageError(f"script {name} cannot be read: {reason_of(problem)}") from None
    except RecursionError:
        raise UsageError(f"script {name} is nested too deeply") from None
    except (yaml.YAMLError, UnicodeDecodeError) as problem:
        mark = getattr(problem, "problem_mark", None)
        where = f" at line {mark.line + 1}" if mark else ""
        raise UsageError(f"script {name} isn't YAML{where}") from None
    if not isinstance(loaded, Mapping):
        raise UsageError(f"script {name} isn't a mapping of a pattern to a reply")
    return Script(loaded)


class ScriptedSessions:
    """The `Sessions` port, answered from a script."""

    def __init__(self, script: Script, clock: Clock | None = None) -> None:
        self._script = script
        self._clock = clock or SystemClock()

    async def run(self, request: SessionRequest, on_progress: Callable[[SessionProgress], None]) -> SessionResult:
        """Return the scripted answer. Raises the scripted `ProviderError`, or `NoProvider` if no key matches."""
        await budgets.placed()
        reply = self._script.reply(request)
        if reply is None:
            raise NoProvider(
                f'the script has no reply for "{summarise(request.task)}" ({request.at})',
                hint="add a key that its task contains, its execution path, or `*`",
            )
        if reply.delay:
            await self._clock.sleep(reply.delay)
        if reply.error is not None:
            raise ProviderError(reply.error, retryable=reply.retryable)
        return answered(_text_of(reply, request), provider="scripted", origin="scripted", request=request)
