"""User tools: a call of an MCP server through a session's tools, compared with the bare library `mcp`.

Both talk to a server of their own that speaks the wire by hand (`tests/stubs/mcp_by_hand.py`), over standard streams,
in turn. Ours checks the arguments, the rule `tools` and the answer, bounds the result, and traces and audits the call
into a file. Figures are the time of one call as its caller waits for it, and processor time of this process; a Python
function of a `prose_tools.py` is measured, too, and the start of a server up to its list of tools.

`python benchmarks/tools.py [--json] [--quick]`.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import statistics
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from mcp import ClientSession, StdioServerParameters
from mcp.client.stdio import stdio_client

from prose_kernel.access.approvals import Approvals
from prose_kernel.access.session_permissions import Policy
from prose_kernel.models.tools.session_tools import SessionTools
from prose_kernel.models.tools.user_tools import ToolHost, UserTools
from prose_kernel.processes.engine import Engine
from prose_kernel.processes.exec_tool.audit import AuditLog
from prose_kernel.processes.long_lived_processes import Helpers
from prose_kernel.runtime.asker import Unattended
from prose_kernel.runtime.clock import SystemClock
from prose_kernel.runtime.ports import SessionRequest
from prose_kernel.runtime.session_options import McpServer, SessionOptions, Surroundings

SERVER = (sys.executable, str(Path(__file__).parents[1] / "tests" / "stubs" / "mcp_by_hand.py"), "weather")
ARGUMENTS = {"city": "Oslo", "days": 3}
ANSWER = "Oslo: sunny for 3 days"
FUNCTION = "def forecast(city: str, days: int = 1) -> str:\n    return f'{city}: sunny for {days} days'\n"


async def timed(call: Callable[[], Awaitable[object]], count: int) -> tuple[float, float]:
    """Return the median microseconds of one call, and the mean of its processor time."""
    taken, processor = [], time.process_time()
    for _ in range(count):
        began = time.perf_counter()
        await call()
        taken.append(time.perf_counter() - began)
    return statistics.median(taken) * 1e6, (time.process_time() - processor) / count * 1e6


async def bench_of(pool: UserTools, where: Surroundings) -> SessionTools:
    request = SessionRequest("session", "Do it", "c1/s0", tools=("weather", "forecast"), permissions={"tools": "allow"})
    policy, approvals = Policy.of_session(request, {}, where), Approvals(Unattended(), SystemClock())
    bench = SessionTools(request, policy, approvals, where, lambda progress: None)
    bench.add(await pool.tools(request, policy, approvals))
    return bench


async def measured(rounds: int, count: int) -> dict[str, float]:
    with tempfile.TemporaryDirectory() as place:
        (Path(place) / "prose_tools.py").write_text(FUNCTION)
        where, engine = Surroundings(place), Engine()
        audit = AuditLog(Path(place) / "audit.jsonl")
        around = ToolHost(Helpers(engine), Path(place), note=lambda event, told: audit.append(event, **told))
        pool = UserTools(SessionOptions(mcp={"weather": McpServer(SERVER)}), where, around)
        try:
            return await _in_turn(pool, where, rounds, count)
        finally:
            await pool.close()
            engine.close()


async def _in_turn(pool: UserTools, where: Surroundings, rounds: int, count: int) -> dict[str, float]:
    began = time.perf_counter()
    bench = await bench_of(pool, where)
    ours_start = time.perf_counter() - began
    parameters = StdioServerParameters(command=SERVER[0], args=list(SERVER[1:]))
    began = time.perf_counter()
    async with stdio_client(parameters) as streams, ClientSession(*streams) as session:
        await session.initialize()
        await session.list_tools()
        bare_start = time.perf_counter() - began

        async def bare() -> None:
            found: Any = await session.call_tool("forecast", ARGUMENTS)
            assert found.content[0].text == ANSWER

        async def ours() -> None:
            assert (await bench.call("weather__forecast", ARGUMENTS)).text == ANSWER

        async def function() -> None:
            assert (await bench.call("forecast", ARGUMENTS)).text == ANSWER

        ways = {"bare": bare, "ours": ours, "function": function}
        spent: dict[str, list[tuple[float, float]]] = {name: [] for name in ways}
        for turn in range(rounds + 1):
            for name in (*ways,)[turn % 3 :] + (*ways,)[: turn % 3]:
                figures = await timed(ways[name], count)
                if turn:  # the first round warms up
                    spent[name].append(figures)
    found = {"bare_start_seconds": bare_start, "ours_start_with_functions_seconds": ours_start}
    for name, figures in spent.items():
        found[f"{name}_microseconds"] = statistics.median(wall for wall, _ in figures)
        found[f"{name}_processor_microseconds"] = statistics.median(processor for _, processor in figures)
    found["ours_over_bare"] = found["ours_microseconds"] / found["bare_microseconds"]
    found["ours_over_bare_processor"] = found["ours_processor_microseconds"] / found["bare_processor_microseconds"]
    return found


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--quick", action="store_true")
    asked = parser.parse_args()
    found = asyncio.run(measured(*((2, 50) if asked.quick else (6, 300))))
    if asked.json:
        print(json.dumps(found))
        return
    for name, value in found.items():
        print(f"{name:<36} {value:10.2f}")


if __name__ == "__main__":
    main()
