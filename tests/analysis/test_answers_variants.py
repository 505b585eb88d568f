from workbench.analysis.answers.common import as_served
from workbench.analysis.answers.variants import one_against_one
from workbench.analysis.cost import cost_df
from workbench.campaigns import campaign_folder
from workbench.table import load_tables


def test_recorded_settings_are_told_one_by_one() -> None:
    tables = load_tables(campaign_folder("h200_variants"))
    said = one_against_one(tables.runs, cost_df(tables.runs))
    # tok/s of the runs' own files: 566.1, 656.8 and 664.1 at accept lengths of 2.51, 2.49 and 2.49.
    assert said == (
        "Settings one against one, at 1 at once: a cycle of 3 steps takes 4.4 ms as it is (566 tok/s), 3.8 ms with "
        "disable-overlap-schedule-True (657) and 3.8 ms with speculative-attention-mode-decode (664); starts of one "
        "server differ by more, so that none is shown to be better."
    )


def test_a_campaign_without_such_settings_says_nothing() -> None:
    tables = load_tables(campaign_folder("h200_smollm2"))
    assert one_against_one(tables.runs, cost_df(tables.runs)) is None


def test_what_gains_against_a_slowed_server_is_not_counted() -> None:
    costs = cost_df(load_tables(campaign_folder("h200_variants")).runs)
    kept = as_served(costs)
    gone = set(costs["run_id"]) - set(kept["run_id"])
    assert len(gone) == 2 and all("disable-overlap" in name for name in gone)
