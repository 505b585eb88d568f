from __future__ import annotations

from dataclasses import replace

import pytest
from diagnosis_logs import (
    READY,
    capacity,
    decode,
    diagnosed,
    only,
    plain,
    rules,
    said,
    server_args,
    speculative_args,
    started,
    summary,
)

from workbench.analysis.diagnosis import Certainty, diagnose
from workbench.table import summarise_log

DIES = {
    "oom": (
        said("torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB."),
        "ran out of memory",
        "--mem-fraction-static",
    ),
    "too little": (
        said("RuntimeError: Not enough memory. Please try to increase --mem-fraction-static."),
        "do not fit",
        "raise --mem-fraction-static",
    ),
    "nccl": (
        "[rank7]:[E226 11:16:37.17 ProcessGroupNCCL.cpp:616] [Rank 7] Watchdog caught collective operation timeout: "
        "WorkNCCL(SeqNum=91, OpType=ALLREDUCE, Timeout(ms)=600000) ran for 600077 milliseconds before timing out.",
        "collective between the GPUs",
        "NCCL_DEBUG=INFO",
    ),
    "watchdog": (
        said("Scheduler watchdog timeout (self.watchdog_timeout=300, self.soft=False)"),
        "stopped making progress",
        "stack dump",
    ),
    "child": (
        said("Received sigquit from a child process. It usually means the child failed.", tag=""),
        "child process",
        "traceback",
    ),
    "killed": (
        said("Rank 0 scheduler died during initialization (exit code: -9).", tag=""),
        "killed from outside",
        "dmesg",
    ),
}


@pytest.mark.parametrize("name", DIES)
def test_a_dead_server_is_named_first_with_its_line(name: str) -> None:
    line, title, action = DIES[name]
    diagnosis = diagnosed(*started(), decode(accept=1.0, rate=0.0), line)

    finding = diagnosis.findings[0]
    assert finding.rule == "server_died"
    assert finding.certainty is Certainty.CERTAIN
    assert title in finding.title
    assert action in finding.next_action
    assert finding.evidence[0].startswith("line 7: ")
    assert "(line 7)" in diagnosis.verdict
    assert diagnosis.certain_fault


def test_a_death_during_start_up_is_told_from_one_while_serving() -> None:
    oom = said("torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.")

    assert "during start-up" in diagnosed(speculative_args(), oom).verdict
    assert "while serving" in diagnosed(*plain(), decode(), oom).verdict


def test_the_known_cause_wins_over_its_consequence() -> None:
    diagnosis = diagnosed(
        speculative_args(),
        said(
            "Scheduler hit an exception: Traceback (most recent call last): ValueError: Warning: Target model's "
            "context_length (8192) is greater than the derived context_length (2048)."
        ),
        said("Received sigquit from a child process. It usually means the child failed.", tag=""),
    )

    finding = only(diagnosis, "server_died")
    assert "max_position_embeddings" in finding.title
    assert "--context-length" in finding.next_action
    assert [line.split(":")[0] for line in finding.evidence] == ["line 2", "line 3"]


def test_a_log_that_stops_before_ready_is_told_from_one_with_short_requests() -> None:
    early = only(diagnosed(server_args(), capacity()), "no_decode_lines")
    short = only(diagnosed(server_args(), READY), "no_decode_lines")

    assert "before the server was ready" in early.title
    assert "fired up" in early.next_action
    assert "no request lived long enough" in short.title
    assert "--decode-log-interval 10" in short.next_action
    assert "ready at line 2" in short.evidence[0]


def test_an_empty_log_says_that_it_is_empty() -> None:
    assert only(diagnosed(), "no_decode_lines").title == "No decode line in 0 lines: the log is empty"


@pytest.mark.parametrize("lines", [("hello",), ("total 12", "drwxr-xr-x 2 root root 4096 Nov 29 22:36 .")])
def test_a_text_that_is_no_server_log_says_what_to_look_for(lines: tuple[str, ...]) -> None:
    diagnosis = diagnosed(*lines)

    finding = only(diagnosis, "no_decode_lines")
    assert "does not look like the log" in finding.title
    assert "'Decode batch'" in finding.next_action
    assert diagnosis.verdict.startswith(f"Nothing to judge: no decode line in {len(lines)} line")


def test_vllm_metrics_give_acceptance_and_a_note() -> None:
    diagnosis = diagnosed(
        "(APIServer pid=1) INFO 05-18 11:19:44 [metrics.py:101] SpecDecoding metrics: Mean acceptance length: 2.40, "
        "Accepted throughput: 70.00 tokens/s, Drafted throughput: 150.00 tokens/s, Accepted: 700 tokens, "
        "Drafted: 1500 tokens, Per-position acceptance rate: 0.700, 0.450, 0.250, Avg Draft acceptance rate: 46.7%",
    )

    assert "2.40" in diagnosis.verdict
    assert diagnosis.verdict.startswith("vLLM log")
    assert rules(diagnosis) == ["vllm_log"]
    assert not diagnosis.certain_fault


def test_a_server_that_lives_is_not_declared_dead() -> None:
    assert "server_died" not in rules(diagnosed(*plain(), decode()))


def test_an_error_that_the_server_survived_is_only_suspected() -> None:
    line = "ValueError: a request asked for too much"
    diagnosis = diagnosed(*plain(), decode(), line, decode())

    finding = only(diagnosis, "server_died")
    assert finding.certainty is Certainty.SUSPECTED
    assert "went on" in finding.title
    assert not diagnosis.certain_fault


def test_a_bare_traceback_at_the_end_is_only_likely() -> None:
    assert only(diagnosed(*plain(), decode(), "ValueError: odd"), "server_died").certainty is Certainty.LIKELY


def test_failed_requests_are_counted() -> None:
    line = said('INFO:     127.0.0.1:43100 - "POST /generate HTTP/1.1" 400 Bad Request', tag="")
    finding = only(diagnosed(*plain(), decode(), line, line), "failed_requests")

    assert finding.title == "2 requests failed"
    assert not finding.is_fault


CUT = [
    said("Decode batch, #running-req: 1, #token: 403, token usage: 0.00, ac..."),
    said("Decode batch, #running-req: 1, #token: 403, token usage: 0.00, accept len: 1.9..."),
    decode(accept=1.0).replace("accept len: 1.00", "accept len: nan"),
    decode(accept=1.0).replace("accept len: 1.00", "accept len: " + "9" * 400),
]


@pytest.mark.parametrize("line", CUT, ids=["key", "number", "nan", "400 digits"])
def test_cut_lines_are_no_proof_of_a_plain_server(line: str) -> None:
    diagnosis = diagnosed(*[line] * 3)

    assert "baseline" not in diagnosis.verdict
    assert diagnosis.verdict.startswith(
        "Whether it speculates is not known: 3 of 3 decode lines are cut or unreadable; give the log"
    )


def test_cut_lines_of_a_speculative_server_leave_its_accept_length_open() -> None:
    assert diagnosed(*started(), CUT[0]).verdict.startswith("Accept length is not known: 1 of 1 decode line")


def test_a_whole_line_without_the_key_is_a_plain_servers() -> None:
    assert diagnosed(CUT[0], decode()).verdict.startswith("Healthy baseline: no speculation")


def test_two_starts_in_one_file_judge_the_last() -> None:
    wrong = started(speculative_args(speculative_algorithm="EAGLE"))
    lines = [*wrong, *[decode(accept=1.0)] * 3, *started(), *[decode(accept=2.5)] * 8]
    log = summarise_log(["".join(f"{line}\n" for line in lines).encode()], name="a.log", last_start_only=True)
    diagnosis = diagnose(log)

    # Five lines of start-up and three decode lines stand before.
    assert only(diagnosis, "several_starts").title == (
        "The log holds 2 server starts; only the last, from line 9, is judged"
    )
    assert "wrong_flag" not in rules(diagnosis)
    assert not diagnosis.certain_fault


def test_a_file_that_is_not_whole_is_copied_again_first() -> None:
    log = replace(summary(server_args()), incomplete="the gzip file is cut off: only the first 90 bytes are used")
    diagnosis = diagnose(log)

    assert only(diagnosis, "no_decode_lines").next_action.startswith("copy the file again")
    assert only(diagnosis, "incomplete_file").next_action.startswith("copy the file again")
    assert "fired up" not in only(diagnosis, "no_decode_lines").next_action
