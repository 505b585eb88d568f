from __future__ import annotations

from pathlib import Path
from typing import cast

import pytest
from run_folders import SPECULATIVE, write_campaign, write_run

from workbench.chat import Chat
from workbench.errors import InputError
from workbench.training.served import read_served


class FakeChat:
    """A prompt of three tokens, whatever it says."""

    def prompt_ids(self, messages: object) -> list[int]:
        return [7, 8, 9]


CHAT = cast(Chat, FakeChat())


def request(index: int, ids: list[int] | None, verify_ct: int | None = 2, **more: object) -> dict[str, object]:
    said: dict[str, object] = {"prompt_index": index, "repeat": 0, "prompt_tokens": 3, "output_ids": ids}
    return {**said, "completion_tokens": len(ids or ()), "spec_verify_ct": verify_ct, **more}


def run(folder: Path, requests: list[object], **spec: object) -> Path:
    campaign = write_campaign(folder / "c")
    workload = {"prompt_set": "mt_bench", "max_concurrency": 1, "temperature": 0.0}
    return write_run(campaign / "r", requests=requests, workload=workload, **spec)


def test_every_answer_once_and_the_server_s_accept_length(tmp_path: Path) -> None:
    rows: list[object] = [request(0, [1, 2, 3, 4, 5], 2), request(1, [1, 2, 3], 2), request(0, [1, 2, 3, 4, 5], 2)]
    served = read_served(run(tmp_path, rows, **SPECULATIVE), CHAT)
    assert [sample.ids.tolist() for sample in served.samples] == [[7, 8, 9, 1, 2, 3, 4, 5], [7, 8, 9, 1, 2, 3]]
    assert [sample.prompt for sample in served.samples] == [0, 1]
    # 4 and 2 tokens behind the prefill's, in 4 verify steps.
    assert (served.steps, served.accept_length, served.temperature) == (3, 1.5, 0.0)


def test_a_baseline_has_answers_alone(tmp_path: Path) -> None:
    served = read_served(run(tmp_path, [request(0, [1, 2, 3], None)]), CHAT)
    assert (served.steps, served.accept_length) == (None, None)


def test_a_run_without_token_ids(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no token ids"):
        read_served(run(tmp_path, [request(0, None)]), CHAT)


def test_prompts_of_another_target(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="prompt 0 has 3 tokens"):
        read_served(run(tmp_path, [request(0, [1, 2], prompt_tokens=5)]), CHAT)
