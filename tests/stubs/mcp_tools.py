"""A real MCP server of the package `mcp` over HTTP, with good and bad tools."""

import contextlib
import threading
from collections.abc import Iterator

import uvicorn
from mcp.server.mcpserver import MCPServer
from waiting import until

server = MCPServer("weather")


@server.tool()
def forecast(city: str, days: int = 1) -> str:
    """What the weather will be."""
    return f"{city}: sunny for {days} days"


@server.tool()
def broken() -> str:
    """Raises."""
    raise ValueError("no sky today")


@server.tool()
def big() -> str:
    """More than the 16 MiB that a message may have."""
    return "x" * 20_000_000


@contextlib.contextmanager
def over_http() -> Iterator[str]:
    """The address of the server, which runs in a thread: a separate process would load the SDK again."""
    settings = uvicorn.Config(server.streamable_http_app(), port=0, log_level="critical", ws="none")
    serving = uvicorn.Server(settings)
    thread = threading.Thread(target=serving.run)
    thread.start()
    try:
        until(lambda: serving.started)
        yield f"http://127.0.0.1:{serving.servers[0].sockets[0].getsockname()[1]}/mcp"
    finally:
        serving.should_exit = True
        thread.join()
