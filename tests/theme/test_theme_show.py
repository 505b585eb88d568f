import base64
import io
import re

import numpy as np
import pandas as pd
import pytest
from markupsafe import Markup

from workbench import theme
from workbench.errors import UsageError
from workbench.theme.show import DOWNLOAD_LIMIT_BYTES, collecting, csv_link, digits, display_html, heading

HOSTILE = "<script>alert(1)</script>\"'&"


def downloaded(html: str) -> pd.DataFrame:
    (encoded,) = re.findall(r'href="data:text/csv;charset=utf-8;base64,([^"]+)"', html)
    return pd.read_csv(io.BytesIO(base64.b64decode(encoded)))


def figure() -> object:
    fig, ax = theme.new_figure()
    ax.plot([1, 2], [1, 2])
    return fig


def test_a_figure_carries_its_picture_alt_text_and_caption() -> None:
    html = theme.figure_html(figure(), alt="a line\nthat rises", caption="Speed.")
    (encoded,) = re.findall(r'src="data:image/png;base64,([^"]+)"', html)
    assert base64.b64decode(encoded).startswith(b"\x89PNG")
    assert 'alt="a line that rises"' in html
    assert "<figcaption>Speed.</figcaption>" in html
    assert 'width="653"' in html  # 6.8 inches of 96 pixels


def test_a_figure_escapes_what_it_is_given() -> None:
    html = theme.figure_html(figure(), alt=HOSTILE, caption=HOSTILE, data=pd.DataFrame({"a": [1]}), name=HOSTILE)
    assert "<script" not in html
    assert html.count("&lt;script&gt;") == 2
    assert 'download="script-alert-1-script.csv"' in html


def test_a_figure_without_alt_text_is_refused() -> None:
    with pytest.raises(UsageError, match="alt text"):
        theme.figure_html(figure(), alt=" ", caption="Speed.")


def test_a_figure_is_shown_once() -> None:
    fig = figure()
    theme.figure_html(fig, alt="a", caption="b")
    assert fig.axes == []


def test_the_same_figure_gives_the_same_bytes() -> None:
    first, second = (theme.figure_html(figure(), alt="a", caption="b") for _ in range(2))
    assert first == second


def test_downloads_hold_the_rows() -> None:
    table = pd.DataFrame({"name": ["a", "b"], "value": [1.5, np.nan]})
    html = csv_link(table, "Costs, all of them")
    pd.testing.assert_frame_equal(downloaded(html), table, check_dtype=False)
    assert 'download="costs-all-of-them.csv"' in html
    assert ">CSV, 2 rows<" in html


def test_a_download_that_is_too_large_is_a_sentence() -> None:
    html = csv_link(pd.DataFrame({"text": ["x" * 1000] * (DOWNLOAD_LIMIT_BYTES // 1000 + 1)}), "big")
    assert "<a" not in html
    assert "201 rows, too large for the page" in html


def test_text_that_a_spreadsheet_would_run_is_quoted() -> None:
    table = pd.DataFrame({"text": ["=1+1", "@x", "-y", "plain"], "number": [-1.0, 2.0, 3.0, 4.0]})
    back = downloaded(csv_link(table, "x"))
    assert back["text"].tolist() == ["'=1+1", "'@x", "'-y", "plain"]
    assert back["number"].tolist() == [-1.0, 2.0, 3.0, 4.0]


def test_tables_escape_headings_cells_and_caption() -> None:
    html = theme.table_html(pd.DataFrame({HOSTILE: [HOSTILE]}), caption=HOSTILE)
    assert "<script" not in html
    assert html.count("&lt;script&gt;") == 4  # region name, caption, heading, cell


def test_tables_scroll_inside_their_own_region() -> None:
    html = theme.table_html(pd.DataFrame({"a": [1]}), caption="Runs")
    assert isinstance(html, Markup)
    assert '<div class="wb-table" role="region" tabindex="0" aria-label="Runs" style="overflow-x:auto">' in html
    assert "<caption>Runs</caption>" in html
    assert '<th scope="col"' in html
    assert '<th scope="row"' in html


def cells(table: pd.DataFrame, **options: object) -> list[str]:
    html = theme.table_html(table, caption="t", **options)
    return re.findall(r"<t[dh](?: [^>]*)?>([^<]*)</t[dh]>", html.split("<tbody>")[1])


def test_cells_show_what_is_worth_reading() -> None:
    table = pd.DataFrame(
        {
            "label": pd.Series(["a", None], dtype="str"),
            "n": pd.Series([1234, None], dtype="Int64"),
            "speed": [74.9123, np.nan],
            "on": pd.Series([True, None], dtype="boolean"),
            "ids": [("x", "y"), None],
        }
    )
    assert cells(table) == ["a", "1,234", "74.9", "yes", "x, y", *["not measured"] * 5]
    assert cells(table, missing="-")[5:] == ["-"] * 5


def test_columns_are_chosen_ordered_named_and_formatted() -> None:
    table = pd.DataFrame({"a": [1.23456], "b": [2.0], "c": [3.0]})
    html = theme.table_html(table, caption="t", columns={"b": "Second", "a": "First"}, formats={"a": "{:.4f}"})
    assert re.findall(r'<th scope="col"[^>]*>([^<]*)<', html) == ["Second", "First"]
    assert cells(table, columns={"b": "B", "a": "A"}, formats={"a": "{:.4f}", "b": lambda v: f"<{v:.0f}>"}) == [
        "&lt;2&gt;",
        "1.2346",
    ]
    assert list(downloaded(html)) == ["a", "b", "c"]


def test_a_download_may_hold_more_than_the_table() -> None:
    html = theme.table_html(pd.DataFrame({"a": [1]}), caption="t", data=pd.DataFrame({"a": [1, 2], "b": [3, 4]}))
    assert downloaded(html).shape == (2, 2)


def test_long_tables_are_cut_and_say_so() -> None:
    html = theme.table_html(pd.DataFrame({"a": range(100)}), caption="t", max_rows=10)
    assert html.count("<tr>") == 11
    assert "90 more rows in the download." in html
    assert len(downloaded(html)) == 100


def test_an_empty_table_is_a_sentence() -> None:
    html = theme.table_html(pd.DataFrame({"a": []}), caption="Speedups.", empty="No run has a baseline.")
    assert html == '<p class="wb-empty"><strong>Speedups.</strong> No run has a baseline.</p>'
    assert "<table" not in theme.table_html(pd.DataFrame(), caption="t")


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (2370.4, "2,370"),
        (100.2, "100"),
        (74.94, "74.9"),
        (2.1, "2.10"),
        (1.0, "1.00"),
        (0.128, "0.13"),
        (0.0123, "0.012"),
        (0.0, "0"),
        (-3.456, "-3.46"),
        (float("inf"), "infinite"),
    ],
)
def test_digits(value: float, text: str) -> None:
    assert digits(value) == text


@pytest.mark.parametrize(
    ("column", "text"),
    [
        ("tok_per_s", "tok/s"),
        ("base_tok_per_s", "base (tok/s)"),
        ("t_cycle_ms", "t cycle (ms)"),
        ("latency_s", "latency (s)"),
        ("num_draft_tokens", "num draft tokens"),
        ("num_steps", "num steps"),
    ],
)
def test_headings_are_words_with_units(column: str, text: str) -> None:
    assert heading(column) == text


def test_what_is_collected_is_not_displayed(monkeypatch: pytest.MonkeyPatch) -> None:
    displayed: list[object] = []
    monkeypatch.setattr("IPython.display.display", lambda *shown, **_: displayed.append(shown))
    with collecting() as pieces:
        display_html(Markup("<p>a</p>"), "a")
        with collecting() as inner:
            display_html(Markup("<p>b</p>"), "b")
    assert (pieces, inner) == ([(Markup("<p>a</p>"), "a")], [(Markup("<p>b</p>"), "b")])
    with pytest.raises(ZeroDivisionError), collecting():
        _ = 1 / 0
    display_html(Markup("<p>c</p>"), "c")
    assert displayed == [({"text/html": "<p>c</p>", "text/plain": "c"},)]


def test_showing_puts_out_html_and_a_text_for_those_without(monkeypatch: pytest.MonkeyPatch) -> None:
    shown: list[dict[str, str]] = []
    monkeypatch.setattr("IPython.display.display", lambda data, raw: shown.append(data))
    theme.show_figure(figure(), alt="a line", caption="Speed.")
    theme.show_table(pd.DataFrame({"a": [1]}), caption="Runs")
    theme.show_table(pd.DataFrame(), caption="None", empty="Nothing.")
    assert [data["text/plain"].splitlines()[0] for data in shown] == ["Speed.", "Runs", "None: Nothing."]
    assert shown[0]["text/html"].startswith("<figure")
    assert shown[1]["text/html"].startswith('<div class="wb-table"')
    assert type(shown[1]["text/html"]) is str
