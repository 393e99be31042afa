"""The identity of a request: its content, without anything that differs from run to run (sessions.md 4.2).

A record's `req` contains this identity, long texts by their digest; the record's key is the digest of `req`. So a key
can be checked, and computed again after a redaction, from only the record.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from prose_kernel.access import plain_files
from prose_kernel.access.session_permissions import Policy, touches
from prose_kernel.cassettes.portable_redaction import Redaction
from prose_kernel.cassettes.records import canonical
from prose_kernel.errors import PermissionDenied
from prose_kernel.runtime.ports import ContextItem, Given, JudgeRequest, SessionRequest
from prose_kernel.runtime.redaction import mapped
from prose_kernel.runtime.requests import Request, memory_of, parts
from prose_kernel.runtime.secret_patterns import holds_private_key
from prose_kernel.runtime.session_options import Rule, Surroundings
from prose_kernel.runtime.value_text import Material, images_in, material, readable

WHOLE: Final = 65_536
"""The number of characters of a prompt that a record holds; of a longer prompt it holds the beginning and the
digest."""
HEAD: Final = 1_000
"""The number of characters of a context or another long text that a record holds, to show people the changes."""

_NAMES: Final = {
    "agent's prompt": "system",
    "permissions": "perm",
    "question": "condition",
    "labels": "options",
    "values": "bindings",
}
"""Names of parts in a recording, if they differ."""

Req = dict[str, Any]
ToolNames = Callable[[SessionRequest], tuple[str, ...]]


def digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def shortened(text: str, whole: int = 0) -> Any:
    """Return a text for `req`: itself up to `whole` characters, else its digest, length and beginning."""
    if len(text) <= whole:
        return text
    return {"sha256": digest(text), "chars": len(text), "head": text[:HEAD]}


class Identity:
    """Builds the `req` of a request. `permissions` are the host's rules."""

    def __init__(
        self, redaction: Redaction, where: Surroundings, tool_names: ToolNames, permissions: Mapping[str, Rule]
    ) -> None:
        self.redaction = redaction
        self._where = where
        self._tool_names = tool_names
        self._permissions = dict(permissions)

    def session(self, request: SessionRequest) -> Req:
        same, names = self.redaction.identity, self._tool_names(request)
        forms: dict[str, Callable[[Any], Any]] = {
            "prompt": lambda text: shortened(same(text), WHOLE),
            "agent's prompt": lambda text: shortened(same(text or ""), WHOLE),
            "context": lambda items: self._given(request.given) | self._context(items or ()),
            "input": lambda given: None,  # in the context
            "settings": lambda settings: same(canonical(settings).decode()) if settings else None,
            "output": lambda schema: shortened(same(canonical(schema).decode())) if schema else None,
            "correction": lambda text: shortened(same(text), WHOLE),
            "memory": lambda text: "sha256:" + digest(memory) if (memory := same(text)) else None,
            "skills": lambda skills: {same(path): self._skill(path) for path in map(os.path.expanduser, skills)},
            "tools": lambda tools: sorted(names),
            "permissions": lambda rules: self._relevant_rules(request, names),
        }
        return _recorded(request, forms)

    def holds_private_key(self, request: SessionRequest) -> bool:
        context = [self._content(item) for item in request.context or () if not item.missing]
        given = request.given.text if request.given is not None else None
        texts = (request.task, request.system, memory_of(request), given, *context)
        return any(holds_private_key(text) for text in texts if text)

    def judgement(self, kind: str, request: JudgeRequest, also: Sequence[str] = (), path: str = "") -> Req:
        """Return the `req` of a question to the judge: its text and schema, and the bindings that are sent. `also` are
        the labels to choose from, or the text in which `path` is searched."""
        same, reads = self.redaction.identity, kind in ("extract", "items")
        sent = material(request) if not reads else Material({}, {})
        forms: dict[str, Callable[[Any], Any]] = {
            "question": lambda text: shortened(same(text), WHOLE),
            "labels": lambda labels: [same(label) for label in labels] if not reads else None,
            "values": lambda asked: {same(name): shortened(same(text)) for name, text in sent.whole.items()},
        }
        previews = {same(name): same(text) for name, text in sent.previews.items()}
        read = shortened(same(also[0])) if reads and also else None
        more = {"kind": kind, "path": same(path), "text": read, "previews": previews}
        return _recorded(request, forms, also) | _without_empty(more)

    def race(self, text: str) -> Req:
        """Return the `req` of a `parallel` with a winner, from its source text."""
        return {"kind": "race", "text": shortened(self.redaction.identity(text), WHOLE)}

    # ------------------------------------------------------------ parts

    def _context(self, items: tuple[ContextItem, ...]) -> Req:
        found: Req = {}
        for item in items:
            name, number = item.name, 1
            while name in found:
                number += 1
                name = f"{item.name}~{number}"
            text = None if item.missing else self._content(item)
            found[name] = {"missing": True} if text is None else shortened(self.redaction.identity(text))
            if images := [hashlib.sha256(image).hexdigest() for image in images_in(item.content)]:
                found[name] = {**found[name], "images": images}
        return found

    def _given(self, given: Given | None) -> Req:
        """Return the input of a call, and the content of this run's files that it refers to."""
        if given is None:
            return {}
        same = self.redaction.identity
        found: Req = {"input": shortened(same(given.text)) or "empty"}
        for place in given.references:
            if given.readable and place.startswith(f"{given.readable}/") and ".." not in place.split("/"):
                text = self._file(place)
                found[same(place)] = {"missing": True} if text is None else shortened(same(text))
        return found

    def _content(self, item: ContextItem) -> str | None:
        """Return the content of a context: as given, or from its file."""
        if item.text is not None:
            return item.text
        if item.content is not None:
            return readable(item.content)
        return self._file(item.location) if item.location else None

    def _file(self, location: str) -> str | None:
        path = Path(self._where.cwd, os.path.expanduser(location))
        try:
            return plain_files.read(path).decode("utf-8", "replace") if path.is_file() else None
        except OSError:
            return None

    def _skill(self, name: str) -> str:
        """Return the digest of a skill's content if it is a local file, else "named"."""
        for place in (name, f"{name}/SKILL.md"):
            text = self._file(place)
            if text is not None:
                return "sha256:" + digest(self.redaction.identity(text))
        return "named"

    def policy(self, request: SessionRequest) -> Policy:
        """Return the rules of a session. Raises `PermissionDenied` for an invalid pattern."""
        return Policy.of_session(request, self._permissions, self._where)

    def _relevant_rules(self, request: SessionRequest, names: Iterable[str]) -> Req:
        """Return the rules that decide about calls of these tools, by kind."""
        kinds = {kind for name in names for kind in touches(name)}
        try:
            policy = self.policy(request)
        except PermissionDenied:  # reported when the session runs
            return {kind: repr(rule) for kind, rule in request.permissions.items()}
        return {kind: mapped(policy.rule(kind), self.redaction.identity) for kind in sorted(kinds)}


def _recorded(request: Request, forms: Mapping[str, Callable[[Any], Any]], also: Sequence[str] = ()) -> Req:
    """Return the parts of a request, converted by `forms`, by their names in a recording, without empty ones."""
    found = ((name, forms.get(name, lambda value: value)(value)) for name, value in parts(request, also))
    return _without_empty({_NAMES.get(name, name): value for name, value in found})


def _without_empty(req: Req) -> Req:
    return {name: value for name, value in req.items() if value not in (None, "", [], {}, ())}
