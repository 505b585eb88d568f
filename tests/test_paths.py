from __future__ import annotations

from pathlib import Path

import pytest

from workbench import paths
from workbench.errors import UsageError
from workbench.paths import check_stated_root, project_root, slug, under_root


@pytest.fixture
def project(tmp_path: Path) -> Path:
    for name in ("notebooks", "data"):
        (tmp_path / "project" / name).mkdir(parents=True)
    return tmp_path / "project"


def test_the_root_is_the_nearest_parent_with_notebooks_and_data(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    deep = project / "data" / "runs" / "c"
    deep.mkdir(parents=True)
    monkeypatch.delenv(paths.ROOT_ENV, raising=False)
    monkeypatch.chdir(deep)
    assert project_root() == project
    assert paths.recorded_dir() == project / "data" / "recorded"
    assert paths.runs_dir() == project / "data" / "runs"
    assert paths.reports_dir() == project / "reports"
    assert paths.notebooks_dir() == project / "notebooks"


def test_outside_a_project_the_checkout_of_the_package_is_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(paths.ROOT_ENV, raising=False)
    monkeypatch.chdir(tmp_path)
    assert project_root() == Path(paths.__file__).parents[1]


def test_a_relative_path_is_one_under_the_project_where_there_is_such_a_file(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(paths.ROOT_ENV, str(project))
    assert under_root("data") == str(project / "data")
    assert under_root("owner/model") == "owner/model"
    assert under_root("/models/m") == "/models/m"


def test_the_stated_root_wins(project: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(paths.ROOT_ENV, str(tmp_path / "elsewhere" / ".." / "here"))
    monkeypatch.chdir(project)
    assert project_root() == tmp_path / "here"


def test_a_stated_root_that_is_not_there_is_wrong(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(paths.ROOT_ENV, str(tmp_path / "gone"))
    with pytest.raises(
        UsageError, match=r"WORKBENCH_ROOT=.*gone: no such folder\n  -> set it to a checkout, or unset it"
    ):
        check_stated_root()


def test_without_a_project_the_message_says_what_to_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(paths.ROOT_ENV, raising=False)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(paths, "__file__", str(tmp_path / "site-packages" / "workbench" / "paths.py"))
    with pytest.raises(UsageError, match=paths.ROOT_ENV) as caught:
        project_root()
    assert caught.value.where == str(tmp_path)


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("server.log", "server.log"),
        ("a b/c\\d", "a-b-c-d"),
        ("../../etc/passwd", "etc-passwd"),
        ("<script>alert('x')</script>", "script-alert-x-script"),
        (".hidden", "hidden"),
        ("---", "unnamed"),
        ("", "unnamed"),
        ("Zürich\n", "Z-rich"),
        ("x" * 200, "x" * 80),
        ("a" * 79 + ".log", "a" * 79),
    ],
)
def test_slugs_are_safe_file_names(text: str, name: str) -> None:
    assert slug(text) == name
