"""Texts as servers, Python, docker and ssh print them; the cause is read by hand."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from workbench.errors import LaunchError
from workbench.launch.failure import MAX_LINE, MAX_LINES, describe_exit, explain, is_fatal

RECORDED = Path(__file__).parent.parent / "fixtures" / "launch"
"""The ends of logs of SGLang 0.5.14 on one H200, paths replaced."""

TRACEBACK = 'Traceback (most recent call last):\n  File "scheduler.py", line 3011, in run_scheduler_process\n'
SIGQUIT = "[2026-11-29 21:00:37] Received sigquit from a child process. It usually means the child failed.\n"


@pytest.mark.parametrize(
    ("text", "exit_code", "kind", "said"),
    [
        (
            f"[2026-11-29 21:00:37 TP0] Scheduler hit an exception: {TRACEBACK}"
            "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 20.00 GiB.\n\n" + SIGQUIT,
            -9,
            "oom",
            "the GPU ran out of memory: torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 20.00 GiB.",
        ),
        (
            f"{TRACEBACK}RuntimeError: Not enough memory. Please try to increase --mem-fraction-static.\n{SIGQUIT}",
            1,
            "oom",
            "no GPU memory is left for the KV cache after the weights: "
            "Not enough memory. Please try to increase --mem-fraction-static.",
        ),
        # A rank that runs out of memory makes the others wait until NCCL gives up: the first message is the root.
        (
            "[2026-11-29 21:00:37 TP3] torch.OutOfMemoryError: CUDA out of memory.\n"
            "[rank1]:[E226 11:16:37.170 ProcessGroupNCCL.cpp:616] [Rank 1] Watchdog caught collective operation "
            "timeout: WorkNCCL(SeqNum=7, OpType=ALLREDUCE)\n",
            1,
            "oom",
            "the GPU ran out of memory: torch.OutOfMemoryError: CUDA out of memory.",
        ),
        (
            f"{TRACEBACK}torch.distributed.DistBackendError: NCCL error in: NCCLUtils.cpp:77, unhandled system error\n",
            1,
            "nccl",
            "the GPUs could not talk to each other (NCCL): "
            "torch.distributed.DistBackendError: NCCL error in: NCCLUtils.cpp:77, unhandled system error",
        ),
        (
            "[2026-11-29 21:00:37] ERROR:    [Errno 98] error while attempting to bind on address "
            "('127.0.0.1', 30000): address already in use\n",
            1,
            "port",
            "a port that the server needs is taken: ERROR:    [Errno 98] error while attempting to bind on address "
            "('127.0.0.1', 30000): address already in use",
        ),
        (
            f"{TRACEBACK}ValueError: dist_init_port at 30233 is not available in 30 seconds. \n",
            1,
            "port",
            "needs is taken: ValueError: dist_init_port at 30233 is not available in 30 seconds.",
        ),
        (
            "usage: launch_server.py [-h] --model-path MODEL_PATH\n"
            "launch_server.py: error: unrecognized arguments: --speculative-num-step 3\n",
            2,
            "bad_flag",
            "the server refused its command line: unrecognized arguments: --speculative-num-step 3",
        ),
        (
            "usage: python -m workbench.reference [-h]\n"
            "python -m workbench.reference: error: argument --port: invalid int value: 'x'\n",
            2,
            "bad_flag",
            "the server refused its command line: argument --port: invalid int value: 'x'",
        ),
        (
            f"{TRACEBACK}OSError: /models/absent does not appear to have a file named config.json.\n",
            1,
            "missing_file",
            "something that the server needs is not there: "
            "OSError: /models/absent does not appear to have a file named config.json.",
        ),
        (
            "/usr/bin/python3: Error while finding module specification for 'sglang.launch_server' "
            "(ModuleNotFoundError: No module named 'sglang')\n",
            1,
            "missing_file",
            "something that the server needs is not there: /usr/bin/python3: Error while finding module specification "
            "for 'sglang.launch_server' (ModuleNotFoundError: No module named 'sglang')",
        ),
        ("bash: line 1: python3: command not found\n", 127, "missing_file", "bash: line 1: python3: command not found"),
        # A missing file that is only mentioned on the way is not the cause.
        (
            "[2026-11-29 21:00:13] tuning file not found: No such file or directory: 'x.json'\n"
            f"[2026-11-29 21:00:14] hit an exception: {TRACEBACK}ValueError: unsupported head size 7\n{SIGQUIT}",
            -9,
            "child_death",
            "a process of the server died: ValueError: unsupported head size 7",
        ),
        (
            "[2026-11-29 21:00:37] Rank 0 scheduler died during initialization (exit code: -9). If exit code is -9\n",
            1,
            "child_death",
            "a process of the server died: "
            "Rank 0 scheduler died during initialization (exit code: -9). If exit code is -9",
        ),
        (
            f"{TRACEBACK}AssertionError\n",
            1,
            "unknown",
            "the server ended (exit code 1): AssertionError",
        ),
        (
            "ssh: connect to host node7 port 22: Connection timed out\n",
            255,
            "unknown",
            "ssh: connect to host node7 port 22: Connection timed out",
        ),
        ("", 1, "unknown", "the server ended (exit code 1)"),
        ("[2026-11-29 21:00:37] Load weight begin.\n", -9, "unknown", "the server ended (killed by SIGKILL)"),
    ],
)
def test_the_cause_is_named(text: str, exit_code: int, kind: str, said: str) -> None:
    failure = explain(text, exit_code)
    assert failure.kind == kind
    assert failure.sentence.endswith(said)
    assert failure.next_step


def test_a_draft_of_two_captured_layers() -> None:
    """Sixty lines lie between the fault and the end, and the last exception advises to lower the memory fraction."""
    failure = explain((RECORDED / "draft_of_two_layers.log").read_bytes(), -9)
    assert failure.kind == "draft"
    assert failure.sentence == (
        "the draft's fc takes another number of captured layers than arrive; SGLang before 0.5.15 needs three, or "
        "num_aux_hidden_states in the target's config.json: "
        "RuntimeError: mat1 and mat2 shapes cannot be multiplied (64x21504 and 14336x7168)"
    )
    assert "workbench check" in failure.next_step


def test_a_product_of_wrong_shapes_elsewhere_is_not_the_draft_s() -> None:
    text = f"{TRACEBACK}    x = self.mlp(x)\nRuntimeError: mat1 and mat2 shapes cannot be multiplied (1x2 and 3x4)\n"
    assert explain(text + SIGQUIT, -9).kind == "child_death"


def test_no_room_for_the_draft_s_keys_and_values() -> None:
    failure = explain((RECORDED / "draft_cache.log").read_bytes(), -9)
    assert failure.kind == "oom"
    assert failure.sentence.startswith(
        "the draft's keys and values do not fit: cap max-total-tokens in server.flags, or lower mem_fraction_static: "
        "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 57.34 GiB. "
    )
    assert any("init_memory_pools" in line for line in failure.tail)


def test_an_exit_code_of_two_alone_is_no_bad_flag() -> None:
    assert explain("srun: error: node7: task 0: Killed\n", 1).kind == "unknown"
    assert explain("nothing that argparse says\n", 2).kind == "unknown"


def test_too_long_is_too_long_only_while_the_server_lives() -> None:
    failure = explain("[2026-11-29 21:00:37] Load weight begin.\n", None, waited_s=90.0, note="it was still loading")
    assert (failure.kind, failure.sentence) == (
        "timeout",
        "the server was not ready within 90 s; it was still loading",
    )
    assert explain("", 3, waited_s=90.0).sentence == "the server ended (exit code 3)"
    assert explain(SIGQUIT, None, waited_s=90.0).kind == "child_death"


def test_the_tail_shows_the_cause_and_the_end() -> None:
    lines = [f"line {i}" for i in range(200)]
    lines[50] = "torch.OutOfMemoryError: CUDA out of memory."
    lines[199] = "x" * 1000
    tail = explain("\n".join(lines), 1).tail
    assert len(tail) == MAX_LINES
    assert tail[0] == "line 45" and tail[5] == lines[50] and tail[19] == "..."
    assert tail[20] == "line 180" and tail[-2] == "line 198"
    assert len(tail[-1]) == MAX_LINE and tail[-1].endswith("x...")
    near = explain("\n".join(lines[:70]), 1).tail
    assert near == tuple(lines[30:70])


def test_progress_bars_and_colours_leave_one_plain_line() -> None:
    text = b"Loading: 0%\rLoading: 50%\rLoading: 100%\n\x1b[31mValueError: red\x1b[0m\n\xff\xfe broken\n"
    assert explain(text, 1).tail == ("Loading: 100%", "ValueError: red", "\ufffd\ufffd broken")


def test_secrets_are_not_repeated() -> None:
    failure = explain("ValueError: bad key s3cr3t-value for hf_abcdefghijklmnopqrst\n", 1, secrets=("s3cr3t-value",))
    assert failure.sentence == "the server ended (exit code 1): ValueError: bad key *** for hf_***"
    assert failure.tail == ("ValueError: bad key *** for hf_***",)


def test_the_error_carries_cause_place_and_lines() -> None:
    error = explain("launch_server.py: error: no\n", 2).error("server.log")
    assert isinstance(error, LaunchError)
    assert (error.exit_code, error.kind, error.tail) == (6, "bad_flag", ("launch_server.py: error: no",))
    assert str(error).splitlines() == [
        "server.log: the server refused its command line: no",
        "  -> check the flag, and sglang_version in the campaign: flags are spelled by version",
        "  | launch_server.py: error: no",
    ]


def test_exit_codes_in_words() -> None:
    assert describe_exit(1) == "exit code 1"
    assert describe_exit(-signal.SIGSEGV) == "killed by SIGSEGV"
    assert describe_exit(137) == "exit code 137, which is SIGKILL"
    assert describe_exit(-200) == "killed by signal 200"


def test_what_can_still_turn_out_well_is_not_fatal() -> None:
    assert is_fatal(SIGQUIT)
    assert is_fatal("torch.OutOfMemoryError: CUDA out of memory.")
    assert is_fatal("Scheduler hit an exception: Traceback")
    assert not is_fatal("NCCL WARN Missing ibv_fork")
    assert not is_fatal("ImportError: cannot import name 'fa3'")
    assert not is_fatal("Custom allreduce is disabled because it's not supported")
