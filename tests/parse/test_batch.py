from __future__ import annotations

from datetime import datetime

import pytest
from log_samples import PLAIN_DECODE, PLAIN_PREFILL

from workbench.parse.records import DecodeRecord, PrefillRecord
from workbench.parse.server_log import parse_log

HEAD = "[2025-06-07 21:25:14 TP0] "

# One line for each row of the format's history: SGLang's decode line from 0.3.6 to 0.5.23.
DECODE_HISTORY = {
    "0.3.6": (
        "Decode batch. #running-req: 3, #token: 1200, token usage: 0.02, gen throughput (token/s): 210.55, "
        "#queue-req: 1",
        {"cuda_graph": None},
        {},
    ),
    "0.4.1.post7": (
        "Decode batch. #running-req: 3, #token: 1200, token usage: 0.02, accept len: 2.31, "
        "gen throughput (token/s): 210.55, #queue-req: 1",
        {"accept_len": 2.31, "accept_rate": None},
        {},
    ),
    "0.4.3": (
        "Decode batch. #running-req: 3, #token: 1200, token usage: 0.02, gen throughput (token/s): 210.55, "
        "largest-len: 77, #queue-req: 1, ",
        {},
        {"largest-len": "77"},
    ),
    "0.4.5": (
        "Decode batch. #running-req: 3, #token: 1200, token usage: 0.02, accept len: 2.31, "
        "gen throughput (token/s): 210.55, #queue-req: 1, ",
        {"accept_len": 2.31},
        {},
    ),
    "0.4.6": (
        "Decode batch. #running-req: 3, #token: 1200, token usage: 0.02, accept len: 2.31, "
        "pre-allocated usage: 0.01, gen throughput (token/s): 210.55, #queue-req: 1",
        {"accept_len": 2.31, "cuda_graph": None},
        {"pre-allocated usage": "0.01"},
    ),
    "0.4.9": (
        "Decode batch. #running-req: 3, #token: full=1200, swa=50, token usage: full=0.02, swa=0.05, "
        "pre-allocated usage: 0.01, #retracted-req: 0, cuda graph: False, gen throughput (token/s): 210.55, "
        "#queue-req: 1",
        {"cuda_graph": False},
        {"#token swa": "50", "token usage swa": "0.05", "pre-allocated usage": "0.01", "#retracted-req": "0"},
    ),
    "0.4.9.post1": (
        "Decode batch. #running-req: 3, #token: 1200, token usage: 0.02, cuda graph: True, "
        "gen throughput (token/s): 210.55, #queue-req: 1, timestamp: 2025-07-09T03:11:22.123456",
        {"cuda_graph": True},
        {"timestamp": "2025-07-09T03:11:22.123456"},
    ),
    "0.5.2": (
        "Decode batch. #running-req: 3, #token: 1200, token usage: 0.02, accept len: 2.31, cpu graph: False, "
        "gen throughput (token/s): 210.55, #queue-req: 1, ",
        {"cuda_graph": False, "accept_len": 2.31},
        {},
    ),
    "0.5.3.post2": (
        "Decode batch. #running-req: 3, #full token: 1200, full token usage: 0.02, mamba num: 4, mamba usage: 0.10, "
        "accept len: 2.17, accept rate: 0.54, pre-allocated usage: 0.01, #prealloc-req: 1, #transfer-req: 2, "
        "#retracted-req: 3, cuda graph: True, gen throughput (token/s): 210.55, #queue-req: 1, ",
        {"accept_len": 2.17, "accept_rate": 0.54, "cuda_graph": True},
        {
            "mamba num": "4",
            "mamba usage": "0.10",
            "pre-allocated usage": "0.01",
            "#prealloc-req": "1",
            "#transfer-req": "2",
            "#retracted-req": "3",
        },
    ),
    "0.5.4": (
        "Decode batch [812], #running-req: 3, #token: 1200, token usage: 0.02, cuda graph: True, "
        "gen throughput (token/s): 210.55, #queue-req: 1, ",
        {"iteration": 812},
        {},
    ),
    "0.5.8": (
        "Decode batch, #running-req: 3, #full token: 1200, full token usage: 0.02, #swa token: 60, "
        "swa token usage: 0.30, accept len: 2.00, accept rate: 0.50, cuda graph: True, "
        "gen throughput (token/s): 210.55, #queue-req: 1, ",
        {"accept_len": 2.0, "accept_rate": 0.5},
        {"#swa token": "60", "swa token usage": "0.30"},
    ),
    "0.5.9": (
        "Decode batch, #running-req: 3, #token: 1200, token usage: 0.02, accept len: 2.00, accept rate: 0.50, "
        "waiting-image-req: 0, npu graph: True, gen throughput (token/s): 210.55, #queue-req: 1",
        {"cuda_graph": True},
        {"waiting-image-req": "0"},
    ),
    "0.5.10": (
        "Decode batch, #running-req: 3, #token: 1200, token usage: 0.02, cuda graph: True, "
        "gen throughput (token/s): 210.55, #queue-req: 1, est. decode TFLOPS/s (per GPU): 1.25, "
        "est. read BW (GB/s per GPU): 900.00, est. write BW (GB/s per GPU): 3.00",
        {},
        {
            "est. decode TFLOPS/s (per GPU)": "1.25",
            "est. read BW (GB/s per GPU)": "900.00",
            "est. write BW (GB/s per GPU)": "3.00",
        },
    ),
    "0.5.13": (
        "Decode batch, #running-req: 3, #gpu token: 1200, gpu token usage: 0.02, #cpu token: 9, "
        "cpu token usage: 0.01, cuda graph: True, gen throughput (token/s): 210.55, #queue-req: 1, "
        "fwd occupancy: nan%",
        {},
        {"#cpu token": "9", "cpu token usage": "0.01", "fwd occupancy": "nan%"},
    ),
    "0.5.16": (
        "Decode batch, #running-req: 3, #token: 1200, token usage: 0.02, accept len: 2.50, accept rate: 0.50, "
        "cap len: 3.10, block accept len: 2.20, cuda graph: True, gen throughput (token/s): 210.55, #queue-req: 1",
        {"accept_len": 2.5, "accept_rate": 0.5},
        {"cap len": "3.10", "block accept len": "2.20"},
    ),
    "0.5.21": (
        "Decode batch, #running-req: 3, #token: 1200, token usage: 0.02, pre-allocated usage: 0.01, "
        "#prealloc-req: 1, #transfer-req: 2, #host-receive-req: 5, #retracted-req: 3, musa graph: True, "
        "gen throughput (token/s): 210.55, #queue-req: 1, fwd occupancy: 90.10%, fwd+idle occupancy: 95.00%",
        {"cuda_graph": True},
        {
            "pre-allocated usage": "0.01",
            "#prealloc-req": "1",
            "#transfer-req": "2",
            "#host-receive-req": "5",
            "#retracted-req": "3",
            "fwd occupancy": "90.10%",
            "fwd+idle occupancy": "95.00%",
        },
    ),
}


@pytest.mark.parametrize("version", DECODE_HISTORY)
def test_decode_line_of_every_version(version: str) -> None:
    message, own, extra = DECODE_HISTORY[version]
    expected = {
        "running_req": 3,
        "tokens": 1200,
        "token_usage": 0.02,
        "gen_tok_per_s": 210.55,
        "queue_req": 1,
        "time": datetime(2025, 6, 7, 21, 25, 14),
        "ranks": frozenset({"TP0"}),
        "truncated": False,
        **own,
    }
    log = parse_log(HEAD + message + "\n")
    [record] = log.decode
    assert {name: getattr(record, name) for name in expected} == expected
    assert dict(record.extra) == extra
    assert log.counts.truncated == 0


PREFILL_HISTORY = {
    "0.3.6": (
        "Prefill batch. #new-seq: 1, #new-token: 20, #cached-token: 3, cache hit rate: 12.50%, token usage: 0.10, "
        "#running-req: 4, #queue-req: 5",
        {"running_req": 4, "queue_req": 5},
        {"cache hit rate": "12.50%"},
    ),
    "0.4.3": (
        "Prefill batch. #new-seq: 1, #new-token: 20, #cached-token: 3, token usage: 0.10, #running-req: 4, "
        "#queue-req: 5, ",
        {"running_req": 4, "queue_req": 5},
        {},
    ),
    "0.4.6 disaggregated": (
        "Prefill batch. #new-seq: 1, #new-token: 20, #cached-token: 3, token usage: 0.10, #unbootstrapped-req: 7, "
        "#queue-req: 5, #transferring-req: 6 ",
        {"running_req": None, "queue_req": 5},
        {"#unbootstrapped-req": "7", "#transferring-req": "6"},
    ),
    "0.4.7 disaggregated": (
        "Prefill batch. #new-seq: 1, #new-token: 20, #cached-token: 3, token usage: 0.10, #unbootstrapped-req: 7, "
        "#queue-req: 5, #transferring-req: 6 time: 0.55 ",
        {"queue_req": 5},
        {"#unbootstrapped-req": "7", "#transferring-req": "6", "time": "0.55"},
    ),
    "0.5.2 disaggregated": (
        "Prefill batch. #new-seq: 1, #new-token: 20, #cached-token: 3, token usage: 0.10, #unbootstrapped-req: 7, "
        "#queue-req: 5, #transferring-req: 6, input throughput (token/s): 88.25, ",
        {"queue_req": 5, "input_tok_per_s": 88.25},
        {"#unbootstrapped-req": "7", "#transferring-req": "6"},
    ),
    "0.5.4": (
        "Prefill batch [9], #new-seq: 1, #new-token: 20, #cached-token: 3, full token usage: 0.10, "
        "swa token usage: 0.20, #running-req: 4, #queue-req: 5, #prealloc-req: 1, #inflight-req: 2, "
        "input throughput (token/s): 88.25, ",
        {"iteration": 9, "running_req": 4, "queue_req": 5, "input_tok_per_s": 88.25},
        {"swa token usage": "0.20", "#prealloc-req": "1", "#inflight-req": "2"},
    ),
    "0.5.9": (
        "Prefill batch, #new-seq: 1, #new-token: 20, #cached-token: 3, token usage: 0.10, #running-req: 4, "
        "#queue-req: 5, input throughput (token/s): 88.25, waiting-image-req: 0, cuda graph: True",
        {"running_req": 4, "queue_req": 5, "input_tok_per_s": 88.25, "cuda_graph": True},
        {"waiting-image-req": "0"},
    ),
    "0.5.10": (
        "Prefill batch, #new-seq: 1, #new-token: 20, #cached-token: 3, token usage: 0.10, #running-req: 4, "
        "#queue-req: 5, cuda graph: False, input throughput (token/s): 88.25, est. prefill TFLOPS/s (per GPU): 1.00",
        {"running_req": 4, "queue_req": 5, "input_tok_per_s": 88.25, "cuda_graph": False},
        {"est. prefill TFLOPS/s (per GPU)": "1.00"},
    ),
    "0.5.16 disaggregated": (
        "Prefill batch, #new-seq: 1, #new-token: 20, #cached-token: 3, token usage: 0.10, #running-req: 4, "
        "#queue-req: 5, #pending-token: 11, #bootstrap-req: 1, #inflight-req: 2, #optimistic-req: 3, "
        "cuda graph: False, input throughput (token/s): 88.25",
        {"running_req": 4, "queue_req": 5, "input_tok_per_s": 88.25, "cuda_graph": False},
        {"#pending-token": "11", "#bootstrap-req": "1", "#inflight-req": "2", "#optimistic-req": "3"},
    ),
    "0.5.21": (
        "Prefill batch, #new-seq: 1, #new-token: 20, #cached-token: 3, token usage: 0.10, #running-req: 4, "
        "#queue-req: 5, #pending-token: 0, #replay-token: 8, cuda graph: False, input throughput (token/s): 88.25",
        {"input_tok_per_s": 88.25},
        {"#pending-token": "0", "#replay-token": "8"},
    ),
}


@pytest.mark.parametrize("version", PREFILL_HISTORY)
def test_prefill_line_of_every_version(version: str) -> None:
    message, own, extra = PREFILL_HISTORY[version]
    expected = {"new_seq": 1, "new_tokens": 20, "cached_tokens": 3, "token_usage": 0.1, "truncated": False, **own}
    [record] = parse_log(HEAD + message + "\n").prefill
    assert {name: getattr(record, name) for name in expected} == expected
    assert dict(record.extra) == extra


def only_decode(text: str | bytes) -> DecodeRecord:
    [record] = parse_log(text).decode
    return record


def test_order_of_keys_does_not_matter() -> None:
    record = only_decode(
        "[2026-01-05 10:00:00] Decode batch, #queue-req: 2, gen throughput (token/s): 640.25, cuda graph: True, "
        "token usage: 0.05, #token: 900, #running-req: 7\n"
    )
    usual = only_decode(PLAIN_DECODE)
    names = ("running_req", "queue_req", "tokens", "token_usage", "cuda_graph", "gen_tok_per_s", "truncated")
    assert [getattr(record, name) for name in names] == [getattr(usual, name) for name in names]
    assert record.layout != usual.layout


def test_layout_keeps_marks_and_keys_in_order() -> None:
    assert only_decode(PLAIN_DECODE).layout == (
        *(",", "#running-req", "#token", "token usage", "cuda graph", "gen throughput (token/s)", "#queue-req", ""),
    )
    [prefill] = parse_log(PLAIN_PREFILL).prefill
    assert prefill.layout[0] == "," and prefill.layout[-2:] == ("input throughput (token/s)", "")


@pytest.mark.parametrize(
    ("tail", "expected"),
    [
        ("#token: 64", {"tokens": None}),  # the end of the file inside a number
        ("#token: 64\n", {"tokens": None}),  # wrapped by a terminal
        ("#token: 64...\n", {"tokens": None}),
        ("#token: 64…\n", {"tokens": None}),
        ("#token: 64, ", {"tokens": 64}),
        ("#token: 64,", {"tokens": 64}),
        ("#token: 64, tok", {"tokens": 64, "token_usage": None}),
        ("#token: 64, token usage: 0.1\n", {"tokens": 64, "token_usage": None}),
        ("#token: 64, token usage: 0.12\n", {"tokens": 64, "token_usage": 0.12}),
        ("#token: 64, token usage: 0.12", {"tokens": 64, "token_usage": None}),
        ("#token: 64, token usage: 0.12, cuda graph: Tr\n", {"token_usage": 0.12, "cuda_graph": None}),
        ("#token: 64, token usage: 0.12, cuda graph: True", {"token_usage": 0.12, "cuda_graph": None}),
        ("#token: 64, token usage: 0.12, cuda graph: True\n", {"token_usage": 0.12, "cuda_graph": True}),
        ("#token: 64, token usage: 0.12, gen throughput (token/s): 50", {"gen_tok_per_s": None}),
        ("#token: 64, token usage: 0.12, gen throughput (token/s): 50.25, #queue-req: 1", {"queue_req": None}),
    ],
)
def test_cut_line_keeps_what_is_whole(tail: str, expected: dict[str, object]) -> None:
    record = only_decode("[2026-01-05 10:00:00] Decode batch, #running-req: 5, " + tail)
    assert record.running_req == 5
    assert {name: getattr(record, name) for name in expected} == expected
    assert record.truncated
    assert record.layout[-1] == "?"


def test_number_at_the_end_of_a_whole_prefill_line_needs_both_decimals() -> None:
    [record] = parse_log(PLAIN_PREFILL.replace("1234.50\n", "1234.5\n")).prefill
    assert record.input_tok_per_s is None and record.truncated and record.cuda_graph is False


def test_value_that_another_message_runs_into_is_unknown() -> None:
    text = "[2026-01-05 10:00:00 TP0] Decode batch, #running-req: 4, #token: 12" + PLAIN_DECODE
    first, second = parse_log(text).decode
    assert (first.running_req, first.tokens, first.truncated) == (4, None, True)
    assert (second.running_req, second.tokens, second.truncated) == (7, 900, False)


def test_second_record_of_an_unfinished_line_does_not_fill_the_first() -> None:
    # The rest of the first record follows the second one on the same line.
    text = (
        "[2026-01-05 10:00:00 TP0] Decode batch, #running-req: 48, #tok"
        + PLAIN_DECODE.rstrip("\n")
        + "en: 6460, token usage: 0.06, cuda graph: False, gen throughput (token/s): 1.00, #queue-req: 32\n"
    )
    first, second = parse_log(text).decode
    assert (first.running_req, first.tokens, first.truncated) == (48, None, True)
    assert (second.running_req, second.queue_req, second.token_usage, second.truncated) == (7, None, 0.05, True)


def test_key_that_comes_again_belongs_to_another_record() -> None:
    record = only_decode(PLAIN_DECODE.replace("cuda graph", "token usage: 0.99, cuda graph"))
    assert (record.token_usage, record.cuda_graph, record.truncated) == (0.05, None, True)
    assert not record.extra
    record = only_decode(PLAIN_DECODE.replace("cuda graph", "new key: 1, new key: 2, cuda graph"))
    assert (record.extra, record.cuda_graph, record.truncated) == ({"new key": "1"}, None, True)


def test_text_behind_the_last_value_is_not_part_of_it() -> None:
    record = only_decode(PLAIN_DECODE.rstrip() + ' INFO:     127.0.0.1:1 - "POST /generate HTTP/1.1" 200 OK\n')
    assert record.queue_req == 2 and not record.truncated and not record.extra


@pytest.mark.parametrize("value", ["nan", "inf", "-inf"])
def test_value_that_is_no_number_stays_as_printed(value: str) -> None:
    record = only_decode(PLAIN_DECODE.replace("640.25", value))
    assert record.gen_tok_per_s is None
    assert record.extra == {"gen throughput (token/s)": value}
    assert record.queue_req == 2


@pytest.mark.parametrize("value", ["1_000", "+5", "٣", "9" * 30, "0x10", "7.5", "", "True"])
def test_malformed_whole_number_is_unknown(value: str) -> None:
    record = only_decode(PLAIN_DECODE.replace("#token: 900", f"#token: {value}"))
    assert record.tokens is None and record.running_req == 7


def test_marker_without_values_is_counted_not_returned() -> None:
    log = parse_log("[2026-01-05 10:00:00] Decode batch, ...\nDecode batch size is 5\nDecode batch\n")
    assert log.decode == () and log.counts.unparsed_batch_lines == 3


def test_new_key_of_a_later_version_is_kept() -> None:
    [record] = parse_log(PLAIN_PREFILL.replace("#pending-token: 0", "#warp-req: 3, moon phase: full")).prefill
    assert isinstance(record, PrefillRecord)
    assert record.extra == {"#warp-req": "3", "moon phase": "full"}
    assert record.input_tok_per_s == 1234.5
