"""Checks `call` and the results of scripts, which only ProseScript has (docs/reference/prose-md.md 3.2, 3.5 to 3.7)."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from prose_kernel.language.nearest import did_you_mean
from prose_kernel.language.openprose import tree
from prose_kernel.language.openprose.call_targets import (
    MODIFIERS,
    SESSION_MODIFIERS,
    CallInput,
    CallProblem,
    CallTarget,
)
from prose_kernel.language.openprose.name_resolution import NameChecker
from prose_kernel.language.openprose.program_index import Survey
from prose_kernel.language.openprose.program_interface import ProgramInterface
from prose_kernel.language.openprose.properties import PropertyChecker
from prose_kernel.language.openprose.scopes import CallResult


class CallChecker:
    """Checks the calls of a script against their targets. `value` checks an input, which may be a call itself."""

    def __init__(
        self, survey: Survey, names: NameChecker, properties: PropertyChecker, value: Callable[[tree.Node], None]
    ) -> None:
        self.survey = survey
        self.names = names
        self.properties = properties
        self.value = value
        self.uses: dict[str, str] = {}
        self._found: dict[tuple[str, bool], CallTarget | CallProblem] = {}

    def target(self, node: tree.Call) -> CallTarget | None:
        """Return the target of a call, if it can be resolved."""
        found = self._lookup(node)
        return found if isinstance(found, CallTarget) else None

    def held(self, node: tree.Call) -> CallResult | None:
        """Describe the result of a call whose target has several outputs (3.6); None for other calls."""
        target = self.target(node)
        if target is None or len(target.outputs) < 2:
            return None
        return CallResult(target.name, self.contract(target))

    def contract(self, target: CallTarget) -> ProgramInterface:
        return ProgramInterface({}, tuple(output.name for output in target.outputs))

    def check(self, node: tree.Call) -> None:
        """Check one call and the values of its inputs."""
        for argument in node.arguments:
            self.names.expression(argument)
        found = self._lookup(node)
        if isinstance(found, CallProblem):
            self._problem(node, found)
        elif found is not None:
            if found.kind == "responsibility":
                message = f"`{found.name}` is a responsibility; it is called as a function"
                self.survey.report_legacy("W321", node.target.span, message, "declare Parameters and Returns")
            self._inputs(node, found)
        declared = {each.name for each in found.inputs} if isinstance(found, CallTarget) else set()
        for entry in node.inputs:
            name = entry.name.id
            if name in MODIFIERS or (name in SESSION_MODIFIERS and name not in declared):
                self.properties.modifier(entry)
            else:
                self.value(entry.value)
        names = {entry.name.id: entry.name for entry in node.inputs}
        if "backoff" in names and "retry" not in names:
            message = "`backoff` has no effect without `retry`"
            self.survey.report("W183", names["backoff"].span, message, "add `retry: 3`")

    def _lookup(self, node: tree.Call) -> CallTarget | CallProblem | None:
        """Look up the target; None if it is only known at run time."""
        interface, (name, is_path) = self.survey.interface, node.named
        if interface.targets is None:
            return None
        in_delegation = interface.kind == "delegation" and not is_path
        is_known = in_delegation and self.survey.sees(name)
        if is_known and name not in interface.variables:
            return None  # a variable comes first; it may hold an element of a slot
        if (name, is_path) not in self._found:
            self._found[name, is_path] = interface.targets.find(name, self.uses, path=is_path)
        found = self._found[name, is_path]
        may_hold_slot = is_known or (in_delegation and not self.survey.frame.is_root)
        if may_hold_slot and isinstance(found, CallProblem) and found.code == "E313":
            return None
        return found

    def _problem(self, node: tree.Call, problem: CallProblem) -> None:
        hint = problem.hint
        if hint is None and isinstance(node.target, tree.Name):
            name = node.target.id
            if self.survey.block(name) is not None:
                hint = f"`{name}` is a block: `do {name}(...)`"
            elif self.survey.agent(name) is not None:
                hint = f"`{name}` is an agent: `session: {name}`"
            else:
                hint = did_you_mean(self.survey.near(name, [*problem.near, *self.uses]))
        self.survey.report(problem.code, node.target.span, problem.message, hint)

    def _inputs(self, node: tree.Call, target: CallTarget) -> None:
        survey = self.survey
        declared = {each.name: each for each in target.inputs}
        for name in MODIFIERS:
            if name in declared:
                hint = "rename the input; `retry` and `backoff` always mean the call"
                survey.report("E317", node.target.span, f"the input `{name}` of `{target.name}` cannot be given", hint)
        if len(node.arguments) > len(declared):
            surplus = node.arguments[len(declared)]
            survey.report("E027", surplus.span, f"`{target.name}` has no more inputs than {len(declared)}")
        seen = {each.name for each in target.inputs[: len(node.arguments)]}
        for entry in node.inputs:
            if entry.name.id in seen:
                survey.report("E009", entry.name.span, f"the input `{entry.name.id}` is given twice")
            elif entry.name.id not in declared:
                self._undeclared(entry.name, target, declared)
            seen.add(entry.name.id)
        for each in target.inputs:
            if not (each.optional or each.name in seen or target.through_slot):
                survey.report("E026", node.target.span, f"the input `{each.name}` of `{target.name}` is missing",
                              f"add a line `{each.name}: ...` below the call")  # fmt: skip

    def _undeclared(self, name: tree.Name, target: CallTarget, declared: Mapping[str, CallInput]) -> None:
        """Report E027 for a name that is neither an input of the target nor a modifier, unless the target is open."""
        if name.id in MODIFIERS or target.is_modified_by(name.id) or target.takes_any:
            return
        hint = f"its inputs: {', '.join(declared)}" if declared else "it has no inputs"
        message = f"`{target.name}` has no input `{name.id}`"
        if name.id in SESSION_MODIFIERS:
            message = f"`{target.name}` runs a script, which takes no `{name.id}`"
        else:
            hint = did_you_mean(self.survey.near(name.id, declared)) or hint
        self.survey.report("E027", name.span, message, hint)


def check_result(survey: Survey, node: tree.Object) -> None:
    """Check a literal object that a script returns against the outputs of its node: E318, W315 (3.7)."""
    outputs, kind = survey.interface.outputs, survey.interface.kind
    if kind in ("cell", "delegation") or not outputs or (kind == "function" and len(outputs) < 2):
        return
    given = {entry.key: entry for entry in node.entries}
    names = [each.name for each in outputs]
    missing = [each.name for each in outputs if not each.optional and each.name not in given]
    if missing and kind == "function":
        message = f"the output `{missing[0]}` is missing in what is returned"
        survey.report("E318", node.span, message, f"add `{missing[0]}: ...`")
    for key, entry in given.items():
        if key not in names:
            near = did_you_mean(survey.near(key, names))
            survey.report("W315", entry.span, f"`{key}` is not a declared output; it is dropped", near)
