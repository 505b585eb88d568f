"""Small tables built by hand, with the declared columns."""

from __future__ import annotations

from functools import lru_cache
from itertools import count
from pathlib import Path

import pandas as pd

from workbench.table import Tables, load_tables
from workbench.table.columns import REQUESTS, RUNS, WINDOWS, frame


def runs(*rows: dict[str, object]) -> pd.DataFrame:
    """Runs at concurrency 1 in one campaign and group, unless a row says otherwise."""
    common = {
        "campaign": "c",
        "baseline_group": "default",
        "prompt_set": "p",
        "max_concurrency": 1,
        "status": "ok",
        "origin": "recorded",
    }
    return frame(RUNS, [{"label": row["run_id"], **common, **row} for row in rows])


def baseline(run_id: str = "base", **values: object) -> dict[str, object]:
    return {"run_id": run_id, "role": "baseline", **values}


def speculative(run_id: str = "spec", **values: object) -> dict[str, object]:
    return {"run_id": run_id, "role": "speculative", "drafter": "d", **values}


def requests(*rows: dict[str, object]) -> pd.DataFrame:
    """Finished requests of run "spec", each of its own prompt, unless a row says otherwise."""
    number = count()
    common = {"campaign": "c", "run_id": "spec", "prompt_set": "p", "repeat": 0, "ok": True}
    return frame(REQUESTS, [{**common, "prompt_index": next(number), **row} for row in rows])


def timed(run_id: str, seconds: list[float], *, repeat: int = 0, tokens: int = 100) -> list[dict[str, object]]:
    """One pass: a request a prompt, each with as many tokens."""
    return [
        {
            "run_id": run_id,
            "prompt_index": index,
            "repeat": repeat,
            "completion_tokens": tokens,
            "latency_s": latency,
        }
        for index, latency in enumerate(seconds)
    ]


def windows(*rows: dict[str, object]) -> pd.DataFrame:
    """Decode lines in order; ``window_s`` follows from the other two."""
    common = {
        "campaign": "c",
        "run_id": "",
        "server_id": "s",
        "dp_rank": 0,
        "queue_req": 0,
        "opening": False,
        "idle": False,
    }
    lines = [{**common, "line": line, "offset": line, **row} for line, row in enumerate(rows, 1)]
    table = frame(WINDOWS, lines)
    table["window_s"] = table["window_tokens"] / table["gen_tok_per_s"]
    return table


@lru_cache
def recorded(campaign: str) -> Tables:
    """A campaign of data/recorded."""
    return load_tables(Path(__file__).parents[2] / "data" / "recorded" / campaign)
