"""What the engine counts, and SGLang's log lines and metrics made of it. Steps are decoding steps of all requests."""

from __future__ import annotations

import time
from dataclasses import dataclass, field

from workbench.reference.decode import Step


@dataclass(slots=True)
class Window:
    """Since the last decode line."""

    tokens: int = 0
    spec_tokens: int = 0
    spec_steps: int = 0


@dataclass(slots=True)
class Finished:
    """Over finished requests, never reset: what ``/metrics`` counts."""

    requests: int = 0
    aborted: int = 0
    prompt_tokens: int = 0
    generation_tokens: int = 0
    verify_calls: int = 0
    latency_s: float = 0.0


@dataclass(slots=True)
class Stats:
    """Written by the scheduler's thread alone. ``num_draft_tokens`` is None without speculation."""

    decode_log_interval: int
    num_draft_tokens: int | None
    graph_label: str
    capacity: int
    window: Window = field(default_factory=Window)
    finished: Finished = field(default_factory=Finished)
    steps: int = 0
    spec_tokens: int = 0
    spec_steps: int = 0
    gen_tok_per_s: float = 0.0
    accept_length: float = 0.0
    accept_rate: float = 0.0
    last_decode_line: float = field(default_factory=time.perf_counter)
    last_prefill_line: float = field(default_factory=time.perf_counter)

    def reset(self) -> None:
        """What ``/flush_cache`` does."""
        self.window = Window()
        self.steps = self.spec_tokens = self.spec_steps = 0

    @property
    def avg_spec_accept_length(self) -> float | None:
        """Over the windows since the last flush; None before the first one has ended."""
        return self.spec_tokens / self.spec_steps if self.spec_steps else None

    def add_step(self, step: Step) -> bool:
        """Count a step; True when a decode line is due."""
        self.steps += 1
        self.window.tokens += len(step.tokens)
        if self.num_draft_tokens is not None:
            self.window.spec_tokens += len(step.tokens)
            self.window.spec_steps += 1
        return self.steps % self.decode_log_interval == 0

    def decode_line(self, *, num_tokens: int, queued: int) -> str:
        """Close the window and describe it. The throughput is over wall time since the last line, idle or not."""
        now = time.perf_counter()
        self.gen_tok_per_s = self.window.tokens / (now - self.last_decode_line)
        self.last_decode_line = now
        spec = self._close_spec_window() if self.num_draft_tokens is not None else ""
        self.window = Window()
        return (
            f"Decode batch, #running-req: 1, #token: {num_tokens}, token usage: {num_tokens / self.capacity:.2f}, "
            f"{spec}{self.graph_label}: False, gen throughput (token/s): {self.gen_tok_per_s:.2f}, #queue-req: {queued}"
        )

    def _close_spec_window(self) -> str:
        tokens, steps = self.window.spec_tokens, self.window.spec_steps
        self.spec_tokens += tokens
        self.spec_steps += steps
        self.accept_length = tokens / steps
        # sglang PR 23530: drafts that were right, over drafts that were made.
        self.accept_rate = (tokens - steps) / (steps * ((self.num_draft_tokens or 2) - 1))
        return f"accept len: {self.accept_length:.2f}, accept rate: {self.accept_rate:.2f}, "

    def prefill_line(self, *, new_tokens: int, queued: int, pending_tokens: int) -> str:
        now = time.perf_counter()
        speed = new_tokens / (now - self.last_prefill_line)
        self.last_prefill_line = now
        return (
            f"Prefill batch, #new-seq: 1, #new-token: {new_tokens}, #cached-token: 0, token usage: 0.00, "
            f"#running-req: 0, #queue-req: {queued}, #pending-token: {pending_tokens}, "
            f"{self.graph_label}: False, input throughput (token/s): {speed:.2f}"
        )


def metrics_text(stats: Stats, *, model_name: str, running: int, queued: int, num_tokens: int) -> str:
    """Prometheus text under SGLang's metric names."""
    done = stats.finished
    speculative = stats.num_draft_tokens is not None
    gauges: dict[str, float] = {
        "num_running_reqs": running,
        "num_queue_reqs": queued,
        "num_used_tokens": num_tokens,
        "token_usage": num_tokens / stats.capacity,
        "gen_throughput": stats.gen_tok_per_s,
        "spec_accept_length": stats.accept_length,
        "spec_accept_rate": stats.accept_rate,
        "is_cuda_graph": 0,
        "max_total_num_tokens": stats.capacity,
    }
    counters: dict[str, float] = {
        "prompt_tokens_total": done.prompt_tokens,
        "generation_tokens_total": done.generation_tokens,
        "num_requests_total": done.requests,
        "num_aborted_requests_total": done.aborted,
        **({"spec_verify_calls_total": done.verify_calls} if speculative else {}),
    }
    escaped = model_name.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")
    labels = f'engine_type="unified",model_name="{escaped}",pp_rank="0",tp_rank="0"'
    lines = [line for name, value in gauges.items() for line in _sample(name, "gauge", labels, value)]
    lines += [line for name, value in counters.items() for line in _sample(name, "counter", labels, value)]
    latency = "sglang:e2e_request_latency_seconds"
    lines += [
        f"# TYPE {latency} histogram",
        f'{latency}_bucket{{{labels},le="+Inf"}} {done.requests}',
        f"{latency}_count{{{labels}}} {done.requests}",
        f"{latency}_sum{{{labels}}} {done.latency_s!r}",
    ]
    return "\n".join(lines) + "\n"


def _sample(name: str, kind: str, labels: str, value: float) -> tuple[str, str]:
    return f"# TYPE sglang:{name} {kind}", f"sglang:{name}{{{labels}}} {value!r}"
