"""Checks which properties agents, spawns and gates may have, and the values of properties (openprose.md 4.2-5.8)."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import ClassVar

from prose_kernel.errors import ImportProgramError
from prose_kernel.language import typed_answers
from prose_kernel.language.durations_and_budgets import BUDGET_EXAMPLE, parse_budget, parse_duration
from prose_kernel.language.nearest import did_you_mean
from prose_kernel.language.openprose import tree
from prose_kernel.language.openprose.keywords import NOT_STRICT, PROPERTIES, Owner
from prose_kernel.language.openprose.name_resolution import NameChecker
from prose_kernel.language.openprose.output_types import NotAType, schema_of
from prose_kernel.language.openprose.program_index import Survey
from prose_kernel.language.openprose.program_interface import LoadContract, memory_of
from prose_kernel.language.openprose.tree import Value

MODELS = ("sonnet", "opus", "haiku")
SHAPE = ("self", "delegates", "prohibited")
BACKOFFS = ("none", "linear", "exponential")
EXEC_POLICIES = ("throw", "continue", "ignore")
PERMISSION_TYPES = ("read", "write", "execute", "bash", "network", "tools")
PERMISSION_WORDS = ("allow", "deny", "prompt")
_WORD_PERMISSIONS = ("bash", "network", "tools")

RETRY_IF_LOST = "lost"
"""The value of `retry` for an `exec` that is retried only if its worker is lost (3.13)."""
LONG_TIMEOUT = 600.0
"""The timeout of an `exec`, in seconds, above which W050 is reported."""
FORMATS = ("json", "jsonl", "csv", "lines")
MAX_OUTPUT = 100_000_000
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*", re.ASCII)
_LOADS_CODE = (
    r"LD_.*|DYLD_.*|BASH_ENV|ENV|BASH_FUNC_.*|SHELLOPTS|BASHOPTS|PS4|PROMPT_COMMAND|ZDOTDIR|GCONV_PATH"
    r"|PYTHON(?:PATH|HOME|STARTUP|INSPECT|BREAKPOINT|USERBASE|WARNINGS)|PERL(?:5OPT|5LIB|LIB|5DB)|RUBY(?:OPT|LIB)"
    r"|NODE_(?:OPTIONS|PATH)|_?JAVA_(?:TOOL_)?OPTIONS|JDK_JAVA_OPTIONS|LUA_(?:INIT|PATH|CPATH).*|GIT_EXTERNAL_DIFF"
)
"""Environment variables that make a shell or a program load code. The pattern is compiled at its first use."""

_SET_BY_RUN = ("PROSE_JOB", "PROSE_RUN", "PROSE_AT", "PROSE_ATTEMPT")
"""Environment variables by which the kernel identifies its processes and their requests."""

_GATE_PROMPT = 'a gate shows its text as written: `prompt: "..."`'
_NO_RETRY = "the strict profile has no `retry` for exec; use `loop (max: 3)` with `try`"
_MISPLACED = {
    ("exec", "retry"): _NO_RETRY,
    ("exec", "backoff"): _NO_RETRY,
    ("session", "skills"): "`skills` belongs to the agent",
    ("session", "persist"): "`persist` belongs to the agent",
    ("agent", "timeout"): "`timeout` belongs to the session",
}
_TOOL = re.compile(r"[\w-]+(\.[\w.-]+|\.\*)?", re.ASCII)
_MAX_PROMPT = 10_000
_MAX_RETRIES = 10
_MAX_BACKOFF = 300
"""Seconds; equal to the longest `Retry-After` that the kernel waits for."""


class PropertyChecker:
    """Checks the property blocks of agents, spawns and gates; `names` checks the names in their values."""

    def __init__(self, survey: Survey, names: NameChecker, load: LoadContract | None) -> None:
        self.survey = survey
        self.names = names
        self.load = load

    def check(self, owner: Owner, properties: tree.Properties) -> None:
        """Report repeated (E009) and unknown (W005) properties, and check the values of all others."""
        seen: set[str] = set()
        allowed: tuple[str, ...] = PROPERTIES[owner]
        if owner == "agent" and self.survey.script:
            allowed = (*allowed, "shape")
        for item in properties:
            name = item.name.id
            if name in seen:
                self.survey.report("E009", item.name.span, f"The property `{name}` is given twice")
                continue
            seen.add(name)
            if name not in allowed or (self.survey.strict and name in NOT_STRICT.get(owner, ())):
                self._unknown(item, owner)
            elif tree.is_hole(item.value) and name != "permissions":
                continue
            elif owner == "agent" and name in ("retry", "backoff"):
                message = f"`{name}` has no effect on an agent"
                self._report("W122", item.name, message, f"write `{name}` under the session or resume")
            else:
                self._values[name.replace("-", "_")](self, item.name, item.value, owner)
        is_retried = owner == "session" or (owner == "exec" and not self.survey.strict)
        if "backoff" in seen and "retry" not in seen and is_retried:
            backoff = next(p for p in properties if p.name.id == "backoff")
            self._report("W183", backoff.name, "`backoff` has no effect without `retry`", "add `retry: 3`")

    def modifier(self, entry: tree.Argument) -> None:
        """Check a modifier of a call (prose-md.md 3.5)."""
        name, value = entry.name.id, entry.value
        if name == "prompt":
            self.names.expression(value)
        elif not (name == "model" and isinstance(value, tree.Constant) and value.value is None):
            self._values[name.replace("-", "_")](self, entry.name, value, "session")

    def _report(self, code: str, node: tree.Node, message: str, hint: str | None = None) -> None:
        self.survey.report(code, node.span, message, hint)

    def _unknown(self, item: tree.Property, owner: Owner) -> None:
        name = item.name.id
        article = "an" if owner in ("agent", "exec") else "a"
        message = f"Unknown property `{name}` of {article} {owner}"
        hint = _MISPLACED.get((owner, name))
        if hint is None and (near := self.survey.near(name, PROPERTIES[owner])) is not None:
            hint = did_you_mean(near)
            if self.survey.profile == "default":  # as a warning, a misspelt property would be lost
                self._report("E148", item.name, message, hint)
                return
        self._report("W005", item.name, f"{message}; it is ignored", hint)

    # ---- agents and sessions

    def check_model(self, name: tree.Name, value: Value, owner: Owner) -> None:
        word, strict = tree.word_of(value), self.survey.profile == "strict"
        if self.survey.script and isinstance(value, (tree.Member, tree.Index)):
            self.names.expression(value)
            return
        written = word and word.strip() and not (isinstance(value, tree.Text) and value.interpolations)
        if word not in MODELS and (strict or not written):
            shown = f" `{word}`" if word else ""
            hint = "one of sonnet, opus, haiku (mapped in the settings)"
            more = "" if strict else ', or another name: `model: "gpt-5"`'
            self._report("E008", value, f"Unknown model{shown}", hint + more)

    def check_shape(self, name: tree.Name, value: Value, owner: Owner) -> None:
        """Check `shape`, the responsibilities of an agent: E319, E009 (prose-md.md 3.9)."""
        hint = "lines `self:`, `delegates:`, `prohibited:`, each a text or a list of texts"
        if not isinstance(value, tree.ContextBlock):
            self._report("E319", name, "`shape:` must open a block", hint)
            return
        seen: set[str] = set()
        for entry in value.entries:
            key, given = entry.name.id, entry.value
            elements = given.elements if isinstance(given, tree.Array) else (given,)
            if key not in SHAPE:
                self._report("E319", entry.name, f"Unknown key `{key}` of a shape", hint)
            elif key in seen:
                self._report("E009", entry.name, f"`{key}` is given twice")
            elif not all(isinstance(element, tree.Text) for element in elements):
                self._report("E319", given, f"`{key}` must be a text or a list of texts", hint)
            seen.add(key)

    def check_prompt(self, name: tree.Name, value: Value, owner: Owner) -> None:
        if isinstance(value, tree.Text) and owner == "session":
            self.session_prompt(value)
        elif isinstance(value, tree.Text):
            if not value.raw.strip():
                self._report("W004", value, f"The prompt of this {owner} is empty")
            self._length(value)
            self.names.text(value)
        elif owner == "gate":
            self._report("E196", value, "The prompt of a gate must be a string", _GATE_PROMPT)
        else:
            self._no_text(name, value)

    def _no_text(self, name: tree.Name, value: Value) -> None:
        """Report E004 for a value that must be a string (2.1)."""
        inside = f"{{{value.id}}}" if isinstance(value, tree.Name) else "..."
        self._report("E004", value, f"`{name.id}` must be a string", f'write `{name.id}: "{inside}"`')

    def session_prompt(self, text: tree.Text) -> None:
        """Check the inline text or the `prompt` of a session: W001, W002, W003, and the names in it."""
        raw = text.raw
        if not raw:
            self._report("W001", text, "The prompt of this session is empty", "say what the session should do")
        elif not raw.strip():
            self._report("W002", text, "The prompt of this session is blank", "say what the session should do")
        self._length(text)
        self.names.text(text)

    def _length(self, text: tree.Text) -> None:
        length = len(text.raw)
        if length > _MAX_PROMPT:
            message = f"The prompt is {length} characters long"
            self._report("W003", text, message, "pass long material as context")

    def check_persist(self, name: tree.Name, value: Value, owner: Owner) -> None:
        if isinstance(value, tree.Constant) and value.value is False:
            self._report("W121", value, "`persist: false` is the default")
        elif memory_of(value) is None:
            hint = "true, project, user, or a directory in quotes"
            self._report("E121", value, "`persist` takes true, project, user or a directory", hint)

    def check_context(self, name: tree.Name, value: Value, owner: Owner) -> None:
        self.names.context(value)

    def check_skills(self, name: tree.Name, value: Value, owner: Owner) -> None:
        survey, empty = self.survey, ("W010", "The array of skills is empty", None)
        for element in self._elements(value, "E013", "`skills` must be an array", 'write `skills: ["name"]`', empty):
            if not isinstance(element, tree.Text):
                self._report("E014", element, "A skill must be a string", "put its name in quotes")
                continue
            skill = element.raw
            if skill not in survey.skills and skill not in survey.known.skills and not survey.is_program(skill):
                near = did_you_mean(survey.near(skill, [*survey.skills, *survey.programs]))
                self._report("W007", element, f"The skill `{skill}` is not imported", near)

    def check_retry(self, name: tree.Name, value: Value, owner: Owner) -> None:
        if owner == "exec" and tree.word_of(value) == RETRY_IF_LOST:
            return
        if not isinstance(value, tree.Number) or isinstance(value.value, float):
            also = ", or `retry: lost`" if owner == "exec" else ""
            self._report("E182", value, "`retry` must be a whole number", f"write `retry: 3`{also}")
        elif value.value < 1:
            self._report("E181", value, "`retry` must be at least 1", "leave it out for a single attempt")
        elif value.value > _MAX_RETRIES:
            self._report("W182", value, f"{value.value} retries are many")

    def check_backoff(self, name: tree.Name, value: Value, owner: Owner) -> None:
        if isinstance(value, tree.Number) and not self.survey.strict:
            if not 0 <= value.value <= _MAX_BACKOFF:
                self._report("E183", value, f"`backoff` takes 0 to {_MAX_BACKOFF} seconds")
        else:
            hint = "one of none, linear, exponential, or seconds"
            self._one_of(BACKOFFS, value, "E183", "Unknown backoff", hint)

    def _one_of(self, words: tuple[str, ...], value: Value, code: str, message: str, hint: str) -> None:
        """Report a value that is none of the words."""
        word = tree.word_of(value)
        if word not in words:
            self._report(code, value, message, did_you_mean(self.survey.near(word or "", words)) or hint)

    def check_budget(self, name: tree.Name, value: Value, owner: Owner) -> None:
        problem = "A budget must be a string"
        if isinstance(value, tree.Text):
            try:
                parse_budget(value.raw)
                return
            except ValueError as error:
                problem = f"Not a budget: {error}"
        self._report("E184", value, problem, f'write `"{BUDGET_EXAMPLE}"`, or some of it')

    def check_output(self, name: tree.Name, value: Value, owner: Owner) -> None:
        if isinstance(value, tree.Text):
            if not value.literal:
                self._report("E186", value, "The path of a schema is a text without insertions")
            elif not self.survey.strict:
                self._schema_file(value)
            return
        try:
            schema_of(value)
        except NotAType as problem:
            self._report("E186", problem.node, problem.message, problem.hint)

    def _schema_file(self, path: tree.Text) -> None:
        schemas = self.survey.schemas
        if path.raw in schemas or self.load is None:
            return
        schemas[path.raw] = None
        try:
            found = self.load(f"{typed_answers.FILE_PREFIX}{path.raw}")
        except ImportProgramError as problem:
            self._report(problem.code, path, problem.message, problem.hint)
        else:
            schemas[path.raw] = found.schema if found is not None else None

    def check_tools(self, name: tree.Name, value: Value, owner: Owner) -> None:
        if no_tools(value):
            return
        hint, empty = 'write `tools: ["name"]`, or `tools: none`', ("W010", "The array of tools is empty", None)
        for element in self._elements(value, "E013", "`tools` must be an array", hint, empty):
            if not isinstance(element, tree.Text) or _TOOL.fullmatch(element.raw) is None:
                hint = 'a server, one of its tools or a function: `"weather"`, `"weather.forecast"`, `"word_count"`'
                self._report("E014", element, "A tool must be named by a string", hint)

    def _elements(
        self, value: Value, code: str, message: str, hint: str, empty: tuple[str, str, str | None] | None = None
    ) -> tuple[tree.Expression, ...]:
        """Return the elements of an array; report another value, and an empty array by the finding `empty`."""
        if not isinstance(value, tree.Array):
            self._report(code, value, message, hint)
            return ()
        if not value.elements and empty is not None:
            self._report(empty[0], value, *empty[1:])
        return value.elements

    # ---- permissions

    def check_permissions(self, name: tree.Name, value: Value, owner: Owner) -> None:
        if not isinstance(value, tree.Permissions):
            hint = "write one indented line for each type below `permissions:`"
            self._report("E015", name if tree.is_hole(value) else value, "`permissions` must open a block", hint)
            return
        for entry in value.entries:
            self._permission(entry)

    def _permission(self, entry: tree.Argument) -> None:
        name, value = entry.name.id, entry.value
        if name not in PERMISSION_TYPES:
            near = did_you_mean(self.survey.near(name, PERMISSION_TYPES))
            self._report("W008", entry.name, f"Unknown permission type `{name}`", near)
        if isinstance(value, tree.Text):
            right = f"`{value.raw}` without quotes" if name in _WORD_PERMISSIONS else "the patterns in brackets"
            self._report("E004", value, "A permission is a word or an array of patterns", f"write {right}")
        elif isinstance(value, tree.Array) and name != "bash":
            for pattern in value.elements:
                self._pattern(pattern)
        elif name in _WORD_PERMISSIONS:
            word = tree.word_of(value)
            if word not in PERMISSION_WORDS:
                hint = "write `prompt`" if word == "ask" else "one of allow, deny, prompt"
                self._report("W009", value, f"Unknown value for the permission `{name}`", hint)
        elif not isinstance(value, tree.Name):
            self._report("E016", value, "A permission is an array of patterns, or a word")

    def _pattern(self, pattern: tree.Node) -> None:
        if isinstance(pattern, tree.Text):
            self.names.text(pattern)
        elif isinstance(pattern, tree.Name) and not self.survey.strict:
            self.names.expression(pattern)
        else:
            self._report("E016", pattern, "A permission pattern must be text", "put the pattern in quotes")

    # ---- timeouts, exec

    def check_timeout(self, name: tree.Name, value: Value, owner: Owner) -> None:
        text = value.raw if isinstance(value, tree.Text) else value.text if isinstance(value, tree.Duration) else None
        seconds = parse_duration(text, gate=owner == "gate") if text is not None else None
        if seconds is None:
            code = "E197" if owner == "gate" else "E051"
            self._report(code, value, "the timeout is not a duration", 'write a duration: `"30s"`, `"1h"`')
        elif owner == "exec" and seconds > LONG_TIMEOUT:
            self._report("W050", value, f"A timeout of {text} is above 10 minutes")

    def check_on_fail(self, name: tree.Name, value: Value, owner: Owner) -> None:
        self._one_of(EXEC_POLICIES, value, "E052", "Unknown on-fail value", "one of throw, continue, ignore")

    def check_cwd(self, name: tree.Name, value: Value, owner: Owner) -> None:
        if isinstance(value, tree.Text):
            self.names.text(value, "E053")
        else:
            self._no_text(name, value)

    def check_stdin(self, name: tree.Name, value: Value, owner: Owner) -> None:
        if isinstance(value, (tree.Permissions, tree.ContextBlock, tree.OnReject)):
            self._report("E004", value, "`stdin` takes a value", 'write `stdin: name` or `stdin: "text"`')
        else:
            self.names.expression(value)

    def check_env(self, name: tree.Name, value: Value, owner: Owner) -> None:
        if not isinstance(value, tree.Object):
            self._report("E004", value, "`env` takes names and values", "write `env: { NAME: value }`")
            return
        for entry in value.entries:
            if _VARIABLE.fullmatch(entry.key) is None:
                hint = "a name of letters, digits and `_`: `env: { NAME: value }`"
                self._report("E004", entry, f"`{entry.key}` cannot be an environment variable", hint)
            elif re.fullmatch(_LOADS_CODE, entry.key):
                message = f"`env` does not set `{entry.key}`: it could make the command load other code"
                self._report("E004", entry, message, "choose another name, or set it inside the command")
            elif entry.key in _SET_BY_RUN:
                self._report("E004", entry, f"`env` does not set `{entry.key}`: the run sets it", "choose another name")
            self.names.expression(entry.value)

    def check_max_output(self, name: tree.Name, value: Value, owner: Owner) -> None:
        if not (isinstance(value, tree.Number) and isinstance(value.value, int) and 0 < value.value <= MAX_OUTPUT):
            message = f"`max-output` must be a whole number from 1 to {MAX_OUTPUT:,}"
            self._report("E004", value, message, "characters to keep: `max-output: 200000`")

    def check_format(self, name: tree.Name, value: Value, owner: Owner) -> None:
        self._one_of(FORMATS, value, "E004", "unknown `format`", 'one of "json", "jsonl", "csv", "lines"')

    def check_display(self, name: tree.Name, value: Value, owner: Owner) -> None:
        if isinstance(value, tree.Text):
            self.names.text(value, "E053")
        else:
            self._report("E004", value, "`display` takes the path of a file", 'write `display: "chart.png"`')

    def check_pipefail(self, name: tree.Name, value: Value, owner: Owner) -> None:
        if not (isinstance(value, tree.Constant) and isinstance(value.value, bool)):
            self._report("E004", value, "`pipefail` takes true or false", "write `pipefail: true`")

    def check_reads(self, name: tree.Name, value: Value, owner: Owner) -> None:
        hint = f'write `{name.id}: ["src/**/*.py"]`'
        for element in self._elements(value, "E004", f"`{name.id}` takes a list of globs", hint):
            if not isinstance(element, tree.Text):
                self._report("E004", element, f"`{name.id}` takes globs", hint)
            elif element.interpolations:
                self.names.text(element, "E053")
            elif leaves_directory(element.raw):
                self._report("E054", element, f"A glob of `{name.id}` leaves the directory of the run", RELATIVE_GLOB)

    def check_needs(self, name: tree.Name, value: Value, owner: Owner) -> None:
        hint = "amounts, or true for a tag: `needs: { GPU: 1, ssd: true }`"
        if not isinstance(value, tree.Object) or not value.entries:
            self._report("E004", value, "`needs` takes names of resources and amounts", hint)
            return
        for entry in value.entries:
            amount = entry.value.value if isinstance(entry.value, (tree.Number, tree.Constant)) else None
            if amount is not True and (isinstance(amount, (bool, str)) or amount is None or amount <= 0):
                self._report("E004", entry, f"the amount of `{entry.key}` must be a number above 0, or true", hint)

    # ---- gates

    def gate(self, name: tree.Name, properties: tree.Properties) -> None:
        """Check the properties of a gate, which must have a prompt (5.8)."""
        if tree.value_of(properties, "prompt") is None:
            self._report("E196", name, f"The gate `{name.id}` has no prompt", _GATE_PROMPT)
        self.check("gate", properties)

    def check_allow(self, name: tree.Name, value: Value, owner: Owner) -> None:
        message, hint = "`allow` must be an array of strings", 'write `allow: ["user"]`'
        for element in self._elements(value, "E198", message, hint, ("W198", "No person may approve this gate", hint)):
            if not isinstance(element, tree.Text):
                self._report("E198", element, message, 'put the name in quotes: `allow: ["user"]`')
            elif element.raw != "user":
                unknown = f"The principal `{element.raw}` is not recognised"
                self._report("W198", element, unknown, "every person outside the run is `user`")

    def check_on_reject(self, name: tree.Name, value: Value, owner: Owner) -> None:
        if isinstance(value, tree.OnReject) and value.text is not None:
            if value.action == "session":
                self.session_prompt(value.text)
            else:
                self.names.text(value.text)

    check_writes = check_reads

    _values: ClassVar[dict[str, Callable[[PropertyChecker, tree.Name, Value, Owner], None]]] = {
        name.removeprefix("check_"): check for name, check in vars().items() if name.startswith("check_")
    }
    """The checks of properties, by the name of the property with `_` for `-`."""


RELATIVE_GLOB = "write a path below it, such as `data/*.csv`"
"""The hint for a glob that leaves the directory of the run."""


def leaves_directory(glob: str) -> bool:
    """Return whether a glob of `reads` or `writes` may match files outside the directory that it is relative to."""
    return not glob.strip() or glob.startswith(("/", "~")) or ".." in glob.split("/")


def no_tools(value: object) -> bool:
    """Return whether the value of `tools` means none."""
    return isinstance(value, tree.Name) and value.id == "none"
