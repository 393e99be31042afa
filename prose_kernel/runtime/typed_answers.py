"""Typed answers: asks for them in words, and checks that they fit their schema (docs/how-to/typed-answers.md)."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any, Final, cast

from prose_kernel.language.nearest import Nearest
from prose_kernel.language.text import clipped
from prose_kernel.language.typed_answers import Schema, may_be_null, without_null
from prose_kernel.runtime import json_data
from prose_kernel.runtime.json_data import json_text, mapped
from prose_kernel.runtime.structured_text import json_in, shallow_json_in

_NAMED: Final = 5
"""The most problems of an answer that one message lists."""
PATTERN_SECONDS: Final = 1.0
_NULLS: Final = ("", "null", "~")
"""The words for null in YAML."""
NO_OBJECT: Final = "it is not a JSON object"
_TOO_LARGE: Final = "a number in it is too large"
_TOO_DEEP: Final = f"it {json_data.DEEPER}"


class WrongAnswer(Exception):
    """The answer does not fit. The text describes the problem, for people and for the model that is asked again."""


def answer_request(schema: Schema, correction: str = "", wrong: str = "") -> str:
    """Return the words that ask for an answer of this schema. `correction` describes the last answer's problem."""
    text = (
        "Reply with one JSON object and nothing else. It must fit this JSON Schema:\n"
        f"{json_text(schema, separators=(',', ':'))}"
    )
    return f"{text}\n\n{correction_request(correction, wrong)}" if correction else text


def correction_request(correction: str, wrong: str) -> str:
    """Return the words that ask once more, if the last answer, `wrong`, is not in the conversation."""
    last = f"Your last answer was:\n{wrong}\n\n" if wrong else ""
    return f"{last}{correction_text(correction)}"


def correction_text(correction: str) -> str:
    """Return the words that ask for another answer after one that did not fit."""
    return f"Your last answer did not fit: {correction}. Give a corrected one."


def checked_answer(text: str | None, schema: Schema, *, typed_by_hand: bool = False) -> str:
    """Return the answer as JSON on one line, with null for absent fields that may be null. Raises `WrongAnswer`.

    A person may also give one line `field: value` for each field.
    """
    if text is None:
        raise WrongAnswer("it is a confirmation, not a JSON object")
    try:
        data = shallow_json_in(text)
    except json_data.TooDeep:
        raise WrongAnswer(_TOO_DEEP) from None
    if data is None and typed_by_hand:
        data = _from_lines(text, schema)
    if json_data.levels(data) > json_data.LEVELS:
        raise WrongAnswer(_TOO_DEEP)
    if typed_by_hand and isinstance(data, dict):
        data = from_words(data, schema)
    if not isinstance(data, dict):
        raise WrongAnswer("it is a JSON array, not an object" if isinstance(data, list) else NO_OBJECT)
    data = _filled(data, schema)
    try:
        problems = sorted(_validator()(schema).iter_errors(data), key=lambda error: error.json_path)
    except OverflowError:
        raise WrongAnswer(_TOO_LARGE) from None
    except RecursionError:
        raise WrongAnswer(_TOO_DEEP) from None
    if problems:
        problems_shown = [_problem_text(problem) for problem in problems[:_NAMED]]
        more = f"; and {len(problems) - _NAMED} more" if len(problems) > _NAMED else ""
        raise WrongAnswer("; ".join(problems_shown) + more)
    found = json_text(data, separators=(", ", ": "))
    if json_in(found) is None:  # `1e999` was read as infinity, which JSON does not have
        raise WrongAnswer(_TOO_LARGE)
    return found


def missing(text: str, schema: Schema) -> list[str] | None:
    """Return the fields, in backticks, that are missing in the lines `field: value` of a person. None if the text has
    another form, or a given value does not fit. Raises `WrongAnswer`."""
    given = _from_lines(text, schema)
    if given is None or any(_validator()({**schema, "required": []}).iter_errors(given)):
        return None
    parts, left = schema.get("properties", {}), [name for name in schema.get("required", ()) if name not in given]
    return [f"`{name}`" + " (optional)" * may_be_null(parts.get(name)) for name in left]


@cache
def _validator() -> Any:
    """Return the class that validates an answer. Matching a `pattern` takes at most a second: with `re` some patterns
    would take years, and could not be interrupted."""
    import regex

    draft = _draft()
    from jsonschema import ValidationError
    from jsonschema.validators import extend

    def pattern(_: Any, wanted: str, answer: object, __: Schema) -> Iterator[ValidationError]:
        try:
            if isinstance(answer, str) and regex.search(wanted, answer, timeout=PATTERN_SECONDS) is None:
                yield ValidationError(f"{answer!r} does not match {wanted!r}")
        except TimeoutError:
            yield ValidationError(f"whether it matches {wanted!r} takes too long to find out")
        except regex.error:  # `re`, which checked the schema, accepts a few patterns that `regex` does not
            yield ValidationError(f"whether it matches {wanted!r} cannot be found out")

    return extend(draft, {"pattern": pattern})


@cache
def _draft() -> Any:
    """Return the validator class of JSON Schema 2020-12, imported only for typed answers.

    jsonschema (from 4.25 on) compiles the grammars of addresses on import if `rfc3987_syntax` is installed, which takes
    longer than a second. A `format` is not checked here, so that package is hidden during the import.
    """
    hidden = "rfc3987_syntax" not in sys.modules
    if hidden:
        sys.modules["rfc3987_syntax"] = cast("Any", None)  # makes its import fail
    try:
        from jsonschema import Draft202012Validator
    finally:
        if hidden:
            del sys.modules["rfc3987_syntax"]
    return Draft202012Validator


def require_schema(schema: Schema) -> None:
    """Raise `ValueError` if `schema` isn't a JSON Schema."""
    draft = _draft()
    from jsonschema.exceptions import SchemaError

    try:
        draft.check_schema(dict(schema))
    except SchemaError as problem:
        raise ValueError(f"not a JSON Schema: {_clipped(problem.message)}") from None


def _problem_text(problem: Any) -> str:
    """Return the description of one problem: the field, and what it must be."""
    where = problem.json_path.removeprefix("$").removeprefix(".")
    return f"`{where}`: {_clipped(problem.message)}" if where else _clipped(problem.message)


def _clipped(text: str) -> str:
    return clipped(" ".join(text.split()), 200)


def _filled(data: Any, schema: Schema) -> Any:
    """Return the data with null for each absent field that may be null."""
    if isinstance(data, list):
        items = schema.get("items")
        return [_filled(one, without_null(items)) for one in data] if isinstance(items, Mapping) else data
    properties = schema.get("properties")
    if not isinstance(data, dict) or not isinstance(properties, Mapping):
        return data
    found = {name: _filled(value, without_null(properties.get(name, {}))) for name, value in data.items()}
    for name, part in properties.items():
        if name not in found and may_be_null(part):
            found[name] = None
    return found


def _from_lines(text: str, schema: Schema) -> dict[str, object] | None:
    """Return the data in lines `field: value`; None if a line has another form."""
    found: dict[str, object] = {}
    properties = schema.get("properties", {})
    for line in text.splitlines():
        name, colon, value = line.partition(":")
        name = name.strip()
        if not line.strip():
            continue
        if not colon or name not in properties:
            near = Nearest()(name, properties) if colon else None
            if near is not None:
                raise WrongAnswer(f"there is no field `{name}`, but `{near}`")
            return None
        if json_data.is_deep_json(value):
            raise WrongAnswer(_TOO_DEEP)
        found[name] = _typed(value.strip(), without_null(properties[name]))
    return found or None


def from_words(data: object, part: Schema) -> object:
    """Return the data with texts converted to numbers, booleans or null, as in YAML, where the schema wants them."""
    if isinstance(data, str):
        return None if data in _NULLS and may_be_null(part) else _typed(data, without_null(part))
    part = without_null(part)
    if not part and isinstance(data, (list, dict)):
        return mapped(data, lambda leaf: from_words(leaf, {}))  # of any depth
    if isinstance(data, Mapping):
        properties = part.get("properties", {})
        return {str(name): from_words(value, properties.get(name, {})) for name, value in data.items()}
    if isinstance(data, (list, tuple)):
        items = part.get("items")
        return [from_words(item, items if isinstance(items, Mapping) else {}) for item in data]
    return data


def _typed(value: str, part: Schema) -> object:
    """Convert the text given for a field: a string is unchanged, other values are read as JSON if it is valid."""
    if value in part.get("enum", ()) or (part.get("type") == "string" and not value.startswith('"')):
        return value
    words = {"yes": True, "no": False}
    if part.get("type") == "boolean" and value.lower() in words:
        return words[value.lower()]
    try:
        return json_data.loads(value)
    except ValueError:
        return value


# ---------------------------------------------------------------- dry runs


def example_answer(schema: Schema, text: str) -> str:
    """Return an answer of this shape as JSON, for a dry run: `text` replaces all texts."""
    return json_text(_example(schema, text))


def _example(part: Schema, text: str) -> object:
    if part.get("enum"):
        return part["enum"][0]
    for either in ("anyOf", "oneOf"):
        if part.get(either):
            return _example(part[either][0], text)
    kind = part.get("type")
    match kind[0] if isinstance(kind, list) and kind else kind:
        case "object":
            return {name: _example(one, text) for name, one in part.get("properties", {}).items()}
        case "array":
            return [_example(part["items"], text)] if isinstance(part.get("items"), Mapping) else []
        case "integer" | "number":
            return part.get("minimum", 0)
        case "boolean":
            return False
        case "null":
            return None
        case _:
            return text
