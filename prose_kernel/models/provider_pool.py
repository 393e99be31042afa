"""The models and CLI agents of a run: created when first needed, shared by sessions and judge, closed with the run."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from msgspec import Struct

from prose_kernel.access.approvals import Approvals
from prose_kernel.access.session_permissions import Policy
from prose_kernel.errors import NoProvider, PermissionDenied
from prose_kernel.models.providers.provider_choice import Choice
from prose_kernel.runtime.ports import Clock, LiveJudge, SessionProgress, SessionRequest, Sessions
from prose_kernel.runtime.services import Guard, Terminals
from prose_kernel.runtime.session_options import SessionOptions, Surroundings

if TYPE_CHECKING:
    from prose_kernel.models.providers.acp import AcpSessions
    from prose_kernel.models.providers.model_judge import ModelJudge
    from prose_kernel.models.providers.model_servers import ModelServers, SharedConnections
    from prose_kernel.models.tools.session_tools import SessionTools
    from prose_kernel.models.tools.tool import Tool
    from prose_kernel.models.tools.user_tools import UserTools

MoreTools = Callable[[SessionRequest, Policy, Approvals], "Sequence[Tool]"]
"""Returns the tools of a session that other packages provide."""


class ProviderContext(Struct, frozen=True):
    """The dependencies of live providers. `streams` is True if replies may be watched as they arrive."""

    options: SessionOptions
    where: Surroundings
    clock: Clock
    approvals: Approvals
    guard: Guard | None = None
    terminals: Terminals | None = None
    more_tools: MoreTools | None = None
    user_tools: UserTools | None = None
    streams: bool = True
    connections: SharedConnections | None = None

    def policy(self, request: SessionRequest) -> Policy:
        """Return the rules of a session. Raises `PermissionDenied` for an invalid pattern."""
        return Policy.of_session(request, self.options.permissions, self.where)

    def offered(self, request: SessionRequest, *, person: bool) -> tuple[str, ...]:
        """Return the names of `tool_names` that are offered with or without a person to ask."""
        from prose_kernel.models.tools.session_tools import idle_tools

        names = self.tool_names(request)
        idle = idle_tools(self.policy(request), person=person) if names else frozenset()
        return tuple(name for name in names if name not in idle)

    def tool_names(self, request: SessionRequest) -> tuple[str, ...]:
        """Return the names of the tools that the session's permissions could allow, whichever provider answers."""
        from prose_kernel.models.tools.session_tools import tool_names

        try:
            policy = self.policy(request)
        except PermissionDenied:  # reported when the session is run
            return ()
        return tool_names(
            request,
            policy,
            [tool.spec.name for tool in self.further_tools(request, policy) if getattr(tool, "offered", True)],
            self.options.tools,
        )

    def session_tools(self, request: SessionRequest, on_progress: Callable[[SessionProgress], None]) -> SessionTools:
        from prose_kernel.models.tools.session_tools import SessionTools

        policy = self.policy(request)
        more = self.further_tools(request, policy)
        return SessionTools(request, policy, self.approvals, self.where, on_progress, more, self.options.tools)

    async def named_tools(self, request: SessionRequest) -> Sequence[Tool]:
        """Return the tools that the session names in `tools:`. Raises `ProviderError` for one that is unavailable."""
        return await self.user_tools.tools(request, self.policy(request), self.approvals) if self.user_tools else ()

    def further_tools(self, request: SessionRequest, policy: Policy) -> Sequence[Tool]:
        return self.more_tools(request, policy, self.approvals) if self.more_tools is not None else ()


class LiveProviders:
    """All models and agents of one run. Nothing is imported or started before it is used."""

    def __init__(self, context: ProviderContext) -> None:
        self._context = context
        self._servers: ModelServers | None = None
        self._judges: dict[tuple[Choice, str | None], ModelJudge] = {}
        self._agents: dict[str, AcpSessions] = {}

    def sessions(self, choice: Choice) -> Sessions:
        """Return the provider for `choice`, a model or an agent. Raises `ProviderError` if it is unavailable."""
        self._check(choice)
        if choice.kind == "agent":
            return self._agent(choice.name)
        from prose_kernel.models.providers.model_sessions import ModelSessions

        context = self._context
        return ModelSessions(
            self._model_servers(),
            choice.name,
            choice.model,
            session_tools=context.session_tools,
            rounds=context.options.tool_rounds,
            user_tools=context.named_tools,
            streams=context.streams,
        )

    async def prepare(self, choice: Choice) -> None:
        """Load the packages of a model without calling it. Raises `ProviderError` if it is unavailable."""
        self._check(choice)
        if choice.kind == "model":
            servers = self._model_servers()
            await servers.prepare(servers.chain(choice.name, None, choice.model)[0])

    def judge(self, choice: Choice, model: str | None) -> LiveJudge:
        """Return the judge for `choice`; `model` overrides its model."""
        self._check(choice)
        if choice.kind == "agent":
            from prose_kernel.models.providers.agent_judge import AgentJudge

            return AgentJudge(choice.name, self._agent(choice.name), model=model)
        if (choice, model) not in self._judges:
            from prose_kernel.models.providers.model_judge import ModelJudge

            servers, chosen = self._model_servers(), model or choice.model
            self._judges[choice, model] = ModelJudge(servers, choice.name, chosen, clock=self._context.clock)
        return self._judges[choice, model]

    def _check(self, choice: Choice) -> None:
        if self._context.options.offline:
            name = f"acp:{choice.name}" if choice.kind == "agent" else choice.name
            raise NoProvider(
                f"{name} is not called: this run is offline",
                hint="record the answer first, or let a test call providers: prose test --live",
            )

    async def close(self) -> None:
        """End the agents' processes and the connections. A second call does nothing."""
        agents, self._agents = self._agents, {}
        servers, self._servers = self._servers, None
        self._judges = {}
        closing = [a.close() for a in agents.values()]
        if servers is not None:
            closing.append(servers.close())
        if self._context.user_tools is not None:
            closing.append(self._context.user_tools.close())
        for problem in await asyncio.gather(*closing, return_exceptions=True):
            if isinstance(problem, BaseException):
                raise problem  # by now all of them are closed

    def _model_servers(self) -> ModelServers:
        """Return the servers that sessions and judgements share."""
        if self._servers is None:
            from prose_kernel.models.providers.model_servers import ModelServers

            context = self._context
            self._servers = ModelServers(context.options, context.where, context.clock, context.connections)
        return self._servers

    def _agent(self, name: str) -> AcpSessions:
        if name not in self._agents:
            from prose_kernel.models.providers.acp import AcpSessions, AgentHost

            context = self._context
            if context.guard is None:
                raise NoProvider(f"{name} cannot be started here: no process engine would end it")
            host = AgentHost(context.policy, context.approvals, context.where, context.guard, context.terminals)
            command, limit = context.options.agents[name], context.options.max_parallel
            self._agents[name] = AcpSessions(name, command, host, limit=limit)
        return self._agents[name]
