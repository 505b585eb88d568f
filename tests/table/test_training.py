from __future__ import annotations

from pathlib import Path

import pytest
from training_records import write_training, write_walk

from workbench.errors import InputError
from workbench.table.training import load_training


def test_a_training_folder_as_tables(tmp_path: Path) -> None:
    folder = write_training(tmp_path / "run")
    write_walk(folder, "mt_bench", 6, lengths={"1": 1.25, "3": 1.5})
    training = load_training(folder)
    assert training.curve["loss"].tolist() == [5.0, 4.0, 3.0, 2.0]
    assert training.curve["response_tokens"].tolist() == [1000, 2000, 3000, 4000]
    assert training.curve["mfu"].isna().all()
    assert training.accuracy[training.accuracy["depth"] == 2]["accuracy"].tolist() == [
        0.05,
        0.1,
        0.15000000000000002,
        0.2,
    ]
    assert training.walks[["prompt_set", "num_steps", "accept_length", "survival"]].to_numpy().tolist() == [
        ["training_mix, held out, sampled answers", 1, 1.5, 0.5],
        ["training_mix, held out, sampled answers", 2, 1.75, 0.25],
        ["training_mix, held out, sampled answers", 3, 1.8, 0.05],
        ["mt_bench", 1, 1.25, 0.5],
        ["mt_bench", 3, 1.5, 0.05],
    ]
    assert (training.facts["samples"], training.facts["epochs"]) == (500, 2.0)
    assert "share of the device's peak (MFU)" not in training.facts


def test_a_training_without_log_and_held_out_prompts(tmp_path: Path) -> None:
    training = load_training(write_training(tmp_path / "run", held_out=None, curve=[]))
    assert training.curve.empty and training.accuracy.empty and training.walks.empty
    # What was judged on the way has no loss and is no step of the curve.
    judged = [{"step": 2, "held_out_accept_length": {"1": 1.1}}]
    assert load_training(write_training(tmp_path / "other", curve=judged)).curve.empty


def test_no_training(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no record of a training"):
        load_training(tmp_path)
