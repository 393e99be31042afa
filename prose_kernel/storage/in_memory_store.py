"""The in-context backend of the `Store` port: bindings in memory, without files (openprose.md 7.6)."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Final

from prose_kernel.errors import StateError
from prose_kernel.runtime.ports import Binding, Key
from prose_kernel.storage import bindings, run_paths


class MemoryStore:
    """Keeps the bindings of a run, or of an imported program's call, in memory. Context is passed by value (7.6),
    except in the replay of a run with another backend."""

    in_files: Final = False
    lost: Final = None

    def __init__(
        self, *, cwd: Path | None = None, home: Path | None = None, chain: tuple[str, ...] = (), by_value: bool = True
    ) -> None:
        self.chain = chain
        self.by_value = by_value
        self._cwd = cwd or Path.cwd()
        self._home = home
        self._bindings: dict[Key, Binding] = {}

    def put(self, binding: Binding) -> None:
        self._bindings[binding.key] = bindings.with_value(binding)

    def read(self, key: Key) -> str:
        if key not in self._bindings:
            raise StateError(f"'{key.name}' could not be read: there is no such binding", details={"binding": key.name})
        return bindings.body(self._bindings[key].value)

    def watch(self, key: Key) -> Callable[[], bool]:
        """Return a function that returns False: no session can write here."""
        return lambda: False

    def location(self, key: Key, within: tuple[str, ...] = ()) -> str:
        """Return the binding's name in the transcript; there is no file to read."""
        return run_paths.key_stem(key)

    def target(self, binding: Binding) -> None:
        """Return None: sessions reply with their answer."""

    def memory(self, agent: str, persist: str) -> str:
        """Return the directory of an agent's memory; the memory for one run has no directory, only a name."""
        place = self._memory(agent, persist)
        return f"agents/{agent}/" if place is None else f"{run_paths.shown(place, self._cwd)}/"

    def has_memory(self, agent: str, persist: str) -> bool:
        place = self._memory(agent, persist)
        return place is not None and (place / "memory.md").is_file()

    def _memory(self, agent: str, persist: str) -> Path | None:
        if persist == "true":
            return None
        state_dir = self._cwd / ".prose"
        home = self._home or Path.home()
        return run_paths.memory_directory(
            agent, persist, run=state_dir, state_dir=state_dir, project=self._cwd, home=home
        )

    def nested(self, handle: str, slug: str, source: str, number: int = 1) -> MemoryStore:
        name = f"{handle}--{slug}" if number == 1 else f"{handle}--{slug}--{number}"
        return MemoryStore(cwd=self._cwd, home=self._home, chain=(*self.chain, name), by_value=self.by_value)

    async def flush(self) -> None:
        """Do nothing: there are no pending writes."""
