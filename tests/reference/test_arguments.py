from __future__ import annotations

import pytest

from workbench.reference.arguments import parse_arguments

MODEL = ["--model-path", "m"]
EAGLE3 = [*MODEL, "--speculative-algorithm", "EAGLE3", "--speculative-draft-model-path", "d"]


def shape(argv: list[str]) -> tuple[int | None, int | None, int | None]:
    arguments, _ = parse_arguments([*EAGLE3, *argv])
    return (
        arguments.speculative_num_steps,
        arguments.speculative_eagle_topk,
        arguments.speculative_num_draft_tokens,
    )


def test_defaults() -> None:
    arguments, warnings = parse_arguments(MODEL)
    assert arguments.port == 30000
    assert arguments.decode_log_interval == 40
    assert arguments.tokenizer_path == arguments.served_model_name == "m"
    assert arguments.speculative_algorithm is arguments.speculative_num_steps is None
    assert warnings == []


def test_a_chain_gets_one_draft_token_more_than_steps_and_says_so_as_sglang_does() -> None:
    argv = ["--speculative-num-steps", "3", "--speculative-eagle-topk", "1", "--speculative-num-draft-tokens"]
    assert shape([*argv, "16"]) == (3, 1, 4)
    _, warnings = parse_arguments([*EAGLE3, *argv, "16"])
    name = "speculative_num_draft_tokens"
    assert warnings == [f"{name} is adjusted to speculative_num_steps + 1 when speculative_eagle_topk == 1"]
    assert parse_arguments([*EAGLE3, *argv, "4"])[1] == []


def test_trees_and_defaults_pass() -> None:
    tree = ["--speculative-num-steps", "4", "--speculative-eagle-topk", "4", "--speculative-num-draft-tokens", "12"]
    assert shape(tree) == (4, 4, 12)
    # SGLang's default for Llama targets.
    assert shape([]) == (5, 4, 8)


def test_old_and_lower_case_names_are_understood() -> None:
    arguments, _ = parse_arguments([*MODEL, "--speculative-algorithm", "nextn", "--speculative-draft-model", "d"])
    assert arguments.speculative_algorithm == "EAGLE"


def test_flags_of_other_engines_are_taken_and_named() -> None:
    argv = ["--mem-fraction-static", "0.5", "--disable-cuda-graph", "--cuda-graph-bs", "1", "2", "--tp", "1"]
    _, warnings = parse_arguments([*MODEL, *argv])
    assert sorted(warning.split()[0] for warning in warnings) == [
        "--cuda-graph-bs",
        "--disable-cuda-graph",
        "--mem-fraction-static",
    ]


def test_more_requests_at_once_become_one() -> None:
    arguments, warnings = parse_arguments([*MODEL, "--max-running-requests", "32"])
    assert arguments.max_running_requests == 1
    assert len(warnings) == 1
    assert warnings[0].startswith("max_running_requests 32 is adjusted to 1: ")


@pytest.mark.parametrize(
    ("argv", "named"),
    [
        ([], "--model-path"),
        ([*MODEL, "--no-such-flag", "1"], "--no-such-flag"),
        ([*MODEL, "--tp-size", "2"], "one device"),
        ([*MODEL, "--decode-log-interval", "0"], "below 1"),
        ([*MODEL, "--port", "70000"], "no port"),
        ([*MODEL, "--speculative-algorithm", "NGRAM"], "NGRAM"),
        ([*MODEL, "--speculative-algorithm", "EAGLE3"], "--speculative-draft-model-path"),
        ([*MODEL, "--speculative-num-steps", "3"], "--speculative-algorithm"),
        ([*EAGLE3, "--speculative-eagle-topk", "4"], "num_steps"),
        ([*EAGLE3, "--speculative-num-steps", "3"], "eagle_topk"),
        (
            [
                *EAGLE3,
                *("--speculative-num-steps", "1", "--speculative-eagle-topk", "4"),
                *("--speculative-num-draft-tokens", "6"),
            ],
            "offers 4 drafts",
        ),
    ],
)
def test_what_cannot_be_ends_with_2_and_a_reason(
    argv: list[str], named: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        parse_arguments(argv)
    assert ended.value.code == 2
    assert named in capsys.readouterr().err
