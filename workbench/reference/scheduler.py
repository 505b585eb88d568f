"""One thread that runs requests one after the other; the others wait in a queue."""

from __future__ import annotations

import logging
import threading
import time
import traceback
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field

from workbench.reference.decode import Decoder, Step
from workbench.reference.requests import GenerateRequest
from workbench.reference.stats import Stats

log = logging.getLogger("workbench.reference")
FinishReason = dict[str, object]
_SHUTTING_DOWN = "the server is shutting down"


@dataclass(slots=True)
class Job:
    """A request on its way. Hold ``changed`` to read the rest; it is notified when there is more to send.

    ``done`` comes after ``finish_reason``, when the counters hold the request. ``silent`` jobs (health probes) are
    neither logged nor counted.
    """

    request: GenerateRequest
    silent: bool = False
    arrived: float = field(default_factory=time.perf_counter)
    changed: threading.Condition = field(default_factory=threading.Condition)
    output_ids: list[int] = field(default_factory=list)
    finish_reason: FinishReason | None = None
    finished_at: float | None = None
    verify_calls: int = 0
    correct_drafts: int = 0
    histogram: list[int] = field(default_factory=list)
    cancelled: bool = False
    done: bool = False

    def add_tokens(self, tokens: tuple[int, ...]) -> None:
        """Append until the answer ends; what a step made beyond that is dropped."""
        for token in tokens:
            self.output_ids.append(token)
            if token in self.request.stop_ids:
                self.finish({"type": "stop", "matched": token})
                return
            if len(self.output_ids) >= self.request.max_new_tokens:
                self.finish({"type": "length", "length": self.request.max_new_tokens})
                return

    def count_step(self, step: Step) -> None:
        """A step counts whole, also when the answer ends inside it, as in SGLang."""
        self.verify_calls += 1
        self.correct_drafts += step.correct_drafts
        self.histogram.extend([0] * (step.correct_drafts + 1 - len(self.histogram)))
        self.histogram[step.correct_drafts] += 1

    def finish(self, reason: FinishReason) -> None:
        self.finish_reason = reason
        self.finished_at = time.perf_counter()


class Scheduler:
    """Call `start` once; `submit`, `cancel` and `flush` from any thread; `stop` ends what runs and drops the rest.

    ``on_fault`` is called when the engine itself fails; the thread has then ended.
    """

    def __init__(self, decoder: Decoder, stats: Stats, on_fault: Callable[[], None]) -> None:
        self.stats = stats
        self.last_progress = 0.0
        self._decoder = decoder
        self._on_fault = on_fault
        self._queue: deque[Job] = deque()
        self._running: Job | None = None
        self._stopping = False
        self._awake = threading.Condition()
        self._thread = threading.Thread(target=self._main, name="scheduler", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        with self._awake:
            self._stopping = True
            self._awake.notify()
        if self._thread.is_alive() and threading.current_thread() is not self._thread:
            self._thread.join()

    @property
    def num_running(self) -> int:
        running = self._running
        return int(running is not None and not running.silent)

    @property
    def num_queued(self) -> int:
        return len(self._queue)

    @property
    def num_tokens(self) -> int:
        return self._decoder.num_tokens if self._running is not None else 0

    def submit(self, request: GenerateRequest, *, silent: bool = False) -> Job:
        job = Job(request, silent=silent)
        with self._awake:
            if self._stopping:
                job.finish({"type": "abort", "message": _SHUTTING_DOWN})
                job.done = True
            else:
                self._queue.append(job)
                self._awake.notify()
        return job

    def cancel(self, job: Job) -> None:
        with self._awake:
            job.cancelled = True

    def flush(self) -> bool:
        """Reset the step counters; refused while a request runs or waits."""
        with self._awake:
            idle = self._running is None and not self._queue
            if idle:
                self.stats.reset()
                log.info("Cache flushed successfully!")
            else:
                log.warning(
                    "Cache not flushed because there are pending requests. #queue-req: %d, #running-req: %d",
                    len(self._queue),
                    self.num_running,
                )
        return idle

    # ---- the thread ------------------------------------------------------------------------------------------------

    def _main(self) -> None:
        try:
            while (job := self._next()) is not None:
                self._run(job)
                self._end(job)
        except Exception:  # noqa: BLE001 - whatever it is, the server must say so and end
            log.error("Scheduler hit an exception: %s", traceback.format_exc())
            self._on_fault()
        finally:
            self._abort_all()

    def _next(self) -> Job | None:
        with self._awake:
            self._awake.wait_for(lambda: self._queue or self._stopping)
            if self._stopping:
                return None
            self._running = self._queue.popleft()
            return self._running

    def _run(self, job: Job) -> None:
        if job.cancelled:
            return
        prompt = job.request.input_ids
        first = self._decoder.prefill(prompt)
        if not job.silent:
            queue = list(self._queue)
            pending = sum(len(other.request.input_ids) for other in queue)
            log.info(self.stats.prefill_line(new_tokens=len(prompt), queued=len(queue), pending_tokens=pending))
        self._publish(job, (first,), None)
        while job.finish_reason is None and not job.cancelled and not self._stopping:
            step = self._decoder.step()
            self._publish(job, step.tokens, step)
            if not job.silent and self.stats.add_step(step):
                log.info(self.stats.decode_line(num_tokens=self._decoder.num_tokens, queued=len(self._queue)))

    def _publish(self, job: Job, tokens: tuple[int, ...], step: Step | None) -> None:
        self.last_progress = time.monotonic()
        with job.changed:
            if step is not None and self.stats.num_draft_tokens is not None:
                job.count_step(step)
            job.add_tokens(tokens)
            if job.request.stream:
                job.changed.notify_all()

    def _end(self, job: Job) -> None:
        """Counters first, then the reply: who has it may read ``/metrics`` or flush at once."""
        with self._awake, job.changed:
            if job.finish_reason is None:
                reason = "the client is gone" if job.cancelled else _SHUTTING_DOWN
                job.finish({"type": "abort", "message": reason})
            self._count(job)
            self._running = None
            job.done = True
            job.changed.notify_all()

    def _count(self, job: Job) -> None:
        if job.silent or job.finished_at is None or job.finish_reason is None:
            return
        done = self.stats.finished
        if job.finish_reason["type"] == "abort":
            done.aborted += 1
            return
        done.requests += 1
        done.prompt_tokens += len(job.request.input_ids)
        done.generation_tokens += len(job.output_ids)
        done.verify_calls += job.verify_calls
        done.latency_s += job.finished_at - job.arrived

    def _abort_all(self) -> None:
        with self._awake:
            self._stopping = True
            left = [*([self._running] if self._running is not None else []), *self._queue]
            self._queue.clear()
            self._running = None
        for job in left:
            with job.changed:
                job.finish({"type": "abort", "message": _SHUTTING_DOWN})
                job.done = True
                job.changed.notify_all()
