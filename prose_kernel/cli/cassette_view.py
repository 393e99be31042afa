"""Show records of recordings: each as a row of a table, or whole as Markdown."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from prose_kernel.language.text import clipped

WIDTH = 60


def row(line: int, record: Mapping[str, Any]) -> tuple[str, ...]:
    """Return a record as a row: line, type, path, origin, and the first words of its question and answer."""
    exchange = f"{_words(asked(record))} → {_words(answer(record))}"
    return (str(line), _kind(record), str(record.get("at", "")), _by(record), exchange)


def whole(record: Mapping[str, Any], line: int) -> str:
    """Return a record as Markdown, with all parts that are of interest to people."""
    req, meta = _mapping(record.get("req")), _mapping(record.get("meta"))
    parts = [f"## {_kind(record)} {record.get('at', '')} (line {line})", _facts(req, meta)]
    for title, text in (("System", _text(req.get("system"))), ("Asked", asked(record))):
        if text:
            parts.append(f"**{title}**\n\n{_quoted(text)}")
    for title in ("context", "bindings"):
        if members := _mapping(req.get(title)):
            sizes = "\n".join(f"- {name}: {_size(value)}" for name, value in members.items())
            parts.append(f"**{title.capitalize()}**\n\n{sizes}")
    parts.append(f"**Answer**\n\n{_quoted(answer(record))}")
    out, files = _mapping(record.get("out")), _mapping(record.get("facts")).get("writes")
    for title, items, label in (("Files", files, "path"), ("Tools", out.get("trace"), "tool")):
        listed = [f"- {_item(item, label)}" for item in items or ()]
        if listed:
            parts.append(f"**{title}**\n\n" + "\n".join(listed))
    for title, name in (("Memory afterwards", "memory_after"), ("Segment", "segment")):
        if out.get(name):
            parts.append(f"**{title}**\n\n{_quoted(str(out[name]))}")
    return "\n\n".join(part for part in parts if part) + "\n"


def asked(record: Mapping[str, Any]) -> str:
    req, out = _mapping(record.get("req")), _mapping(record.get("out"))
    if record.get("t") == "ask":
        return str(out.get("question", ""))
    options = req.get("options")
    text = next((_text(req[name]) for name in ("prompt", "condition", "text") if name in req), "")
    return f"{text} ({' | '.join(map(str, options))})" if isinstance(options, list) else text


def answer(record: Mapping[str, Any]) -> str:
    out = _mapping(record.get("out"))
    match record.get("t"):
        case "session":
            return str(out["text"]) if out.get("text") is not None else "(nothing)"
        case "error":
            return f"{out.get('type', 'ProviderError')}: {' '.join(map(str, out.get('args') or ()))}"
        case "race":
            return "ended in this order: " + ", ".join(map(str, out.get("ended") or ()))
        case "judge":
            found = next((out[name] for name in ("answer", "label", "value") if name in out), None)
            text = found if isinstance(found, str) else json.dumps(found, ensure_ascii=False)
            text = {"true": "yes", "false": "no", "null": "uncertain"}.get(text, text)
            text += " (no progress)" if out.get("no_progress") else ""
            return f"{text}: {out['reason']}" if out.get("reason") else text
        case "phrase":
            found = _mapping(out.get("value"))
            options = " | ".join(map(str, found.get("options") or ()))
            return f"{found.get('question', '')} ({options})" if options else str(found.get("question", ""))
        case _:
            return str(out.get("answer", ""))


def _kind(record: Mapping[str, Any]) -> str:
    tried = record.get("try", 1)
    return f"{record.get('t')}" if tried == 1 else f"{record.get('t')} (attempt {tried})"


def _by(record: Mapping[str, Any]) -> str:
    meta = _mapping(record.get("meta"))
    return " ".join(str(meta[name]) for name in ("origin", "provider") if meta.get(name)) or "-"


def _facts(req: Mapping[str, Any], meta: Mapping[str, Any]) -> str:
    facts = [f"model {req['model']}"] if req.get("model") else []
    names = ("agent", "label", "origin", "provider", "resolved", "effects", "recorded")
    facts += [f"{name} {meta[name]}" for name in names if meta.get(name)]
    if isinstance(req.get("tools"), list):
        facts.append(f"tools {', '.join(map(str, req['tools']))}")
    return " · ".join(facts)


def _mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _text(value: Any) -> str:
    if isinstance(value, Mapping):
        return f"{value.get('head', '')}…" if value.get("chars") != len(value.get("head", "")) else str(value["head"])
    return value if isinstance(value, str) else ""


def _size(value: Any) -> str:
    if isinstance(value, Mapping):
        return "no result" if value.get("missing") else f"{value.get('chars', 0):,} characters"
    return f"{len(str(value)):,} characters"


def _item(item: Any, label: str) -> str:
    found = _mapping(item)
    if label == "path":
        written = "written" if found.get("text") is not None else "digest only"
        return f"{found.get('path', '')} ({'removed' if found.get('sha256') is None else written})"
    return " ".join(str(found[name]) for name in ("tool", "summary", "outcome") if found.get(name))


def _words(text: str) -> str:
    return clipped(" ".join(text.split()), WIDTH, tidy=True)


def _quoted(text: str) -> str:
    return "\n".join(f"> {line}".rstrip() for line in text.split("\n"))
