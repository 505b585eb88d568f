from __future__ import annotations

from pathlib import Path

from workbench.launch.redaction import blank_out, hide, recorded_env, secret_values, shown_argv

ENV = {"HF_TOKEN": "hf_abcdefghijklmnop", "WANDB_API_KEY": "w-123456", "MAX_TOKENS": "1234567", "SHORT_TOKEN": "abc"}
ARGV = [
    "docker",
    "-e",
    "AWS_SECRET_ACCESS_KEY=aws/789",
    "--api-key",
    "k-999999",
    "--token=t-555555",
    "--max-total-tokens",
    "4096000",
]


def test_secrets_are_told_by_the_name_of_variable_or_flag() -> None:
    assert set(secret_values(ARGV, ENV)) == {"hf_abcdefghijklmnop", "w-123456", "aws/789", "k-999999", "t-555555"}
    assert secret_values([], {"A_TOKEN": "secret", "B_TOKEN": "secret-and-more"}) == ("secret-and-more", "secret")


def test_a_command_line_that_may_be_written_down() -> None:
    shown = ["docker", "-e", "AWS_SECRET_ACCESS_KEY=***", "--api-key", "***", "--token=***", "--max-total-tokens"]
    assert shown_argv(ARGV, ENV) == [*shown, "4096000"]
    assert shown_argv(["--x", "w-123456"], ENV) == ["--x", "***"]


def test_text_is_cleaned_of_values_and_of_tokens_nobody_named() -> None:
    assert hide("a k-999999 b hf_zyxwvutsrqponmlkj", ["k-999999"]) == "a *** b hf_***"


def test_only_variables_that_bear_on_speed_are_recorded() -> None:
    env = {"SGLANG_API_KEY": "s", "NCCL_P2P_DISABLE": "1", "CUDA_VISIBLE_DEVICES": "0", "HOME": "/root", **ENV}
    assert recorded_env(env) == {"CUDA_VISIBLE_DEVICES": "0", "NCCL_P2P_DISABLE": "1", "SGLANG_API_KEY": "***"}


def test_a_log_is_blanked_out_without_moving_a_byte(tmp_path: Path) -> None:
    log = tmp_path / "server.log"
    log.write_bytes(b"api_key='k-999999', x\nagain k-999999k-999999\nend\n")
    assert blank_out(log, ["k-999999", "absent"]) == 3
    assert log.read_bytes() == b"api_key='********', x\nagain ****************\nend\n"
    assert blank_out(tmp_path / "none", ["k-999999"]) == 0
    (tmp_path / "empty").touch()
    assert blank_out(tmp_path / "empty", ["k-999999"]) == 0
