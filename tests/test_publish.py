from __future__ import annotations

import base64
import json
import os
import socket
import zipfile
from pathlib import Path
from typing import Any

import pytest
from bs4 import BeautifulSoup

import workbench.publish as publishing
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


def test_of_an_earlier_publication_only_what_it_wrote_is_replaced(project: Path, tmp_path: Path) -> None:
    public = tmp_path / "public"
    public.mkdir()
    publish(public)  # empty
    for name in (".git/config", "CNAME", "logs/mine.txt"):
        (public / name).parent.mkdir(exist_ok=True)
        (public / name).write_text(name)
    (project / "reports" / "a-report.html").write_text("new")
    publish(public, campaigns=["a"])
    others = [".git/config", "CNAME", "logs/mine.txt"]
    assert files(public) == sorted([*others, "a-report.html", "a-report.summary.json", "index.html", MARKER])
    assert (public / "a-report.html").read_text() == "new" and (public / "CNAME").read_text() == "CNAME"
    (public / "logs" / "mine.txt").unlink()
    publish(public)
    publish(public, campaigns=["a"])
    assert not (public / "logs").exists()  # a folder that publishing emptied goes as well


def test_what_publishing_did_not_write_is_refused_and_stays(project: Path, tmp_path: Path) -> None:
    for name in ("full/thesis.tex", "old/index.html"):
        (tmp_path / name).parent.mkdir()
        (tmp_path / name).write_text("x")
    (tmp_path / "old" / MARKER).write_text("Made by `workbench publish`, which replaces this folder as a whole.\n")
    (tmp_path / "pages.zip").write_text("x")
    with zipfile.ZipFile(tmp_path / "thesis.zip", "w") as archive:
        archive.writestr("thesis/thesis.tex", "x")
    for packing in (zipfile.ZIP_LZMA, zipfile.ZIP_BZIP2):
        # What begins a packed file is made no packed file: the unpackers complain each in a way of its own.
        with zipfile.ZipFile(tmp_path / f"packed{packing}.zip", "w", packing) as archive:
            archive.writestr(f"p/{MARKER}", "x")
        data = (tmp_path / f"packed{packing}.zip").read_bytes()
        place = len(f"p/{MARKER}") + 30
        (tmp_path / f"packed{packing}.zip").write_bytes(data[: place + 4] + b"\xff" * 5 + data[place + 9 :])
    publish(tmp_path / "b", campaigns=["b"])
    (tmp_path / "b" / "a-report.html").write_text("mine")
    before = files(tmp_path)
    for target, words in (
        (tmp_path / "full", "holds other files"),
        (tmp_path / "old", "holds other files"),
        (tmp_path / "not-there" / "..", "holds other files"),
        (tmp_path / "full" / "thesis.tex", "is a file"),
        (tmp_path / "pages.zip", "is there and not a zip of workbench publish"),
        (tmp_path / "thesis.zip", "is there and not a zip of workbench publish"),
        (tmp_path / f"packed{zipfile.ZIP_LZMA}.zip", "is there and not a zip of workbench publish"),
        (tmp_path / f"packed{zipfile.ZIP_BZIP2}.zip", "is there and not a zip of workbench publish"),
        (tmp_path / "b", "a-report.html: not written by publishing"),
        (project / "reports" / "public", "lies in the folder of the pages"),
        (project / "reports", "lies in the folder of the pages"),
        (project / "data" / "public", "lies in the folder of the data"),
        (project / "notebooks", "lies in the folder of the notebooks"),
    ):
        with pytest.raises(UsageError, match=words):
            publish(target)
    assert files(tmp_path) == before
    assert (tmp_path / "b" / "a-report.html").read_text() == "mine"


@pytest.mark.parametrize(
    "line", ["../victim.html", "/victim.html", "link/victim.html", "thesis.tex", ".git/x.html", ""]
)
def test_a_marker_that_names_what_no_publication_writes_does_not_count(
    project: Path, tmp_path: Path, line: str
) -> None:
    public = tmp_path / "public"
    publish(public)
    (tmp_path / "victim.html").write_text("x")
    (public / "link").symlink_to(tmp_path)
    with (public / MARKER).open("a") as marker:
        marker.write(f"{line}\n")
    with pytest.raises(UsageError, match="no list of those that publishing wrote"):
        publish(public)
    assert (tmp_path / "victim.html").exists() and (public / "index.html").exists()


def test_into_the_working_folder_and_through_a_link(
    project: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    public = tmp_path / "public"
    publish(public)
    monkeypatch.chdir(public)
    assert publish(Path(), campaigns=["a"]).text.endswith("Open:\nindex.html")
    assert files(public) == ["a-report.html", "a-report.summary.json", "index.html", MARKER]
    (tmp_path / "link").symlink_to(public)
    publish(tmp_path / "link")
    assert (tmp_path / "link").is_symlink() and (public / "b-report.html").is_file()
    (tmp_path / "round").symlink_to(tmp_path / "round")
    with pytest.raises((UsageError, InputError)):
        publish(tmp_path / "round")


def test_a_failure_loses_nothing_and_the_next_one_succeeds(
    project: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    public = tmp_path / "public"
    publish(public, campaigns=["b"])
    replace = Path.replace

    def fails_at_c(self: Path, target: Path) -> Path:
        if self.name == "c.html":
            raise OSError(28, "No space left on device")
        return replace(self, target)

    with monkeypatch.context() as patch:
        patch.setattr(Path, "replace", fails_at_c)
        with pytest.raises(InputError, match="No space left"):
            publish(public)
    assert {"b-report.html", "b-report.summary.json", "index.html", MARKER} <= set(files(public))
    publish(public)
    assert "logs/c.html" in files(public) and not list(public.glob(".publish-*"))


@pytest.mark.parametrize("there", [True, False])
def test_another_that_publishes_there_meanwhile_is_named(
    project: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, there: bool
) -> None:
    public = tmp_path / "public"
    if there:
        publish(public, campaigns=["b"])
    fill = publishing._fill

    def beside_another(*arguments: Any) -> Any:
        monkeypatch.setattr(publishing, "_fill", fill)
        publish(public, campaigns=["a"])
        return fill(*arguments)

    monkeypatch.setattr(publishing, "_fill", beside_another)
    with pytest.raises(InputError, match="another publish has written there meanwhile"):
        publish(public)
    assert files(public) == ["a-report.html", "a-report.summary.json", "index.html", MARKER]
    publish(public)
    assert "b-report.html" in files(public)


def test_pages_that_cannot_be_published_are_named(project: Path, tmp_path: Path) -> None:
    reports = project / "reports"
    (reports / "a-report.html").unlink()
    os.mkfifo(reports / "a-report.html")
    (reports / "logs" / "c.html").unlink()
    (reports / "logs" / "c.html").symlink_to(reports / "b-report.html")
    for name in ("d", "e"):
        (reports / f"{name}.html").write_bytes(b"caf\xe9")
    (reports / "d.summary.json").write_text((reports / "b-report.summary.json").read_text())
    done = publish(tmp_path / "public")
    assert done.num_pages == 1
    assert done.left_out == (
        "a-report.html (Not a file)",
        "d.html (not UTF-8)",
        "logs/c.html (a link)",
        "e.html (a page without a summary)",
    )
    assert done.text.startswith("Left out: a-report.html (Not a file)\nLeft out: d.html (not UTF-8)\n")
    assert files(tmp_path / "public") == ["b-report.html", "b-report.summary.json", "index.html", MARKER]
    (reports / "b-report.html").write_bytes(b"caf\xe9")
    with pytest.raises(InputError, match="no page can be published"):
        publish(tmp_path / "other")
    assert not (tmp_path / "other").exists()


def test_a_zip_holds_one_folder(project: Path, tmp_path: Path) -> None:
    done = publish(tmp_path / "pages.zip")
    with zipfile.ZipFile(done.path) as archive:
        names = archive.namelist()
        assert str(project) not in archive.read("pages/a-report.html").decode()
    assert len(names) == 8 and {name.partition("/")[0] for name in names} == {"pages"}
    assert [path.name for path in tmp_path.iterdir() if path.name.startswith(".")] == []
    assert done.text.endswith("pages.zip")
    publish(tmp_path / "pages.zip", campaigns=["a"])
    with zipfile.ZipFile(tmp_path / "pages.zip") as archive:
        assert len(archive.namelist()) == 4
    assert publish(tmp_path / "up.ZIP").text.endswith("Open:\n" + str(tmp_path / "up.ZIP"))


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
