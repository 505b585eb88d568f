"""A made campaign in which only simulated acceptance wins: it tells what a step costs, and recommends nothing."""

from __future__ import annotations

import matplotlib as mpl
import pytest
from run_folders import write_campaign, write_run

from workbench import plot, theme
from workbench.analysis import views
from workbench.analysis.answers import Answer
from workbench.analysis.campaign import (
    campaign_answer,
    compare_answer,
    diagnose_logs,
    draft_tokens_answer,
    offline_fits,
    scaling_answer,
    scaling_fits,
    throughput_answer,
)
from workbench.analysis.cost import cost_df
from workbench.analysis.speedup import speedup_df
from workbench.analysis.step_time import step_time_by_length_df, step_time_fit
from workbench.table import Tables, load_tables

# Each request makes 101 tokens, the first at 0.1 s; the plain step takes 10 ms, so 100 tokens take 1 s.
PLAIN_MS = 10.0


def requests(cycle_ms: float, accept_length: float | None) -> list[object]:
    """Two prompts, two passes: 100 tokens after the first in 100 / accept length cycles."""
    steps = None if accept_length is None else 100 / accept_length
    return [
        {
            "prompt_index": prompt,
            "repeat": repeat,
            "completion_tokens": 101,
            "latency_s": 0.1 + (steps or 100) * cycle_ms / 1000,
            "ttft_s": 0.1,
            "text_hash": f"{prompt}" if accept_length is None else f"{prompt} garbage",
            **({} if steps is None else {"spec_verify_ct": round(steps)}),
        }
        for repeat in (0, 1)
        for prompt in (0, 1)
    ]


def decode(steps: int, topk: int, tokens: int, forced: float | None = None) -> dict[str, object]:
    asked = {"speculative_num_steps": steps, "speculative_eagle_topk": topk, "speculative_num_draft_tokens": tokens}
    return {
        "speculative_algorithm": "EAGLE3",
        **asked,
        **({} if forced is None else {"simulated_accept_length": forced}),
    }


@pytest.fixture(scope="module")
def tables(tmp_path_factory: pytest.TempPathFactory) -> Tables:
    """A baseline, a drafter that loses, and forced runs that would win; their cycle takes 14 + steps + tokens / 2."""
    folder = write_campaign(
        tmp_path_factory.mktemp("made") / "made", drafters=[{"name": "d", "target": "T", "training_samples": 500}]
    )
    workload = {"prompt_set": "p", "max_concurrency": 1, "temperature": 0, "num_prompts": 2}
    write_run(folder / "base", requests=requests(PLAIN_MS, None), workload=workload)
    # 14 + 3 + 4 / 2 = 19 ms, so break-even is 1.9; at 2.5 ms more than that the real run needs 2.15
    real = {"drafter": "d", "spec_decode": decode(3, 1, 4), "server_id": "real"}
    write_run(folder / "real", requests=requests(21.5, 2.0), workload=workload, **real)
    for steps, topk, tokens, forced in (
        (3, 1, 4, 4.0),
        (3, 1, 4, 2.5),
        (3, 1, 4, 1.25),
        (1, 1, 2, 2.0),
        (5, 1, 6, 4.0),
        (3, 4, 16, 4.0),
        (2, 4, 8, 2.5),
    ):
        name = f"sim{forced:g}-s{steps}-n{tokens}"
        made = {"drafter": "d", "spec_decode": decode(steps, topk, tokens, forced), "server_id": name}
        write_run(folder / name, requests=requests(14 + steps + tokens / 2, forced), workload=workload, **made)
    found = load_tables(folder)
    assert found.problems == ()
    return found


@pytest.fixture(scope="module")
def pages(tables: Tables) -> dict[str, Answer]:
    costs, speedups = cost_df(tables.runs), speedup_df(tables.runs, tables.requests, n_boot=200)
    return {
        "campaign": campaign_answer(tables, costs, speedups, diagnose_logs(tables)),
        "draft tokens": draft_tokens_answer(tables, costs, speedups),
        "throughput": throughput_answer(tables, costs, speedups),
        "scaling": scaling_answer(tables, costs, scaling_fits(tables, costs), offline_fits(tables, costs)),
        "compare": compare_answer(tables, costs, speedups),
    }


def test_the_forced_runs_would_win_by_far(tables: Tables) -> None:
    speedups = speedup_df(tables.runs, tables.requests, n_boot=200).set_index("run_id")["speedup"]
    assert speedups["sim4-s3-n4"] == pytest.approx(10 / (19 / 4), abs=0.01)  # 2.11x
    assert speedups["real"] == pytest.approx(2.0 * 10 / 21.5)  # 0.93x


def test_no_answer_recommends_or_counts_one(pages: dict[str, Answer]) -> None:
    for page, answer in pages.items():
        said = " ".join((answer.sentence, *answer.points, *answer.actions))
        assert "2.11x" not in said, page
        assert "sim" not in answer.sentence.replace("simulated", ""), page
        assert answer.headline.get("best accept length", "2.00") == "2.00", page
        assert answer.headline.get("best speedup", "0.93x") == "0.93x", page
    assert pages["throughput"].sentence == (
        "Do not enable speculation here: nothing beat the baseline. The only run (real) reached 93 decode tok/s "
        "against 100, 0.93x, a loss beyond noise."
    )
    assert "Nearest to its baseline came real, 0.93x." in pages["draft tokens"].sentence


def test_nor_is_a_run_asked_for_that_no_drafter_promises(pages: dict[str, Answer]) -> None:
    # 2.00 was reached with 3 steps: 1.60 suffices at 1 step, where a drafter accepts less.
    assert not any(action.startswith("Measure") for action in pages["campaign"].actions)


def test_break_even_and_cycle_time_come_from_them(pages: dict[str, Answer]) -> None:
    # 14 + 1 + 1 = 16 ms at 2 tokens, 14 + 3 + 8 = 25 ms at 16, against 10 ms plain
    (said,) = [point for point in pages["campaign"].points if point.startswith("Break-even accept length is")]
    assert "1.60 at 1 step, 2.00 at 2 steps, 1.90-2.50 at 3 steps, 2.20 at 5 steps" in said
    assert "(7 of 8 runs with simulated acceptance). The best accept length measured is 2.00 (real)." in said


def test_the_fit_and_its_independence_of_what_is_accepted(tables: Tables, pages: dict[str, Answer]) -> None:
    costs = cost_df(tables.runs)
    forced = costs[costs["origin"] == "simulated"]
    row = step_time_fit(forced).identified.iloc[0]
    assert (row["a"], row["b"], row["c"]) == pytest.approx((14.0, 1.0, 0.5), abs=0.15)
    by_length = step_time_by_length_df(costs).iloc[0]
    assert (by_length["num_lengths"], by_length["verdict"]) == (3, "does not depend on it")
    points = pages["draft tokens"].points
    assert any(point.startswith("A verify cycle at concurrency 1 takes 1") for point in points)
    assert any(
        point.startswith("The cycle time does not depend on what is accepted: from 1.25 to 4") for point in points
    )


def test_every_table_names_them_so(tables: Tables) -> None:
    costs, speedups = cost_df(tables.runs), speedup_df(tables.runs, tables.requests, n_boot=50)
    shown = [
        views.runs_view(tables.runs),
        views.costs_view(costs),
        views.speedups_view(speedups),
        views.required_acceptance_view(costs),
    ]
    for table in shown:
        forced = table[table["run"].str.startswith("sim")]
        assert len(forced) == 7
        assert forced["run"].str.endswith("(simulated)").all()
        assert not table[~table["run"].str.startswith("sim")]["run"].str.contains("simulated").any()
    assert set(shown[2].set_index("run")["verdict"].filter(like="(simulated)")) == {"simulated"}
    assert views.losslessness_view(tables)["run"].tolist() == ["real"]  # their text is garbage
    # What was forced says nothing about where drafts are accepted.
    assert views.accept_lengths_view(tables)["run"].tolist() == ["real"]
    needed = shown[3].set_index("run")["acceptance now"]
    assert needed.drop("real").isna().all()
    assert needed.notna()["real"]


def test_figures_draw_them_as_simulated_and_call_none_a_win(tables: Tables) -> None:
    costs, speedups = cost_df(tables.runs), speedup_df(tables.runs, tables.requests, n_boot=50)
    words = theme.style.ORIGINS["simulated"].words
    for draw, table in ((plot.plot_speedup, speedups), (plot.plot_break_even, costs)):
        fig, ax = theme.new_figure()
        draw(table, ax=ax)
        fig.draw_without_rendering()
        texts = [text.get_text() for text in fig.findobj(mpl.text.Text)]
        assert any(words in text for text in texts)
        assert not any(text.endswith("win") for text in texts)
        assert sum(text.endswith("(simulated)") for text in texts) == 7
