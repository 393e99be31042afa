"""Facts from the text of a program, before it runs."""

from __future__ import annotations

from prose_kernel.language.nodes import walk
from prose_kernel.language.source import Source
from prose_kernel.language.vvm import tree
from prose_kernel.runtime.budgets import Spending
from prose_kernel.runtime.ports import JudgedText


def judged_texts(program: tree.Program) -> list[JudgedText]:
    """Return each criterion that the judge may be asked, in source order."""
    found: list[JudgedText] = []
    for node in walk(program):
        match node:
            case tree.Predicate() | tree.CriterionPattern():
                found.append(_judged(node, node.template))
            case tree.Require() | tree.Choose():
                found.append(_judged(node.criterion, node.criterion, choice=isinstance(node, tree.Choose)))
    return sorted(found, key=lambda one: one.span)


def spending(program: tree.Program, source: Source | None = None) -> Spending:
    """Return the models that a program names. Its agents have no separate budgets."""
    models: list[tuple[str | None, None]] = []
    for node in walk(program):
        if isinstance(node, tree.AgentDeclaration | tree.InlineAgent):
            named = [one.value for one in node.keywords if one.name == "model"]
            text = next((value for value in named if isinstance(value, tree.String)), None)
            if text is not None:
                models.append((text.value, None))
            elif not named:
                models.append((None, None))
    return Spending(tuple(models), False)


def _judged(node: tree.Node, template: tree.Template, *, choice: bool = False) -> JudgedText:
    return JudgedText(node.span, _shown(template), _shown(template, sample="0"), choice, criterion=True)


def _shown(template: tree.Template, sample: str | None = None) -> str:
    return "".join(
        part if isinstance(part, str) else sample if sample is not None else f"{{{'.'.join(part.path)}}}"
        for part in template.parts
    )
