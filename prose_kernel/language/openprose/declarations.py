"""Checks declarations of variables, temporary names and assignments (docs/reference/openprose.md 3.5), and registers
the imports of a program (6.1).
"""

from __future__ import annotations

from prose_kernel.errors import ImportProgramError
from prose_kernel.language.openprose.program_index import Survey
from prose_kernel.language.openprose.program_interface import LoadContract, ProgramInterface, local_name, place_of
from prose_kernel.language.openprose.scopes import DeclaredName, Form, KnownValue, redeclaration_code
from prose_kernel.language.openprose.tree import PLACEHOLDER, Name, Program, SkillImport, Text, Use
from prose_kernel.language.source import Span

_REDECLARATIONS = {
    "E019": ("`{}` is already declared here", "assign with `{0} = ...`, or choose another name"),
    "E021": ("The input `{}` is declared twice", None),
    "E024": ("The output `{}` is declared twice", "assign with `{0} = ...` the second time"),
    "E114": ("The output `{}` is already a variable", "give the output a name of its own"),
    "E130": ("`{}` is a const and cannot be written again", "declare it with `let`"),
    "E137": ("`{}` is an input and cannot be written", "choose another name"),
    "W114": ("The output `{}` marks an existing variable", None),
    "W124": ("The output `{}` may be written twice; the last one counts", None),
    "W136": ("`{}` is already declared further out; this acts as an assignment", "write `{0} = ...`"),
    "W151": ("The branch name `{}` already exists; the branch assigns to it", None),
}
_FIXED = {"const": "E130", "input": "E137"}
"""The errors of assignments to a const and to an input."""

_HIDING = {"parameter": "W141", "loop variable": "W160", "pipeline variable": "W170", "catch variable": "W180"}


class Declarations:
    """Binds names in the current frame of the survey and reports conflicts."""

    def __init__(self, survey: Survey) -> None:
        self.survey = survey
        self._block_temporaries: list[tuple[Name, str]] = []  # these may hide a name of the root
        self._block_writes: list[Name] = []

    def declare_known(self) -> None:
        """Declare the names known beforehand as if the program declared them at its top (outside notebooks)."""
        root, known = self.survey.root, self.survey.known
        for name, variable in known.variables.items():
            root.table[name] = DeclaredName(variable.kind, root.place)
            root.show(name)
            if variable.from_exec:
                root.held[name] = "exec"

    def assign(self, name: Name, held: KnownValue) -> None:
        """Bind `name = value` (3.5): E130, E137, and W135 or E135 if the name isn't found."""
        frame = self.survey.frame
        if name.id in frame.temporaries:
            self._immutable(name)
            return
        entry = frame.table.get(name.id) if name.id in frame.visible else None
        known = self.survey.known.variables.get(name.id) if frame.is_root else None
        if entry is not None or self.survey.sees(name.id):
            form = entry.form if entry is not None else known.kind if known is not None else None
            if form in _FIXED:
                self._report_redeclaration(_FIXED[form], name)
            else:
                self._hold(name.id, held)
        elif self.survey.agent(name.id) is not None:
            self.declare(name, "let", held)
        elif frame.is_root:
            # A binding inside an earlier iteration is dropped by now.
            self._report_undeclared(name)
            self._enter(name.id, "let", held)
        else:
            # It assigns a caller's variable or declares one; `finish` decides, when all names are known.
            self._block_writes.append(name)
            self.survey.assigned_in_blocks.add(name.id)
            frame.show(name.id)
            frame.hold(name.id, None)

    def _report_undeclared(self, name: Name) -> None:
        code = "E135" if self.survey.strict or self.survey.strict_script else "W135"
        message = f"`{name.id}` is assigned without a declaration"
        self.survey.report(code, name.span, message, f"write `let {name.id} = ...`")

    def finish(self) -> None:
        """Make the checks that need the whole text: assignments in blocks (3.5), names that hide a name of the root."""
        survey, new = self.survey, []
        for name in self._block_writes:
            if not survey.is_declared(name.id):
                self._report_undeclared(name)
                new.append(name.id)
                continue
            form = self._form_at_root(name.id)
            if form in _FIXED:
                self._report_redeclaration(_FIXED[form], name)
        survey.declared_in.update(dict.fromkeys(new))
        for name, kind in self._block_temporaries:
            if name.id in survey.root.table or name.id in survey.known.variables:
                self._hides(name, kind)

    def _form_at_root(self, name: str) -> str | None:
        """Return the form of a name's declaration if only the root frame declares it, so that every caller finds it;
        else None."""
        if name not in self.survey.declared_in:
            variable = self.survey.known.variables.get(name)
            return variable.kind if variable else None
        if self.survey.declared_in[name] is not self.survey.root:
            return None
        return self.survey.root.table[name].form

    def declare(self, name: Name, form: Form, held: KnownValue) -> None:
        """Declare a variable in the current frame and report conflicts with other names (3.5)."""
        frame, key = self.survey.frame, name.id
        if key in frame.temporaries:
            self._immutable(name)
            return
        entry = frame.table.get(key)
        if self.survey.agent(key) is not None:
            hint = "choose another name for the variable"
            self.survey.report("E133", name.span, f"`{key}` is the name of an agent", hint)
            self._enter(key, form, held)
            return
        if entry is None:
            code = self._earlier_code(key, form)
            if code is None:
                self._enter(key, form, held)
                return
            self._report_redeclaration(code, name)
            if code == "W136":
                self._hold(key, held)
            return
        code = redeclaration_code(form, entry, frame.place, strict=self.survey.strict)
        if form == "branch" and code in ("W151", "E130", "E137") and key not in frame.visible:
            code = None  # bound only inside an earlier iteration or a sibling branch
        if code:
            self._report_redeclaration(code, name)
        if code in (None, "W114", "W124"):
            self._enter(key, form, held)
        elif code not in ("E130", "E137"):
            self._show(key, held)

    def _earlier_code(self, name: str, form: Form) -> str | None:
        """Return the code for the first declaration of a name that exists: an initial name of the script (prose-md.md
        3.3), or a const of an earlier cell, which may be redeclared but not assigned (3.1). None for others."""
        survey = self.survey
        if not survey.frame.is_root:
            return None
        if survey.script and name in survey.interface.fixed:
            return "E137"
        if survey.script and (name in survey.interface.variables or name in survey.free):
            return "W136"
        known = survey.known.variables.get(name) if form not in ("let", "const", "input") else None
        return "E130" if known is not None and known.kind == "const" else None

    def _enter(self, name: str, form: Form, held: KnownValue) -> None:
        frame = self.survey.frame
        entry = frame.table.get(name)
        if entry is None:
            frame.table[name] = DeclaredName(form, frame.place)
        else:
            entry.add(form, frame.place)
        self._show(name, held)

    def _show(self, name: str, held: KnownValue) -> None:
        frame, everywhere = self.survey.frame, self.survey.declared_in
        frame.show(name)
        self._hold(name, held)
        # Remember the frame of a name as long as only one frame declares it.
        everywhere[name] = frame if everywhere.get(name, frame) is frame else None

    def _hold(self, name: str, held: KnownValue) -> None:
        frame = self.survey.frame
        if frame.is_root and name not in frame.held:
            variable = self.survey.known.variables.get(name)
            if variable is not None:
                frame.held[name] = "exec" if variable.from_exec else None
        frame.hold(name, held)

    def _report_redeclaration(self, code: str, name: Name) -> None:
        message, hint = _REDECLARATIONS[code]
        self.survey.report(code, name.span, message.format(name.id), hint and hint.format(name.id))

    def _immutable(self, name: Name) -> None:
        kind = self.survey.frame.temporaries[name.id]
        message = f"`{name.id}` is a {kind} and cannot be written"
        self.survey.report("E137", name.span, message, "choose another name")

    def temporary(self, name: Name, kind: str, header: set[str]) -> None:
        """Bind a temporary name for the current place; warn if it hides another name (3.5)."""
        frame, key = self.survey.frame, name.id
        if key in header:
            self.survey.report("E144", name.span, f"Two names of this header are `{key}`", "choose another name")
            return
        header.add(key)
        if self.survey.agent(key) is not None:
            if self.survey.strict:
                self.survey.report("E133", name.span, f"`{key}` is the name of an agent", "choose another name")
            else:
                self._hides(name, kind, "an agent")
        elif self._is_hidden_by(key, kind):
            self._hides(name, kind)
        elif not frame.is_root:
            self._block_temporaries.append((name, kind))
        frame.hide(key, kind)
        self.survey.declared_in[key] = None

    def _is_hidden_by(self, name: str, kind: str) -> bool:
        frame = self.survey.frame
        outer = frame.temporaries.get(name)
        if outer is not None:
            return not (name == "item" and outer == kind == "pipeline variable")
        return name in frame.visible or (frame.is_root and name in self.survey.known.variables)

    def _hides(self, name: Name, kind: str, hidden: str = "an outer name") -> None:
        self.survey.report(_HIDING[kind], name.span, f"The {kind} `{name.id}` hides {hidden}", "choose another name")


_SKILL_SOURCES = ("github:", "npm:", "./", "../")


class ImportChecker:
    """Registers the imports of a program in the survey before the walk, because imports are hoisted."""

    def __init__(self, survey: Survey, load: LoadContract | None) -> None:
        self.survey = survey
        self.load = load
        self._paths: set[str] = set()

    def check(self, program: Program, *, cell: bool) -> None:
        if not cell:
            self.survey.programs.update(self.survey.known.programs)
        for item in program.items:
            if isinstance(item, Use):
                self._use(item)
            elif isinstance(item, SkillImport):
                self._skill(item)

    def _use(self, node: Use) -> None:
        if self._is_usable(node.path):
            self._register(node, None if self.survey.script else self._contract(node.path.raw, node.path.span))
        elif (name := local_name(node)) is not None:
            self.survey.programs.setdefault(name, None)  # so that its calls cause no further findings

    def _is_usable(self, node: Text) -> bool:
        """Return whether a path can be imported, after reporting why it can't (E011, E010, E012)."""
        path, span = node.raw, node.span
        if path == PLACEHOLDER and not span.end - span.start:
            return False
        if not path.strip():
            self.survey.report("E011", span, "Empty path of an import", 'write `use "./file.prose" as name`')
            return False
        if path in self._paths:
            self.survey.report("E010", span, f'"{path}" is imported twice', "one `use` serves any number of calls")
            return False
        self._paths.add(path)
        if not self.survey.script and place_of(path, self.survey.profile) == "bad":
            hint = "a file (`./name.prose`), `handle/name`, or an address with `https://`"
            self.survey.report("E012", span, f'"{path}" is not an import path', hint)
            return False
        return True

    def _contract(self, path: str, span: Span) -> ProgramInterface | None:
        """Return the contract of the program at `path`; None if it is unknown, or after an error (E215, E112)."""
        # The strict profile may classify a path as remote that the loader would take for a file (6.1).
        if self.load is None or place_of(path, self.survey.profile) != place_of(path):
            return None
        try:
            return self.load(path)
        except ImportProgramError as error:
            self.survey.report(error.code, span, error.message, error.hint)
            return None

    def _register(self, node: Use, contract: ProgramInterface | None) -> None:
        programs = self.survey.programs
        span = node.alias.span if node.alias else node.path.span
        name = local_name(node)
        if name is None:
            message = "the last part of this path cannot be a name, so the import needs an alias"
            self.survey.report("E111" if self.survey.script else "E110", span, message, "add `as name`")
            return
        if name in programs:
            hint = "choose another name after `as`" if node.alias else f"add another name: `as {name}-2`"
            self.survey.report("E110", span, f"The alias `{name}` is taken by another import", hint)
            return
        programs[name] = contract

    def _skill(self, node: SkillImport) -> None:
        self.survey.skills.setdefault(node.skill.raw, None)
        if not node.source.raw.startswith(_SKILL_SOURCES):
            hint = "a source starts with `github:`, `npm:`, `./` or `../`"
            self.survey.report("W006", node.source.span, "Unknown format of an import source", hint)
