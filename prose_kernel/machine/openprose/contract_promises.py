"""Promises of a node, checked when it has its result (docs/reference/prose-md.md 4.4)."""

from __future__ import annotations

import re
from typing import Final

from msgspec import structs

from prose_kernel.errors import ContractError, Undecided
from prose_kernel.language.contracts.interface import Promise, promises_of
from prose_kernel.language.contracts.units import Unit
from prose_kernel.language.openprose import tree
from prose_kernel.machine.openprose import judging
from prose_kernel.machine.openprose.program_context import ProgramContext
from prose_kernel.runtime.execution_context import located
from prose_kernel.runtime.ports import Verdict
from prose_kernel.runtime.trampoline import call
from prose_kernel.runtime.values import Value

_NEVER_CHECKED: Final = re.compile(r"(?:if|when|each)\b", re.IGNORECASE)


async def check_promises(s: ProgramContext, unit: Unit, outputs: dict[str, Value]) -> None:
    """Raise E231 for a promise about an output that is broken; a broken invariant is a warning."""
    mode = s.host.contracts
    if mode == "off" or s.host.preview is not None:
        return
    for promise in promises_of(unit.node):
        is_about_result = not promise.name or promise.name in outputs
        if not is_about_result or not promise.text or _NEVER_CHECKED.match(promise.text):
            continue
        if await call(_answer(s, promise, outputs, by_rules=mode == "rules")) is not False:
            continue
        node = tree.Constant(None, span=promise.item.head)
        if promise.name:
            message = f"`{unit.name}` breaks its promise about `{promise.name}`: {promise.text}"
            raise located(s, ContractError(message, code="E231", details={"promise": promise.condition}), node)
        s.warn("E231", f"`{unit.name}` breaks its invariant: {promise.text}", node)


async def _answer(s: ProgramContext, promise: Promise, outputs: dict[str, Value], *, by_rules: bool) -> bool | None:
    """Whether a promise is kept; None where that is uncertain, or cannot be decided here."""
    request = judging.request_about(s, promise.condition)
    bindings = {**request.bindings, **outputs}
    request = structs.replace(request, bindings=bindings, by_rules=by_rules)
    await s.flush()
    await s.admitted()
    try:
        verdict = await s.ask(request, Verdict, lambda: s.host.ports.judge.decide(request))
    except Undecided:
        return None
    return verdict.answer
