"""Secrets in what others hand over (logs, results, servers, prompts), and in what training and publishing write."""

from __future__ import annotations

import base64
import json
import shutil
import sys
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any

import pytest
from bench_files import AIPERF, BASE_SERVER, EAGLE3, GRID, REPORT, SERVING, SPEC_SERVER, guidellm, vllm_log
from live_campaigns import write_project
from load_servers import answering, send
from log_samples import N4_GRAPH, PLAIN_DECODE, PLAIN_PREFILL
from planted import ENVIRONMENT, LAUNCH, PRINTED, found, workbench
from run_folders import write_text
from scripted_server import running

from workbench.cli import main
from workbench.paths import ROOT_ENV
from workbench.publish import publish

ROOT = Path(__file__).parents[2]
URL = PRINTED["url"]
SPOKEN = "\n".join([*PRINTED.values(), *(f"{name}={value}" for name, value in ENVIRONMENT.items())]) + "\n"
# Where a name is made of a path, the part that names the user or the token may be the last one.
PATHS = (
    URL,
    "https://planteduser:plantedurlpass@models.invalid",
    "https://models.invalid/m?token=" + PRINTED["github"],
)


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    project = write_project(tmp_path / "project")
    monkeypatch.setenv(ROOT_ENV, str(project))
    for name, value in ENVIRONMENT.items():
        monkeypatch.setenv(name, value)
    return project


def call(capsys: pytest.CaptureFixture[str], *arguments: object) -> tuple[int, str]:
    code = main([str(argument) for argument in arguments])
    said = capsys.readouterr()
    assert "planted" not in (said.out + said.err).lower()
    return code, said.out + said.err


# --- servers of others -------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.timeout(400)
def test_an_attached_server(project: Path, tmp_path: Path) -> None:
    shutil.copytree(ROOT / "notebooks", project / "notebooks", dirs_exist_ok=True)
    shutil.copy(ROOT / "data" / "reference_points.csv", project / "data")
    theirs = write_text(tmp_path / "elsewhere" / "their.log", SPOKEN)
    keys: tuple[str, ...] = (
        "--api-key",
        "plantedargument77",
        "--admin-api-key",
        "plantedadmin88",
        "--speculative-algorithm",
        "EAGLE3",
    )
    keys += ("--speculative-num-steps", "3", "--speculative-draft-model-path", PATHS[2], "--model-path", URL)
    with running("--enable-metrics", *keys, log=theirs) as url:
        code, said = workbench(project, "run", "small", "--attach", url, "--log", str(theirs))
        # A password in the URL would be sent, and shown by every process list.
        refused = workbench(project, "run", "small", "--attach", url.replace("//", "//planteduser:plantedpass@"))
    assert (code, refused[0]) == (0, 2), said + refused[1]
    (log,) = project.glob("data/runs/small/_servers/*/server*.log")
    assert b"HF_TOKEN=****" in log.read_bytes()
    reported = workbench(project, "report", "--campaign", "small")
    assert list(project.glob("reports/*.html")), reported[1]
    assert [said for said in (said, refused[1], reported[1]) if "planted" in said.lower()] == []
    assert list(found(project)) == []


def error_with_secrets(handler: BaseHTTPRequestHandler, _: bytes) -> None:
    if handler.path == "/generate":
        send(handler, {"error": SPOKEN[:250]}, status=500)
    else:
        send(handler, {**SPEC_SERVER, "model_path": URL, "speculative_draft_model_path": PATHS[1]})


def test_what_a_server_answers_with(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from workbench import measure
    from workbench.attached import Attachment
    from workbench.sweep import find_campaign

    said: list[str] = []
    with answering(error_with_secrets) as url:
        (ended,) = measure.run_campaign(find_campaign("small"), place=Attachment(url), say=said.append)
    assert str(ended.state) == "failed"
    assert list(project.rglob("requests.jsonl"))
    assert list(found(project)) == []
    assert "planted" not in "".join(said).lower()


# --- files of others ---------------------------------------------------------------------------------------------


def soiled(value: Any, secret: str) -> Any:
    """The same with a secret in the place, or at the end, of every text; tools' own words are kept."""
    if isinstance(value, dict):
        return {key: soiled(each, secret) for key, each in value.items()}
    if isinstance(value, list):
        return [soiled(each, secret) for each in value]
    return secret if isinstance(value, str) and ("/" in value or value in ("random", "gsm8k", "mmlu")) else value


def results(secret: str) -> Iterator[Any]:
    plain = {**SERVING, "server_info": BASE_SERVER, "tag": "a/b", "errors": ["a/b"], "headers": {"Authorization": "/"}}
    for content in (SERVING, plain, GRID, EAGLE3, REPORT, AIPERF, guidellm({"type_": "concurrent", "streams": 8})):
        yield soiled(content, secret)


@pytest.mark.parametrize("secret", [*PRINTED.values(), *PATHS], ids=[*PRINTED, "path", "host", "query"])
def test_results_and_logs_that_are_imported(
    project: Path, tmp_path: Path, secret: str, capsys: pytest.CaptureFixture[str]
) -> None:
    given = tmp_path / "given"
    files = [write_text(given / f"{n}.json", json.dumps(content)) for n, content in enumerate(results(secret))]
    own = (N4_GRAPH + PLAIN_PREFILL.encode() + PLAIN_DECODE.encode()).decode()
    files.append(write_text(given / "own.log", f"{SPOKEN}{secret}\n{own}"))
    files.append(write_text(given / "vllm.log", vllm_log().replace("meta-llama/", f"{secret}/") + SPOKEN))
    call(capsys, "import", "--campaign", "pile", "--speculative", *files)
    assert len(list(project.glob("data/runs/pile/*/status.json"))) >= 9
    assert list(project.rglob("server.log"))
    assert list(found(project)) == []


def test_prompts_of_others(project: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    head = {"name": "theirs", "source": f"from {URL}", "licence": "MIT"}
    lines = [head, *({"text": f"what is the answer to the question of number {n}"} for n in range(3))]
    given = write_text(tmp_path / "theirs.jsonl", "".join(json.dumps(line) + "\n" for line in lines))
    assert call(capsys, "prompts", "build", "--file", given, "--out", project / "data" / "prompts" / "o.jsonl")[0] == 0
    assert list(found(project)) == []


# --- pages that are passed on ------------------------------------------------------------------------------------


@pytest.mark.parametrize("target", ["public", "public.zip"])
def test_pages_that_are_published(project: Path, tmp_path: Path, target: str) -> None:
    """Pages of an earlier version, say, or changed by hand."""
    download = f"data:text/csv;charset=utf-8;base64,{base64.b64encode(SPOKEN.encode()).decode()}"
    said = "\n".join(PRINTED.values())
    write_text(project / "reports" / "a.html", f"<p>{said}</p><a href='{download}'>CSV</a>")
    summary = {"kind": "report", "title": "A", "status": "ok", "finished_at": "2026-11-03T10:00:00+00:00"}
    write_text(project / "reports" / "a.summary.json", json.dumps({**summary, "answer": said, "reason": said}))
    publish(tmp_path / "out" / target)
    assert list((tmp_path / "out").iterdir())
    assert list(found(tmp_path / "out")) == []


# --- training ----------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_a_training_and_what_it_is_judged_by(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("torch", reason="training needs torch (extra: reference)")
    from training_files import config_for, greedy_samples, tiny_target, write_corpus

    target = tiny_target(project / "target")
    write_corpus(project / "corpus", greedy_samples(target, 8))
    config = write_text(project / "c.yaml", json.dumps(config_for(project, steps=2).model_dump(mode="json")))
    assert call(capsys, "train", config)[0] == 0
    evaluate = ("evaluate", project / "draft", "--target", project / "target", "--answers", project / "corpus")
    assert call(capsys, *evaluate, "--steps", 2, "--device", "cpu", "--out", project / "figures.json")[0] == 0
    assert list(found(project)) == []


@pytest.mark.slow
def test_answers_of_a_server_that_is_started(
    project: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("torch", reason="torch is not installed (extra: reference)")
    pytest.importorskip("tokenizers", reason="the tokenizers package is not installed (extra: reference)")
    from answering_target import write_prompts, write_target
    from tiny_models import target_config, target_tensors, write_model

    from workbench.launch.argv import server_argv
    from workbench.training import serving

    config = target_config(vocab=12)
    target = write_target(write_model(project / "target", config, target_tensors(config)))
    script = write_text(tmp_path / "serve.py", "from workbench.reference.__main__ import main\nmain()\n")
    launch = LAUNCH.format(names=list(ENVIRONMENT), printed=list(PRINTED.values()), script=str(script))
    write_text(tmp_path / "launch.py", launch)

    def told(*a: Any, **k: Any) -> list[str]:
        argv = server_argv(*a, **k)
        return [sys.executable, str(tmp_path / "launch.py"), *argv[argv.index("workbench.reference") + 1 :]]

    monkeypatch.setattr(serving, "server_argv", told)
    order = ("answers", "--target", target, "--prompts", write_prompts(project / "p.jsonl", 5), "--temperature", 0)
    assert call(capsys, *order, "--engine", "reference", "--max-new-tokens", 4, "--out", project / "corpus")[0] == 0
    assert b"HF_TOKEN=****" in (project / "corpus" / "server.log").read_bytes()
    assert list(found(project)) == []


def test_answers_of_a_server_that_fails(
    project: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("tokenizers", reason="the tokenizers package is not installed (extra: reference)")
    from answering_target import write_prompts, write_target

    from workbench.training import asking

    monkeypatch.setattr(asking, "RETRY_AFTER_S", 0.0)
    target, prompts = write_target(project / "target"), write_prompts(project / "p.jsonl", 5)
    with answering(error_with_secrets) as url:
        order = ("answers", "--target", target, "--prompts", prompts, "--out", project / "corpus", "--concurrency", 1)
        call(capsys, *order, "--url", url)
        call(capsys, *order, "--url", url.replace("//", "//planteduser:plantedurlpass@"))
    call(capsys, *order, "--url", "http://planteduser:plantedurlpass@127.0.0.1:9")
    assert (project / "corpus" / "corpus.json").is_file()
    assert list(found(project)) == []
