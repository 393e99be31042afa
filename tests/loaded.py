"""What the process has loaded that `forked.py` forks: all that a command or a kernel may need. Imported only there."""

import gc
import importlib
import pkgutil
from collections.abc import Iterator

import prose_kernel

gc.disable()  # the imports that follow leave no garbage to look for

from prose_kernel.__main__ import _import_ipykernel_alone  # noqa: E402

_import_ipykernel_alone()

_LEFT_OUT = ("__main__", "_process", ".papermill", ".ipython", ".pytest_plugin")
"""Scripts, and what other programs than commands and the kernel load; so is the language server, `lsp`."""

_OF_SESSIONS = (
    *("anyio._backends._asyncio", "genai_prices.data", "openai.lib._chat_completion_resources"),
    *("pydantic_ai.models.openai", "pydantic_ai.providers.openai", "pydantic_ai.providers.openai_compatible"),
)
"""What the first session with the stub's model loads: over a second of processor time."""

_LATE = ("nbclient", "nbformat", "regex", "rich._emoji_codes", "rich.panel", "yaml")
"""What many commands load while they run: 0.2 seconds of processor time."""


def _names() -> Iterator[str]:
    for module in pkgutil.walk_packages(prose_kernel.__path__, "prose_kernel."):
        if not module.name.startswith("prose_kernel.lsp") and not module.name.endswith(_LEFT_OUT):
            yield module.name
    yield from _OF_SESSIONS
    yield from _LATE


for name in _names():
    try:
        importlib.import_module(name)
    except ImportError:  # of an extra that is not installed
        continue
gc.enable()
gc.freeze()  # a forked process that looks through all of it would have to copy it
