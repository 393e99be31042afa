"""The process that runs the functions of a `prose_tools.py` and of the entry points `prose_kernel.tools`.

Started as a script with the file's path (or `-`), the maximum length of a result, and the digests of the files that may
be loaded from the file's directory; of this package it imports only `plain_files`. Requests arrive on standard input,
one JSON object per line; standard output is reserved for the answers, so text that functions print goes to standard
error. Each public function of the file is a tool; its type hints and its docstring describe its arguments. Pydantic
handles hints with pydantic types, griffe docstrings with sections; neither is imported otherwise.
"""

from __future__ import annotations

import asyncio
import dataclasses
import hashlib
import importlib.util
import inspect
import json
import os
import re
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from importlib.metadata import EntryPoint, entry_points
from importlib.readers import FileReader
from inspect import Parameter
from types import ModuleType, SimpleNamespace
from typing import Annotated, Any, get_args, get_type_hints, is_typeddict

import msgspec
from msgspec import Struct

from prose_kernel.access import plain_files

GROUP = "prose_kernel.tools"
AT_ONCE = 64
"""The number of functions that may block at the same time."""


# ---------------------------------------------------------------- files


class PinnedFiles(MetaPathFinder, Loader):
    """Imports from one directory: only files whose digests were taken when the run started, and only with that content.

    `pins` are the digests by names relative to the directory. Compiled files are not read, and no other file is found:
    a file that a session has written there is never loaded. The directory itself is on no search path.
    """

    def __init__(self, directory: str, pins: Mapping[str, str]) -> None:
        self._directory = directory
        self._pins = pins

    def find_spec(self, name: str, path: object = None, target: object = None) -> ModuleSpec | None:
        place = name.replace(".", "/")
        for file, inside in ((f"{place}/__init__.py", []), (f"{place}.py", None)):
            if file in self._pins:
                return importlib.util.spec_from_file_location(
                    name, self._path(file), loader=self, submodule_search_locations=inside
                )
        if any(file.startswith(f"{place}/") for file in self._pins):
            return ModuleSpec(name, None, is_package=True)
        return None

    def exec_module(self, module: ModuleType) -> None:
        assert module.__file__ is not None
        text = self.text(module.__file__)
        exec(compile(text, module.__file__, "exec", dont_inherit=True), module.__dict__)  # noqa: S102

    def get_resource_reader(self, name: str) -> FileReader:
        """Return a reader for data in packages, which is not pinned."""
        place = self._path(name.replace(".", "/"))
        return FileReader(SimpleNamespace(path=f"{place}/__init__.py"))  # type: ignore[arg-type]

    def text(self, path: str) -> bytes:
        """Return the text of a file. Raises `ImportError` if it has changed since the run started."""
        file = os.path.relpath(path, self._directory).replace(os.sep, "/")
        try:
            text = plain_files.read(path, plain_files.SMALL)
        except OSError as problem:
            raise ImportError(f"{file} cannot be loaded: {(problem.strerror or 'it cannot be read').lower()}") from None
        if file not in self._pins:
            raise ImportError(f"{file} was not there when the run started; begin a new run to use it")
        if hashlib.sha256(text).hexdigest() != self._pins[file]:
            raise ImportError(f"{file} has changed since the run started; begin a new run to use it")
        return text

    def _path(self, file: str) -> str:
        return os.path.join(self._directory, file)  # noqa: PTH118


class NotPinned(MetaPathFinder):
    """The last finder: its error explains why a module in the directory is not imported."""

    def __init__(self, directory: str) -> None:
        self._directory = directory

    def find_spec(self, name: str, path: object = None, target: object = None) -> None:
        place = name.replace(".", "/")
        for file in (f"{place}.py", f"{place}/__init__.py"):
            if os.path.isfile(os.path.join(self._directory, file)):  # noqa: PTH113, PTH118
                raise ModuleNotFoundError(
                    f"{file} was not there when the run started, or no import statement names it", name=name
                )


# ---------------------------------------------------------------- arguments and results


class InvalidArguments(Exception):
    """The arguments do not match the function's hints; the message is for the model."""


class FunctionArguments(Struct, frozen=True):
    """The JSON schema of a function's arguments, and a function that checks and converts them by name.

    `convert` raises `InvalidArguments`.
    """

    schema: dict[str, Any]
    convert: Callable[[dict[str, Any]], dict[str, Any]]


def _by_msgspec(name: str, parameters: Sequence[Parameter], hints: Mapping[str, Any]) -> FunctionArguments:
    fields: list[Any] = []
    for parameter in parameters:
        hint, default = hints.get(parameter.name, Any), parameter.default
        given = default is not parameter.empty
        fields.append((parameter.name, hint, msgspec.field(default=default)) if given else (parameter.name, hint))
    kind = msgspec.defstruct(name, fields, forbid_unknown_fields=True, kw_only=True)
    described = msgspec.json.schema(kind)
    definitions = described.pop("$defs", {})
    schema = definitions.pop(name, described)
    schema.pop("title", None)

    def convert(arguments: dict[str, Any]) -> dict[str, Any]:
        try:
            given = msgspec.convert(arguments, kind)
        except msgspec.ValidationError as problem:
            raise InvalidArguments(str(problem)) from None
        return {field: getattr(given, field) for field in kind.__struct_fields__}

    return FunctionArguments(schema | ({"$defs": definitions} if definitions else {}), convert)


def _by_pydantic(name: str, parameters: Sequence[Parameter], hints: Mapping[str, Any]) -> FunctionArguments:
    from pydantic import ConfigDict, Field, ValidationError, create_model

    fields: dict[str, Any] = {}
    for number, parameter in enumerate(parameters):  # a parameter may have a name that pydantic models reserve
        alias = Field(alias=parameter.name, validation_alias=parameter.name)
        default = ... if parameter.default is parameter.empty else parameter.default
        fields[f"p{number}"] = (Annotated[hints.get(parameter.name, Any), alias], default)
    model = create_model(name, __config__=ConfigDict(extra="forbid"), **fields)

    def convert(arguments: dict[str, Any]) -> dict[str, Any]:
        try:
            given = model.model_validate(arguments)
        except ValidationError as problem:
            faults = problem.errors(include_url=False, include_input=False, include_context=False)
            lines = (f"{'.'.join(str(part) for part in fault['loc'])}: {fault['msg']}" for fault in faults)
            raise InvalidArguments("; ".join(lines)[:2000]) from None
        return {parameter.name: getattr(given, f"p{number}") for number, parameter in enumerate(parameters)}

    return FunctionArguments(_untitled(model.model_json_schema()), convert)


def _untitled(schema: Any) -> Any:
    """Return a schema without the titles that pydantic makes from names."""
    if isinstance(schema, list):
        return [_untitled(each) for each in schema]
    if not isinstance(schema, dict):
        return schema
    named = ("properties", "$defs")
    return {
        key: {name: _untitled(each) for name, each in value.items()} if key in named else _untitled(value)
        for key, value in schema.items()
        if key != "title"
    } | {key: schema[key] for key in ("default", "const", "enum", "examples") if key in schema}


def _needs_pydantic(hint: Any, seen: dict[int, Any]) -> bool:
    """Return whether a hint contains a pydantic model, field or type at any depth; then its file has imported
    pydantic."""
    if "pydantic" not in sys.modules or id(hint) in seen:
        return False
    seen[id(hint)] = hint
    if hasattr(hint, "__get_pydantic_core_schema__"):
        return True
    whose = hint if isinstance(hint, type) else type(hint)
    if whose.__module__.partition(".")[0] in ("pydantic", "pydantic_core", "annotated_types"):
        return True
    inside = (*get_args(hint), *getattr(hint, "__metadata__", ()))
    if isinstance(hint, type) and (dataclasses.is_dataclass(hint) or is_typeddict(hint) or hasattr(hint, "_fields")):
        inside += tuple(get_type_hints(hint, include_extras=True).values())
    return any(_needs_pydantic(each, seen) for each in inside)


def _plain(value: Any) -> Any:
    """Convert a value that msgspec cannot encode."""
    if "pydantic_core" in sys.modules:
        from pydantic_core import to_jsonable_python

        return to_jsonable_python(value)
    raise TypeError(f"its result has a value of type {type(value).__name__}, which JSON cannot hold")


# ---------------------------------------------------------------- docstrings

_GOOGLE = re.compile(r"^(?:Args|Arguments|Parameters|Params):[ \t]*$", re.MULTILINE)
_NUMPY = re.compile(r"^Parameters[ \t]*\n-{3,}[ \t]*$", re.MULTILINE)


def documented(function: Callable[..., Any]) -> tuple[str, dict[str, str]]:
    """Return the description of a function, and of each of its parameters, from its docstring (Google's and NumPy's
    style)."""
    text = inspect.getdoc(function) or ""
    style = "numpy" if _NUMPY.search(text) else "google" if _GOOGLE.search(text) else None
    if style is None or importlib.util.find_spec("griffe") is None:
        return text, {}
    import griffe

    about, parameters = [], {}
    for section in griffe.Docstring(text).parse(griffe.Parser(style), warnings=False):
        if section.kind is griffe.DocstringSectionKind.text:
            about.append(section.value)
        elif section.kind is griffe.DocstringSectionKind.parameters:
            parameters = {each.name: each.description.strip() for each in section.value}
        elif section.kind is griffe.DocstringSectionKind.returns:
            about.append("Returns: " + "; ".join(each.description.strip() for each in section.value))
    return "\n\n".join(about), {name.lstrip("*"): about_it for name, about_it in parameters.items() if about_it}


# ---------------------------------------------------------------- functions


class Function:
    """One function: its description for a model, and a call with checked arguments."""

    def __init__(self, name: str, function: Callable[..., Any]) -> None:
        self.name = name
        self._function = function
        hints = get_type_hints(function, include_extras=True)
        parameters = tuple(inspect.signature(function).parameters.values())
        for parameter in parameters:
            if parameter.kind not in (parameter.POSITIONAL_OR_KEYWORD, parameter.KEYWORD_ONLY):
                raise TypeError(f"the parameter {parameter} cannot be given by name")
        seen: dict[int, Any] = {}
        used = [hints.get(parameter.name) for parameter in parameters] + [each.default for each in parameters]
        make = _by_pydantic if any(_needs_pydantic(each, seen) for each in used) else _by_msgspec
        self._arguments = make(name, parameters, hints)
        about, described = documented(function)
        for named, text in described.items():
            if named in self._arguments.schema.get("properties", ()):
                self._arguments.schema["properties"][named].setdefault("description", text)
        self.description = {"name": name, "description": about or name, "parameters": self._arguments.schema}

    def _outcome(self, named: dict[str, Any]) -> tuple[Any, BaseException | None]:
        """Return the function's result or its exception: futures cannot carry every exception."""
        try:
            return self._function(**named), None
        except BaseException as problem:
            return None, problem

    async def call(self, arguments: dict[str, Any]) -> str:
        named = self._arguments.convert(arguments)
        if inspect.iscoroutinefunction(self._function):
            found = await self._function(**named)
        else:
            found, problem = await asyncio.to_thread(self._outcome, named)
            if problem is not None:
                raise problem
            if inspect.isawaitable(found):
                found = await found
        return found if isinstance(found, str) else msgspec.json.encode(found, enc_hook=_plain).decode()


@dataclass
class Loaded:
    """The functions by name, the reasons why others cannot be used, and the error of the file."""

    functions: dict[str, Function] = field(default_factory=dict)
    problems: dict[str, str] = field(default_factory=dict)
    broken: str = ""


def load(path: str, pins: Mapping[str, str]) -> Loaded:
    loaded = Loaded()
    candidates: list[tuple[str, Any]] = []
    if path != "-":
        directory = os.path.dirname(path)  # noqa: PTH120
        files = PinnedFiles(directory, pins)
        sys.meta_path[:] = [files, *sys.meta_path, NotPinned(directory)]
        specification = importlib.util.spec_from_file_location("prose_tools", path, loader=files)
        assert specification is not None and specification.loader is not None
        module = importlib.util.module_from_spec(specification)
        sys.modules["prose_tools"] = module
        try:
            specification.loader.exec_module(module)
        except (Exception, SystemExit) as problem:
            message = f"{type(problem).__name__}: {problem}"
            loaded.broken = str(problem) if problem.__class__ is ImportError else f"prose_tools.py: {message}"
            return loaded
        public = getattr(module, "__all__", [name for name in vars(module) if not name.startswith("_")])
        for name in public:
            value = vars(module).get(name)
            if inspect.isfunction(value) and value.__module__ == "prose_tools":
                candidates.append((name, value))
    candidates += [(entry.name, entry) for entry in entry_points(group=GROUP)]
    for name, made in candidates:
        if name not in loaded.functions:
            try:
                loaded.functions[name] = Function(name, made.load() if isinstance(made, EntryPoint) else made)
            except Exception as problem:
                loaded.problems[name] = f"{type(problem).__name__}: {problem}"
    return loaded


async def answer(message: dict[str, Any], loaded: Loaded, limit: int) -> Any:
    if message["method"] == "list":
        tools = [function.description for function in loaded.functions.values()]
        return {"tools": tools, "problems": loaded.problems, "broken": loaded.broken}
    function = loaded.functions.get(message["params"]["name"])
    if function is None:
        return {"failed": f"there is no such function: {message['params']['name']}"}
    try:
        text = await function.call(message["params"]["arguments"])
    except InvalidArguments as problem:
        return {"failed": f"invalid arguments: {problem}"}
    except BaseException as problem:  # every exception becomes the answer: nothing is cancelled in this process
        return {"failed": f"{type(problem).__name__}: {problem}"[:2000]}
    return {"text": text[:limit], "length": len(text)}


def main() -> None:
    path, limit, pins = sys.argv[1], int(sys.argv[2]), json.loads(sys.argv[3])
    out = os.fdopen(os.dup(1), "w", encoding="utf-8", errors="replace")
    os.dup2(2, 1)
    inlet = os.dup(0)
    empty = os.open(os.devnull, os.O_RDONLY)
    os.dup2(empty, 0)
    loaded = load(path, pins)
    loop = asyncio.new_event_loop()
    loop.set_default_executor(ThreadPoolExecutor(AT_ONCE))
    own, lock = os.getpid(), threading.Lock()

    async def serve(message: dict[str, Any]) -> None:
        found = await answer(message, loaded, limit)
        if os.getpid() != own:  # a function has forked, and this is the child
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
