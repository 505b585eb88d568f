from __future__ import annotations

import base64
import io
from collections.abc import Callable
from dataclasses import replace
from functools import lru_cache

import pandas as pd
import pytest
from random_tables import PLAUSIBLE, SEEDS, random_tables
from shown import Shown, catch

from workbench import figures
from workbench.analysis import views
from workbench.analysis.campaign import offline_fits, scaling_fits, varied_fits
from workbench.analysis.cost import cost_df
from workbench.analysis.repetition import without_repetitive
from workbench.analysis.speedup import speedup_df
from workbench.analysis.step_time import step_time_fit
from workbench.paths import recorded_dir
from workbench.table import Tables, load_tables

Draw = Callable[[Tables, pd.DataFrame], None]

ALL: dict[str, Draw] = {
    "break_even": lambda tables, costs: figures.break_even(costs),
    "speedups": lambda tables, costs: figures.speedups(speedup_df(tables.runs, tables.requests, n_boot=50)),
    "timeline": lambda tables, costs: figures.timeline(views.longest_log(tables)),
    "accept_length": lambda tables, costs: figures.accept_length_by_draft_tokens(costs),
    "accept_rate": lambda tables, costs: figures.accept_rate_by_draft_tokens(tables.runs),
    "draft_tokens": lambda tables, costs: figures.throughput_by_draft_tokens(costs),
    "concurrency": lambda tables, costs: figures.throughput_by_concurrency(tables.runs),
    "survival": lambda tables, costs: figures.survival(tables),
    "spread": lambda tables, costs: figures.spread(tables.requests, tables.runs),
    "scaling": lambda tables, costs: figures.scaling(scaling_fits(tables, costs)),
    "scaling_offline": lambda tables, costs: figures.scaling(offline_fits(tables, costs), offline=True),
    "repetition": lambda tables, costs: figures.repetition(
        scaling_fits(tables, costs), varied_fits(without_repetitive(tables), costs)
    ),
}


@pytest.fixture
def shown(monkeypatch: pytest.MonkeyPatch) -> Shown:
    return catch(monkeypatch)


@lru_cache
def recorded(name: str) -> tuple[Tables, pd.DataFrame]:
    tables = load_tables(recorded_dir() / name)
    return tables, cost_df(tables.runs)


def download(shown: Shown) -> pd.DataFrame:
    (link,) = shown.soup.find_all("a")
    return pd.read_csv(io.BytesIO(base64.b64decode(link["href"].split("base64,")[1])))


def check_figures(shown: Shown, tables: Tables, costs: pd.DataFrame) -> None:
    """Every figure is a picture with alt text and a caption, or a sentence that says why there is none."""
    for name, draw in ALL.items():
        draw(tables, costs)
        page = shown.html[-1]
        assert ('<img src="data:image/png;base64,' in page) != ('class="wb-empty"' in page), name
    for image in shown.soup.find_all("img"):
        assert ":" in image["alt"]
        assert not {"None", "nan", "<NA>"} & set(image["alt"].split())
    assert all(caption.get_text().strip() for caption in shown.soup.find_all("figcaption"))


def test_every_figure_of_notes(shown: Shown) -> None:
    check_figures(shown, *recorded("kimi_k25"))
    assert len(shown.soup.find_all("img")) == len(ALL) - 4  # notes hold no histograms, walks, tokens


def test_figures_of_requests(shown: Shown) -> None:
    tables, costs = recorded("h200_first_trial")
    for name in ("survival", "spread", "scaling"):
        ALL[name](tables, costs)
    survival, spread, scaling = (image["alt"] for image in shown.soup.find_all("img"))
    assert survival.startswith("Survival by position: ")
    assert survival.endswith("position 1 to 6, survival 0.0065 to 0.54.")
    assert spread.startswith("Share of verify steps by correct drafts: ")
    assert "training samples 500 to 22,383" in scaling


def test_alt_text_carries_the_ranges_that_are_drawn(shown: Shown) -> None:
    figures.break_even(recorded("kimi_k25")[1])
    # accept length 1.00 to 2.25 (the middle of 2.0-2.5); break-even 63.6 / 40.8 to 2.25 x 90 / 56.7
    alt = shown.soup.find("img")["alt"]
    assert alt == "Break-even by configuration: 9 rows; accept length 1.00 to 2.25, break even 1.56 to 3.57."


def test_a_figure_of_many_rows_draws_the_nearest_and_says_so(shown: Shown) -> None:
    costs = recorded("h200_first_trial")[1]
    figures.break_even(costs)
    assert "Drawn are the 16 of 26 runs nearest to paying; the download has all." in shown.text[0]
    assert shown.text[0].count("16 rows") == 1
    assert len(download(shown)) == 26


def test_rows_left_out_still_tell_the_drawn_ones_apart(shown: Shown, monkeypatch: pytest.MonkeyPatch) -> None:
    drawn: list[pd.DataFrame] = []
    monkeypatch.setattr(figures.plot, "plot_break_even", lambda costs, *, ax: drawn.append(costs))
    figures.break_even(recorded("h200_first_trial")[1])
    (table,) = drawn
    assert len(table) == figures.MOST_ROWS
    assert table["label"].is_unique
    assert table["gain_needed"].is_monotonic_increasing
    # 6 steps on the mix came nearest: 1 / 0.89
    assert table.iloc[0]["label"] == "n24000L, 6 steps, mix_heldout"
    assert table.iloc[0]["gain_needed"] == pytest.approx(754.41 / 671.66, rel=1e-4)


def test_an_interval_that_says_nothing_stays_in_the_download(shown: Shown) -> None:
    tables = recorded("kimi_k25")[0]
    table = speedup_df(tables.runs, tables.requests, n_boot=50)
    figures.speedups(table.assign(method="paired bootstrap over prompts", low=0.0, high=94_000.0))
    assert download(shown)["high"].max() == 94_000.0


def test_the_cycle_time_is_drawn_where_there_is_a_fit(shown: Shown) -> None:
    figures.step_time(step_time_fit(recorded("kimi_k25")[1]))
    assert shown.text == []
    figures.step_time(step_time_fit(recorded("h200_first_trial")[1]))
    assert "10 runs" in shown.text[0]
    assert len(download(shown)) == 10


def test_few_rows_are_drawn_as_they_are(shown: Shown) -> None:
    figures.break_even(recorded("kimi_k25")[1])
    assert "Drawn are" not in shown.text[0]


def test_a_campaign_without_anything_has_sentences(shown: Shown) -> None:
    tables, costs = recorded("kimi_k25")
    nothing = replace(tables, runs=tables.runs.iloc[:0], requests=tables.requests.iloc[:0], logs={})
    check_figures(shown, nothing, costs.iloc[:0])
    said = " ".join(note.get_text() for note in shown.soup.find_all(class_="wb-empty"))
    assert "No server log with decode lines was kept." in said
    assert "acceptance by position is not known" in said
    assert "there is nothing to draw" in said


def test_a_log_of_one_line(shown: Shown) -> None:
    log = views.longest_log(recorded("kimi_k25")[0])
    assert log is not None
    figures.timeline(replace(log, windows=log.windows.head(1)))
    assert shown.soup.find("img")["alt"].startswith("Timeline of kimi_k25/custom-v1-n4-c48: 1 row; accept len 1.00, ")


@pytest.mark.parametrize("seed", SEEDS[1:2])
def test_no_table_breaks_a_figure(shown: Shown, seed: int) -> None:
    tables = random_tables(seed, PLAUSIBLE)
    check_figures(shown, tables, cost_df(tables.runs))


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(2, 20))
def test_no_table_breaks_a_figure_many(shown: Shown, seed: int) -> None:
    tables = random_tables(seed, PLAUSIBLE)
    check_figures(shown, tables, cost_df(tables.runs))


def test_of_many_groups_the_largest_are_drawn_and_all_are_in_the_download(shown: Shown) -> None:
    _, costs = recorded("h200_step_cost")
    copies = [costs.assign(baseline_group=f"group {number:02}") for number in range(figures.MOST_GROUPS + 2)]
    copies[3] = copies[3].head(2)
    many = pd.concat(copies, ignore_index=True)
    figures.throughput_by_draft_tokens(many)
    said = shown.soup.find("figcaption").get_text()
    drawn = figures.MOST_GROUPS * len(costs)
    assert f"{figures.MOST_GROUPS} of {figures.MOST_GROUPS + 2} baseline groups" in said
    assert f"{drawn} runs of {len(many)}" in said
    assert len(download(shown)) == len(many)
