"""Validates agent configurations, call options and bounds (docs/reference/vvm.md 6.1 to 6.6, 4.9).

The checker and the machine share these rules: the checker tests values in the text of a program (V208, V209, V702,
V709), the machine computed values (R212, R214). Both pass plain values: unit is None, an object a dict, a list a list.
The checker passes `UNKNOWN` for a value that only the run will know; it is always valid. `static_value` returns the
plain value of an expression.

Example: `configuration_faults({"memory": {"scope": "team", "key": UNKNOWN}})` gives one `Fault` at
`("memory", "scope")`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple, TypeGuard

from prose_kernel.language import typed_answers
from prose_kernel.language.durations_and_budgets import parse_duration
from prose_kernel.language.vvm import tree
from prose_kernel.language.vvm.tree import Expression, Keyword

UNKNOWN: Final = object()
"""A value that only the run will know."""


class Fault(NamedTuple):
    """A wrong value. `path` leads to it from the option or configuration: keys of objects, indexes of lists.

    `message` is the rest of a sentence that begins with the name of the key; `accepted` describes valid values.
    """

    path: tuple[str | int, ...]
    message: str
    accepted: str

    @property
    def subject(self) -> str:
        """The path as programs write it: `memory.scope`, `skills[0]`."""
        text = ""
        for part in self.path:
            text += f"[{part}]" if isinstance(part, int) else f".{part}" if text else part
        return text

    def __str__(self) -> str:
        return f"`{self.subject}` {self.message}"


CONFIGURATION_KEYS: Final = ("model", "prompt", "skills", "permissions", "memory")
"""The keys of an agent configuration that have a meaning in the language; any other is passed to the host (V520)."""

OUTPUT: Final = "output"
"""A key for the host that is validated all the same: the type of the answers (docs/how-to/typed-answers.md)."""

PERMISSION_LISTS: Final = ("read", "write", "execute")
PERMISSION_MODES: Final = ("bash", "network")
PERMISSION_KEYS: Final = (*PERMISSION_LISTS, *PERMISSION_MODES)
PERMISSION_WORDS: Final = ("allow", "deny", "prompt")

MEMORY_SCOPES: Final = ("project", "user", "path")
MEMORY_MODES: Final = ("continue", "dry_run", "fresh")
BACKOFFS: Final = ("fixed", "exponential")

_MAX_KEY_BYTES: Final = 240  # bytes of the directory's name (M2)
_PLAIN: Final = frozenset(b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_.")


# ---------------------------------------------------------------- call options and bounds


def duration(value: Any) -> float | None:
    """Return the seconds of a duration: digits, optionally decimals, and `ms`, `s`, `m` or `h`; else None."""
    return parse_duration(value, zero=True) if isinstance(value, str) else None


class Rule(NamedTuple):
    """A test for a value, with the message and the accepted values if it fails."""

    holds: Callable[[Any], bool]
    message: str
    accepted: str


def fault_of(rules: Mapping[str, Rule], name: str, value: Any) -> Fault | None:
    """Return the fault of a value by the rule for its name; None for a valid value, or for an unknown name."""
    rule = rules.get(name)
    if rule is None or value is UNKNOWN or rule.holds(value):
        return None
    return Fault((name,), rule.message, rule.accepted)


def _one_of(*words: str) -> Rule:
    shown = ", ".join(f'"{word}"' for word in words[:-1]) + f' or "{words[-1]}"'
    return Rule(lambda value: isinstance(value, str) and value in words, f"must be {shown}", f"write {shown}")


_COUNT: Final = Rule(
    lambda value: isinstance(value, int) and not isinstance(value, bool) and value >= 0,
    "must be a whole number from 0 upwards",
    "for example 2",
)
_NUMBER: Final = Rule(
    lambda value: isinstance(value, int | float) and not isinstance(value, bool), "must be a number", "for example 0.5"
)
_DURATION: Final = Rule(
    lambda value: duration(value) is not None,
    "must be a duration in quotes",
    'for example "500ms", "30s", "5m" or "1.5h"',
)
_TEXT: Final = Rule(lambda value: isinstance(value, str), "must be a string", 'write it in quotes: "..."')
_GLOBS: Final = Rule(
    lambda value: isinstance(value, list) and all(item is UNKNOWN or isinstance(item, str) for item in value),
    "must be a list of strings",
    'for example ["docs/**"]; `[]` means none',
)

OPTIONS: Final[Mapping[str, Rule]] = {
    "retry": _COUNT,
    "timeout": _DURATION,
    "backoff": _one_of(*BACKOFFS),
    "name": _TEXT,
    "memory_mode": _one_of(*MEMORY_MODES),
}
"""The options of a call (6.5)."""
BOUNDS: Final[Mapping[str, Rule]] = {"attempts": _COUNT, "time": _DURATION, "budget": _NUMBER}
"""The bounds of `constrain` (4.9)."""


# ---------------------------------------------------------------- agent configurations


def configuration_faults(configuration: Mapping[str, Any], *, whole: bool = True) -> list[Fault]:
    """Return the faults of the standard keys of a configuration, in the order of its keys.

    Without `whole` these are overrides of `.with(...)`: an object may leave out keys that the agent already has.
    """
    found: list[Fault] = []
    for name, value in configuration.items():
        if fault := fault_of(_TEXTS, name, value):
            found.append(fault)
        elif name in _CONFIGURATION and value is not UNKNOWN:
            found += _CONFIGURATION[name](value, whole)
    return found


def merged(configuration: Mapping[str, Any], overrides: Mapping[str, Any]) -> dict[str, Any]:
    """Return a derived configuration (6.3): an object is merged into an existing one by key; other values replace."""
    made = dict(configuration)
    for name, value in overrides.items():
        before = made.get(name)
        made[name] = {**before, **value} if isinstance(before, dict) and isinstance(value, dict) else value
    return made


def permissions(given: Mapping[str, Any]) -> dict[str, Any]:
    """Return all five permissions: missing ones are empty or `"deny"` (6.2, A3). Unknown keys are kept (V709)."""
    return {**{key: [] for key in PERMISSION_LISTS}, **dict.fromkeys(PERMISSION_MODES, "deny"), **given}


def permission_faults(given: Mapping[str, Any]) -> Iterator[Fault]:
    """Yield the faults of a permission object, or of the arguments of `perm`; unknown keys are ignored."""
    yield from (fault for key, value in given.items() if (fault := fault_of(_PERMISSIONS, key, value)))


def escaped(key: str) -> str:
    """Return the directory of a memory key: `%XX` for all but letters, digits, `-`, `_` and, except first, `.`."""
    data = key.encode("utf-8", "surrogatepass")
    return "".join(
        chr(byte) if byte in _PLAIN and not (at == 0 and byte == 0x2E) else f"%{byte:02X}"
        for at, byte in enumerate(data)
    )


def _skill_faults(value: Any, whole: bool) -> Iterator[Fault]:
    accepted = 'for example ["web-search"], each imported with `import "web-search" from "..."`'
    if not isinstance(value, list):
        yield Fault(("skills",), "must be a list of strings", accepted)
        return
    for at, item in enumerate(value):
        if item is not UNKNOWN and not isinstance(item, str):
            yield Fault(("skills", at), "must be a string", accepted)


def _permissions_faults(value: Any, whole: bool) -> Iterator[Fault]:
    if not isinstance(value, dict):
        accepted = 'for example perm(read=["docs/**"]) or {network: "allow"}'
        yield Fault(("permissions",), "must be a permission object", accepted)
        return
    for fault in permission_faults(value):
        yield fault._replace(path=("permissions", *fault.path))


def _memory_faults(value: Any, whole: bool) -> Iterator[Fault]:
    accepted = 'for example {scope: "project", key: "notes"}'
    if not isinstance(value, dict):
        yield Fault(("memory",), "must be an object", accepted)
        return
    for name in ("scope", "key") if whole else ():
        if name not in value:
            yield Fault(("memory",), f"has no `{name}`", accepted)
    for name in _MEMORY:
        if name in value and (fault := fault_of(_MEMORY, name, value[name])):
            yield fault._replace(path=("memory", *fault.path))
    scope = value.get("scope")
    if scope == "path" and "path" not in value and whole:
        accepted = 'for example {scope: "path", path: "notes", key: "team"}'
        yield Fault(("memory",), 'has no `path`, which the scope "path" needs', accepted)
    elif scope in ("project", "user") and "path" in value:
        accepted = f'leave it out, or write `scope: "path"` instead of "{scope}"'
        yield Fault(("memory", "path"), 'is only for the scope "path"', accepted)


def _output_faults(value: Any, whole: bool) -> Iterator[Fault]:
    try:
        schema_of(value)
    except NotAType as problem:
        yield problem.fault


_TEXTS: Final[Mapping[str, Rule]] = {"model": _TEXT, "prompt": _TEXT}
_CONFIGURATION: Final[Mapping[str, Callable[[Any, bool], Iterator[Fault]]]] = {
    "skills": _skill_faults,
    "permissions": _permissions_faults,
    "memory": _memory_faults,
    OUTPUT: _output_faults,
}
_PERMISSIONS: Final[Mapping[str, Rule]] = {
    **dict.fromkeys(PERMISSION_LISTS, _GLOBS),
    **dict.fromkeys(PERMISSION_MODES, _one_of(*PERMISSION_WORDS)),
}
_MEMORY: Final[Mapping[str, Rule]] = {
    "scope": _one_of(*MEMORY_SCOPES),
    "key": Rule(
        lambda value: isinstance(value, str) and 0 < len(escaped(value)) <= _MAX_KEY_BYTES,
        "must be a string of 1 to 240 bytes when escaped",
        'for example "notes"',
    ),
    "path": _TEXT,
}


# ---------------------------------------------------------------- types of answers
#
# The language itself does not define the key `output`, so its values are plain data: names of types, lists and objects
# of them, a JSON Schema as an object, or the path of one (docs/how-to/typed-answers.md).

_OR_NULL: Final = " or null"
_ACCEPTED: Final = 'for example {verdict: ["approve", "reject"], score: "number", remarks: ["text"]}, or "schema.json"'
_Path = tuple[str | int, ...]


class NotAType(Exception):
    """Raised for a value that is not a type; `fault` has its place and the message."""

    def __init__(self, path: _Path, message: str) -> None:
        super().__init__(message)
        self.fault = Fault(("output", *path), message, _ACCEPTED)


def schema_of(value: Any) -> dict[str, Any] | None:
    """Return the schema of an `output`; None for the path of a schema. Raises `NotAType`."""
    if isinstance(value, str) and value.strip():
        return None
    if not isinstance(value, dict) or not value:
        raise NotAType((), "must be an object of fields and their types, or the path of a JSON Schema")
    written = value.get("type") == "object" and isinstance(value.get("properties"), dict)
    try:
        return typed_answers.usable(value if written else _object_type(value, (), 1))
    except ValueError as problem:
        raise NotAType((), f"cannot be used: {problem}") from None


def _object_type(value: Mapping[str, Any], path: _Path, depth: int) -> dict[str, Any]:
    if depth > typed_answers.MAX_DEPTH:
        raise NotAType(path, f"is nested more than {typed_answers.MAX_DEPTH} deep")
    return typed_answers.object_of({name: _type(part, (*path, name), depth) for name, part in value.items()})


def _type(value: Any, path: _Path, depth: int) -> dict[str, Any]:
    if value is UNKNOWN:
        return {}
    if isinstance(value, str):
        return _named_type(value, path)
    if isinstance(value, dict) and value:
        return _object_type(value, path, depth + 1)
    if isinstance(value, list) and len(value) == 1:
        return {"type": "array", "items": _type(value[0], (*path, 0), depth + 1)}
    if isinstance(value, list) and value:
        return _enumeration(value, path)
    raise NotAType(path, "is not a type")


def _named_type(value: str, path: _Path) -> dict[str, Any]:
    name = value.removesuffix(_OR_NULL)
    if name not in typed_answers.WORDS:
        raise NotAType(path, f'is not a type: "{name}" is none of {", ".join(typed_answers.WORDS)}')
    schema = {"type": typed_answers.WORDS[name]}
    return schema if name == value else typed_answers.optional(schema)


def _enumeration(value: Sequence[Any], path: _Path) -> dict[str, Any]:
    """Return the schema of one of several texts; `()` among them makes the field optional."""
    texts = [one for one in value if one is not None]
    for at, one in enumerate(value):
        if one is not None and one is not UNKNOWN and not isinstance(one, str):
            raise NotAType((*path, at), "is not a text that could be the answer")
    if UNKNOWN in texts:
        return {}
    if len(set(texts)) < len(texts):
        raise NotAType(path, "gives an option twice")
    schema = {"type": "string", "enum": texts}
    return schema if len(texts) == len(value) else typed_answers.optional(schema)


# ---------------------------------------------------------------- values known before a run
# No function below recurses, because literals may be nested to any depth.

_LITERALS = (tree.String, tree.Number, tree.Boolean)


def static_value(expression: Expression, *, perm: bool = True) -> Any:
    """Return the plain value of an expression, `UNKNOWN` for computed parts. `perm` means the library function."""
    done: list[Any] = []
    agenda: list[Any] = [expression]
    while agenda:
        node = agenda.pop()
        if isinstance(node, tuple):  # a container, and how many of the values done are its parts
            container, count = node
            parts = [done.pop() for _ in range(count)][::-1]
            done.append(_container_of(container, parts))
            continue
        inside = parts_of(node) if perm or not isinstance(node, tree.Call) else None
        if inside is not None:
            agenda += [(node, len(inside)), *reversed(inside)]
        elif isinstance(node, _LITERALS):
            done.append(node.value)
        else:
            done.append(None if isinstance(node, tree.Unit) else UNKNOWN)
    return done[0]


def _container_of(node: Any, parts: list[Any]) -> Any:
    """Return the value of a container from the values of its parts."""
    if isinstance(node, tree.List):
        return parts
    if isinstance(node, tree.Object):
        return {pair.key: part for pair, part in zip(node.pairs, parts, strict=True)}
    return permissions({keyword.name: part for keyword, part in zip(node.keywords, parts, strict=True)})


def parts_of(node: Expression) -> list[Expression] | None:
    """Return the parts of a static container; None for anything else."""
    if isinstance(node, tree.List):
        return list(node.elements)
    if isinstance(node, tree.Object):
        return [pair.value for pair in node.pairs]
    if is_perm(node):
        return [keyword.value for keyword in node.keywords]
    return None


def is_perm(node: Expression) -> TypeGuard[tree.Call]:
    """Return whether this is `perm(...)` with only keywords."""
    return (
        isinstance(node, tree.Call)
        and isinstance(node.callee, tree.Name)
        and node.callee.id == "perm"
        and not node.arguments
    )


def computed_parts(expression: Expression) -> Iterator[Expression]:
    """Yield the parts of an expression that are not static (V041), in source order."""
    agenda = [expression]
    while agenda:
        node = agenda.pop()
        parts = parts_of(node)
        if parts is not None:
            agenda.extend(reversed(parts))
        elif not isinstance(node, (*_LITERALS, tree.Unit)):
            yield node


def node_at(keyword: Keyword, path: tuple[str | int, ...]) -> tree.Node:
    """Return the node at the path of a fault in `name=value` (without the name), or the last node on that path."""
    node: Expression = keyword.value
    for part in path:
        found = _child(node, part)
        if found is None:
            return node
        node = found
    return node


def _child(node: Expression, part: str | int) -> Expression | None:
    if isinstance(part, int):
        return node.elements[part] if isinstance(node, tree.List) and part < len(node.elements) else None
    if isinstance(node, tree.Object):
        return next((pair.value for pair in reversed(node.pairs) if pair.key == part), None)
    if isinstance(node, tree.Call):
        return next((keyword.value for keyword in reversed(node.keywords) if keyword.name == part), None)
    return None
