from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import cast

import pytest

pytest.importorskip("torch", reason="the engine needs torch (extra: reference)")

from workbench.reference.decode import Decoder, Step
from workbench.reference.requests import GenerateRequest
from workbench.reference.scheduler import Job, Scheduler
from workbench.reference.stats import Stats


class ScriptedDecoder:
    """Each step gives the numbers 1, 2, 3; ``hold`` makes a step wait, ``fault`` makes it fail."""

    num_tokens = 5

    def __init__(self) -> None:
        self.hold = threading.Event()
        self.hold.set()
        self.fault = False

    def prefill(self, prompt: Sequence[int]) -> int:
        return 0

    def step(self) -> Step:
        assert self.hold.wait(20)
        if self.fault:
            raise RuntimeError("out of luck")
        return Step((1, 2, 3), 2)


def request(count: int, *, stop: frozenset[int] = frozenset()) -> GenerateRequest:
    return GenerateRequest("r", (1, 2), count, stop, skip_special_tokens=True, stream=False)


@pytest.fixture
def parts() -> tuple[Scheduler, ScriptedDecoder, threading.Event]:
    decoder, failed = ScriptedDecoder(), threading.Event()
    stats = Stats(decode_log_interval=1000, num_draft_tokens=4, graph_label="cpu graph", capacity=100)
    scheduler = Scheduler(cast(Decoder, decoder), stats, failed.set)
    scheduler.start()
    return scheduler, decoder, failed


def wait(job: Job) -> Job:
    with job.changed:
        assert job.changed.wait_for(lambda: job.done, 20)
    return job


Parts = tuple[Scheduler, ScriptedDecoder, threading.Event]


def test_an_answer_ends_at_its_limit_or_stop_and_steps_count_whole(parts: Parts) -> None:
    scheduler, _, _ = parts
    job = wait(scheduler.submit(request(5)))
    assert job.output_ids == [0, 1, 2, 3, 1]
    assert job.finish_reason == {"type": "length", "length": 5}
    assert (job.verify_calls, job.histogram, job.correct_drafts) == (2, [0, 0, 2], 4)
    job = wait(scheduler.submit(request(50, stop=frozenset({2}))))
    assert job.output_ids == [0, 1, 2]
    assert job.finish_reason == {"type": "stop", "matched": 2}
    done = scheduler.stats.finished
    assert (done.requests, done.prompt_tokens, done.generation_tokens, done.verify_calls) == (2, 4, 8, 3)
    scheduler.stop()


def test_a_flush_waits_for_nobody_and_is_refused_while_one_runs(parts: Parts) -> None:
    scheduler, decoder, _ = parts
    decoder.hold.clear()
    job, queued = scheduler.submit(request(9)), scheduler.submit(request(9))
    assert not scheduler.flush()
    decoder.hold.set()
    wait(job)
    wait(queued)
    assert scheduler.stats.steps == 6
    assert scheduler.flush()
    assert scheduler.stats.steps == 0
    scheduler.stop()


def test_cancelled_requests_are_dropped_running_or_waiting(parts: Parts) -> None:
    scheduler, decoder, _ = parts
    decoder.hold.clear()
    running, waiting = scheduler.submit(request(1000)), scheduler.submit(request(1000))
    scheduler.cancel(running)
    scheduler.cancel(waiting)
    decoder.hold.set()
    assert all((wait(job).finish_reason or {})["type"] == "abort" for job in (running, waiting))
    assert waiting.output_ids == []
    assert (scheduler.stats.finished.aborted, scheduler.stats.finished.requests) == (2, 0)
    scheduler.stop()


def test_a_fault_of_the_engine_ends_everything_with_a_word(parts: Parts, caplog: pytest.LogCaptureFixture) -> None:
    scheduler, decoder, failed = parts
    decoder.hold.clear()
    job, queued = scheduler.submit(request(9)), scheduler.submit(request(9))
    decoder.fault = True
    decoder.hold.set()
    assert failed.wait(20)
    assert all((wait(one).finish_reason or {})["type"] == "abort" for one in (job, queued))
    assert "Scheduler hit an exception" in caplog.text and "out of luck" in caplog.text
    assert (wait(scheduler.submit(request(1))).finish_reason or {})["type"] == "abort"


def test_stopping_ends_what_runs_and_drops_the_rest(parts: Parts) -> None:
    scheduler, _, _ = parts
    jobs = [scheduler.submit(request(10**9)) for _ in range(3)]
    scheduler.stop()
    assert all((wait(job).finish_reason or {})["type"] == "abort" for job in jobs)


def test_probes_leave_no_trace(parts: Parts) -> None:
    scheduler, _, _ = parts
    wait(scheduler.submit(request(1), silent=True))
    assert scheduler.last_progress > 0
    assert scheduler.stats.finished.requests == 0
    scheduler.stop()
