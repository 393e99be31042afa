"""One module for each way to run a session; this file loads optional packages in a thread, and has the errors if they
are missing."""

from __future__ import annotations

import asyncio
import importlib
import threading
from concurrent.futures import Future
from types import ModuleType

from prose_kernel.errors import NoProvider

FIX = (
    "for a model: pip install 'prose_kernel[llm]', set ANTHROPIC_API_KEY and PROSE_PROVIDER=anthropic, and check both"
    " with `prose doctor`; PROSE_PROVIDER=dry-run shows what would be asked; a recorded answer is replayed"
)


def no_provider(why: str) -> NoProvider:
    """Return the error for a session that no provider can answer, with the fix."""
    return NoProvider(why, hint=FIX)


_loading: dict[str, Future[ModuleType]] = {}
_lock = threading.Lock()


def missing(feature: str, extra: str) -> NoProvider:
    """Return the error for packages that are not installed, with the line that installs them."""
    return NoProvider(
        f"{feature} needs packages that are not installed: the extra [{extra}]",
        hint=f"pip install 'prose_kernel[{extra}]' (in a notebook: %pip install 'prose_kernel[{extra}]'), then restart",
    )


async def load(module: str, *, feature: str, extra: str) -> ModuleType:
    """Return the module, imported once even if several callers request it at the same time.

    Raises `NoProvider` with the pip line if the module, or one that it imports, is not installed; a later call tries
    again.
    """
    with _lock:
        loading = _loading.get(module)
        if loading is None:
            loading = _loading[module] = Future()
            loading.set_running_or_notify_cancel()
            thread = threading.Thread(target=_import, args=(module, loading), name=f"import {module}", daemon=True)
            try:
                thread.start()
            except RuntimeError:  # no thread can be started
                del _loading[module]
                raise
    try:
        return await asyncio.shield(asyncio.wrap_future(loading))
    except ImportError:
        raise missing(feature, extra) from None


def _import(module: str, loading: Future[ModuleType]) -> None:
    try:
        loaded = importlib.import_module(module)
    except BaseException as problem:
        with _lock:
            _loading.pop(module, None)
        loading.set_exception(problem)
    else:
        loading.set_result(loaded)
