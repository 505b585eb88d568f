from __future__ import annotations

from datetime import datetime

import pytest

from workbench.parse.events import MAX_TEXT, TRIGGER
from workbench.parse.records import EventKind, LogEvent
from workbench.parse.server_log import iter_records, parse_log

STAMP = "[2026-01-05 10:00:00 TP1] "

# Message, kind, fields.
CASES: list[tuple[str, EventKind, dict[str, str]]] = [
    ("The server is fired up and ready to roll!", EventKind.READY, {}),
    ("Embedded engine of workbench 0.1.0, torch 2.13.0+cpu, 2 threads; log lines as", EventKind.EMBEDDED, {}),
    (
        "Load weight end. type=LlamaForCausalLM, dtype=torch.bfloat16, avail mem=70.10 GB, mem usage=14.99 GB.",
        EventKind.WEIGHTS,
        {"type": "LlamaForCausalLM", "dtype": "torch.bfloat16", "avail mem": "70.10 GB", "mem usage": "14.99 GB"},
    ),
    (
        "Load weight end. elapsed=0.56 s, type=LlamaForCausalLMEagle3, quant=fp8, avail mem=1.00 GB, mem usage=0.7 GB.",
        EventKind.WEIGHTS,
        {
            "elapsed": "0.56 s",
            "type": "LlamaForCausalLMEagle3",
            "quant": "fp8",
            "avail mem": "1.00 GB",
            "mem usage": "0.7 GB",
        },
    ),
    (
        "KV Cache is allocated. #tokens: 3120410, K size: 33.48 GB, V size: 33.48 GB",
        EventKind.KV_CACHE,
        {"#tokens": "3120410", "K size": "33.48 GB", "V size": "33.48 GB"},
    ),
    (
        "KV Cache is allocated. dtype: torch.bfloat16, #tokens: 10, KV size: 3.50 GB",
        EventKind.KV_CACHE,
        {"dtype": "torch.bfloat16", "#tokens": "10", "KV size": "3.50 GB"},
    ),
    (
        "KV Cache VA upper bound. dtype: torch.bfloat16, #tokens: 10, KV size: 3.50 GB",
        EventKind.KV_CACHE,
        {"dtype": "torch.bfloat16", "#tokens": "10", "KV size": "3.50 GB"},
    ),
    (
        "Post-capture KV sizing: KV cache allocated. dtype: fp8, #tokens: 10, KV size: 3.50 GB, avail mem=2.00 GB",
        EventKind.KV_CACHE,
        {"dtype": "fp8", "#tokens": "10", "KV size": "3.50 GB", "avail mem": "2.00 GB"},
    ),
    (
        "max_total_num_tokens=3120410, chunked_prefill_size=8192, max_prefill_tokens=16384, max_running_requests=32, "
        "context_len=4096, available_gpu_mem=69.24 GB",
        EventKind.CAPACITY,
        {
            "max_total_num_tokens": "3120410",
            "chunked_prefill_size": "8192",
            "max_prefill_tokens": "16384",
            "max_running_requests": "32",
            "context_len": "4096",
            "available_gpu_mem": "69.24 GB",
        },
    ),
    (
        "Capture cuda graph end. Time elapsed: 4.15 s. mem usage=0.12 GB. avail mem=69.34 GB.",
        EventKind.GRAPH_CAPTURE,
        {
            "what": "target",
            "phase": "end",
            "Time elapsed": "4.15 s",
            "mem usage": "0.12 GB",
            "avail mem": "69.34 GB",
        },
    ),
    (
        "Capture target verify CUDA graph begin. backend=full, num_tokens_per_bs=4, bs=[1, 2, 4], avail mem=69.45 GB",
        EventKind.GRAPH_CAPTURE,
        {
            "what": "target verify",
            "phase": "begin",
            "backend": "full",
            "num_tokens_per_bs": "4",
            "bs": "[1, 2, 4]",
            "avail mem": "69.45 GB",
        },
    ),
    (
        "Capture draft extend CUDA graph end. elapsed=2.73 s, mem usage=0.06 GB, avail mem=69.24 GB.",
        EventKind.GRAPH_CAPTURE,
        {
            "what": "draft extend",
            "phase": "end",
            "elapsed": "2.73 s",
            "mem usage": "0.06 GB",
            "avail mem": "69.24 GB",
        },
    ),
    (
        "KV cache pool is full. Retract requests. #retracted_reqs: 3, #new_token_ratio: 0.55 -> 0.99",
        EventKind.RETRACTION,
        {"num_requests": "3"},
    ),
    (
        "Decode out of memory happened. #retracted_reqs: 2, #new_token_ratio: 0.5 -> 0.9",
        EventKind.RETRACTION,
        {"num_requests": "2"},
    ),
    ("Cache flushed successfully!", EventKind.FLUSH, {}),
    ("Cache not flushed because there are pending requests. #queue-req: 0", EventKind.FLUSH, {}),
    ("Watchdog timeout (self.watchdog_timeout=300)", EventKind.WATCHDOG, {}),
    ("Scheduler watchdog timeout (self.watchdog_timeout=300, self.soft=False)", EventKind.WATCHDOG, {}),
    ("Health check failed. Server couldn't get a response from detokenizer", EventKind.WATCHDOG, {}),
    ("Received sigquit from a child process. It usually means the child failed.", EventKind.CHILD_DEATH, {}),
    ("Rank 3 scheduler died during initialization (exit code: -9).", EventKind.CHILD_DEATH, {"exit_code": "-9"}),
    (
        "Subprocess detokenizer (pid=12) crashed with exit code 1. Shutting down",
        EventKind.CHILD_DEATH,
        {"exit_code": "1"},
    ),
    ("Prefill out of memory. Try to lower your batch size.", EventKind.OOM, {}),
    ("Not enough memory. Please try to increase --mem-fraction-static.", EventKind.OOM, {}),
    ("Scheduler hit an exception: Traceback (most recent call last):", EventKind.EXCEPTION, {}),
    ("Capture cuda graph failed: CUDA out of memory", EventKind.EXCEPTION, {}),
    (
        "Max running requests is reset to 48 for speculative decoding. You can override this.",
        EventKind.ADJUSTMENT,
        {"max_running_requests": "48"},
    ),
    (
        "speculative_num_draft_tokens is adjusted to speculative_num_steps + 1 when speculative_eagle_topk == 1",
        EventKind.ADJUSTMENT,
        {},
    ),
    ("Overlap scheduler is disabled because of using eagle3 speculative decoding.", EventKind.ADJUSTMENT, {}),
    ("Spec v2 is enabled for eagle/eagle3 speculative decoding.", EventKind.ADJUSTMENT, {}),
    ("Attention backend not explicitly specified. Use fa3 backend by default.", EventKind.ADJUSTMENT, {}),
    ("Overriding the draft model's max_position_embeddings to 8192.", EventKind.ADJUSTMENT, {}),
    (
        "Switch adaptive runtime state: steps 3 -> 5, draft_tokens 4 -> 6 ",
        EventKind.ADJUSTMENT,
        {"steps_before": "3", "steps": "5", "draft_tokens_before": "4", "draft_tokens": "6"},
    ),
    (
        'INFO:     127.0.0.1:4 - "POST /generate HTTP/1.1" 400 Bad Request',
        EventKind.REQUEST_ERROR,
        {"path": "/generate", "status": "400"},
    ),
]


@pytest.mark.parametrize(("message", "kind", "fields"), CASES, ids=[case[0][:50] for case in CASES])
def test_events(message: str, kind: EventKind, fields: dict[str, str]) -> None:
    [event] = iter_records([(STAMP + message + "\n").encode()])
    assert isinstance(event, LogEvent)
    assert (event.kind, dict(event.fields)) == (kind, fields)
    assert event.text == message.strip()
    assert (event.time, event.ranks) == (datetime(2026, 1, 5, 10), {"TP1"})
    assert not event.truncated


@pytest.mark.parametrize(
    ("line", "kind", "fields"),
    [
        ("torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB", EventKind.OOM, {}),
        ("ValueError: EAGLE is not supported in attention backend x", EventKind.EXCEPTION, {}),
        ("svc-1  | ValueError: boom", EventKind.EXCEPTION, {}),
        ("(Worker pid=3) AssertionError", EventKind.EXCEPTION, {}),
        (
            "[rank7]:[E226 11:16:37 ProcessGroupNCCL.cpp:6] [Rank 7] Watchdog caught collective operation timeout: "
            "WorkNCCL(SeqNum=12, OpType=ALLREDUCE, NumelIn=1, Timeout(ms)=600000) ran for 600077 milliseconds",
            EventKind.NCCL,
            {"rank": "7", "op_type": "ALLREDUCE"},
        ),
        ("node0:1:2 [0] misc.cc:1 NCCL WARN Cuda failure", EventKind.NCCL, {}),
    ],
)
def test_events_without_a_stamp(line: str, kind: EventKind, fields: dict[str, str]) -> None:
    [event] = parse_log(line + "\n").events
    assert (event.kind, dict(event.fields), event.time) == (kind, fields, None)


@pytest.mark.parametrize(
    "line",
    [
        STAMP + "Load weight begin. avail mem=139.13 GB",
        STAMP + "Load weight end. Committed real weights after CUDA graph capture in 1.00 s",
        STAMP + "Application startup complete.",
        STAMP + 'INFO:     127.0.0.1:4 - "GET /health HTTP/1.1" 503 Service Unavailable',
        STAMP + "Ignore import error when loading sglang.srt.models.x: no module. OSError: gone",
        "  File \"x.py\", line 1, in f",
        STAMP + "NCCL version 2.27.5+cuda12.9",
        "",
    ],
)  # fmt: skip
def test_lines_that_say_nothing(line: str) -> None:
    assert parse_log(line + "\n").events == ()


def test_text_of_requests_is_no_event_and_no_record() -> None:
    prompt = "Decode batch, #running-req: 1, #token: 2, token usage: 0.10, #queue-req: 0, CUDA out of memory"
    log = parse_log(
        f"{STAMP}Receive: obj=GenerateReqInput(text='{prompt}', rid='1')\n"
        f"{STAMP}Finish: obj=GenerateReqInput(rid='1'), out={{'text': 'ValueError: {prompt}'}}\n"
    )
    assert log.decode == () and log.events == ()


def test_text_is_cut() -> None:
    [event] = parse_log("ValueError: " + "x" * 5000 + "\n").events
    assert len(event.text) == MAX_TEXT


@pytest.mark.parametrize("end", ["mem usage=0.2", "mem usage=0.27 ", "mem usage=0.27 GB", "mem usage=0.27 GB."])
def test_cut_event_drops_the_value_that_may_be_cut(end: str) -> None:
    line = STAMP + "Load weight end. elapsed=0.56 s, type=LlamaForCausalLM, avail mem=138.86 GB, " + end
    [event] = parse_log(line).events
    assert dict(event.fields) == {"elapsed": "0.56 s", "type": "LlamaForCausalLM", "avail mem": "138.86 GB"}
    assert event.truncated and parse_log(line).counts.truncated == 1


def test_every_case_has_a_trigger() -> None:
    # The quick search must let through whatever the rules know.
    assert all(TRIGGER.search(message.encode()) for message, _, _ in CASES)


def test_two_events_on_one_line() -> None:
    events = parse_log(f"{STAMP}The server is fired up and ready to roll!{STAMP}Cache flushed successfully!\n").events
    assert [event.kind for event in events] == [EventKind.READY, EventKind.FLUSH]
