"""The notebooks are thin, stripped and what the package says they are."""

from __future__ import annotations

import ast
import json
import re
import shutil
from pathlib import Path

import nbformat
import pytest
from bs4 import BeautifulSoup

from workbench import reports, run, train
from workbench.notebook import parameters_of, run_notebook
from workbench.paths import ROOT_ENV
from workbench.spec import RunState
from workbench.summary import SUMMARY_SUFFIX, PageStatus, Summary

FOLDER = Path(__file__).parents[2] / "notebooks"
NOTEBOOKS = sorted(FOLDER.glob("*.ipynb"))
MAX_CELLS, MAX_LINES = 14, 8
TAGS = {"parameters", "answer", "headline", "figures", "problems", "remove-cell"}


def code_cells(path: Path) -> list[nbformat.NotebookNode]:
    return [cell for cell in nbformat.read(path, as_version=4).cells if cell.cell_type == "code"]


def test_every_notebook_has_its_use_and_every_use_its_notebook() -> None:
    used = {value for name, value in vars(reports).items() if name.isupper() and isinstance(value, str)}
    used = {name for name in used if re.match(r"\d\d_", name)} | {
        notebook.removesuffix(".ipynb") for notebook in (run.NOTEBOOK, train.NOTEBOOK)
    }
    assert {path.stem for path in NOTEBOOKS} == used


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_is_thin(path: Path) -> None:
    cells = code_cells(path)
    assert len(cells) <= MAX_CELLS
    for cell in cells:
        assert len(cell.source.splitlines()) <= MAX_LINES, cell.source
        kinds = {type(node) for node in ast.walk(ast.parse(cell.source))}
        assert not kinds & {ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Lambda, ast.For, ast.While}


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_is_stripped_and_runs_anywhere(path: Path) -> None:
    book = nbformat.read(path, as_version=4)
    assert book.metadata.kernelspec.name == "python3"
    assert book.metadata.kernelspec.language == "python"
    assert book.cells[0].cell_type == "markdown" and book.cells[0].source.startswith("# ")
    for cell in code_cells(path):
        assert cell.outputs == [] and cell.execution_count is None
        assert set(cell.metadata.get("tags", [])) <= TAGS


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_the_first_code_cell_holds_the_parameters(path: Path) -> None:
    cells = code_cells(path)
    assert cells[0].metadata.tags == ["parameters"]
    assert all("parameters" not in cell.metadata.get("tags", []) for cell in cells[1:])
    parameters = parameters_of(path)
    assert len(parameters) == len(cells[0].source.splitlines())
    assert all(parameter.help for parameter in parameters)


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_parameters_are_literals_that_a_newcomer_can_change(path: Path) -> None:
    for parameter in parameters_of(path):
        assert parameter.name.isidentifier()
        assert json.loads(json.dumps(parameter.default)) == parameter.default
    assert len({parameter.name for parameter in parameters_of(path)}) == len(parameters_of(path))


def test_one_notebook_from_end_to_end(tmp_path: Path) -> None:
    done = run_notebook(FOLDER / "22_report_data_scaling.ipynb", tmp_path / "out.ipynb", {"campaign": "kimi_k25"})
    assert done.status is RunState.OK, done.reason
    text = done.output.read_text(encoding="utf-8")
    assert "One training size (10,000 samples) is no curve" in text


def test_the_tour_needs_no_widgets(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "ipywidgets.py").write_text("raise ImportError('not here')")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    done = run_notebook(FOLDER / "00_explore.ipynb", tmp_path / "out.ipynb", {"campaign": "h200_smollm2"})
    assert done.status is RunState.OK, done.reason
    outputs = [output for cell in code_cells(done.output) for output in cell.outputs]
    kinds = {kind for output in outputs for kind in output.data}
    assert kinds == {"text/html", "text/plain"}
    # The timeline, the curve or a sentence in its place, and what is told by text alone.
    assert sum("<img " in output.data.get("text/html", "") for output in outputs) >= 1
    text = "\n".join(output.data["text/plain"] for output in outputs)
    for said in ("Campaign: h200_smollm2. Others:", "9 runs.", "decode lines", "Wrong flag", "Figures, and settings"):
        assert said in text, said


SMALL = ("kimi_k25", "h200_smollm2")


@pytest.mark.slow
def test_every_report_is_built_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every report notebook through the real runner, on campaigns with odd neighbours."""
    data = FOLDER.parent / "data"
    shutil.copytree(FOLDER, tmp_path / "notebooks")
    for name in SMALL:
        shutil.copytree(data / "recorded" / name, tmp_path / "data" / "recorded" / name)
    shutil.copy(data / "reference_points.csv", tmp_path / "data")
    shutil.copytree(data / "recorded" / "kimi_k25", tmp_path / "data" / "runs" / "kimi_k25")
    monkeypatch.setenv(ROOT_ENV, str(tmp_path))
    said: list[str] = []
    everything = list(reports.NOTEBOOKS)
    outcome = reports.build(campaigns=None, notebooks=everything, workers=2, say=said.append)
    folder = outcome.index.parent
    summaries = {
        path.name.removesuffix(SUMMARY_SUFFIX): Summary.model_validate_json(path.read_bytes())
        for path in folder.glob(f"*{SUMMARY_SUFFIX}")
    }
    assert len(summaries) == 3 * (len(everything) - 1) + 1
    # The comparison reads two campaigns of one name: it uses the first and says so.
    partial = [name for name, summary in summaries.items() if summary.status is not PageStatus.OK]
    assert partial == ["compare_campaigns"]
    for name, summary in summaries.items():
        assert summary.answer, name
        page = BeautifulSoup((folder / f"{name}.html").read_text(encoding="utf-8"), "html.parser")
        assert page.find(class_="stderr") is None, page.find(class_="stderr")
        assert all(image["alt"] for image in page.find_all("img"))
        # Nobody searched in these: that page says how to.
        assert page.find_all(["table", "img"]) or name.endswith("report_tune")
