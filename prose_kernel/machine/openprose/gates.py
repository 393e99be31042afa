"""`gate` on the machine's side; the port decides (openprose.md 5.8, 5.9)."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from typing import Final

from msgspec import structs

from prose_kernel.errors import GateRejected
from prose_kernel.language.durations import parse_duration
from prose_kernel.language.openprose import tree
from prose_kernel.machine.openprose.code import compile_expression, statement
from prose_kernel.machine.openprose.execs import word
from prose_kernel.machine.openprose.interpolation import render
from prose_kernel.machine.openprose.program_context import ProgramContext
from prose_kernel.machine.openprose.sessions import run_session
from prose_kernel.runtime.compiled_code import Step, value_of
from prose_kernel.runtime.events import GateOpened, GateResolved
from prose_kernel.runtime.execution_context import located
from prose_kernel.runtime.ports import GateDecision, GateRequest
from prose_kernel.runtime.values import Value, inserted_text

DEFAULT_TIMEOUT: Final = "30m"


@statement(tree.Gate)
class GateStep(Step):
    valued = False

    async def _run(self, s: ProgramContext) -> Value:
        if s.cancellation.stopped:
            return None
        node: tree.Gate = self.node
        found = {p.name.id: p.value for p in node.properties}
        on_reject = found.get("on_reject")
        action = on_reject if isinstance(on_reject, tree.OnReject) else tree.OnReject("throw")
        if s.host.preview is not None:
            await s.host.preview.announce(s, node, None, self._request(s, found, action, None), "gate")
            return await self._start_session(s, action)
        text = await render(s, action.text) if action.text is not None else None
        request = await self._request(s, found, action, text)
        s.run.gate_names[node.name.id] = None
        while True:
            decision = await self._decide(s, request)
            if decision.status == "approved":
                return None
            if action.action != "retry" or _is_final(decision):
                break
            request = _next_attempt(request)
        await self._rejected(s, action, text, request, decision)
        return None

    async def _request(
        self, s: ProgramContext, found: Mapping[str, object], action: tree.OnReject, text: str | None
    ) -> GateRequest:
        name, prompt = self.node.name.id, found.get("prompt")
        limit = word(found["timeout"]) if "timeout" in found else DEFAULT_TIMEOUT
        seconds = parse_duration(limit, gate=True)
        if seconds is None:
            raise located(s, GateRejected(f"'{limit}' is not a duration", code="E197"), self.node)
        return GateRequest(
            _record_id(s, name),
            ":".join((*s.run.module, name)),
            await render(s, prompt) if isinstance(prompt, tree.Text) else "",
            await _allowed(s, found.get("allow")),
            seconds,
            limit,
            action.action if text is None else f'{action.action} "{text}"',
            s.frame.execution_id,
            at=s.at("gate"),
        )

    async def _decide(self, s: ProgramContext, request: GateRequest) -> GateDecision:
        await s.flush()
        if s.host.listeners:
            s.emit(GateOpened(s.place(self.node), request))
        decision = await s.ask(request, GateDecision, lambda: s.host.ports.gates.decide(request))
        s.recent.note(f"gate {request.name}: {decision.status}")
        if s.host.listeners:
            s.emit(GateResolved(s.place(self.node), request, decision))
        return decision

    async def _start_session(self, s: ProgramContext, action: tree.OnReject) -> Value:
        """Run the session that a rejection starts, if there is one."""
        if action.action == "session" and action.text is not None:
            await run_session(s, tree.Session(title=action.text, span=action.span), None)
        return None

    async def _rejected(
        self, s: ProgramContext, action: tree.OnReject, text: str | None, request: GateRequest, decision: GateDecision
    ) -> None:
        if action.action == "continue":
            return
        if action.action == "session" and action.text is not None:
            await self._start_session(s, action)
            return
        timed_out = decision.status == "timeout"
        what = f"timed out after {request.timeout_text}" if timed_out else "rejected"
        unanswered = decision.reason == "nobody"
        raise GateRejected(
            text if text is not None else f"gate {request.name} {what}",
            code="E214" if timed_out else "E213",
            details={
                "gate": request.id,
                "status": decision.status,
                "resolved_by": decision.by,
                "comment": decision.comment,
            },
            no_answer=unanswered,
            hint=_advance_hint(request.name) if unanswered else None,
        )


def _advance_hint(name: str) -> str:
    """Return how to approve a gate in advance. In a contract file the gate's name may contain any characters."""
    word = shlex.quote(name)
    return f"approve it in advance: --yes {word}, or %gate approve {word} in a notebook"


def _record_id(s: ProgramContext, name: str) -> str:
    """Return the gate's name with its frame and iterations, and `--2`, `--3` if it is reached again at this place."""
    parts = [name]
    if s.frame.execution_id is not None:
        parts.append(f"__{s.frame.execution_id}")
    parts.extend(f"__i{index}" for index in s.layer.iterations)
    base = "".join(parts)
    count = s.run.gates[base] = s.run.gates.get(base, 0) + 1
    return base if count == 1 else f"{base}--{count}"


async def _allowed(s: ProgramContext, value: object) -> tuple[str, ...]:
    if not isinstance(value, tree.Array):
        return ("user",)
    return tuple([inserted_text(await value_of(compile_expression(e), s)) for e in value.elements])


def _is_final(decision: GateDecision) -> bool:
    """Return whether retrying would never end: no person can answer, or the answer was given in advance (5.10)."""
    return decision.reason == "nobody" or decision.source == "option"


def _next_attempt(request: GateRequest) -> GateRequest:
    return structs.replace(request, attempt=request.attempt + 1)
