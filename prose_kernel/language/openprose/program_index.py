"""The shared state of the checks of a program: its registries, its findings, and the unresolved names.

Agents, blocks, imports and gates have separate, global registries (openprose.md 3.5). Whether a name is declared
anywhere is known only after the whole program has been walked; until then, reads of undeclared names are kept here.
"""

from __future__ import annotations

from typing import Literal

from msgspec import Struct

from prose_kernel.language.diagnostics import PROSESCRIPT_PROFILES, Diagnostic, Findings, Profile, in_order
from prose_kernel.language.nearest import Nearest, did_you_mean
from prose_kernel.language.openprose import hints, tree
from prose_kernel.language.openprose.call_targets import interface_of
from prose_kernel.language.openprose.keywords import LEGACY_CODES
from prose_kernel.language.openprose.output_types import written_schema
from prose_kernel.language.openprose.program_interface import (
    KnownAgent,
    KnownNames,
    ProgramInterface,
    block_exports,
    block_names,
    persistence,
)
from prose_kernel.language.openprose.scopes import Frame
from prose_kernel.language.openprose.tree import Agent, Block, Constant, Gate, Program
from prose_kernel.language.source import Source, Span
from prose_kernel.language.structs import replace
from prose_kernel.language.typed_answers import Schema

UndefinedCode = Literal["E131", "E132", "E162", "E170", "E053", "E108", "W108"]

_UNDEFINED: dict[UndefinedCode, str] = {
    "E131": "Undefined variable `{}`",
    "E132": "Undefined variable `{}` in context",
    "E162": "Undefined collection `{}`",
    "E170": "Undefined pipeline input `{}`",
    "E053": "Undefined name `{}` in a command",
    "E108": "Undefined name `{}` in a text",
    "W108": "Nothing is called `{}` here; the braces stay in the text",
}


class Undefined(Struct, frozen=True):
    """A read of a name that isn't visible at its place; `raw` and `after_dollar` are those of an `Interpolation`."""

    name: str
    span: Span
    code: UndefinedCode
    raw: str = ""
    after_dollar: bool = False
    nearest: str | None = None


class Survey(Findings):
    """The registries of one program, in addition to those of earlier cells (`known`), and all findings so far."""

    def __init__(self, program: Program, source: Source, profile: Profile, known: KnownNames) -> None:
        super().__init__(source)
        self.profile: Profile = profile
        self.strict = profile == "strict"
        self.script = profile in PROSESCRIPT_PROFILES
        self.strict_script = profile == "prosescript-strict"
        self.interface = interface_of(source)
        self.free: dict[str, bool] = {}
        """In a delegation: names that are read but not declared; False for those that only occur in texts."""
        self.known = known
        self.near = Nearest()
        self.agents: dict[str, KnownAgent] = {}
        self.agents_with_persist: set[str] = set()  # agents with a `persist` that isn't false, even if it is invalid
        self.blocks: dict[str, Block] = {}
        self.programs: dict[str, ProgramInterface | None] = {}
        self.skills: dict[str, None] = {}
        self.gates: dict[str, None] = {}
        self.root = self.frame = Frame(is_root=True)
        self.declared_in: dict[str, Frame | None] = {}  # all declared names; with the frame if only one declares it
        self.schemas: dict[str, Schema | None] = {}  # the schemas in files, by path; None if unusable
        self.assigned_in_blocks: set[str] = set()
        self._waiting: list[Undefined] = []
        self._undefined: list[Undefined] = []
        self._exports: dict[str, tuple[str, ...] | None] = {}
        self._known_names: frozenset[str] | None = None
        self._written: dict[str, Agent] = {}
        for item in program.items:
            if isinstance(item, Agent):
                self._written.setdefault(item.name.id, item)
                self.agents.setdefault(item.name.id, KnownAgent(persistence(item)))
                if tree.value_of(item.properties, "persist") not in (None, Constant(False)):
                    self.agents_with_persist.add(item.name.id)
            elif isinstance(item, Block):
                self.blocks.setdefault(item.name.id, item)

    def report_legacy(self, code: str, span: Span, message: str, hint: str | None = None) -> None:
        """Report a form that ProseScript accepts for existing files; its `strict` makes it an error."""
        self.report(LEGACY_CODES[code] if self.strict_script else code, span, message, hint)

    def output_of(self, agent: str) -> Schema | None:
        """Return the schema of an agent's answers, if known."""
        if agent in self._written:
            return written_schema(self._written[agent].properties, self.schemas)
        known = self.known.agents.get(agent)
        return known.output if known is not None else None

    def sees(self, name: str) -> bool:
        """Return whether a read of `name` in the current frame certainly finds a variable."""
        frame = self.frame
        if name in frame.visible or name in frame.temporaries or frame.open:
            return True
        if not frame.is_root:
            return False
        known = self.known
        return name in known.variables or (name in known.soft_exports and not self.strict)

    def undefined(self, item: Undefined) -> None:
        """Record a read of a name that isn't visible here: an error at the root; in a block, `finish` decides."""
        frame = self.frame
        if frame.is_root and self.interface.kind == "delegation" and item.code not in ("W108", "E108"):
            self.free[item.name] = True  # read before its declaration: an input, to which a `let` assigns
            frame.show(item.name)
            return
        if not frame.is_root or self.interface.kind == "delegation":
            self._waiting.append(item)
            return
        names = [*frame.visible, *frame.temporaries, *self.known.variables] if self.near.has_budget else []
        self._undefined.append(replace(item, nearest=self.near(item.name, names)))

    def finish(self) -> tuple[Diagnostic, ...]:
        """Report the undefined names and return all findings in order."""
        for item in self._waiting:
            if self.is_declared(item.name):
                continue
            if self.interface.kind == "delegation":
                self.free[item.name] = self.free.get(item.name, False) or item.code not in ("W108", "E108")
            else:
                self._undefined.append(replace(item, nearest=self.near(item.name, self.declared_in)))
        for item in self._undefined:
            hint = self._hint(item)
            # otherwise a misspelt name would reach a model with its braces
            misspelt = item.code == "W108" and self.profile == "default" and hint == did_you_mean(item.nearest or "")
            code: UndefinedCode = "E108" if misspelt else item.code
            self.report(code, item.span, _UNDEFINED[code].format(item.name), hint)
        return in_order(self.found)

    def free_reads(self) -> frozenset[str]:
        """Return the names that a delegation reads without declaring them; empty for other programs."""
        if self.interface.kind != "delegation":
            return frozenset()
        waiting = (item.name for item in self._waiting if item.code not in ("W108", "E108"))
        return frozenset([*self.free, *waiting])

    def is_declared(self, name: str) -> bool:
        """Return whether a name is declared anywhere in the program or in an earlier cell."""
        known = self.known
        if name in self.declared_in or name in known.variables or name in known.soft_exports:
            return True
        if self._known_names is None:
            bodies = known.bodies.values()
            parameters = (frozenset(names) for names in known.blocks.values())
            self._known_names = frozenset().union(*parameters, *(block_names(body) for body in bodies))
        return name in self._known_names

    def _hint(self, item: Undefined) -> str | None:
        name = item.name
        if item.code == "E053":
            return hints.braces_hint(item.raw[1:-1], item.name, item.nearest, item.after_dollar)
        if hint := self.other_registry(name) or hints.constant(name) or did_you_mean(item.nearest):
            return hint
        if name in self.root.table:
            return f"`{name}` has no value here: it is bound further down, or only inside a branch or iteration"
        if item.code in ("W108", "E108"):
            return f"define `{name}` first, or write `\\{item.raw[:-1]}\\}}` if the braces are meant"
        return None

    def other_registry(self, name: str) -> str | None:
        """Return the hint for a name that is a gate, agent, block or program; None for an unknown name."""
        if name in self.gates or name in self.known.gates:
            return f"`{name}` is a gate, and a gate binds nothing; to ask for a value use `input`"
        if self.agent(name) is not None:
            return f"`{name}` is an agent: `session: {name}`"
        if self.block(name) is not None:
            return f"`{name}` is a block: `do {name}(...)`"
        if self.is_program(name):
            return f"`{name}` is an imported program: `{name}(input: value)`"
        return None

    def agent(self, name: str) -> KnownAgent | None:
        return self.agents.get(name) or self.known.agents.get(name)

    def block(self, name: str) -> tuple[str, ...] | None:
        """Return the parameters of a block, None if there is no block with this name."""
        block = self.blocks.get(name)
        return tuple(p.id for p in block.parameters) if block is not None else self.known.blocks.get(name)

    def is_function(self, name: str) -> bool:
        """Return whether a block's name is that of a function of another language."""
        return name not in self.blocks and name in self.known.blocks and name not in self.known.bodies

    def is_program(self, name: str) -> bool:
        return name in self.programs or name in self.known.programs

    def program(self, name: str) -> ProgramInterface | None:
        """Return the contract of an import; None if it is unknown."""
        return self.programs.get(name, self.known.programs.get(name))

    def exports(self, name: str) -> tuple[str, ...] | None:
        """Return the names that a bare `do` of this block may export (3.6); None if its content is unknown."""
        if name not in self._exports:
            block = self.blocks.get(name) or self.known.bodies.get(name)
            self._exports[name] = block_exports(block) if block else None
        return self._exports[name]

    def gate(self, gate: Gate) -> None:
        name = gate.name
        if name.id in self.gates:
            self.report("W196", name.span, f"Two gates are called `{name.id}`", "give each gate a name of its own")
        self.gates[name.id] = None
