"""Modules that the first session with a model of the stub loads, in over a second of processor time of each process."""

import importlib

NAMES = (
    "prose_kernel.models.providers.model_adapter",
    *("anyio._backends._asyncio", "genai_prices.data", "openai.lib._chat_completion_resources"),
    *("pydantic_ai.models.openai", "pydantic_ai.providers.openai", "pydantic_ai.providers.openai_compatible"),
)


def load() -> None:
    """Load the modules before a test forks processes that are killed during their sessions."""
    for name in NAMES:
        importlib.import_module(name)
