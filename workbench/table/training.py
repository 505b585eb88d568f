"""A training folder as tables: what the log says on the way, and the walks at the end and beside it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd

from workbench.errors import InputError
from workbench.trained import MALFORMED, data_mix, evaluated_files, held_out_name, read_record, recipe

CURVE = {
    "step": "Int64",
    "epoch": "Int64",
    "response_tokens": "Int64",
    "loss": "float64",
    "gradient_norm": "float64",
    "learning_rate": "float64",
    "response_tokens_per_s": "float64",
    "mfu": "float64",
}
ACCURACY = {"response_tokens": "Int64", "depth": "Int64", "accuracy": "float64"}
WALKS = {
    "prompt_set": "str",
    "num_steps": "Int64",
    "accept_length": "float64",
    "low": "float64",
    "high": "float64",
    "without_repetitive": "float64",
    "survival": "float64",
    "num_prompts": "Int64",
    "repetitive_answers": "Int64",
}
_LARGEST_COUNT = 2.0**53


@dataclass(frozen=True, slots=True)
class Training:
    """One drafter's training.

    ``curve`` has a row a logged step, ``accuracy`` one for each of its depths (1: the first draft), ``walks`` one for
    each prompt set and number of steps. ``facts`` are names and values to show, ``record`` is training.json.
    """

    name: str
    record: Mapping[str, Any]
    facts: Mapping[str, object]
    curve: pd.DataFrame
    accuracy: pd.DataFrame
    walks: pd.DataFrame


def load_training(folder: Path) -> Training:
    """Read a training folder.

    Raises
    ------
    InputError
        When there is no finished training, or a file of it cannot be read.
    """
    try:
        return _training(folder, read_record(folder))
    except MALFORMED as error:
        what = f"no record of a training ({' '.join(str(error).split())})"
        raise InputError(what, where=folder, next_step="train it again with `workbench train`") from error


def _training(folder: Path, record: Mapping[str, Any]) -> Training:
    lines = [line for line in record.get("curve") or () if "loss" in line]
    held = record.get("held_out")
    named = [(held_out_name(record), held)] if held else []
    named += [(_asked(figures, path), figures) for path, figures in evaluated_files(folder)]
    return Training(
        name=str(record["name"]),
        record=record,
        facts=_facts(record),
        curve=_typed(({name: line.get(name) for name in CURVE} for line in lines), CURVE),
        accuracy=_typed((row for line in lines for row in _depths(line)), ACCURACY),
        walks=_typed((row for name, figures in named for row in _walk(name, figures)), WALKS),
    )


def _typed(rows: Iterator[dict[str, object]], columns: Mapping[str, str]) -> pd.DataFrame:
    held = list(rows)
    return pd.DataFrame({name: _column([row[name] for row in held], kind) for name, kind in columns.items()})


def _column(values: list[Any], kind: str) -> pd.Series:
    if kind == "Int64" and any(isinstance(value, int | float) and abs(value) > _LARGEST_COUNT for value in values):
        raise ValueError("a count that no training reaches")  # pandas would only warn, and make up a number
    return pd.Series(values, dtype=kind)


def _depths(line: Mapping[str, Any]) -> Iterator[dict[str, object]]:
    for depth, accuracy in enumerate(line.get("accuracy_by_pass") or (), 1):
        yield {"response_tokens": line["response_tokens"], "depth": depth, "accuracy": accuracy}


def _asked(figures: Mapping[str, Any], path: Path) -> str:
    return str((figures.get("asked") or {}).get("prompt_set") or path.stem.removeprefix("evaluated-"))


def _walk(name: str, figures: Mapping[str, Any]) -> Iterator[dict[str, object]]:
    varied = (figures.get("without_repetitive") or {}).get("accept_length") or {}
    survival = figures.get("survival") or []
    for steps, length in figures["accept_length"].items():
        low, high = (figures.get("interval_95") or {}).get(steps) or (None, None)
        yield {
            "prompt_set": name,
            "num_steps": int(steps),
            "accept_length": length,
            "low": low,
            "high": high,
            "without_repetitive": varied.get(steps),
            "survival": survival[int(steps)] if len(survival) > int(steps) else None,
            "num_prompts": figures.get("prompts"),
            "repetitive_answers": figures.get("repetitive_answers"),
        }


def _facts(record: Mapping[str, Any]) -> dict[str, object]:
    data, seen, machine = record["data"], record["seen"], record.get("machine") or {}
    speed = record.get("speed_of_this_process") or {}
    found = {
        "prompts": data["prompts"],
        "samples": data["samples"],
        "response tokens": data["response_tokens"],
        "response tokens seen": seen["response_tokens"],
        "optimizer steps": seen["optimizer_steps"],
        "epochs": round(seen["epochs"], 2),
        "seed": record["config"]["seed"],
        "draft vocabulary": record["draft_vocab_size"],
        "share of the responses' tokens in it": data.get("draft_vocab_coverage"),
        "trained weights": record.get("trainable_weights"),
        "data": data_mix(record),
        "recipe": recipe(record),
        "seconds": record.get("seconds"),
        "response tokens a second": speed.get("response_tokens_per_s"),
        "share of the device's peak (MFU)": speed.get("mfu"),
        "processes": record.get("processes"),
        "device": machine.get("device_name") or machine.get("device"),
        "PyTorch": machine.get("torch"),
    }
    return {name: value for name, value in found.items() if value is not None}
