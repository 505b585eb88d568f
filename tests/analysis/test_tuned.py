"""Sentences of the answer in tests/tune_answer.py."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from analysis.analysis_tables import runs
from tune_answer import ANSWER, BASE, CHAIN, TREE, write_answer

from workbench.analysis import tuned as search
from workbench.analysis.answers import Answer
from workbench.table.tuned import read_tuned

RUNS = runs({"run_id": "a", "role": "speculative", "origin": "measured"})


def answer(folder: Path, table: pd.DataFrame = RUNS, **changed: Any) -> Answer:
    found, problems = read_tuned(write_answer(folder, **changed))
    assert problems == []
    return search.tune_answer(found, table)


def best(number: int, **changed: Any) -> dict[str, Any]:
    return {**ANSWER["best"][number], **changed}


def test_the_first_sentence_says_what_to_use_where_and_what_it_buys(tmp_path: Path) -> None:
    assert answer(tmp_path).sentence == (
        f"Use {CHAIN} at 1 at once, 1.20x the baseline's speed; no speculation ({BASE}) at 8 at once. "
        "Undecided at 8 at once: others may be faster."
    )


def test_loads_with_one_answer_share_its_sentence(tmp_path: Path) -> None:
    both = [best(0), best(0, load=8, speedup=1.1, state="not confirmed")]
    said = answer(tmp_path, best=both).sentence
    assert said == (
        f"Use {CHAIN} at 1 and 8 at once, 1.20x and 1.10x the baseline's speed. Not confirmed by a second start at 8."
    )


def test_where_nothing_pays_that_is_the_answer(tmp_path: Path) -> None:
    said = answer(tmp_path, best=[best(1, state="decided", rivals=[])]).sentence
    assert said == f"Use no speculation ({BASE}) at 8 at once, where nothing that drafts is faster."


def test_what_carries_it(tmp_path: Path) -> None:
    said = answer(tmp_path)
    assert said.points == (
        f"At 8 at once {TREE} may be faster.",
        f"One configuration for all loads: {CHAIN}, which loses 0.0% at 1 and 5.0% at 8.",
        "The search took 5.0 GPU minutes in 3 starts; all 3 configurations with all passes would take about 20.0 "
        "(25%).",
        "Predicted as if it had not been measured, a configuration's speed is 7.5% off in the median and 10.0% at most "
        "(2 pairs); 1 of 2 lie within their 95 % interval.",
        "Left out: eagle-d, wrong flag",
    )
    assert said.actions == (f"`workbench tune` would go on with {TREE}: it may be the fastest.",)
    assert said.headline == {"best speedup": "1.20x at 1", "GPU minutes": "5.0", "of the full grid's": "25%"}


def test_simulated_acceptance_is_said_first(tmp_path: Path) -> None:
    forced = runs({"run_id": "a", "role": "speculative", "origin": "simulated"})
    assert answer(tmp_path, forced).points[0].startswith("Acceptance is simulated")


@pytest.mark.parametrize("found", [None, "empty"])
def test_without_a_search_the_page_says_how_to_make_one(tmp_path: Path, found: str | None) -> None:
    tuned = None if found is None else read_tuned(write_answer(tmp_path, best=[]))[0]
    assert search.tune_answer(tuned, RUNS) == Answer(search.NO_SEARCH)
    assert search.ranking_view(None).empty and search.residuals_view(None).empty and not search.commands(None)
    assert search.figures_of(None, "c").not_verified == (search.NO_SEARCH,)


def test_the_command_lines_say_what_they_are_for(tmp_path: Path) -> None:
    found, _ = read_tuned(write_answer(tmp_path))
    assert dict(search.commands(found)) == {
        "To serve 1 at once": "python -m sglang.launch_server --port 1",
        "To serve 8 at once": "python -m sglang.launch_server",
        "All loads by one server that changes its steps with the batch (not measured)": "python -m x --adaptive",
    }


def test_tables_show_every_configuration_and_every_pair(tmp_path: Path) -> None:
    found, _ = read_tuned(write_answer(tmp_path))
    ranking = search.ranking_view(found)
    assert ranking["configuration"].tolist() == [CHAIN, BASE, TREE, BASE, TREE]
    assert ranking["95 %"].tolist()[1] == "95.00\N{EN DASH}105"
    assert search.residuals_view(found)["predicted too high by"].tolist()[:2] == ["+10.0 %", "-5.0 %"]


def test_numbers_for_a_machine(tmp_path: Path) -> None:
    found, _ = read_tuned(write_answer(tmp_path))
    numbers = search.figures_of(found, "c")
    about = [(each["name"], each["value"], each.get("low"), each["max_concurrency"]) for each in numbers.figures]
    assert about == [
        ("decode_tok_per_s", 120.0, 110.0, 1),
        ("speedup", 1.2, None, 1),
        ("decode_tok_per_s", 800.0, 780.0, 8),
        ("speedup", 1.0, None, 8),
    ]
    assert numbers.not_verified == ("at 8: undecided",)
