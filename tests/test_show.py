from __future__ import annotations

import base64
import io

import pandas as pd
import pytest
from random_tables import HOSTILE
from shown import Shown, catch

from workbench import show
from workbench.analysis.answers import Answer
from workbench.analysis.diagnosis import Certainty, Diagnosis, Finding
from workbench.errors import Problem
from workbench.report.clean import plain_text
from workbench.report.contents import parse_answer
from workbench.spec import CampaignInfo

KEY = ("campaign", "server")


@pytest.fixture
def shown(monkeypatch: pytest.MonkeyPatch) -> Shown:
    return catch(monkeypatch)


def finding(title: str = "t", certainty: Certainty = Certainty.CERTAIN, **more: object) -> Finding:
    given: dict[str, object] = {"evidence": ("line 3: x",), "next_action": "do it", **more}
    return Finding("rule", title, certainty, **given)  # type: ignore[arg-type]


def diagnosis(*findings: Finding, verdict: str = "Bad.") -> Diagnosis:
    return Diagnosis(verdict, findings, pd.DataFrame(), ())


# --- answers -----------------------------------------------------------------------------------------------------


def test_an_answer_is_read_back_by_the_page(shown: Shown) -> None:
    show.answer(Answer("It pays. Twice.", ("why",), ("measure it", "then that")))
    read = parse_answer(plain_text(shown.html[0]))
    assert read.sentence == "It pays. Twice."
    assert read.actions == ("measure it", "then that")
    assert shown.text == ["It pays. Twice.\nNext: measure it\nNext: then that"]


def test_points_or_a_word_that_there_are_none(shown: Shown) -> None:
    show.points(Answer("x", ("first", "second")))
    show.points(Answer("x"))
    assert [item.get_text() for item in shown.soup.find_all("li")] == ["first", "second"]
    assert shown.text[1] == "Nothing more follows from the data of this campaign."


def test_the_headline_is_a_plain_dict() -> None:
    assert show.headline(Answer("x", headline={"best speedup": "0.99x"})) == {"best speedup": "0.99x"}


# --- tables ------------------------------------------------------------------------------------------------------


def table(**columns: list[object]) -> pd.DataFrame:
    return pd.DataFrame(columns)


def test_a_column_that_says_the_same_in_every_row_is_said_once(shown: Shown) -> None:
    runs = table(run=["a", "b", "c"], group=["A", "A", "A"], steps=[3, 3, 3], speed=[1.0, 2.0, 3.0], graphs=[True] * 3)
    show.table(runs, caption="Runs.", name="runs")
    assert shown.cells()[0] == ["run", "speed"]
    assert (
        shown.soup.find("p", class_="wb-empty").get_text() == "The same in every row: group: A; steps: 3; graphs: yes."
    )


def test_a_column_without_any_value_is_named(shown: Shown) -> None:
    show.table(table(run=["a", "b", "c"], rate=[None] * 3, speed=[1.0, None, 3.0]), caption="Runs.", name="runs")
    assert shown.cells() == [["run", "speed"], ["a", "1.00"], ["b", "\N{EN DASH}"], ["c", "3.00"]]
    assert "No row has a value for: rate." in shown.text[0]


@pytest.mark.parametrize(
    "columns",
    [
        {"run": ["a", "b"], "group": ["A", "A"]},  # two rows
        {"run": ["a", "b", "c"], "group": ["A", "A", "B"]},
        {"run": ["a", "b", "c"], "group": ["A", "A", None]},
        {"run": ["a", "b", "c"], "group": ["A" * 400] * 3},
    ],
)
def test_columns_that_tell_rows_apart_stay(shown: Shown, columns: dict[str, list[object]]) -> None:
    show.table(pd.DataFrame(columns), caption="Runs.", name="runs")
    assert shown.cells()[0] == ["run", "group"]


def test_the_first_column_always_stays(shown: Shown) -> None:
    show.table(table(run=["a", "a", "a"], speed=[1, 2, 3]), caption="Runs.", name="runs")
    assert shown.cells()[0] == ["run", "speed"]


def test_the_download_holds_what_was_folded_or_the_whole_table(shown: Shown) -> None:
    small = table(run=["a", "b", "c"], group=["A"] * 3)
    show.table(small, caption="Runs.", name="runs")
    show.table(small, caption="Runs.", name="runs", data=small.assign(more=1))
    hrefs = [link["href"] for link in shown.soup.find_all("a")]
    columns = [list(pd.read_csv(io.BytesIO(base64.b64decode(href.split("base64,")[1])))) for href in hrefs]
    assert columns == [["run", "group"], ["run", "group", "more"]]


def test_a_table_that_may_be_missing_is_not_shown_at_all(shown: Shown) -> None:
    show.table(pd.DataFrame(columns=["a"]), caption="Energy.", name="energy", empty="")
    assert shown.html == []


def test_an_empty_table_is_a_sentence(shown: Shown) -> None:
    show.table(pd.DataFrame(columns=["a"]), caption="Runs.", name="runs", empty="No run.")
    assert shown.soup.get_text() == "Runs. No run."


# --- campaigns, diagnoses, problems ------------------------------------------------------------------------------


def test_a_campaign_shows_what_is_stated(shown: Shown) -> None:
    info = CampaignInfo(name="c", title="A title", target="T", machine="M", notes=("one note",))
    show.campaign({"c": info})
    assert [term.get_text() for term in shown.soup.find_all("dt")] == ["Target", "Machine"]
    assert "one note" in shown.soup.find("details").get_text()


def test_a_certain_fault_is_open_and_a_suspicion_is_folded(shown: Shown) -> None:
    suspected = diagnosis(finding(certainty=Certainty.SUSPECTED), verdict="Perhaps.")
    show.diagnoses({KEY: diagnosis(finding()), ("campaign", "other"): suspected, ("campaign", "fine"): diagnosis()})
    first, second = shown.soup.find_all("details")
    assert first.has_attr("open")
    assert not second.has_attr("open")
    assert [b.get_text() for b in shown.soup.find_all(class_="badge")] == ["certain", "suspected"]
    assert shown.text == ["server: Bad.\nother: Perhaps.\nfine: Bad."]


def test_what_is_no_fault_is_a_note(shown: Shown) -> None:
    show.diagnoses({KEY: diagnosis(finding(is_fault=False))})
    assert shown.soup.find(class_="badge").get_text() == "note"
    assert not shown.soup.find("details").has_attr("open")


def test_without_logs_there_is_a_sentence(shown: Shown) -> None:
    show.diagnoses({})
    assert shown.text == ["No server log of this campaign was kept."]


def test_of_many_logs_those_with_faults_are_shown_and_the_others_counted(shown: Shown) -> None:
    fine = {("c", f"fine{number}"): diagnosis() for number in range(50)}
    suspected = {("c", "perhaps"): diagnosis(finding(certainty=Certainty.SUSPECTED))}
    show.diagnoses({**fine, **suspected, ("c", "bad"): diagnosis(finding(), verdict="Wrong.")})
    lines = shown.text[0].splitlines()
    assert lines[0] == "bad: Wrong."
    assert lines[1].startswith("perhaps: ")
    assert len(lines) == show.MOST_LOGS + 1
    assert lines[-1].startswith("12 more logs of this campaign not shown: 12 without a fault.")


def test_of_very_many_kinds_of_problems_the_first_are_shown(shown: Shown) -> None:
    show.problems([Problem("file", f"fault {number}") for number in range(show.MOST_PROBLEMS + 7)])
    lines = shown.text[0].splitlines()
    assert len(lines) == show.MOST_PROBLEMS + 1
    assert lines[-1] == "7 more problems of other kinds not shown"


def test_problems_are_listed_and_no_problem_shows_nothing(shown: Shown) -> None:
    show.problems(())
    assert shown.html == []
    show.problems([Problem("data/runs/x", "half-written")])
    assert shown.text == ["data/runs/x: half-written"]


def test_everything_is_escaped(shown: Shown) -> None:
    show.answer(Answer(HOSTILE, (), (HOSTILE,)))
    show.points(Answer("x", (HOSTILE,)))
    show.note(HOSTILE)
    show.table(pd.DataFrame({HOSTILE: [HOSTILE] * 3, "same": [HOSTILE] * 3}), caption=HOSTILE, name=HOSTILE)
    show.campaign({"c": CampaignInfo(name="c", title=HOSTILE, target=HOSTILE, machine=HOSTILE, notes=(HOSTILE,))})
    show.diagnoses(
        {("c", HOSTILE): diagnosis(finding(HOSTILE, evidence=(HOSTILE,), next_action=HOSTILE), verdict=HOSTILE)}
    )
    show.problems([Problem(HOSTILE, HOSTILE)])
    assert len(shown.html) == 7
    assert shown.soup.find("script") is None
    assert "<script" not in "".join(shown.html)


# --- alt text ----------------------------------------------------------------------------------------------------


def test_alt_text_says_what_is_drawn_with_its_ranges() -> None:
    costs = pd.DataFrame({"accept_length": [1.0, 2.5, None], "t_cycle_ms": [24.5, 24.5, 24.5], "n": [None] * 3})
    costs["num_steps"] = pd.Series([1, 6, None], dtype="Int64")
    said = show.alt("Break-even", costs, "accept_length", "t_cycle_ms", "n", "num_steps")
    assert said == "Break-even: 3 rows; accept length 1.00 to 2.50, t cycle (ms) 24.5, num steps 1 to 6."
    assert show.alt("Break-even", costs.head(1), "n") == "Break-even: 1 row; no figure was measured."
    assert show.alt("Break-even", costs.head(0), "n") == "Break-even: nothing was measured."
