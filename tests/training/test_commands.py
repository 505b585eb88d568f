from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("torch", reason="training needs torch (extra: reference)")

from training_files import config_for, greedy_samples, tiny_target, write_corpus

from workbench import cli

LIGHT = ("pandas", "matplotlib", "papermill", "nbconvert", "aiohttp", "psutil", "pyarrow", "scipy", "jupyter_client")
"""What a GPU node need not have."""


@pytest.fixture
def config(tmp_path: Path) -> Path:
    target = tiny_target(tmp_path / "target")
    write_corpus(tmp_path / "corpus", greedy_samples(target, 8))
    path = tmp_path / "config.yaml"
    path.write_text(json.dumps(config_for(tmp_path, steps=2).model_dump(mode="json")))
    return path


def test_training_and_evaluating(config: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["train", str(config), "--set", "seed=1"]) == 0
    assert "2 steps" in capsys.readouterr().err
    # Finished is finished.
    assert cli.main(["train", str(config)]) == 2
    out = tmp_path / "figures.json"
    target, corpus = str(tmp_path / "target"), str(tmp_path / "corpus")
    evaluate = ["evaluate", str(tmp_path / "draft"), "--target", target, "--answers", corpus, "--steps", "3"]
    assert cli.main([*evaluate, "--device", "cpu", "--out", str(out)]) == 0
    assert "accept length" in capsys.readouterr().out
    assert set(json.loads(out.read_text())["accept_length"]) == {"1", "2", "3"}
    assert cli.main(["evaluate", str(tmp_path / "draft"), "--target", target]) == 2
    assert "--answers, --prompts and --served" in capsys.readouterr().err


@pytest.mark.slow
def test_both_run_where_only_torch_and_small_packages_are(config: Path, tmp_path: Path) -> None:
    block = f"import sys; sys.modules.update(dict.fromkeys({LIGHT!r}))"
    code = (
        f"{block}; from workbench import cli; sys.exit("
        f"cli.main(['train', {str(config)!r}, '--quiet']) or "
        f"cli.main(['evaluate', {str(tmp_path / 'draft')!r}, '--target', {str(tmp_path / 'target')!r}, "
        f"'--answers', {str(tmp_path / 'corpus')!r}, '--device', 'cpu', '--quiet']))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
