"""Custom tools in JupyterLab: agents that have them, permissions, and calls folded below the answer."""

from __future__ import annotations

import sys
from pathlib import Path

from browser.conftest import Pictures
from browser.lab import Lab, expect
from stubs.model_server import StubServer

BY_HAND = str(Path(__file__).parents[1] / "stubs" / "mcp_by_hand.py")
AGENT = """\
agent planner:
  prompt: "You plan trips."
  tools: ["weather.forecast", "word_count"]
  permissions:
    tools: ["weather.*"]
"""
CALLS = {
    "calls": [
        {"name": "weather__forecast", "arguments": {"city": "Oslo", "days": 2}},
        {"name": "word_count", "arguments": {"text": "a short walk"}},
    ]
}


def test_calls_of_custom_tools_are_folded_below_the_answer(lab: Lab, stub: StubServer, pictures: Pictures) -> None:
    written = stub.script("trip", CALLS, "Go tomorrow: **sunny for two days**.")
    root = lab.server.root
    root.joinpath("prose.toml").write_text(
        f'provider = "stub:{written}"\n[cassette]\nmode = "off"\n[providers.stub]\nkind = "openai"\n'
        f'base_url = "{stub.openai_url}"\nkey = ""\n[mcp.weather]\ncommand = ["{sys.executable}", "{BY_HAND}", "weather"]\n'
    )
    root.joinpath("prose_tools.py").write_text('def word_count(text: str) -> int:\n    """Words."""\n    return 3\n')
    notebook = lab.notebook(
        AGENT,
        '%prompt session: planner\n  prompt: "When should we go?"',
        "%agents",
        'let plan = session: planner\n  prompt: "When should we go to Oslo?"',
    )
    for number in range(4):
        notebook.run(number)
    notebook.shows(1, "read, list, search, fetch, weather.forecast, word_count")
    notebook.shows(2, "weather.forecast, word_count")
    notebook.shows(3, "sunny for two days")
    folded = notebook.outputs(3).locator("details")
    expect(folded.locator("table")).to_be_hidden()
    folded.locator("summary").click()
    notebook.shows(3, "Oslo: sunny for 2 days")
    pictures.take("own-tools", notebook.cell(3))
