"""The checks of `use` and of the legacy `import` (openprose.md 6.1, 2.3 row 44)."""

from __future__ import annotations

from prose_kernel.errors import ImportProgramError
from prose_kernel.language.openprose.contract import LoadContract, place_of, slug
from prose_kernel.language.openprose.names import Contract
from prose_kernel.language.openprose.program_index import Survey
from prose_kernel.language.openprose.spawn_builder import UNREAD
from prose_kernel.language.openprose.tree import Program, SkillImport, Use
from prose_kernel.language.source import Span

_SKILL_SOURCES = ("github:", "npm:", "./", "../")


class ImportChecker:
    """Registers the imports of a program in the survey before anything else is looked at; they are hoisted."""

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
        path, span = node.path.raw, node.path.span
        if path == UNREAD and not span.end - span.start:
            self._keep(node)
            return
        if not path.strip():
            self.survey.report("E011", span, "Empty path of an import", 'write `use "./file.prose" as name`')
            self._keep(node)
            return
        if path in self._paths:
            self.survey.report("E010", span, f'"{path}" is imported twice', "one `use` serves any number of calls")
            self._keep(node)
            return
        self._paths.add(path)
        place = place_of(path, self.survey.profile)
        if place == "bad":
            hint = "a file (`./name.prose`), `handle/name`, or an address with `https://`"
            self.survey.report("E012", span, f'"{path}" is no import path', hint)
            self._keep(node)
            return
        self._register(node, self._contract(path, span))

    def _contract(self, path: str, span: Span) -> Contract | None:
        """The contract of what stands at `path`; None when it is not known, also after an error (E215, E112)."""
        # A strict reading may find a registry path where the loader would see a file (6.1).
        if self.load is None or place_of(path, self.survey.profile) != place_of(path):
            return None
        try:
            return self.load(path)
        except ImportProgramError as error:
            self.survey.report(error.code, span, error.message, error.hint)
            return None

    def _keep(self, node: Use) -> None:
        """Make the name of a faulty import known, so that its calls bring no further findings."""
        name = node.alias.id if node.alias else slug(node.path.raw)
        if name is not None:
            self.survey.programs.setdefault(name, None)

    def _register(self, node: Use, contract: Contract | None) -> None:
        programs = self.survey.programs
        span = node.alias.span if node.alias else node.path.span
        name = node.alias.id if node.alias else slug(node.path.raw)
        if name is None:
            message = "The last part of this path is no name, so the import needs an alias"
            self.survey.report("E110", span, message, "add `as name`")
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
