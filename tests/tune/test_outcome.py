"""The answers: ranking, regret, price, SGLang's adaptive file."""

from __future__ import annotations

import pytest

from workbench.table.tuned import NOT_CONFIRMED, UNDECIDED
from workbench.tune.outcome import (
    adaptive_config,
    best_by_load,
    full_grid_s,
    one_for_all,
    ranking_df,
    ranking_text,
    summary,
)
from workbench.tune.plan import position
from workbench.tune.state import Config, State, Visit

BASE = Config("baseline")
CHAINS = {steps: Config(f"s{steps}", drafter="d", steps=steps, draft_tokens=steps + 1) for steps in (1, 3)}
TREE = Config("tree", drafter="d", steps=3, topk=4, draft_tokens=8)
# tok/s at 1, 8 and 32 at once: the tree leads at 1, the short chain at 8, nobody drafts at 32. They are base x L / R,
# with R = 0.9 + 0.1 steps + c draft tokens and c = 0.02, 0.1, 0.45: more work takes longer at any load.
LENGTHS = {"baseline": None, "s1": 1.75, "s3": 2.2, "tree": 2.7}
SPEEDS = {
    "baseline": (100.0, 700.0, 2000.0),
    "s1": (168.0, 1021.0, 1842.0),
    "s3": (172.0, 962.0, 1467.0),
    "tree": (198.0, 945.0, 1125.0),
}
LOADS = (1, 8, 32)
COUNTS = {prompt: (2.0, 3.0, 5.0, 7.0) for prompt in range(12)}


def measured(*names: str) -> State:
    visits = [
        Visit(name, load, (speed, speed), LENGTHS[name], {}, pass_s=4.0, start=name, at=name)
        for name in names
        for load, speed in zip(LOADS, SPEEDS[name], strict=True)
    ]
    return State((BASE, *CHAINS.values(), TREE), LOADS, tuple(visits), start_s=dict.fromkeys(names, 84.0))


def test_the_best_of_each_load_and_what_one_for_all_loses() -> None:
    state = measured(*SPEEDS)
    at = position(state)
    best = best_by_load(state, at)
    assert [(each.load, each.config, each.measured_tok_per_s) for each in best] == [
        (1, "tree", pytest.approx(198.0)),
        (8, "s1", pytest.approx(1021.0)),
        (32, "baseline", pytest.approx(2000.0)),
    ]
    # The other shapes agree, so that what they say moves little.
    assert [each.tok_per_s for each in best] == pytest.approx([198.0, 1021.0, 2000.0], rel=0.04)
    assert [each.speedup for each in best] == pytest.approx([1.98, 1021 / 700, 1.0], rel=0.04)
    # One start each: at 8 the tree lies 5 % behind, which two starts may differ by.
    assert [each.state for each in best] == [NOT_CONFIRMED, UNDECIDED, NOT_CONFIRMED]
    single = one_for_all(at)
    assert single is not None
    # s1 loses 15 % at 1 and 8 % at 32; the baseline would lose half at 1, s3 27 % at 32.
    assert single.config == "s1" and single.regret == pytest.approx({1: 30 / 198, 8: 0.0, 32: 158 / 2000}, abs=0.04)


def test_the_ranking_holds_every_configuration_at_every_load() -> None:
    state = measured("baseline", "s3")
    ranking = ranking_df(state, position(state))
    assert len(ranking) == 4 * 3
    first = ranking[ranking["max_concurrency"] == 1].set_index("config")
    assert first.loc["s3", ["rank", "standing"]].tolist() == [1, "leader"]
    assert first.loc["baseline", "ratio"] == pytest.approx(100 / 172, rel=0.01)
    assert first.loc[["baseline", "s3"], "measured_tok_per_s"].tolist() == pytest.approx([100, 172])
    assert first.loc["baseline", "standing"] == "out"
    assert first.loc["tree", "basis"] == "not predicted"
    text = ranking_text(ranking, shown=3)
    assert text.count("at once:") == 3 and "  and 1 more, in tune.json" in text


def test_the_price_of_the_grid_follows_from_the_mean_start_and_pass() -> None:
    state = measured("baseline", "s3")
    # 84 s a start, of which 3 loads x 2 passes x 4 s are passes: 60 s are fixed. 4 configurations, one of them twice.
    assert full_grid_s(state, passes=5) == pytest.approx(5 * (60 + 5 * 3 * 4))
    said = summary(state, position(state), 5, gpus=8)
    assert said[-1] == "Spent: 22.4 GPU minutes in 2 starts; the full grid of 4 would take about 80.0 (28%)."
    assert full_grid_s(State((BASE,), (1,)), passes=5) is None


def test_the_adaptive_file_has_the_best_chain_of_each_batch_size_and_0_where_none_pays() -> None:
    state = measured(*SPEEDS)
    found = adaptive_config(state, position(state))
    assert found is not None
    assert found[0] == CHAINS[3]
    assert found[1] == {
        "1": {"candidate_steps": [3]},
        "8": {"candidate_steps": [1]},
        "32": {"candidate_steps": [0]},
    }


def test_one_length_for_all_loads_needs_no_adaptive_file() -> None:
    state = measured("s3")
    assert adaptive_config(state, position(state)) is None
