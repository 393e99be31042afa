"""The `Exec` tool of sessions: it runs programs for agents and must be enabled twice (exec-and-tasks.md section 3).

The operator enables it in the settings; the session's `execute` rule grants it. The `Programs` port decides everything
else.
"""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Mapping
from typing import Final

from prose_kernel.access.approvals import Approvals, Ask, session_name
from prose_kernel.access.session_permissions import KINDS, Policy
from prose_kernel.language.structs import replace
from prose_kernel.models.tools.files import TEXT, schema_of
from prose_kernel.models.tools.tool import Tool, ToolFailed, ToolRefused, ToolSpec
from prose_kernel.runtime.ports import SessionRequest
from prose_kernel.runtime.services import ExecCaller, Programs

NAME: Final = "Exec"

_SPEC: Final = ToolSpec(
    NAME,
    "Run one program to its end. `argv` is the list of its arguments; the first is the absolute path of the program. "
    "There is no shell: no pipes, redirections, variables or wildcards, and no background work: what the program "
    "leaves running is ended. Standard input is empty. A program that fails is a result with its exit code.",
    schema_of(
        ("argv",),
        argv={
            "type": "array",
            "items": TEXT,
            "description": "the program's absolute path and its arguments; none may be empty",
        },
        cwd={**TEXT, "description": "absolute directory to run in; default: the workspace"},
        env={"type": "object", "description": "further environment variables, names to strings"},
        timeout_s={"type": "number", "description": "seconds from 1 to 600; default 60"},
        max_output_bytes={
            "type": "integer",
            "description": "how much of each stream is kept, its beginning: 1024 to 4194304; default 262144",
        },
    )
    | {"additionalProperties": False},
)

_REFUSALS: Final = ("permission_denied", "fs_denied")


def exec_tools(
    request: SessionRequest, policy: Policy, approvals: Approvals, programs: Programs | None, workspace: str
) -> tuple[Tool, ...]:
    """Return the `Exec` tool of one session. It is offered if it is enabled and the session's rules grant it; a call
    that was not offered is refused and audited."""
    if programs is None:
        return ()
    return (ExecTool(request, policy, approvals, programs, _caller(request, policy, workspace)),)


def _caller(request: SessionRequest, policy: Policy, workspace: str, *, network: str | None = None) -> ExecCaller:
    rules = {str(kind): policy.rule(kind) for kind in KINDS}
    if network is not None:
        rules["network"] = network
    stated = request.permissions
    binds = any(kind in stated and policy.rule(kind) != "allow" for kind in ("read", "write"))
    agent = f"{request.at}#{request.attempt}" + ("" if network is None else f":{network}")
    return ExecCaller(agent, workspace, rules, binds)


class ExecTool:
    """The tool of one session; `Programs` checks and audits the arguments.

    If a rule says `prompt`, the person is asked: for each program, and once for the network.
    """

    def __init__(
        self, request: SessionRequest, policy: Policy, approvals: Approvals, programs: Programs, caller: ExecCaller
    ) -> None:
        self._request = request
        self._policy = policy
        self._approvals = approvals
        self._programs = programs
        self._caller = caller
        self.offered = programs.offers(caller)
        rule = policy.rule("execute")
        listed = "" if isinstance(rule, str) else f" The rules list these programs: {', '.join(rule)}."
        self.spec = replace(_SPEC, description=_SPEC.description + listed)
        self._asked = False
        self._calls = itertools.count(1)

    checks_arguments = True

    def traced(self, answer: str) -> str:
        """Return the answer without the duration, so that a trace is the same in every run."""
        return re.sub(r', "duration_s": [\d.e-]+', "", answer)

    def summary(self, arguments: Mapping[str, object]) -> str:
        """Return the arguments on one line, without apparent secrets."""
        argv = arguments.get("argv", ())
        return self._programs.shown(argv if isinstance(argv, list | tuple) else (argv,))

    async def call(self, arguments: Mapping[str, object]) -> str:
        """Run the program. Raises `ToolRefused`, `ToolFailed`. The answer contains nothing else that differs between
        runs."""
        if self.offered and _well_formed(arguments):
            await self._ask(arguments)
        number = next(self._calls)
        outcome = await self._programs.call(self._caller, f"{self._request.at}/exec{number}", arguments)
        if outcome.ok:
            return json.dumps(dict(outcome.result), ensure_ascii=False)
        if outcome.error in _REFUSALS:
            refused = ToolRefused(f"{outcome.error}: {outcome.message}")
            refused.audited = True
            raise refused
        raise ToolFailed(f"{outcome.error}: {outcome.message}")

    async def _ask(self, arguments: Mapping[str, object]) -> None:
        argv = arguments.get("argv")
        shown = json.dumps(argv, ensure_ascii=False)
        if self._policy.rule("execute") == "prompt":
            ruling = await self._approvals.ask(Ask.of(self._request, "execute", shown, f"running {shown}"))
            if ruling.answer != "allow":
                raise ToolRefused(f"permission_denied: running this is not allowed: {ruling.why}")
        if self._policy.rule("network") == "prompt" and not self._asked:
            question = f"a network for the programs that it runs, first {shown}"
            always = f"the network for programs of {session_name(self._request)}"
            ruling = await self._approvals.ask(Ask.of(self._request, "network", question, always))
            self._asked = True
            if ruling.answer != "allow":
                # a program that does not need the network still runs
                self._caller = _caller(self._request, self._policy, self._caller.workspace, network="deny")


def _well_formed(arguments: Mapping[str, object]) -> bool:
    """Return whether the person can be asked about this call; malformed calls are refused without a question."""
    argv = arguments.get("argv")
    return isinstance(argv, list | tuple) and bool(argv) and all(isinstance(item, str) for item in argv)
