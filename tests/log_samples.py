"""Log lines that several test modules share: recorded logs, and lines written from the published formats."""

from __future__ import annotations

import gzip
from functools import cache
from pathlib import Path

RECORDED = Path(__file__).parent.parent / "data" / "recorded"


@cache
def recorded(server: str, campaign: str = "h200_smollm2") -> bytes:
    """The log of a recorded server, unpacked."""
    return gzip.decompress((RECORDED / campaign / "_servers" / server / "server.log.gz").read_bytes())


# As copied from a server with 8 GPUs; the third line of each run was cut by the copying.
N4_GRAPH = b"""\
[2026-02-23 00:14:33 TP0] Decode batch, #running-req: 48, #token: 6460, token usage: 0.06, accept len: 1.00, accept rate: 0.25, cuda graph: True, gen throughput (token/s): 637.19, #queue-req: 32
[2026-02-23 00:14:37 TP0] Decode batch, #running-req: 48, #token: 8380, token usage: 0.07, accept len: 1.00, accept rate: 0.25, cuda graph: True, gen throughput (token/s): 597.79, #queue-req: 32
[2026-02-23 00:14:40 TP0] Decode batch, #running-req: 48, #token: 10300, token usage: 0.09, accept len: 1.00, ...
"""  # noqa: E501
N5_NO_GRAPH = b"""\
[2026-02-23 17:30:43 TP0] Decode batch, #running-req: 1, #token: 246, token usage: 0.00, accept len: 2.08, accept rate: 0.41, cuda graph: False, gen throughput (token/s): 52.79, #queue-req: 0
[2026-02-23 17:30:45 TP0] Decode batch, #running-req: 1, #token: 325, token usage: 0.00, accept len: 1.98, accept rate: 0.40, cuda graph: False, gen throughput (token/s): 50.39, #queue-req: 0
[2026-02-23 17:30:46 TP0] Decode batch, #running-req: 1, #token: 403, token usage: 0.00, accept len: 1.95, accept ra...
"""  # noqa: E501
N16_GRAPH = b"""\
[2026-02-23 17:53:14 TP0] Decode batch, #running-req: 1, #token: 671, token usage: 0.01, accept len: 2.15, accept rate: 0.13, cuda graph: True, gen throughput (token/s): 66.89, #queue-req: 0
[2026-02-23 17:53:16 TP0] Decode batch, #running-req: 1, #token: 756, token usage: 0.01, accept len: 2.12, accept rate: 0.13, cuda graph: True, gen throughput (token/s): 64.25, #queue-req: 0
[2026-02-23 17:53:17 TP0] Decode batch, #running-req: 1, #token: 838, token usage: 0.01, accept len: 2.05, accept rate...
"""  # noqa: E501


def decode_line(*, accept_len: str = "2.40", accept_rate: str = "0.47", stamp: str = "[2026-01-05 10:00:00]") -> str:
    """A decode line of 0.5.9 or later, with speculation."""
    return (
        f"{stamp} Decode batch, #running-req: 1, #token: 56, token usage: 0.00, accept len: {accept_len}, "
        f"accept rate: {accept_rate}, cuda graph: True, gen throughput (token/s): 101.50, #queue-req: 0\n"
    )


PLAIN_DECODE = (
    "[2026-01-05 10:00:00 TP0] Decode batch, #running-req: 7, #token: 900, token usage: 0.05, "
    "cuda graph: True, gen throughput (token/s): 640.25, #queue-req: 2\n"
)
PLAIN_PREFILL = (
    "[2026-01-05 10:00:00 TP0] Prefill batch, #new-seq: 2, #new-token: 300, #cached-token: 40, token usage: 0.01, "
    "#running-req: 5, #queue-req: 1, #pending-token: 0, cuda graph: False, input throughput (token/s): 1234.50\n"
)
# vLLM 0.11: the engine line, and then the speculative line of the same interval.
VLLM_SPEC = (
    b"INFO 01-05 10:00:00 [loggers.py:111] Engine 000: Avg prompt throughput: 10.0 tokens/s, Avg generation "
    b"throughput: 55.5 tokens/s, Running: 2 reqs, Waiting: 1 reqs, GPU KV cache usage: 3.0%, Prefix cache hit rate: "
    b"0.0%\n"
    b"INFO 01-05 10:00:00 [metrics.py:86] SpecDecoding metrics: Mean acceptance length: 2.25, Accepted throughput: "
    b"20.00 tokens/s, Drafted throughput: 48.00 tokens/s, Accepted: 200 tokens, Drafted: 480 tokens, Per-position "
    b"acceptance rate: 0.700, 0.350, 0.200, Avg Draft acceptance rate: 41.7%\n"
)
