"""Any log gives a diagnosis, and nothing in it is invented or left unformatted."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from diagnosis_logs import (
    READY,
    RECORDED,
    capacity,
    decode,
    recorded,
    rules,
    said,
    server_args,
    speculative_args,
    summary,
    weights,
)
from hypothesis import given, settings
from hypothesis import strategies as st

from workbench.analysis.diagnosis import diagnose, render_text
from workbench.table import summarise_log

POOL = (
    "",
    "noise \x1b[31m<script>alert(1)</script>",
    READY,
    capacity(48),
    server_args(cuda_graph_max_bs=16),
    speculative_args(),
    speculative_args(speculative_algorithm="EAGLE", quantization="fp8", decode_log_interval=10),
    weights("LlamaForCausalLM", quant="fp8"),
    weights("LlamaForCausalLMEagle3", quant="fp8"),
    decode(),
    decode(0, speed=0.0),
    decode(48, accept=1.0, rate=0.25, queue=32),
    decode(8, accept=2.4, rate=0.47, graph=False, speed=0.39),
    decode(8, accept=2.4, rate=0.47, tokens=90_000, usage=0.97, queue=3),
    decode(2, accept=2.15, rate=0.13, tag=" DP1 TP4"),
    said("Decode batch, #running-req: 1, #token: 403, token usage: 0.00, accept len: 1.95, accept ra..."),
    said("Decode batch. #running-req: 3, #token: 10, token usage: 0.00, gen throughput (token/s): nan, #queue-req: 0"),
    said(
        "Prefill batch, #new-seq: 1, #new-token: 6, #cached-token: 0, token usage: 0.00, #running-req: 0, #queue-req: 0"
    ),
    said("KV cache pool is full. Retract requests. #retracted_reqs: 2, #new_token_ratio: 0.60 -> 0.75"),
    said("Max running requests is reset to 48 for speculative decoding."),
    said("torch.OutOfMemoryError: CUDA out of memory."),
    "ValueError: odd",
    "INFO 05-18 11:19:54 [logger.py:1] Engine 000: Avg prompt throughput: 5.0 tokens/s, Avg generation throughput: 80.1"
    " tokens/s, Running: 2 reqs, Waiting: 0 reqs, GPU KV cache usage: 1.0%, Prefix cache hit rate: 0.0%",
    "INFO 05-18 11:19:54 [metrics.py:101] SpecDecoding metrics: Draft acceptance rate: 46.7%, Mean acceptance length:"
    " 2.40, Accepted: 70 tokens, Drafted: 150 tokens, Per-position acceptance rate: 0.7, 0.4, 0.3",
)
UNFORMATTED = re.compile(r"\b(?:nan|None|NaT|inf)\b|<NA>|[0-9]\.[0-9]{6}")
LOG = st.lists(st.sampled_from(POOL), max_size=30)


@given(lines=LOG, base=st.none() | LOG, cut=st.integers(0, 60))
@settings(max_examples=25, deadline=None)
def test_any_log_gives_a_readable_diagnosis(lines: list[str], base: list[str] | None, cut: int) -> None:
    text = "\n".join(lines).encode()
    log = summarise_log([text[: max(0, len(text) - cut)]], name="server.log")
    diagnosis = diagnose(log, baseline=None if base is None else summary(*base))

    shown = render_text(diagnosis)
    assert diagnosis.verdict.endswith(".")
    assert not UNFORMATTED.search(shown), shown
    assert "\x1b" not in shown
    for finding in diagnosis.findings:
        assert finding.title and finding.next_action
        assert all(finding.evidence)


HEALTHY = [path.parent for path in sorted(RECORDED.glob("h200_*/_servers/*base*/server.log*"))]


@pytest.mark.parametrize("folder", HEALTHY, ids=lambda folder: f"{folder.parts[-3]}-{folder.name}")
def test_no_rule_finds_fault_with_a_healthy_baseline(folder: Path) -> None:
    findings = diagnose(recorded(str(folder.relative_to(RECORDED)))).findings
    assert {finding.rule for finding in findings} <= {"prefills_interrupt"}
    assert not any(finding.is_fault for finding in findings)


TRAINED = [path.parent for path in sorted(RECORDED.glob("h200_first_trial/_servers/*_s*/server.log*"))]


@pytest.mark.parametrize("folder", TRAINED, ids=lambda folder: folder.name)
def test_only_the_drafter_is_blamed_where_the_deployment_is_right(folder: Path) -> None:
    diagnosis = diagnose(
        recorded(str(folder.relative_to(RECORDED))), baseline=recorded("h200_first_trial/_servers/base")
    )

    assert set(rules(diagnosis)) <= {"does_it_pay", "low_accept_length", "prefills_interrupt", "prefills_not_told"}
    assert not diagnosis.certain_fault
    assert "Speculation loses" in diagnosis.verdict
