from __future__ import annotations

import base64
import json
import socket
from pathlib import Path

import pytest

from workbench.paths import ROOT_ENV
from workbench.public import Cleaner, cleaner


def data_uri(data: bytes, kind: str = "text/csv") -> str:
    return f"data:{kind};base64,{base64.b64encode(data).decode()}"


@pytest.fixture
def at(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Cleaner:
    """For Jörg O'Neil & co, on a machine with a long name."""
    return made(monkeypatch, "GPU-node-17.lab.example")


def made(monkeypatch: pytest.MonkeyPatch, host: str) -> Cleaner:
    monkeypatch.setenv("HOME", "/home/jö'&co")
    monkeypatch.setenv(ROOT_ENV, "/srv/project")
    monkeypatch.setattr(socket, "gethostname", lambda: host)
    return cleaner()


@pytest.mark.parametrize(
    "written",
    [
        "/home/jö'&co",
        "/home/jö&#39;&amp;co",
        "/home/j&ouml;&#x27;&amp;co",
        "/home/j&#246;&#39;&#38;co",
        "&#x2F;home&#x2F;jö&#x27;&amp;co",
        "/home/j%C3%B6%27%26co",
        "%2Fhome%2fj%c3%b6%27%26co",
        "/home/j\\u00f6'&co",
        "\\/home\\/j\\u00F6'\\u0026co",
        "/home/j\\xf6'&co",
    ],
)
def test_the_home_folder_in_any_form(at: Cleaner, written: str) -> None:
    for before, after in (("", "/x.log"), ("in ", "."), ("file://%2F", "&quot;"), ("a\\n", " b"), (">", "<")):
        assert at.text(f"{before}{written}{after}") == f"{before}~{after}"
    assert at.page(f'<p title="{written}/x">{written}</p>') == '<p title="~/x">~</p>'
    for other in (f"{written}2", f"{written}-old", f"{written}.old", "/mnt/home/jö'&co"):
        assert at.text(other) == other


@pytest.mark.parametrize(
    "kind", ["text/csv;charset=utf-8", "application/json", "application/x-sh", "image/svg+xml", "X/Y"]
)
def test_downloads_of_any_kind(at: Cleaner, kind: str) -> None:
    for encoding in ("utf-8", "latin-1"):
        given, wanted = ('"é /home/jö\'&co/x on gpu-node-17"', '"é ~/x on (this machine)"')
        page = f"<a href='{data_uri(given.encode(encoding), kind)}'>x</a>"
        assert at.page(page) == f"<a href='{data_uri(wanted.encode(encoding), kind)}'>x</a>"


def test_downloads_that_browsers_read_though_written_otherwise(at: Cleaner) -> None:
    packed = base64.b64encode(b"a /srv/project/xy").decode()  # ends in =
    wanted = base64.b64encode(b"a ./xy").decode()
    for written in (packed.rstrip("="), packed.replace("=", "%3D"), packed[:8] + "\n" + packed[8:]):
        for head in ("data:;base64,", "DATA:text/csv;charset=utf-8;BASE64,", "data:application/json;base64,"):
            assert at.page(f"<a href='{head}{written}'>") == f"<a href='{head}{wanted}'>"
    assert at.page("data:;base64,a!/srv/project/x") == "data:;base64,a!./x"


def test_pictures_of_pixels_stay(at: Cleaner) -> None:
    page = f"<img src='{data_uri(b'/srv/project/x', 'image/png')}'>"
    assert at.page(page) == page


def test_the_host_where_a_reader_sees_it_in_full_and_short(at: Cleaner) -> None:
    for name in ("GPU-node-17.lab.example", "gpu-node-17", "GPU-NODE-17"):
        for before, after in (("", ""), ("run_", "_a"), ("on ", "."), ("http://", ":30000/"), ("x\\n", "")):
            assert at.text(f"{before}{name}{after}") == f"{before}(this machine){after}"
    for other in ("my-gpu-node-17", "gpu-node-177", "gpu-node-17b", "gpu-node-17-b"):
        assert at.text(other) == other


def test_the_host_stays_where_a_page_needs_it(at: Cleaner) -> None:
    kept = (
        '<meta content="gpu-node-17"><style>.gpu-node-17 > p { color: red }</style>'
        '<gpu-node-17 class="gpu-node-17" id="gpu-node-17"></gpu-node-17><a href="#gpu-node-17"></a>'
        '<a href="gpu-node-17.html"></a>'
    )
    assert at.page(kept) == kept
    seen = '<a href="http://gpu-node-17:1/" title="a > gpu-node-17">gpu-node-17</a>'
    assert at.page(seen) == '<a href="http://this-machine:1/" title="a > this-machine">(this machine)</a>'
    text = '{"gpu-node-17": "gpu-node-17", "/srv/project/x" : 1.50,\n "a": ["\\tgpu-node-17 \\"é\\u0041"]}'
    public = at.json(text)
    assert public.startswith('{"gpu-node-17": "(this machine)", "./x" : 1.50,\n "a"')
    assert at.json('"\\ud800 gpu-node-17 é"') == '"\\ud800 (this machine) \\u00e9"'
    assert json.loads(public)["a"] == ['\t(this machine) "éA']


@pytest.mark.parametrize("host", ["data", "main", "status", "server", "localhost", "h200", "K25", "10", ""])
def test_a_host_named_like_any_word_is_left(monkeypatch: pytest.MonkeyPatch, host: str) -> None:
    text = f"<p class='{host}'>{host} data 10</p>"
    assert made(monkeypatch, host).page(text) == text
    assert made(monkeypatch, host).json(json.dumps({host: host})) == json.dumps({host: host})
