"""Training folders as the trainer leaves them, without a trainer: only what campaigns and pages read."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

CONFIG: dict[str, Any] = {
    "name": "tiny",
    "target": "/models/smollm2-135m-instruct",
    "corpus": "data/corpora/mix",
    "seed": 4,
    "passes": 3,
    "tokens_per_step": 16384,
    "learning_rate": 4e-4,
    "epochs": 2.0,
    "steps": None,
    "minutes": None,
    "answers_per_prompt": None,
    "init_from": None,
}
HELD_OUT: dict[str, Any] = {
    "answers": 20,
    "prompts": 20,
    "tokens": 900,
    "accept_length": {"1": 1.5, "2": 1.75, "3": 1.8},
    "interval_95": {"1": [1.4, 1.6], "2": [1.6, 1.9], "3": [1.7, 1.9]},
    "survival": [1.0, 0.5, 0.25, 0.05],
    "accuracy_by_pass": [0.5, 0.4, 0.2],
    "repetitive_answers": 2,
    "without_repetitive": {"below_distinct_4": 0.5, "accept_length": {"1": 1.4, "2": 1.6, "3": 1.65}},
    "by_task": {},
}
LINES = [
    {
        "step": step,
        "epoch": 0,
        "response_tokens": 1000 * step,
        "loss": 6.0 - step,
        "accuracy_by_pass": [0.1 * step, 0.05 * step, 0.02 * step],
        "gradient_norm": 1.0,
        "learning_rate": 4e-4,
        "response_tokens_per_s": 2000.0,
        "mfu": None,
    }
    for step in (1, 2, 3, 4)
]


def record(**changes: Any) -> dict[str, Any]:
    """training.json; ``changes`` go into its config, or replace a part that has their name."""
    content: dict[str, Any] = {
        "name": "tiny",
        "config": CONFIG,
        "data": {
            "samples": 500,
            "prompts": 480,
            "response_tokens": 62063,
            "draft_vocab_coverage": 0.97,
            "corpus": {
                "digest": "00aa11bb22cc33dd",
                "prompt_set": {"name": "training_mix"},
                "target": "smollm2-135m-instruct",
                "temperature": 0.7,
                "max_new_tokens": 256,
            },
        },
        "seen": {"optimizer_steps": 831, "epochs": 2.0, "samples": 1000, "response_tokens": 124126},
        "draft_vocab_size": 16384,
        "trainable_weights": 14526720,
        "seconds": 60.0,
        "processes": 1,
        "machine": {"device": "cpu", "device_name": "a processor", "torch": "2.9"},
        "speed_of_this_process": {"response_tokens_per_s": 2000.0, "mfu": None},
        "held_out": HELD_OUT,
        "curve": LINES,
    }
    own = {name: value for name, value in changes.items() if name in content}
    config = {name: value for name, value in changes.items() if name not in content}
    return {**content, "config": {**CONFIG, **config}, **own}


def write_training(folder: Path, **changes: Any) -> Path:
    folder.mkdir(parents=True)
    (folder / "training.json").write_text(json.dumps(record(**changes)))
    return folder


def write_walk(folder: Path, prompt_set: str, number: int, *, max_new_tokens: int = 8, lengths: Any = None) -> Path:
    """The figures of a walk along greedy answers to the first prompts of a set."""
    asked = {"prompt_set": prompt_set, "num_prompts": number, "max_new_tokens": max_new_tokens, "temperature": 0.0}
    figures = {"asked": asked, **HELD_OUT, "accept_length": lengths or {"1": 1.4, "3": 1.7}}
    path = folder / f"evaluated-{prompt_set}-{number}.json"
    path.write_text(json.dumps(figures))
    return path
