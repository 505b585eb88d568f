from __future__ import annotations

import time

import pytest

pytest.importorskip("torch", reason="the engine needs torch (extra: reference)")

from workbench.parse.metrics import counters_between
from workbench.parse.records import DecodeRecord, PrefillRecord, RateDefinition
from workbench.parse.server_log import parse_log
from workbench.reference.decode import Step
from workbench.reference.stats import Stats, metrics_text
from workbench.sglang_rules import at_least

STAMP = "[2026-11-29 21:00:00] "


def make(num_draft_tokens: int | None = 4) -> Stats:
    return Stats(decode_log_interval=4, num_draft_tokens=num_draft_tokens, graph_label="cpu graph", capacity=1000)


def parsed(*lines: str) -> tuple[tuple[DecodeRecord, ...], tuple[PrefillRecord, ...]]:
    log = parse_log("".join(f"{STAMP}{line}\n" for line in lines))
    assert (log.counts.truncated, log.counts.unparsed_batch_lines) == (0, 0)
    return log.decode, log.prefill


def test_a_window_of_four_steps() -> None:
    """Correct drafts 0, 3, 1, 2: 10 tokens of 4 steps, 6 of 12 drafts."""
    stats = make()
    due = [stats.add_step(Step(tuple(range(n + 1)), n)) for n in (0, 3, 1, 2)]
    assert due == [False, False, False, True]
    stats.last_decode_line = time.perf_counter() - 2
    (record,), _ = parsed(stats.decode_line(num_tokens=250, queued=7))
    assert (record.accept_len, record.accept_rate) == (2.5, 0.5)
    assert (record.tokens, record.token_usage, record.queue_req, record.running_req) == (250, 0.25, 7, 1)
    assert record.cuda_graph is False
    assert record.gen_tok_per_s == pytest.approx(5, abs=0.05)
    assert record.extra == {}
    assert stats.avg_spec_accept_length == 2.5


def test_the_average_runs_over_all_windows_until_a_flush() -> None:
    stats = make()
    for correct in (0, 0, 0, 0, 3, 3, 3, 3):
        if stats.add_step(Step((1,) * (correct + 1), correct)):
            stats.decode_line(num_tokens=1, queued=0)
    assert stats.avg_spec_accept_length == 2.5
    assert (stats.accept_length, stats.accept_rate) == (4.0, 1.0)
    stats.reset()
    assert stats.avg_spec_accept_length is None
    assert stats.steps == 0


def test_without_speculation_a_line_says_nothing_of_it() -> None:
    stats = make(None)
    for _ in range(4):
        stats.add_step(Step((1,), 0))
    (record,), _ = parsed(stats.decode_line(num_tokens=10, queued=0))
    assert record.accept_len is record.accept_rate is None
    assert stats.avg_spec_accept_length is None


def test_a_prefill_line() -> None:
    _, (record,) = parsed(make().prefill_line(new_tokens=38, queued=2, pending_tokens=60))
    assert (record.new_seq, record.new_tokens, record.cached_tokens, record.queue_req) == (1, 38, 0, 2)
    assert record.extra == {"#pending-token": "60"}
    assert record.input_tok_per_s is not None and record.input_tok_per_s > 0


def test_the_lines_are_those_of_the_release_that_is_named() -> None:
    stats = make()
    lines = []
    for correct in (0, 3, 1, 2, 2, 2, 0, 1):
        if stats.add_step(Step((1,) * (correct + 1), correct)):
            lines.append(f"{STAMP}{stats.decode_line(num_tokens=1, queued=0)}\n")
    lines.append(f"{STAMP}{stats.prefill_line(new_tokens=3, queued=0, pending_tokens=0)}\n")
    facts = parse_log("".join(lines)).facts
    assert facts.rate_definition is RateDefinition.DRAFTS_OVER_N_MINUS_1
    assert facts.version_bracket is not None
    assert at_least("0.5.14", facts.version_bracket[0]) and at_least(facts.version_bracket[1], "0.5.14")


def test_counters_give_the_accept_length_of_what_finished() -> None:
    stats = make()
    before = metrics_text(stats, model_name='a "b"\\c', running=0, queued=0, num_tokens=0)
    stats.finished.requests = 2
    stats.finished.generation_tokens = 42
    stats.finished.verify_calls = 16
    after = metrics_text(stats, model_name='a "b"\\c', running=0, queued=0, num_tokens=0)
    window = counters_between(before, after)
    assert (window.requests, window.generation_tokens, window.verify_calls) == (2, 42, 16)
    assert window.accept_length == 2.5


def test_without_speculation_there_is_no_verify_counter() -> None:
    assert "verify" not in metrics_text(make(None), model_name="m", running=0, queued=0, num_tokens=0)
