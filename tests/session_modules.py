"""Modules that the first session with the stub's model loads: over a second of processor time, in each process."""

import importlib

NAMES = (
    "prose_kernel.models.providers.model_adapter",
    *("anyio._backends._asyncio", "genai_prices.data", "openai.lib._chat_completion_resources"),
    *("pydantic_ai.models.openai", "pydantic_ai.providers.openai", "pydantic_ai.providers.openai_compatible"),
)


def load() -> None:
    """For a test that forks processes with sessions which are killed before this process has had one."""
    for name in NAMES:
        importlib.import_module(name)
