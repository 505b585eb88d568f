"""What the endpoints ask for: engine, scheduler and arguments put together."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from workbench import __version__
from workbench.chat import Chat
from workbench.reference.arguments import SPEAKS, ServerArguments
from workbench.reference.engine import Engine
from workbench.reference.replies import Reply
from workbench.reference.requests import GenerateRequest, ModelLimits
from workbench.reference.scheduler import Job, Scheduler
from workbench.reference.stats import Stats, metrics_text

log = logging.getLogger("workbench.reference")
HEALTH_TIMEOUT_S = 20.0
_PROBE_WAIT_S = 0.05


class Service:
    """Answers nothing but "not healthy" before `begin`, and before `ready` is set no request has been answered."""

    def __init__(self, arguments: ServerArguments) -> None:
        self.arguments = arguments
        self.ready = False
        self.reshape: Callable[[Sequence[str], Path], None] | None = None
        """Serve with another command line, into another log; ``None`` where that is not allowed."""
        self._engine: Engine | None = None
        self._scheduler: Scheduler | None = None

    def begin(self, engine: Engine, on_fault: Callable[[], None]) -> None:
        draft_tokens = self.arguments.speculative_num_draft_tokens
        stats = Stats(
            decode_log_interval=self.arguments.decode_log_interval,
            num_draft_tokens=draft_tokens,
            graph_label="cuda graph" if engine.device.type == "cuda" else "cpu graph",
            capacity=engine.limits.context_len,
        )
        self._engine = engine
        self._scheduler = Scheduler(engine.decoder, stats, on_fault)
        self._scheduler.start()

    def end(self) -> None:
        self.ready = False
        if self._scheduler is not None:
            self._scheduler.stop()

    @property
    def engine(self) -> Engine:
        assert self._engine is not None
        return self._engine

    @property
    def scheduler(self) -> Scheduler:
        assert self._scheduler is not None
        return self._scheduler

    @property
    def limits(self) -> ModelLimits:
        return self.engine.limits

    @property
    def chat(self) -> Chat | None:
        return self.engine.chat

    def reply(self, job: Job) -> Reply:
        arguments = self.arguments
        return Reply(
            job,
            self.chat,
            num_draft_tokens=arguments.speculative_num_draft_tokens,
            interval=arguments.stream_interval,
            incremental=arguments.incremental_streaming_output,
        )

    # ---- endpoints -------------------------------------------------------------------------------------------------

    def is_healthy(self) -> bool:
        """Whether the engine makes a token within 20 s: of a running request, or of a probe when it idles."""
        if not self.ready:
            return False
        began = time.monotonic()
        probe = GenerateRequest("health", (0,), 1, frozenset(), skip_special_tokens=True, stream=False)
        job = self.scheduler.submit(probe, silent=True) if not self.scheduler.num_running else None
        while time.monotonic() - began < HEALTH_TIMEOUT_S and self.ready:
            if self.scheduler.last_progress > began:
                return True
            if job is None:
                time.sleep(_PROBE_WAIT_S)
            else:
                with job.changed:
                    job.changed.wait_for(lambda: job.done, _PROBE_WAIT_S)
        log.error("Health check failed. Server couldn't get a response from the scheduler in %g s.", HEALTH_TIMEOUT_S)
        return False

    def server_info(self) -> dict[str, object]:
        """As SGLang's, with ``engine`` added and without ``version``: no release of SGLang is running here."""
        stats, engine = self.scheduler.stats, self.engine
        average = stats.avg_spec_accept_length
        state = {
            "last_gen_throughput": stats.gen_tok_per_s,
            "memory_usage": {**engine.memory_gb, "token_capacity": engine.limits.context_len, "graph": 0.0},
            "effective_max_running_requests_per_dp": 1,
            **({"avg_spec_accept_length": average} if average is not None else {}),
        }
        return {
            **self.arguments.resolved(),
            "device": engine.device.type,
            "dtype": str(engine.dtype).removeprefix("torch."),
            "max_running_requests": 1,
            "context_length": engine.limits.context_len,
            "disable_cuda_graph": True,
            "max_total_num_tokens": engine.limits.context_len,
            "max_req_input_len": engine.limits.context_len - 1,
            "internal_states": [state],
            "engine": "reference",
            "engine_version": __version__,
            "speaks_sglang": SPEAKS,
        }

    def model_info(self) -> dict[str, object]:
        arguments = self.arguments
        return {
            "model_path": arguments.model_path,
            "tokenizer_path": arguments.tokenizer_path,
            "is_generation": True,
            "weight_version": "default",
        }

    def models(self) -> dict[str, object]:
        name = self.arguments.served_model_name
        card = {"id": name, "object": "model", "owned_by": "workbench", "max_model_len": self.limits.context_len}
        return {"object": "list", "data": [card]}

    def metrics(self) -> str | None:
        if not self.arguments.enable_metrics:
            return None
        scheduler = self.scheduler
        return metrics_text(
            scheduler.stats,
            model_name=self.arguments.served_model_name,
            running=scheduler.num_running,
            queued=scheduler.num_queued,
            num_tokens=scheduler.num_tokens,
        )
