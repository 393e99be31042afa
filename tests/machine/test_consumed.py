"""Bare commands: their output is shown to the reader and not used by the surrounding statement."""

from __future__ import annotations

import pytest
from machine.fakes import World, lines

from prose_kernel.runtime.events import CommandFinished, CommandStarted


@pytest.mark.parametrize(
    ("program", "bare", "consumed"),
    [
        (['exec "a"'], ["a"], []),
        (['let x = exec "a"'], [], ["a"]),
        (["if true:", '  exec "a"', '  exec "b"'], ["a", "b"], []),
        (["let x = do:", '  exec "a"', '  exec "b"'], ["a"], ["b"]),
        (["[1] | map:", '  exec "a"', '  exec "b"'], ["a"], ["b"]),
        (["parallel:", '  exec "a"', '  x = exec "b"'], ["a"], ["b"]),
        (["let r = parallel for i in [1]:", '  exec "a"'], [], ["a"]),
        (["for i in [1]:", '  exec "a"'], ["a"], []),
        (['exec "a" -> exec "b"'], ["a", "b"], []),
        (['let x = exec "a" -> exec "b"'], ["a"], ["b"]),
        (["block f():", '  exec "a"', "do f()"], ["a"], []),
        (["block f():", '  exec "a"', "let x = do f()"], [], ["a"]),
        (["block f():", '  return exec "a"', "do f()"], [], ["a"]),
        (["try:", '  exec "a"', "finally:", '  exec "b"'], ["a", "b"], []),
        (["let x = do:", "  try:", '    exec "a"', "  finally:", '    exec "b"'], ["b"], ["a"]),
    ],
)
async def test_consumed(program: list[str], bare: list[str], consumed: list[str]) -> None:
    w = World(commands_say={"a": "[1]", "b": "b"})
    await w.run(lines(*program))
    for kind in (CommandStarted, CommandFinished):
        assert [e.command for e in w.of(kind) if not e.consumed] == bare
        assert [e.command for e in w.of(kind) if e.consumed] == consumed
