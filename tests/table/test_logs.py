from __future__ import annotations

import pandas as pd
import pytest
from log_samples import N4_GRAPH, N5_NO_GRAPH, N16_GRAPH, PLAIN_DECODE, VLLM_SPEC, decode_line, recorded

from workbench.parse.records import EventKind, LogKind
from workbench.table.columns import WINDOWS, frame
from workbench.table.logs import MAX_EVENTS, LogSummary, log_figures, summarise_log

DIED = b"torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.\n"


def summary(*chunks: bytes) -> LogSummary:
    return summarise_log(chunks, name="a.log")


def test_a_recorded_log() -> None:
    # grep -c over the unpacked log: 479 lines, 309 decode lines.
    log = summarise_log([recorded("eagle-flag")], name="n", campaign="c", server_id="s")
    assert (log.name, log.kind, log.counts.lines, log.counts.decode) == ("n", LogKind.SGLANG, 479, 309)
    assert len(log.windows) == 309
    assert set(log.windows["campaign"]) == {"c"}
    assert set(log.windows["server_id"]) == {"s"}
    assert set(log.windows["run_id"]) == {""}
    assert list(log.windows.columns) == [column.name for column in WINDOWS]
    assert log.windows.dtypes.equals(frame(WINDOWS, []).dtypes)
    assert log.facts.server_args["speculative_algorithm"] == "EAGLE"


def test_the_borders_of_the_chunks_do_not_matter() -> None:
    data = recorded("sim25-s3")
    whole, pieces = summary(data), summary(*(data[k : k + 1013] for k in range(0, len(data), 1013)))
    pd.testing.assert_frame_equal(whole.windows, pieces.windows)
    assert whole.facts == pieces.facts


@pytest.mark.parametrize(
    ("data", "kind"),
    [
        (N4_GRAPH, LogKind.SGLANG),
        (VLLM_SPEC, LogKind.VLLM),
        (VLLM_SPEC + DIED, LogKind.VLLM),
        (DIED, LogKind.UNKNOWN),
        (b"", LogKind.UNKNOWN),
        (b"root:x:0:0:root:/root:/bin/bash\n", LogKind.UNKNOWN),
        (VLLM_SPEC + N4_GRAPH, LogKind.SGLANG),
        (b"[2026-01-05 10:00:00] The server is fired up and ready to roll!\n", LogKind.SGLANG),
    ],
)
def test_whose_log_it_is(data: bytes, kind: LogKind) -> None:
    assert summary(data).kind is kind


def test_events_are_kept_up_to_a_limit_and_counted_beyond() -> None:
    log = summary(DIED * (MAX_EVENTS + 5))
    assert (len(log.events), log.events_left_out) == (MAX_EVENTS, 5)
    assert log.events[0].kind is EventKind.OOM


# --- figures -----------------------------------------------------------------------------------------------------


def test_figures_of_the_three_lines_with_16_draft_tokens() -> None:
    # Accept length (2.15 + 2.12 + 2.05) / 3; speeds 66.89 and 64.25, the third is cut off.
    figures = log_figures(summary(N16_GRAPH).lines)
    assert figures["accept_length_log"] == pytest.approx(6.32 / 3)
    assert figures["accept_rate_printed"] == pytest.approx(0.13)
    assert figures["log_median_tok_per_s"] == pytest.approx((66.89 + 64.25) / 2)
    # 40 steps of 2.15 tokens at 66.89 tok/s, and 40 of 2.12 at 64.25
    seconds = 86.0 / 66.89 + 84.8 / 64.25
    assert figures["log_client_tok_per_s"] == pytest.approx(170.8 / seconds)
    assert (figures["cuda_graph"], figures["cuda_graph_share"]) == (True, 1.0)
    assert (figures["num_windows"], figures["num_truncated"], figures["num_idle_windows"]) == (3, 1, 0)


def test_figures_of_the_three_lines_without_graphs() -> None:
    figures = log_figures(summary(N5_NO_GRAPH).lines)
    assert figures["accept_length_log"] == pytest.approx((2.08 + 1.98 + 1.95) / 3)
    assert (figures["cuda_graph"], figures["cuda_graph_share"]) == (False, 0.0)
    assert figures["log_median_tok_per_s"] == pytest.approx((52.79 + 50.39) / 2)


def test_load_peaks() -> None:
    figures = log_figures(summary(N4_GRAPH).lines)
    assert (figures["peak_running_req"], figures["peak_queue_req"]) == (48, 32)
    assert figures["accept_length_log"] == pytest.approx(1.0)


def test_accept_length_is_weighted_by_running_requests() -> None:
    # 40 steps of 1 request and 40 of 3: (1 * 2.0 + 3 * 3.0) / 4
    few = decode_line(accept_len="2.00")
    many = decode_line(accept_len="3.00").replace("#running-req: 1", "#running-req: 3")
    assert log_figures(summary((few + many).encode()).lines)["accept_length_log"] == pytest.approx(2.75)


def test_the_share_of_lines_in_a_graph_counts_the_lines_that_say() -> None:
    on, off = decode_line(), decode_line().replace("cuda graph: True", "cuda graph: False")
    silent = decode_line().replace("cuda graph: True, ", "")
    figures = log_figures(summary((on * 3 + off + silent).encode()).lines)
    assert (figures["cuda_graph"], figures["cuda_graph_share"]) == (True, 0.75)
    silent_only = log_figures(summary(silent.encode()).lines)
    assert (silent_only["cuda_graph"], silent_only["cuda_graph_share"]) == (None, None)


def test_a_plain_server_has_no_acceptance() -> None:
    figures = log_figures(summary(PLAIN_DECODE.encode()).lines)
    assert figures["accept_length_log"] is None
    assert figures["accept_rate_printed"] is None
    assert figures["log_median_tok_per_s"] == 640.25


def test_data_parallel_speeds_are_added_up_and_tensor_parallel_ones_are_not() -> None:
    ranks = [" DP0 TP0", " DP0 TP1", " DP1 TP2", " DP1 TP3"]
    text = "".join(PLAIN_DECODE.replace(" TP0", rank) for rank in ranks * 3)
    figures = log_figures(summary(text.encode()).lines)
    assert figures["log_median_tok_per_s"] == 2 * 640.25
    assert figures["num_windows"] == 6


def test_idle_lines_are_left_out_of_speeds_and_counted() -> None:
    idle = decode_line().replace("101.50", "0.77")
    figures = log_figures(summary((idle + decode_line() * 3).encode()).lines)
    assert figures["log_median_tok_per_s"] == 101.5
    assert figures["log_client_tok_per_s"] == pytest.approx(101.5)
    assert (figures["num_windows"], figures["num_idle_windows"]) == (4, 1)


def test_figures_of_a_vllm_log() -> None:
    figures = log_figures(summary(VLLM_SPEC).lines)
    assert figures["accept_length_log"] == 2.25
    assert figures["accept_rate_printed"] == pytest.approx(0.417)
    assert figures["log_median_tok_per_s"] == 55.5
    assert figures["log_client_tok_per_s"] is None
    assert (figures["peak_running_req"], figures["peak_queue_req"], figures["cuda_graph"]) == (2, 1, None)


def test_no_line_no_figure() -> None:
    assert log_figures(summary(b"").lines) == {"num_windows": 0}
    torn = b"[2026-01-05 10:00:00 TP0] Decode batch, #running-req: 1, #token: 10, tok...\n"
    figures = log_figures(summary(torn).lines)
    assert (figures["num_windows"], figures["num_truncated"]) == (1, 1)
    assert (figures["log_median_tok_per_s"], figures["accept_length_log"]) == (None, None)
