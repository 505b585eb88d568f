from __future__ import annotations

import os
from pathlib import Path

import pytest
from run_folders import write_text

from workbench.launch.redaction import blank_out, hide, recorded_env, secret_values, shown_argv
from workbench.provenance import without_secrets
from workbench.spec import SECRET_FLAGS, is_secret_variable

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


def test_secrets_further_in_are_found_with_and_without_what_follows() -> None:
    argv = ["env", "--split-string=HF_TOKEN=hushhush12345 nice", "--env=DB_PASS='hush hush' x", "bash --token hush-3"]
    assert set(secret_values(argv, {})) == {
        *("hushhush12345 nice", "hushhush12345", "'hush hush' x", "hush hush", "hush-3")
    }
    assert shown_argv(argv) == ["env", "--split-string=HF_TOKEN=***", "--env=DB_PASS=***", "bash --token ***"]


@pytest.mark.parametrize("name", ["NGC_APIKEY", "DB_PASS", "SSH_PASSPHRASE", "GITLAB_PAT", "HF_TOKEN", "pass"])
def test_names_of_secrets(name: str) -> None:
    assert is_secret_variable(name)


@pytest.mark.parametrize("name", ["PATH", "BYPASS", "COMPASS", "NUM_PASSES", "CPAT", "LD_LIBRARY_PATH", "MAX_TOKENS"])
def test_names_of_what_is_none(name: str) -> None:
    assert not is_secret_variable(name)


@pytest.mark.parametrize(
    "spelled",
    [
        "k\\q'\"é<&/",
        r"""k\\q\'"é<&/""",  # repr
        r"""k\\q\'"\xe9<&/""",  # ascii
        r"""k\\q\'"\xc3\xa9<&/""",  # repr of its bytes
        r"""k\\q'\"é<&/""",  # JSON
        r"""k\\q'\"\u00e9<&/""",  # JSON in ASCII
        r"k\q&#x27;&quot;é&lt;&amp;/",
        r"k\q&#39;&#34;é&lt;&amp;/",
        r"""k\q'"é&lt;&amp;/""",
        "k%5Cq%27%22%C3%A9%3C%26/",
        "k%5Cq%27%22%C3%A9%3C%26%2F",
    ],
)
def test_a_secret_is_found_however_it_is_written(tmp_path: Path, spelled: str, monkeypatch: pytest.MonkeyPatch) -> None:
    secret = "k\\q'\"é<&/"
    log = write_text(tmp_path / "server.log", f"a {spelled} b")
    size = log.stat().st_size
    assert blank_out(log, [secret]) == 1
    assert log.read_bytes() == b"a " + b"*" * (size - 4) + b" b"
    assert hide(f"a {spelled} b", [secret]) == "a *** b"
    monkeypatch.setenv("WORKBENCH_API_KEY", secret)
    assert without_secrets(f"a {spelled} b") == "a *** b"


def test_a_secret_that_is_no_text_is_blanked_out(tmp_path: Path) -> None:
    log = tmp_path / "server.log"
    log.write_bytes(b"a hush\xff12 b")
    assert blank_out(log, [os.fsdecode(b"hush\xff12")]) == 1
    assert log.read_bytes() == b"a ******* b"


@pytest.mark.parametrize("name", sorted(SECRET_FLAGS - {"token"}))
def test_every_secret_flag_is_told_where_it_is_printed(name: str) -> None:
    assert without_secrets(f"ServerArgs({name}='hush', x)") == f"ServerArgs({name}='***', x)"
    assert without_secrets(f"--{name.replace('_', '-')} hush1") == f"--{name.replace('_', '-')} ***"


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
