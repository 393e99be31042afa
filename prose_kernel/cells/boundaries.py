"""`%boundaries`: which shell runs commands, and what is enforced on programs of agents here (exec-and-tasks.md 5.2)."""

from __future__ import annotations

import asyncio

from prose_kernel.cells import tables
from prose_kernel.cells.registry import Call, magic, use


@magic("%boundaries", "which shell runs commands, and what is enforced on programs of agents here")
async def boundaries(call: Call) -> None:
    use(call, boundaries, 0, 0)
    from prose_kernel.commands.isolation import probe
    from prose_kernel.commands.shell import resolve_shell

    settings = call.cells.settings
    rows = [
        ("shell", "yes", resolve_shell(settings.shell)),
        ("Exec", "yes" if settings.exec_enabled else "no", "for agents with `execute:` rules; [exec] enabled"),
    ]
    for finding in await asyncio.to_thread(probe):
        rows.append((finding.subject, "yes" if finding.state == "ok" else "no", finding.text))
    call.show(tables.table(("what", "here", "what follows"), rows))
