from __future__ import annotations

import re

import pytest
from log_samples import N4_GRAPH, N5_NO_GRAPH, N16_GRAPH, PLAIN_DECODE, decode_line, recorded

from workbench.parse.records import DecodeRecord, EventKind, LogKind
from workbench.parse.server_log import CountsBuilder, ServerLog, describe_kind, iter_records, parse_log
from workbench.sglang_rules import own_accept_rate

# ---- recorded logs -----------------------------------------------------------------------------------------------

# grep -c "Decode batch,", grep -c "Prefill batch,", wc -l, wc -c;
# grep -o "gen throughput (token/s): [0-9.]*" | awk '{s+=$4} END {print s}', the same for "#new-token";
# events: server_args, weights, KV cache, graph begin and end, adjustments, capacity, ready (grep -c for each).
RECORDED = {
    "base": (314, 23, 468, 78195, 1814380, 222, 8),
    "eagle-flag": (309, 29, 479, 97837, 696994, 310, 15),
    "sim25-s3": (127, 21, 289, 62145, 645663, 310, 15),
}


@pytest.mark.parametrize("server", RECORDED)
def test_recorded_counts(server: str) -> None:
    decode, prefill, lines, size, speed, new_tokens, events = RECORDED[server]
    log = parse_log(recorded(server))
    assert (log.counts.decode, log.counts.prefill, log.counts.lines, log.counts.bytes) == (decode, prefill, lines, size)
    assert (len(log.decode), len(log.prefill), len(log.events)) == (decode, prefill, events)
    assert sum(record.gen_tok_per_s or 0 for record in log.decode) == pytest.approx(speed, rel=1e-5)
    assert sum(record.new_tokens or 0 for record in log.prefill) == new_tokens
    assert log.counts.truncated == log.counts.undecodable_bytes == log.counts.unparsed_batch_lines == 0
    assert log.kind is LogKind.SGLANG


def test_recorded_lines() -> None:
    log = parse_log(recorded("sim25-s3"))
    # grep -n "Decode batch" | head -1
    first = log.decode[0]
    assert (first.line, first.tokens, first.accept_len, first.accept_rate) == (56, 56, 2.6, 0.53)
    assert (first.cuda_graph, first.gen_tok_per_s, first.queue_req, first.ranks) == (True, 5.49, 0, frozenset())
    assert str(first.time) == "2026-11-29 21:02:53"
    assert recorded("sim25-s3")[first.offset :].startswith(b"[2026-11-29 21:02:53] Decode batch, #running-req: 1,")
    # grep -o "accept len: [0-9.]*" | awk '{s+=$3} END {print s}'
    assert sum(record.accept_len or 0 for record in log.decode) == pytest.approx(316.64)


def test_every_marker_of_a_recorded_log_gives_one_record() -> None:
    data = recorded("n24000L_s3", "h200_first_trial")
    log = parse_log(data)
    starts = [number for number, line in enumerate(data.split(b"\n"), 1) if re.search(rb"\] Decode batch, ", line)]
    assert [record.line for record in log.decode] == starts


# ---- the lines that were copied from a server --------------------------------------------------------------------


def test_copied_lines() -> None:
    log = parse_log(N16_GRAPH)
    first, second, cut = log.decode
    assert (first.accept_len, first.accept_rate, first.gen_tok_per_s) == (2.15, 0.13, 66.89)
    assert (second.tokens, second.cuda_graph, second.ranks) == (756, True, {"TP0"})
    assert (cut.accept_len, cut.accept_rate, cut.gen_tok_per_s, cut.truncated) == (2.05, None, None, True)
    assert log.counts.truncated == 1


def test_line_cut_when_copied() -> None:
    cut = parse_log(N5_NO_GRAPH).decode[2]
    assert (cut.tokens, cut.token_usage, cut.accept_len) == (403, 0.0, 1.95)
    assert (cut.accept_rate, cut.cuda_graph, cut.gen_tok_per_s, cut.queue_req) == (None, None, None, None)
    assert cut.truncated


def test_number_before_the_end_of_the_file_is_not_trusted() -> None:
    line = N16_GRAPH.split(b"\n")[0]
    cut = line[: line.index(b"66.89") + 2]
    assert cut.endswith(b"gen throughput (token/s): 66")
    [record] = parse_log(cut).decode
    assert record.gen_tok_per_s is None and record.accept_rate == 0.13 and record.truncated


def test_nothing_accepted() -> None:
    record = parse_log(N4_GRAPH).decode[0]
    assert (record.accept_len, record.accept_rate, record.running_req, record.queue_req) == (1.0, 0.25, 48, 32)
    assert record.accept_len is not None and own_accept_rate(record.accept_len, 3) == 0.0


def test_idle_line_is_a_record_like_any_other() -> None:
    [record] = parse_log(decode_line().replace("101.50", "0.77")).decode
    assert record.gen_tok_per_s == 0.77


def test_everything_at_once() -> None:
    text = (
        b"\x1b[33msvc-1  | \x1b[0m"
        + PLAIN_DECODE.strip().encode()
        + b"\xff\xfe"
        + decode_line(stamp="[2026-01-05 10:00:01 TP1]").strip().encode()
        + b"\r\n"
    )
    log = parse_log(text)
    first, second = log.decode
    # What runs into the last value of the first record makes it uncertain; the second is whole.
    assert (first.running_req, first.gen_tok_per_s, first.queue_req, first.truncated) == (7, 640.25, None, True)
    assert (second.accept_len, second.queue_req, second.truncated) == (2.4, 0, False)
    assert log.counts.undecodable_bytes == 2


def test_input_forms_agree() -> None:
    data = recorded("sim25-s3")
    whole = parse_log(data)
    assert parse_log(data.decode()) == whole
    assert parse_log([data[:1000], data[1000:1001], b"", data[1001:]]) == whole


def test_lone_surrogates_in_text_do_not_raise() -> None:
    assert parse_log("\ud800" + PLAIN_DECODE).decode[0].running_req == 7


def test_counts_belong_to_the_caller() -> None:
    counts = CountsBuilder()
    assert len([r for r in iter_records([PLAIN_DECODE.encode()], counts) if isinstance(r, DecodeRecord)]) == 1
    assert (counts.counts().decode, counts.counts().bytes) == (1, len(PLAIN_DECODE))


# ---- logs without a decode line ----------------------------------------------------------------------------------

STAMP = "[2026-01-05 10:00:00] "
READY = STAMP + "The server is fired up and ready to roll!\n"


@pytest.mark.parametrize(
    ("text", "kind", "words"),
    [
        ("", LogKind.UNKNOWN, ["empty"]),
        ("hello\n", LogKind.UNKNOWN, ["no server log", "Decode batch"]),
        ("============ Serving Benchmark Result ============\n", LogKind.UNKNOWN, ["bench_serving", "Decode batch"]),
        ('INFO: 1.2.3.4:5 - "GET /health HTTP/1.1" 200 OK\n', LogKind.UNKNOWN, ["HTTP access log"]),
        (b"\x1f\x8b\x08\x00abc", LogKind.UNKNOWN, ["gzip"]),
        ("hello\n".encode("utf-16"), LogKind.UNKNOWN, ["UTF-16"]),
        ("INFO vLLM API server version 0.16\n", LogKind.UNKNOWN, ["vLLM"]),
        (READY, LogKind.SGLANG, ["ready at line 1", "--decode-log-interval"]),
        (STAMP + "server_args=ServerArgs(port=1)\n", LogKind.SGLANG, ["never says it is ready"]),
        (READY + "torch.OutOfMemoryError: CUDA out of memory\n", LogKind.SGLANG, ["line 2", "CUDA out of memory"]),
        ("Engine 000: Avg prompt throughput: 1.5 tokens/s, Running: 3 reqs\n", LogKind.VLLM, ["without speculation"]),
        ("SpecDecoding metrics: Mean acceptance length: 2.31\n", LogKind.VLLM, ["1 lines about speculation"]),
        (PLAIN_DECODE, LogKind.SGLANG, ["1 decode lines"]),
    ],
)
def test_describe_kind(text: str | bytes, kind: LogKind, words: list[str]) -> None:
    log = parse_log(text)
    sentence = describe_kind(log)
    assert log.kind is kind
    assert all(word in sentence for word in words), sentence
    assert sentence.endswith(".") and "\n" not in sentence


def test_description_of_hostile_text_is_one_line() -> None:
    log = parse_log("ValueError: a\r<script>\x07" + "x" * 500 + "\n" + READY)
    sentence = describe_kind(log)
    assert "\r" not in sentence and "\x07" not in sentence and len(sentence) < 400


def kinds(log: ServerLog) -> set[EventKind]:
    return {event.kind for event in log.events}


def test_events_of_a_recorded_start() -> None:
    assert kinds(parse_log(recorded("eagle-flag"))) == {
        EventKind.SERVER_ARGS,
        EventKind.WEIGHTS,
        EventKind.KV_CACHE,
        EventKind.ADJUSTMENT,
        EventKind.GRAPH_CAPTURE,
        EventKind.CAPACITY,
        EventKind.READY,
    }
