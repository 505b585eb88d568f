"""A resident server: the embedded engine as a process that takes one shape after the other, over real HTTP."""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("torch", reason="the engine needs torch (extra: reference)")

import httpx
from engine_process import body
from tiny_models import draft_config, draft_tensors, target_config, target_tensors, write_model

from workbench.errors import LaunchError
from workbench.launch.resident import Resident
from workbench.parse.records import EventKind
from workbench.parse.server_log import parse_log

VOCAB = 8
PLAIN = ("--skip-tokenizer-init", "--decode-log-interval", "5")
pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("models")
    target, draft = target_config(vocab=VOCAB), draft_config(vocab=VOCAB, draft_vocab=VOCAB - 2)
    write_model(folder / "target", target, target_tensors(target, 3))
    write_model(folder / "other", target, target_tensors(target, 5))
    write_model(folder / "draft", draft, draft_tensors(draft, 4))
    wide = draft_config(vocab=VOCAB + 2, draft_vocab=VOCAB - 2)
    write_model(folder / "misfit", wide, draft_tensors(wide, 4))
    return folder


@pytest.fixture
def resident() -> Iterator[Resident]:
    with Resident() as held:
        yield held


class Shapes:
    """Serves one shape after the other, and keeps pid, answer and log of each."""

    def __init__(self, resident: Resident, models: Path, folder: Path) -> None:
        self.resident, self.models, self.folder = resident, models, folder
        self.logs: list[Path] = []
        self.phases: list[str] = []

    def serve(
        self, steps: int | None, *, target: str = "target", draft: str = "draft", env: dict[str, str] | None = None
    ) -> tuple[int | None, list[int]]:
        words = ["--model-path", str(self.models / target), *PLAIN]
        if steps is not None:
            words += ["--speculative-algorithm", "EAGLE3", "--speculative-draft-model-path", str(self.models / draft)]
            words += ["--speculative-num-steps", str(steps), "--speculative-eagle-topk", "1"]
            words += ["--speculative-num-draft-tokens", str(steps + 1)]
        log = self.folder / f"server-{len(self.logs)}.log"
        self.logs.append(log)
        with self.resident.serve(
            lambda port: [sys.executable, "-P", "-m", "workbench.reference", "--port", str(port), *words],
            env=env or {},
            log=log,
            ready_timeout_s=90,
            on_phase=self.phases.append,
            cwd=self.folder,
        ) as (server, argv):
            assert argv[-len(words) :] == words
            assert server.log == log
            reply = httpx.post(f"{server.url}/generate", json=body(20), timeout=60)
            return server.pid, list(reply.json()["output_ids"])

    def facts(self, place: int) -> tuple[int | None, int, int]:
        """Draft tokens, starts and decode lines that a log tells of."""
        parsed = parse_log(self.logs[place].read_bytes())
        starts = sum(event.kind is EventKind.SERVER_ARGS for event in parsed.events)
        return parsed.facts.draft_tokens_effective, starts, len(parsed.decode)


@pytest.fixture
def shapes(resident: Resident, models: Path, tmp_path: Path) -> Shapes:
    return Shapes(resident, models, tmp_path)


def test_one_process_serves_baseline_and_shapes_each_in_a_log_of_its_own(shapes: Shapes) -> None:
    served = [shapes.serve(steps) for steps in (None, 3, 1, None)]
    assert len({pid for pid, _ in served}) == 1
    # Greedy: speculation does not change what is answered.
    assert all(answer == served[0][1] for _, answer in served)
    assert [shapes.facts(place)[:2] for place in range(4)] == [(None, 1), (4, 1), (2, 1), (None, 1)]
    assert all(shapes.facts(place)[2] >= 1 for place in range(4))
    assert all("fired up and ready to roll" in log.read_text() for log in shapes.logs)
    assert shapes.phases.count("ready") == 4 and shapes.phases.count("stopped") == 0


@pytest.mark.parametrize(
    "change", [{"target": "other"}, {"env": {"SGLANG_SIMULATE_ACC_LEN": "2"}}], ids=["target", "environment"]
)
def test_what_stays_while_a_server_runs_needs_another_one(shapes: Shapes, change: dict[str, object]) -> None:
    before, _ = shapes.serve(3)
    after, _ = shapes.serve(3, **change)  # type: ignore[arg-type]
    assert before != after
    assert shapes.facts(1)[:2] == (4, 1)


def test_a_server_that_died_is_replaced(shapes: Shapes) -> None:
    before, _ = shapes.serve(1)
    assert before is not None
    os.kill(before, signal.SIGKILL)
    time.sleep(0.5)
    after, _ = shapes.serve(3)
    assert before != after


def test_a_shape_that_cannot_be_served_fails_as_a_start_of_its_own_and_the_next_one_works(shapes: Shapes) -> None:
    shapes.serve(1)
    with pytest.raises(LaunchError, match="vocab_size is 10, the target's is 8"):
        shapes.serve(1, draft="misfit")
    assert shapes.serve(3)[0] is not None


@pytest.mark.parametrize(
    "asked",
    [
        "no object",
        {"argv": "--help", "log": "{new}"},
        {"argv": ["--help"], "log": "{new}"},
        {"argv": ["--no-such-flag"], "log": "{new}"},
        {"argv": ["--model-path", "elsewhere"], "log": "{new}"},
        {"argv": [3], "log": "{new}"},
        {"argv": "{same}", "log": 3},
        {"argv": "{same}", "log": "a\0b"},
        {"argv": "{same}", "log": "{old}"},
        {"argv": "{same}", "log": "{folder}"},
        {"argv": "{same}", "log": "{folder}/none/new.log"},
    ],
)
def test_what_cannot_be_done_is_refused_and_changes_nothing(shapes: Shapes, asked: object) -> None:
    before, answer = shapes.serve(1)
    old, new = shapes.logs[0], shapes.folder / "asked.log"
    same = ["--model-path", str(shapes.models / "target"), *PLAIN]
    if isinstance(asked, dict):
        places = {"{new}": str(new), "{old}": str(old), "{folder}": str(shapes.folder)}
        log = asked["log"]
        for name, path in places.items():
            log = log.replace(name, path) if isinstance(log, str) else log
        asked = {"argv": same if asked["argv"] == "{same}" else asked["argv"], "log": log}
    text = old.read_bytes()
    url = next(line.split()[-5] for line in text.decode().splitlines() if "Uvicorn running" in line)
    assert httpx.post(f"{url}/reshape", json=asked, timeout=60).status_code == 400
    assert old.read_bytes().startswith(text) and not new.exists()
    assert httpx.post(f"{url}/generate", json=body(20), timeout=60).json()["output_ids"] == answer
    assert shapes.serve(3)[0] == before


def test_nothing_is_left_when_the_block_ends(models: Path, tmp_path: Path) -> None:
    with Resident() as resident:
        shapes = Shapes(resident, models, tmp_path)
        pid, _ = shapes.serve(1)
    assert pid is not None
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)
