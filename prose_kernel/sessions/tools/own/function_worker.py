"""The process that runs the functions of a `prose_tools.py`, and those of the entry points `prose_kernel.tools`.

Started as a script with the file's path (or `-`) as its argument; it imports nothing of this package. Requests come on
standard input, one JSON object a line; standard output belongs to the answers, so what functions print goes to
standard error. Each public function of the file is a tool; its arguments are described by its type hints.
"""

from __future__ import annotations

import asyncio
import importlib.util
import inspect
import json
import os
import sys
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from importlib.metadata import entry_points
from typing import Any, get_type_hints

import msgspec

GROUP = "prose_kernel.tools"
AT_ONCE = 64
"""Functions that may block at the same time."""


class Function:
    """One function: what a model is told about it, and a call with checked arguments."""

    def __init__(self, name: str, function: Callable[..., Any]) -> None:
        self.name = name
        self._function = function
        hints = get_type_hints(function, include_extras=True)
        fields: list[Any] = []
        for parameter in inspect.signature(function).parameters.values():
            if parameter.kind not in (parameter.POSITIONAL_OR_KEYWORD, parameter.KEYWORD_ONLY):
                raise TypeError(f"the parameter {parameter} cannot be given by name")
            hint = hints.get(parameter.name, Any)
            given = parameter.default is not parameter.empty
            fields.append(
                (parameter.name, hint, msgspec.field(default=parameter.default)) if given else (parameter.name, hint)
            )
        self._arguments = msgspec.defstruct(name, fields, forbid_unknown_fields=True, kw_only=True)
        described = msgspec.json.schema(self._arguments)
        definitions = described.pop("$defs", {})
        schema = definitions.pop(name, described)
        schema.pop("title", None)
        self.told = {
            "name": name,
            "description": inspect.getdoc(function) or name,
            "parameters": schema | ({"$defs": definitions} if definitions else {}),
        }

    def _outcome(self, named: dict[str, Any]) -> tuple[Any, BaseException | None]:
        """What the function returns, or raises: futures cannot carry every exception."""
        try:
            return self._function(**named), None
        except BaseException as problem:
            return None, problem

    async def call(self, arguments: dict[str, Any]) -> str:
        given = msgspec.convert(arguments, self._arguments)
        named = {field: getattr(given, field) for field in self._arguments.__struct_fields__}
        if inspect.iscoroutinefunction(self._function):
            found = await self._function(**named)
        else:
            found, problem = await asyncio.to_thread(self._outcome, named)
            if problem is not None:
                raise problem
            if inspect.isawaitable(found):
                found = await found
        return found if isinstance(found, str) else msgspec.json.encode(found).decode()


def _same(value: Callable[..., Any]) -> Callable[..., Any]:
    return value


@dataclass
class Loaded:
    """The functions by name, why others are none, and what is wrong with the file."""

    functions: dict[str, Function] = field(default_factory=dict)
    problems: dict[str, str] = field(default_factory=dict)
    broken: str = ""


def load(path: str) -> Loaded:
    loaded = Loaded()
    candidates: list[tuple[str, Callable[[], Any]]] = []
    if path != "-":
        sys.path.insert(0, os.path.dirname(path))  # noqa: PTH120
        specification = importlib.util.spec_from_file_location("prose_tools", path)
        assert specification is not None and specification.loader is not None
        module = importlib.util.module_from_spec(specification)
        sys.modules["prose_tools"] = module
        try:
            specification.loader.exec_module(module)
        except (Exception, SystemExit) as problem:
            loaded.broken = f"prose_tools.py: {type(problem).__name__}: {problem}"
            return loaded
        public = getattr(module, "__all__", [name for name in vars(module) if not name.startswith("_")])
        for name in public:
            value = vars(module).get(name)
            if inspect.isfunction(value) and value.__module__ == "prose_tools":
                candidates.append((name, partial(_same, value)))
    candidates += [(entry.name, entry.load) for entry in entry_points(group=GROUP)]
    for name, made in candidates:
        if name not in loaded.functions:
            try:
                loaded.functions[name] = Function(name, made())
            except Exception as problem:
                loaded.problems[name] = f"{type(problem).__name__}: {problem}"
    return loaded


async def answer(message: dict[str, Any], loaded: Loaded, limit: int) -> Any:
    if message["method"] == "list":
        told = [function.told for function in loaded.functions.values()]
        return {"tools": told, "problems": loaded.problems, "broken": loaded.broken}
    function = loaded.functions.get(message["params"]["name"])
    if function is None:
        return {"failed": f"there is no such function: {message['params']['name']}"}
    try:
        text = await function.call(message["params"]["arguments"])
    except msgspec.ValidationError as problem:
        return {"failed": f"invalid arguments: {problem}"}
    except BaseException as problem:  # whatever a function raises is the answer: nobody cancels in here
        return {"failed": f"{type(problem).__name__}: {problem}"[:2000]}
    return {"text": text[:limit], "length": len(text)}


def main() -> None:
    path, limit = sys.argv[1], int(sys.argv[2])
    out = os.fdopen(os.dup(1), "w", encoding="utf-8", errors="replace")
    os.dup2(2, 1)
    inlet = os.dup(0)
    empty = os.open(os.devnull, os.O_RDONLY)
    os.dup2(empty, 0)
    loaded = load(path)
    loop = asyncio.new_event_loop()
    loop.set_default_executor(ThreadPoolExecutor(AT_ONCE))
    own, lock = os.getpid(), threading.Lock()

    async def serve(message: dict[str, Any]) -> None:
        found = await answer(message, loaded, limit)
        if os.getpid() != own:  # a function forked and came back here
            os._exit(1)
        with lock:
            out.write(json.dumps({"id": message["id"], "result": found}) + "\n")
            out.flush()

    def read() -> None:
        with os.fdopen(inlet, encoding="utf-8") as lines:
            for line in lines:
                asyncio.run_coroutine_threadsafe(serve(json.loads(line)), loop)
        os._exit(0)

    threading.Thread(target=read, daemon=True).start()
    loop.run_forever()


if __name__ == "__main__":
    main()
