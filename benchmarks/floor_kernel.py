"""The floor: a bare kernel on ipykernel that only spawns and forwards. No language, no state, no cards, no safety.

A cell holds one shell command a line. A line `&N command` runs the command N times at once.
"""

from __future__ import annotations

import asyncio

from ipykernel.kernelapp import IPKernelApp
from ipykernel.kernelbase import Kernel


class FloorKernel(Kernel):
    implementation = "floor"
    implementation_version = "1"
    language_info = {"name": "floor", "mimetype": "text/plain", "file_extension": ".txt"}  # noqa: RUF012
    banner = ""

    async def do_execute(self, code, silent, store_history=True, user_expressions=None, allow_stdin=False, **_):
        for line in code.splitlines():
            times, _, command = line[1:].partition(" ") if line.startswith("&") else ("1", "", line)
            await asyncio.gather(*(self._run(command) for _ in range(int(times))))
        return {"status": "ok", "execution_count": self.execution_count, "payload": [], "user_expressions": {}}

    async def _run(self, command: str) -> None:
        process = await asyncio.create_subprocess_exec(
            "bash", "--noprofile", "--norc", "-c", command,
            stdin=asyncio.subprocess.DEVNULL, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
            start_new_session=True, limit=1 << 20,
        )  # fmt: skip
        await asyncio.gather(self._forward("stdout", process.stdout), self._forward("stderr", process.stderr))
        await process.wait()

    async def _forward(self, name: str, pipe: asyncio.StreamReader) -> None:
        while data := await pipe.read(1 << 20):
            self.send_response(self.iopub_socket, "stream", {"name": name, "text": data.decode(errors="replace")})


if __name__ == "__main__":
    IPKernelApp.launch_instance(kernel_class=FloorKernel)
