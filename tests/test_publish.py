from __future__ import annotations

import base64
import json
import socket
import zipfile
from pathlib import Path

import pytest
from bs4 import BeautifulSoup

from workbench.cli import main
from workbench.errors import InputError, UsageError
from workbench.paths import ROOT_ENV
from workbench.publish import MARKER, publish

HOST = "gpu-node-17"


def data_uri(text: str) -> str:
    return f"data:text/csv;charset=utf-8;base64,{base64.b64encode(text.encode()).decode()}"


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Two campaigns with a page each that name the machine wherever a page can, and a page in a folder."""
    root = tmp_path / "secret-place" / "project"
    monkeypatch.setenv(ROOT_ENV, str(root))
    monkeypatch.setattr(socket, "gethostname", lambda: HOST)
    (root / "reports").mkdir(parents=True)
    for name, campaign in (("a-report", "a"), ("b-report", "b"), ("logs/c", None)):
        page = root / "reports" / f"{name}.html"
        page.parent.mkdir(exist_ok=True)
        page.write_text(
            f"<p>{root}/data/x.log on {HOST}, executed copy {name}.ipynb beside this page</p>"
            f"<p>my-{HOST} {HOST}x hf_abcdefghijklmnopqrstuv</p>"
            f"<a href='{data_uri(f'file,n{chr(10)}{root}/y.log,1{chr(10)}')}'>CSV</a>"
            "<img src='data:image/png;base64,iVBORw0K'><a href='index.html'>All reports</a>"
        )
        (root / "reports" / f"{name}.ipynb").write_text("{}")
        summary = {"kind": "report", "title": name, "status": "ok", "finished_at": "2026-11-03T10:00:00+00:00"}
        said = summary | ({"campaign": campaign} if campaign else {}) | {"reason": f"in {root}/z"}
        (root / "reports" / f"{name}.summary.json").write_text(json.dumps(said))
    return root


def files(folder: Path) -> list[str]:
    return sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file())


def test_a_folder_with_pages_summaries_and_an_index_and_nothing_else(project: Path, tmp_path: Path) -> None:
    out = tmp_path / "new" / "public"
    done = publish(out)
    assert files(out) == sorted(
        [
            MARKER,
            "index.html",
            *(f"{p}.{s}" for p in ("a-report", "b-report", "logs/c") for s in ("html", "summary.json")),
        ]
    )
    assert (done.num_pages, done.changed) == (3, 6)
    soup = BeautifulSoup((out / "index.html").read_text(), "html.parser")
    links = {str(a["href"]) for a in soup.select("main a")}
    assert links == {"a-report.html", "b-report.html", "logs/c.html"}
    assert all((out / link).exists() for link in links)
    assert not [path.name for path in out.parent.iterdir() if path != out]  # nothing is left beside it


def test_nothing_of_the_machine_is_in_it(project: Path, tmp_path: Path) -> None:
    publish(tmp_path / "public")
    for name in files(tmp_path / "public"):
        text = (tmp_path / "public" / name).read_text()
        assert str(project) not in text and "secret-place" not in text and "hf_abc" not in text, name
    page = (tmp_path / "public" / "a-report.html").read_text()
    assert "<p>./data/x.log on (this machine)</p>" in page
    # A longer name is another one.
    assert f"<p>my-{HOST} {HOST}x hf_***</p>" in page
    assert data_uri("file,n\n./y.log,1\n") in page and "data:image/png;base64,iVBORw0K" in page


def test_only_the_pages_of_a_campaign(project: Path, tmp_path: Path) -> None:
    publish(tmp_path / "public", campaigns=["b"])
    assert files(tmp_path / "public") == ["b-report.html", "b-report.summary.json", "index.html", MARKER]
    with pytest.raises(InputError, match="no page of 'bb'\n  -> there are pages of a, b; workbench report"):
        publish(tmp_path / "other", campaigns=["bb"])


def test_an_earlier_publication_is_replaced_as_a_whole_and_nothing_else_is_touched(
    project: Path, tmp_path: Path
) -> None:
    public = tmp_path / "public"
    publish(public)
    publish(public, campaigns=["a"])
    assert files(public) == ["a-report.html", "a-report.summary.json", "index.html", MARKER]
    mine = tmp_path / "mine"
    mine.mkdir()
    publish(mine)  # empty
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "thesis.tex").write_text("x")
    for target, words in (
        (tmp_path / "full", "holds other files"),
        (tmp_path / "full" / "thesis.tex", "is a file"),
        (project / "reports" / "public", "lies in the folder of the pages"),
        (project / "reports", "lies in the folder of the pages"),
    ):
        with pytest.raises(UsageError, match=words):
            publish(target)
    assert files(tmp_path / "full") == ["thesis.tex"]


def test_a_zip_holds_one_folder(project: Path, tmp_path: Path) -> None:
    done = publish(tmp_path / "pages.zip")
    with zipfile.ZipFile(done.path) as archive:
        names = archive.namelist()
        assert str(project) not in archive.read("pages/a-report.html").decode()
    assert len(names) == 8 and {name.partition("/")[0] for name in names} == {"pages"}
    assert [path.name for path in tmp_path.iterdir() if path.name.startswith(".")] == []
    assert done.text.endswith("pages.zip")


def test_nothing_to_publish_says_what_to_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv(ROOT_ENV, str(tmp_path))
    assert main(["publish", str(tmp_path / "public")]) == 3
    assert "no pages to publish\n  -> build them first, with workbench report" in capsys.readouterr().err
    assert not (tmp_path / "public").exists()


def test_the_command_says_where_to_look(project: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["publish", str(tmp_path / "p"), "--campaign", "a"]) == 0
    out = capsys.readouterr().out
    assert out.startswith("1 page and an index, 0.0 MB; what named this machine was taken out of 2 files. Open:\n")
    assert out.rstrip().endswith("p/index.html")
