from __future__ import annotations

import pytest

from workbench.table.logs import LogSummary, summarise_log

T = "[2026-02-23 17:30:43]"
EAGLE = f"{T} server_args=ServerArgs(model_path='m', speculative_algorithm='EAGLE', speculative_num_steps=3)"
EAGLE3 = EAGLE.replace("'EAGLE'", "'EAGLE3'")
WEIGHTS = f"{T} Load weight end. elapsed=0.49 s, type=LlamaForCausalLM, dtype=bfloat16, mem usage=0.27 GB."
READY = f"{T} The server is fired up and ready to roll!"
RESET = f"{T} Max running requests is reset to 48 for speculative decoding."


def decode(accept: float) -> str:
    return (
        f"{T} Decode batch, #running-req: 1, #token: 300, token usage: 0.01, accept len: {accept:.2f}, "
        "cuda graph: True, gen throughput (token/s): 60.00, #queue-req: 0"
    )


def summary(*lines: str, last_start_only: bool = True) -> LogSummary:
    return summarise_log(
        ["".join(f"{line}\n" for line in lines).encode()], name="a.log", last_start_only=last_start_only
    )


TWO = (EAGLE, WEIGHTS, READY, decode(1.0), "OSError: gone", EAGLE3, WEIGHTS, READY, decode(2.5), decode(2.7))


def test_only_the_last_start_is_told_of() -> None:
    log = summary(*TWO)

    assert (log.starts_before, log.first_line) == (1, 6)
    assert log.facts.server_args["speculative_algorithm"] == "EAGLE3"
    assert log.facts.server_args_line == 6
    assert len(log.facts.weights) == 1
    assert list(log.windows["accept_len"]) == [2.5, 2.7]
    assert [event.line for event in log.events] == [6, 7, 8]
    # Ten lines in all, five of them before; two of the three decode lines.
    assert (log.counts.lines, log.counts.decode) == (5, 2)


def test_a_campaign_keeps_the_windows_of_all_starts() -> None:
    log = summary(*TWO, last_start_only=False)

    assert list(log.windows["accept_len"]) == [1.0, 2.5, 2.7]
    assert log.facts.server_args["speculative_algorithm"] == "EAGLE"
    assert (log.starts_before, log.first_line, log.counts.lines) == (0, 1, 10)


def test_adjustments_before_the_arguments_belong_to_the_new_start() -> None:
    log = summary(EAGLE, WEIGHTS, READY, decode(1.0), RESET, EAGLE3, WEIGHTS, READY)

    assert log.facts.max_running_requests == 48
    assert log.first_line == 6


def test_a_start_whose_arguments_are_missing_shows_in_its_weights() -> None:
    log = summary(WEIGHTS, READY, decode(1.0), WEIGHTS, READY, decode(2.5))

    assert (log.starts_before, log.first_line) == (1, 4)
    assert list(log.windows["accept_len"]) == [2.5]


@pytest.mark.parametrize(
    "lines",
    [
        (EAGLE, WEIGHTS, WEIGHTS, READY, decode(2.0)),
        ("ImportError: odd", RESET, EAGLE, WEIGHTS, READY),
        (EAGLE, EAGLE, WEIGHTS, READY),
        (EAGLE[:-1] + ", node_rank=0)", WEIGHTS, EAGLE[:-1] + ", node_rank=1)", WEIGHTS, READY),
        (),
    ],
    ids=["one", "noise before", "printed twice", "two nodes", "empty"],
)
def test_one_start_is_one(lines: tuple[str, ...]) -> None:
    log = summary(*lines)
    assert (log.starts_before, log.first_line) == (0, 1)
