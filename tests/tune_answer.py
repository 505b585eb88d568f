"""What a search wrote, small and made up by hand: two loads, a chain, a tree that nobody measured, the baseline."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

CHAIN, TREE, BASE = "eagle3-d-s3-k1-n4", "eagle3-d-s5-k4-n16", "baseline-default"


def ranked(load: int, config: str, **values: Any) -> dict[str, Any]:
    ends = {"low": None, "high": None, "speedup": None, "ratio": None, "ratio_low": None, "ratio_high": None}
    return {"max_concurrency": load, "rank": None, "config": config, "accept_length": None, "visits": 0} | ends | values


def residual(config: str, load: int, measured: float, predicted: float | None, inside: bool | None) -> dict[str, Any]:
    error = None if predicted is None else predicted / measured - 1
    ends = (None, None) if predicted is None else (predicted * 0.8, predicted * 1.2)
    said = {"measured_tok_per_s": measured, "tok_per_s": predicted, "tok_per_s_low": ends[0], "tok_per_s_high": ends[1]}
    return {"config": config, "max_concurrency": load, "error": error, "inside": inside} | said


ANSWER: dict[str, Any] = {
    "campaign": "c",
    "written_at": "2026-11-30T10:00:00+00:00",
    "best": [
        {"load": 1, "config": CHAIN, "tok_per_s": 120.0, "low": 110.0, "high": 130.0, "speedup": 1.2}
        | {"state": "decided", "rivals": []},
        {"load": 8, "config": BASE, "tok_per_s": 800.0, "low": 780.0, "high": 820.0, "speedup": 1.0}
        | {"state": "undecided", "rivals": [TREE]},
    ],
    "one_for_all": {"config": CHAIN, "regret": {"1": 0.0, "8": 0.05}},
    "gpu_minutes": {"spent": 5.0, "full_grid_estimate": 20.0, "starts": 3},
    "next": {"config": TREE, "why": "it may be the fastest"},
    "commands": {CHAIN: "python -m sglang.launch_server --port 1", BASE: "python -m sglang.launch_server"},
    "adaptive": {"config": {"1": {"candidate_steps": [3]}}, "command": "python -m x --adaptive", "measured": False},
    "left_out": [{"config": "eagle-d", "load": None, "why": "wrong flag"}],
    "ranking": [
        ranked(1, CHAIN, rank=1, basis="measured", tok_per_s=120.0, low=110.0, high=130.0, speedup=1.2, ratio=1.0)
        | {"ratio_low": 1.0, "ratio_high": 1.0, "accept_length": 2.1, "visits": 2, "standing": "leader"},
        ranked(1, BASE, rank=2, basis="measured", tok_per_s=100.0, low=95.0, high=105.0, speedup=1.0, ratio=0.83)
        | {"ratio_low": 0.8, "ratio_high": 0.87, "visits": 2, "standing": "out"},
        ranked(1, TREE, basis="range", ratio_low=0.6, ratio_high=0.9, standing="out"),
        ranked(8, BASE, rank=1, basis="measured", tok_per_s=800.0, low=780.0, high=820.0, speedup=1.0, ratio=1.0)
        | {"ratio_low": 1.0, "ratio_high": 1.0, "visits": 2, "standing": "leader"},
        ranked(8, TREE, basis="predicted", tok_per_s=790.0, low=700.0, high=900.0, speedup=0.99, ratio=0.99)
        | {"ratio_low": 0.88, "ratio_high": 1.12, "accept_length": 2.5, "standing": "open"},
    ],
    "predicted": [],
    "residuals": [
        residual(CHAIN, 1, 120.0, 132.0, True),
        residual(CHAIN, 8, 760.0, 722.0, False),
        residual(TREE, 1, 90.0, None, None),
    ],
}


def write_answer(folder: Path, /, **changed: Any) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "tune.json").write_text(json.dumps(ANSWER | changed), encoding="utf-8")
    return folder
