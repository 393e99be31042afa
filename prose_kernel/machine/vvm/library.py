"""The standard library (docs/reference/vvm.md 5)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Final, Literal

from msgspec import Struct

from prose_kernel.language.vvm import tree
from prose_kernel.language.vvm.configurations import (
    PERMISSION_KEYS,
    PERMISSION_LISTS,
    PERMISSION_MODES,
    PERMISSION_WORDS,
    permissions,
)
from prose_kernel.language.vvm.names import OPTIONAL_COUNTS
from prose_kernel.machine.vvm.context import LIBRARY, Context
from prose_kernel.machine.vvm.functions import Bound, LibraryFunction, apply
from prose_kernel.machine.vvm.values import a_type_of, is_error, is_ref, raised
from prose_kernel.runtime.compiled_code import require_shallow
from prose_kernel.runtime.execution_context import Node
from prose_kernel.runtime.json_data import int_text
from prose_kernel.runtime.parallel_branches import iterate
from prose_kernel.runtime.preview import unknown
from prose_kernel.runtime.running_loops import Items, OpenLoop
from prose_kernel.runtime.shared_names import Agent, Function
from prose_kernel.runtime.trampoline import call
from prose_kernel.runtime.values import Value

LONGEST_RANGE: Final = 10_000_000
"""The most items of a range. A list that does not fit into memory would end the kernel, not only the program."""

# ---------------------------------------------------------------- plain functions


def _length(s: Context, node: Node, given: Bound) -> Value:
    value = given["value"]
    if isinstance(value, (str, list)) or (isinstance(value, dict) and not is_ref(value)):
        return len(value)
    hint = "a ref is a place to read, not its text" if is_ref(value) else None
    found = "a ref" if is_ref(value) else a_type_of(value)
    raise raised(s, node, "R215", f"len: expected a string, a list or an object, not {found}", hint=hint)


def _range(s: Context, node: Node, given: Bound) -> Value:
    number = _whole(s, node, "range", "n", given["n"])
    if number > LONGEST_RANGE:
        hint = "count with a variable: `while n < …:`"
        raise raised(s, node, "R215", f"range: expected at most {LONGEST_RANGE:,}, not {int_text(number)}", hint=hint)
    return list(range(number))


def _whole(s: Context, node: Node, function: str, name: str, value: Value) -> int:
    if type(value) is not int:
        found = "a number with a decimal point" if type(value) is float else a_type_of(value)
        raise raised(s, node, "R215", f"{function}: expected a whole number for '{name}', not {found}")
    return value


def _perm(s: Context, node: Node, given: Bound) -> Value:
    """Return all five keys; missing ones are denied (6.2)."""
    made = permissions(given)
    for key in PERMISSION_LISTS:
        value = made[key]
        if type(value) is not list or any(type(pattern) is not str for pattern in value):
            raise raised(s, node, "R215", f"perm: expected a list of strings for '{key}', not {_shown(value)}")
    for key in PERMISSION_MODES:
        value = made[key]
        if type(value) is not str or value not in PERMISSION_WORDS:
            raise raised(
                s, node, "R215", f'perm: expected "allow", "deny" or "prompt" for \'{key}\', not {_shown(value)}'
            )
    return made


def _shown(value: Value) -> str:
    if type(value) is list:
        return "a list with something else in it"
    return f'"{value}"' if type(value) is str and len(value) <= 40 else a_type_of(value)


class _Perm(LibraryFunction):
    """`perm` takes only keywords."""

    __slots__ = ()

    def bind(self, s: Context, node: Node, arguments: Sequence[Value], keywords: Mapping[str, Value]) -> Bound:
        if arguments:
            raise raised(s, node, "R208", "bad arguments to perm: it takes keywords only, like perm(read=[])")
        return super().bind(s, node, arguments, keywords)


class _Pack(LibraryFunction):
    """`pack` builds an object from any keywords. A positional argument must be a plain name, which is its key."""

    __slots__ = ()

    computes = False

    def bind(self, s: Context, node: Node, arguments: Sequence[Value], keywords: Mapping[str, Value]) -> Bound:
        if not arguments:
            return dict(keywords)
        names = _packed_names(node)
        if names is None or len(names) != len(arguments):
            message = "bad arguments to pack: without a name of its own a value needs a key, like pack(key=value)"
            raise raised(s, node, "R208", message)
        table: Bound = {}
        for key, value in (*zip(names, arguments, strict=True), *keywords.items()):
            if key in table:
                raise raised(s, node, "R208", f"bad arguments to pack: '{key}' is given twice")
            table[key] = value
        return table


def _packed_names(node: Node) -> list[str] | None:
    """Return the keys of the positional arguments of a direct `pack(…)`; None for any other call."""
    if isinstance(node, tree.Call):
        if not isinstance(node.callee, tree.Name) or node.callee.id != "pack":
            return None
    elif not isinstance(node, tree.ExportPack):
        return None
    names = [_packed_name(argument) for argument in node.arguments]
    return [name for name in names if name is not None] if None not in names else None


def _packed_name(node: tree.Node) -> str | None:
    return node.id if isinstance(node, tree.Name) else "it" if isinstance(node, tree.It) else None


# ---------------------------------------------------------------- functions with callbacks


def _items(s: Context, node: Node, function: str, given: Bound, callback: str) -> list[Value]:
    """Return the checked list. The callback is checked even if the list is empty (A23)."""
    items = given["items"]
    if s.host.preview is not None:
        items = s.host.preview.items(items, "item")
    if type(items) is not list:
        found = "an error value" if is_error(items) else a_type_of(items)
        raise raised(s, node, "R215", f"{function}: expected a list for 'items', not {found}")
    _callable(s, node, function, callback, given[callback])
    return items


def _callable(s: Context, node: Node, function: str, name: str, value: Value) -> None:
    if not isinstance(value, Function):
        hint = "write a function that calls the agent, and pass that" if isinstance(value, Agent) else None
        raise raised(
            s, node, "R215", f"{function}: expected a function for '{name}', not {a_type_of(value)}", hint=hint
        )


def _truth(s: Context, node: Node, function: str, name: str, value: Value) -> bool:
    if value is True or value is False:
        return value
    if s.host.preview is not None and s.host.preview.unknown_result(value) is not None:
        return True
    message = f"condition is not a boolean: {function} got {a_type_of(value)} from '{name}'"
    raise raised(s, node, "R203", message)


async def _each(operation: Literal["map", "filter"], callback: str, s: Context, node: Node, given: Bound) -> Value:
    """Run `map` or `filter`. Returns the callback's values, or the items for which it is true."""
    items = _items(s, node, operation, given, callback)
    found: list[Value] = []
    with Items(s, node, len(items)) as passes:
        for index, item in enumerate(items):
            passes.begins(operation, index)
            value = await call(apply(s, node, given[callback], (item,)))
            if is_error(value):
                return value
            if operation == "map":
                found.append(value)
            elif _truth(s, node, operation, callback, value):
                found.append(item)
    return require_shallow(s, node, found)


async def _reduce(s: Context, node: Node, given: Bound) -> Value:
    items, function = _items(s, node, "reduce", given, "f"), given["f"]
    if "init" in given:
        result, rest = given["init"], items
    elif items:
        result, rest = items[0], items[1:]
    else:
        raise raised(s, node, "R216", "reduce of empty list", hint="give it a start: reduce(items, f, init=0)")
    if "init" in given and is_error(result):
        return result
    with Items(s, node, len(rest)) as passes:
        for index, item in enumerate(rest):
            passes.begins("reduce", index)
            result = await call(apply(s, node, function, (result, item)))
            if is_error(result):
                return result
    return result


async def _refine(s: Context, node: Node, given: Bound) -> Value:
    """Run the algorithm of the reference. Error values have no special meaning here (F6)."""
    limit = _whole(s, node, "refine", "max", given["max"])
    done, step = given["done"], given["step"]
    if s.host.preview is not None:  # one round
        await call(apply(s, node, done, (given["seed"], 0)))
        await call(apply(s, node, step, (given["seed"], 0)))
        return unknown("refine")
    _callable(s, node, "refine", "done", done)
    _callable(s, node, "refine", "step", step)
    current = given["seed"]
    with OpenLoop(s, node, limit, fixed=False) as rounds:
        for number in range(limit):
            rounds.index = number
            if _truth(s, node, "refine", "done", await call(apply(s, node, done, (current, number)))):
                return current
            current = await call(apply(s, node, step, (current, number)))
    return current


class _WaitForAll(Struct, frozen=True):
    """A policy: every invocation is started and awaited, even if others fail."""

    strategy: Literal["all"] = "all"
    count: int | None = None
    on_fail: Literal["continue"] = "continue"


async def _pmap(s: Context, node: Node, given: Bound) -> Value:
    """Like `map`, in parallel. Raises the first error by input order, else returns the first error value, else the list
    (F5)."""
    items, function = _items(s, node, "pmap", given, "f"), given["f"]

    async def one(branch: Context, index: int) -> Value:
        return await call(apply(branch, node, function, (items[index],)))

    fork = await iterate(s, node, items, _WaitForAll(), one, "")
    if fork.join.raised is not None:
        raise fork.join.raised  # no one could answer
    failed = [outcome.error for outcome in fork.outcomes if outcome.error is not None]
    if failed:
        failed[0].replaced += sum((error.failures for error in failed[1:]), ())
        raise failed[0]
    values = [outcome.value for outcome in fork.outcomes]
    return next((value for value in values if is_error(value)), require_shallow(s, node, values))


LIBRARY.update(
    {
        function.name: function
        for function in (
            LibraryFunction("len", ("value",), at_once=_length),
            LibraryFunction("range", ("n",), at_once=_range),
            _Perm("perm", PERMISSION_KEYS, optional=OPTIONAL_COUNTS["perm"], at_once=_perm),
            _Pack("pack", (), at_once=require_shallow),
            LibraryFunction("map", ("items", "f"), work=partial(_each, "map", "f")),
            LibraryFunction("pmap", ("items", "f"), work=_pmap),
            LibraryFunction("filter", ("items", "pred"), work=partial(_each, "filter", "pred")),
            LibraryFunction("reduce", ("items", "f", "init"), optional=OPTIONAL_COUNTS["reduce"], work=_reduce),
            LibraryFunction("refine", ("seed", "max", "done", "step"), work=_refine),
        )
    }
)
