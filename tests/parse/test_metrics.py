from __future__ import annotations

import pytest

from workbench.parse.metrics import accept_length_between, counters_between, parse_metrics

BEFORE = """\
# HELP sglang:generation_tokens_total Number of generation tokens processed.
# TYPE sglang:generation_tokens_total counter
sglang:generation_tokens_total{model_name="m",dp_rank="0"} 100.0
sglang:num_requests_total{model_name="m",dp_rank="0"} 4.0
sglang:spec_verify_calls_total{model_name="m",dp_rank="0"} 40.0
sglang:gen_throughput{model_name="m"} 12.5
"""
AFTER = """\
sglang:generation_tokens_total{dp_rank="0",model_name="m"} 300.0
sglang:generation_tokens_total{dp_rank="1",model_name="m"} 110.0 1760000000000
sglang:num_requests_total{model_name="m",dp_rank="0"} 8.0
sglang:num_requests_total{model_name="m",dp_rank="1"} 6.0
sglang:spec_verify_calls_total{model_name="m",dp_rank="0"} 130.0
sglang:spec_verify_calls_total{model_name="m",dp_rank="1"} 60.0
"""


def test_accept_length_over_all_ranks() -> None:
    # Tokens 200 + 110, requests 4 + 6, verify calls 90 + 60: (310 - 10) / 150
    window = counters_between(BEFORE, AFTER)
    assert (window.generation_tokens, window.requests, window.verify_calls) == (310.0, 10.0, 150.0)
    assert accept_length_between(BEFORE, AFTER) == 2.0


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (AFTER, BEFORE),  # the server restarted
        (BEFORE, BEFORE),  # nothing happened
        (BEFORE + 'sglang:spec_verify_calls_total{dp_rank="7"} 1.0\n', AFTER),  # a rank is gone
        (BEFORE, AFTER.replace("spec_verify_calls_total", "other")),  # no speculation, or an older version
        (BEFORE, AFTER.replace("num_requests_total", "other")),
        ("", ""),
        (BEFORE, "not found"),
        (BEFORE, AFTER.replace("130.0", "NaN")),
    ],
)
def test_unknown_without_all_three_counters(before: str, after: str) -> None:
    assert accept_length_between(before, after) is None


def test_requests_from_the_latency_histogram() -> None:
    old = BEFORE.replace("num_requests_total", "e2e_request_latency_seconds_count")
    new = AFTER.replace("num_requests_total", "e2e_request_latency_seconds_count")
    assert accept_length_between(old, new) == 2.0


def test_counters_that_start_at_zero_need_no_first_reading() -> None:
    # 410 tokens, 14 requests, 190 verify calls
    assert accept_length_between("", AFTER) == pytest.approx((410 - 14) / 190)


def test_parse() -> None:
    read = parse_metrics('a{x="1",y="q\\"\\\\\\n"} 2\nb 3e2\nc{x=1} 4\nd nonsense\n\n# comment\nf +Inf\n')
    assert read.samples["a"] == {(("x", "1"), ("y", 'q"\\\n')): 2.0}
    assert read.total("b") == 300.0 and read.total("absent") is None
    assert read.unread_lines == 2
