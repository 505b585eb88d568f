from __future__ import annotations

from pathlib import Path
from typing import Any

import nbformat
import pytest
from notebook_files import code, markdown, raised, shown, stream, write_notebook

from workbench.report.contents import Answer, Contents, parse_answer, shorten, take_apart


def taken_apart(folder: Path, *cells: dict[str, Any], finished: bool = True) -> Contents:
    return take_apart(nbformat.read(write_notebook(folder / "n.ipynb", *cells), as_version=4), finished=finished)


def test_answer_is_split_into_sentence_points_and_actions() -> None:
    text = "\n It does not pay. \nBreak-even is 2.35.\nNext: measure again\n\nGraphs were on.\nNext: then train\n"
    assert parse_answer(text) == Answer(
        "It does not pay.", ("Break-even is 2.35.", "Graphs were on."), ("measure again", "then train")
    )
    assert parse_answer(" \n") == Answer()


@pytest.mark.parametrize(
    ("output", "sentence"),
    [
        (stream("printed\n"), "printed"),
        (shown({"text/plain": "'a \\'value\\' <b>'"}), "a 'value' <b>"),
        (shown({"text/plain": "<Figure>"}), "<Figure>"),
        (shown({"text/plain": "x", "text/markdown": "marked **down**"}), "marked **down**"),
        (shown({"text/plain": "x", "text/html": "<p>as <b>HTML</b> &amp; so</p>"}), "as HTML & so"),
    ],
)
def test_answer_cell(tmp_path: Path, output: dict[str, Any], sentence: str) -> None:
    contents = taken_apart(tmp_path, code("show.answer(a)", "answer", outputs=[output]), code("x"))
    assert contents.answer.sentence == sentence
    assert [cell.source for cell in contents.cells] == ["x"]


def test_what_a_library_warns_of_is_no_answer(tmp_path: Path) -> None:
    warned = {**stream("numpy: RuntimeWarning: overflow\n"), "name": "stderr"}
    contents = taken_apart(tmp_path, code("show.answer(a)", "answer", outputs=[warned, stream("It pays.\n")]))
    assert contents.answer == Answer("It pays.")


def test_headline_cells(tmp_path: Path) -> None:
    contents = taken_apart(
        tmp_path,
        code("a", "headline", outputs=[shown({"text/plain": "{'runs': 3, 'best': 2.04, 'not': None, 'l': [1]}"})]),
        code(
            "b",
            "headline",
            outputs=[shown({"text/plain": "x", "application/json": {"speed": float("nan"), "on": True}})],
        ),
        code("c", "headline", outputs=[stream("noise"), shown({"text/plain": "{'x': np.float64(3)}"})]),
    )
    assert contents.headline == {"runs": 3, "best": 2.04, "not": None, "l": "[1]", "speed": None, "on": True}
    assert contents.cells == []


def test_problems_count_only_when_they_show_something(tmp_path: Path) -> None:
    contents = taken_apart(
        tmp_path,
        code("a", "problems"),
        code("b", "problems", outputs=[stream("2 runs are cut")]),
        code("c", "remove-cell"),
    )
    assert [cell.source for cell in contents.problems] == ["b"]
    assert contents.cells == []
    assert contents.code == ["a", "b"]


def test_title_is_the_first_heading_and_leaves_its_cell(tmp_path: Path) -> None:
    contents = taken_apart(
        tmp_path, markdown("## no\n# no"), markdown("# Speed of `it` ##\n\nText\n# More"), markdown("# Two")
    )
    assert contents.title == "Speed of `it`"
    assert [cell.source for cell in contents.cells] == ["## no\n# no", "\nText\n# More", "# Two"]


def test_what_was_not_reached_is_left_out(tmp_path: Path) -> None:
    cells = [
        markdown("# T"),
        code("a", outputs=[stream("x")], count=1),
        markdown("## Before"),
        code("b", "answer", outputs=[raised("E", "m")], count=2),
        markdown("## After"),
        code("c", "answer"),
    ]
    contents = taken_apart(tmp_path, *cells, finished=False)
    assert contents.title == "T"
    # A cell that raised is shown where it stands, whatever its tag.
    assert [cell.source for cell in contents.cells] == ["", "a", "## Before", "b"]
    assert contents.code == ["a", "b"]
    assert taken_apart(tmp_path, markdown("# T"), code("a"), finished=False).cells == []


def test_papermill_s_own_error_notes_are_left_out(tmp_path: Path) -> None:
    note = markdown("<span>An Exception</span>") | {"metadata": {"tags": ["papermill-error-cell-tag"]}}
    assert taken_apart(tmp_path, note).cells == []


def test_private_folders_and_tokens_are_redacted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/home/jane")
    monkeypatch.setenv("WORKBENCH_ROOT", "/srv/project")
    text = "/home/jane/x /home/janet /srv/project/data hf_abcdefghijklmnopqrst"
    cells = [
        code(f"# {text}", outputs=[stream(text), shown({"text/html": text, "image/png": "AA/home/jane/AA"})]),
        code("b", outputs=[raised("E", text, [text, text])]),
    ]
    contents = taken_apart(tmp_path, *cells)
    clean = "~/x /home/janet ./data hf_***"
    outputs = [output for cell in contents.cells for output in cell.outputs]
    assert contents.code[0] == f"# {clean}"
    assert outputs[0].text == clean
    assert outputs[1].data == {"text/html": clean, "image/png": "AA/home/jane/AA"}
    assert outputs[2].evalue == clean
    assert outputs[2].traceback == [f"{clean}\n{clean}"]


def test_long_output_keeps_its_ends() -> None:
    text = shorten("\n".join(f"line {n}" for n in range(1000)))
    lines = text.split("\n")
    assert lines[:2] == ["line 0", "line 1"]
    assert lines[19:22] == ["line 19", "… 800 lines are left out of this page …", "line 820"]
    assert lines[-1] == "line 999"
    assert shorten("\n".join(map(str, range(200)))) == "\n".join(map(str, range(200)))
    assert shorten("x" * 5000) == "x" * 2000 + " … (5,000 characters)"


def test_outputs_that_a_page_cannot_show_are_named(tmp_path: Path) -> None:
    contents = taken_apart(
        tmp_path, code("a", outputs=[shown({"application/javascript": "a()", "text/vnd.mermaid": "x"})])
    )
    assert contents.cells[0].outputs[0].data == {
        "text/plain": "(not shown in this page: application/javascript, text/vnd.mermaid)"
    }
