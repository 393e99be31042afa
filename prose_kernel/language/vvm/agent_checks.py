"""The static checks of agents, their configurations and call options (docs/reference/vvm.md 6)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

from prose_kernel.errors import ImportProgramError
from prose_kernel.language import typed_answers
from prose_kernel.language.diagnostics import Findings
from prose_kernel.language.nearest import Nearest, did_you_mean
from prose_kernel.language.source import Span
from prose_kernel.language.vvm import configurations, tree
from prose_kernel.language.vvm.configurations import Rule, computed_parts, is_perm, node_at, static_value
from prose_kernel.language.vvm.program_interface import LoadModule
from prose_kernel.language.vvm.tree import Expression, Keyword

_TEXTS: Final = ("model", "prompt")


class AgentChecker:
    """Checks the keywords of agents, `.with`, calls and `constrain`.

    `skills` are imported by the module; `defined` returns whether a name has a value in the current scope.
    """

    def __init__(
        self,
        findings: Findings,
        near: Nearest,
        skills: Iterable[str],
        defined: Callable[[str], bool],
        load: LoadModule | None = None,
    ) -> None:
        self._defined = defined
        self._load = load
        self._findings = findings
        self._report = findings.report
        self._near = near
        self._skills = frozenset(skills)

    # ------------------------------------------------------------ keywords

    def check_repeated(self, keywords: tuple[Keyword, ...], where: str) -> None:
        """Report keywords that are given twice (V205)."""
        if len(keywords) < 2:
            return
        seen: set[str] = set()
        for keyword in keywords:
            if keyword.name in seen:
                self._report("V205", name_span(keyword), f"`{keyword.name}` is given twice {where}", "keep one of them")
            seen.add(keyword.name)

    def check_options(self, keywords: tuple[Keyword, ...]) -> None:
        """Check the options of an agent call (6.5)."""
        self._check(keywords, "in this call", "call option", configurations.OPTIONS)

    def check_bounds(self, keywords: tuple[Keyword, ...]) -> None:
        """Check the bounds of `constrain` (4.9)."""
        self._check(keywords, "in these bounds", "bound of `constrain`", configurations.BOUNDS)

    def _check(self, keywords: tuple[Keyword, ...], where: str, kind: str, rules: Mapping[str, Rule]) -> None:
        self.check_repeated(keywords, where)
        for keyword in keywords:
            name = keyword.name
            if name not in rules:
                hint = did_you_mean(self._near(name, rules)) or f"the names are {', '.join(rules)}"
                self._report("V702", name_span(keyword), f"`{name}` is not a {kind}; it is ignored", hint)
            elif fault := configurations.fault_of(rules, name, static_value(keyword.value)):
                self._report("V208", keyword.value.span, str(fault), fault.accepted)

    # ------------------------------------------------------------ configurations

    def check_declared(self, keywords: tuple[Keyword, ...]) -> bool:
        """Check the configuration in `agent name(...)`. Return whether all values are static, as they must be (6.1)."""
        wrong = [(keyword, part) for keyword in keywords for part in computed_parts(keyword.value)]
        for keyword, part in wrong:
            self._not_static(keyword, part)
        self.check_configuration(keywords, whole=True, perm=True)
        return not wrong

    def check_configuration(self, keywords: tuple[Keyword, ...], *, whole: bool, perm: bool) -> None:
        """Check a configuration or, without `whole`, the overrides of `.with`. `perm` means the library function."""
        self.check_repeated(keywords, "in this configuration")
        last = {keyword.name: keyword for keyword in keywords}
        keys = configurations.CONFIGURATION_KEYS
        for name, keyword in ((one.name, one) for one in keywords if one.name not in keys):
            hint = did_you_mean(self._near(name, keys)) or f"the standard keys are {', '.join(keys)}"
            message = f"`{name}` is not a standard key of an agent; it is passed to the host"
            self._report("V520", name_span(keyword), message, hint)
        values = {
            name: static_value(keyword.value, perm=perm)
            for name, keyword in last.items()
            if name in (*keys, configurations.OUTPUT)
        }
        for fault in configurations.configuration_faults(values, whole=whole):
            at = node_at(last[str(fault.path[0])], fault.path[1:])
            self._report("V209", at.span, str(fault), fault.accepted)
        if isinstance(path := values.get(configurations.OUTPUT), str) and self._load is not None:
            try:
                self._load(f"{typed_answers.FILE_PREFIX}{path}")
            except ImportProgramError as problem:
                span = last[configurations.OUTPUT].value.span
                self._report("V209", span, f"`output` cannot be used: {problem.message}")
        if "skills" in values:
            self._skill_list(last["skills"].value, values["skills"])
        if "permissions" in values and (perm or not isinstance(last["permissions"].value, tree.Call)):
            self._permissions(last["permissions"].value)

    def _not_static(self, keyword: Keyword, part: Expression) -> None:
        if isinstance(part, tree.Call) and part.callee == tree.Name("perm"):
            message = f"`perm` in `{keyword.name}` takes keywords only"
            self._report("V209", part.span, message, 'for example perm(read=["docs/**"])')
            return
        message = f"`{keyword.name}` of an agent declaration must be a literal, this is computed"
        hint = f"compute it where the agent is used: `@agent.with({keyword.name}=...)`"
        if isinstance(part, tree.Name) and keyword.name in _TEXTS and not self._defined(part.id):
            hint = f'a text is written `"{part.id}"`; {hint}'
        self._report("V041", part.span, message, hint)

    def _skill_list(self, value: Expression, skills: Any) -> None:
        if skills == []:
            self._report("V511", value.span, "`skills` is empty", "list skills, or leave the key out")
        if not isinstance(value, tree.List):
            return
        for element in value.elements:
            if isinstance(element, tree.String) and element.value not in self._skills:
                name = element.value
                near = did_you_mean(self._near(name, self._skills))
                message = f'the skill "{name}" is not imported in this module'
                self._report("V510", element.span, message, near or f'add `import "{name}" from "..."`')

    def _permissions(self, value: Expression) -> None:
        """Report unknown keys: V709 in an object, but V209 in `perm(...)`, which takes no others."""
        keys = configurations.PERMISSION_KEYS
        if is_perm(value):
            for keyword in value.keywords:
                if keyword.name not in keys:
                    hint = did_you_mean(self._near(keyword.name, keys)) or f"its keywords are {', '.join(keys)}"
                    self._report("V209", name_span(keyword), f"`perm` has no keyword `{keyword.name}`", hint)
        elif isinstance(value, tree.Object):
            for pair in value.pairs:
                if pair.key not in keys:
                    hint = did_you_mean(self._near(pair.key, keys)) or f"the standard keys are {', '.join(keys)}"
                    message = f"`{pair.key}` is not a standard permission; it is passed to the host"
                    self._report("V709", key_span(pair), message, hint)


def name_span(keyword: Keyword) -> Span:
    start = keyword.span.start
    return Span(start, start + len(keyword.name))


def key_span(pair: tree.Pair) -> Span:
    """Return the span of a pair's key; its length is that of the key without quotes."""
    start = pair.span.start
    return Span(start, start + len(pair.key))
