"""`gate` on the machine's side; the port decides (openprose.md 5.8, 5.9)."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from typing import Final

from prose_kernel.errors import GateRejected
from prose_kernel.language.durations_and_budgets import parse_duration
from prose_kernel.language.openprose import tree
from prose_kernel.language.structs import replace
from prose_kernel.machine.openprose.code import compile_expression, statement
from prose_kernel.machine.openprose.execs import word
from prose_kernel.machine.openprose.expressions import render
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
    async def _run(self, s: ProgramContext) -> Value:
        if s.cancellation.stopped:
            return None
        node: tree.Gate = self.node
        found = {p.name.id: p.value for p in node.properties}
        on_reject = found.get("on_reject")
        action = on_reject if isinstance(on_reject, tree.OnReject) else tree.OnReject("throw")
        starts = action.action == "session" and action.text is not None
        session = tree.Session(title=action.text, span=action.span) if starts else None
        if s.host.preview is not None:
            await s.host.preview.announce(s, node, None, self._request(s, found, action, None), "gate")
            if session is not None:
                await run_session(s, session, None)
            return None
        text = await render(s, action.text) if action.text is not None else None
        request = await self._request(s, found, action, text)
        s.run.gate_names[node.name.id] = None
        while True:
            decision = await self._decide(s, request)
            if decision.status == "approved":
                return None
            # retrying would never end if no person can answer, or if the answer was given in advance (5.10)
            if action.action != "retry" or decision.reason == "nobody" or decision.source == "option":
                break
            request = replace(request, attempt=request.attempt + 1)
        if session is not None:
            await run_session(s, session, None)
        elif action.action != "continue":
            raise _rejection(text, request, decision)
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
        s.emit(GateOpened(s.place(self.node), request))
        decision = await s.ask(request, GateDecision, lambda: s.host.ports.gates.decide(request))
        s.recent.note(f"gate {request.name}: {decision.status}")
        s.emit(GateResolved(s.place(self.node), request, decision))
        return decision


def _rejection(text: str | None, request: GateRequest, decision: GateDecision) -> GateRejected:
    """Return the error of a closed gate; `text` is the message of its `on_reject`."""
    timed_out, unanswered = decision.status == "timeout", decision.reason == "nobody"
    ended = f"timed out after {request.timeout_text}" if timed_out else "rejected"
    name = shlex.quote(request.name)  # in a contract file it may contain any characters
    return GateRejected(
        text if text is not None else f"gate {request.name} {ended}",
        code="E214" if timed_out else "E213",
        details={
            "gate": request.id,
            "status": decision.status,
            "resolved_by": decision.by,
            "comment": decision.comment,
        },
        no_answer=unanswered,
        hint=f"approve it in advance: --yes {name}, or %gate approve {name} in a notebook" if unanswered else None,
    )


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
