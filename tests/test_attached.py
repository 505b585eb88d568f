"""Servers that somebody else runs: real ones, started here by hand."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from live_campaigns import PROMPTS, WARMUP, play, run_folder, starts, states, status, write_project
from scripted_server import running

from workbench import attached, measure
from workbench.attached import Attachment, LogCopy, attached_plan, attachment
from workbench.errors import LaunchError, LogError, UsageError
from workbench.recording import Ended
from workbench.spec import RunSpec
from workbench.store import read_requests, read_run
from workbench.sweep import CampaignSpec, find_campaign

EAGLE = ("--model-path", "/models/t", "--speculative-algorithm", "EAGLE3", "--speculative-draft-model-path", "/x/d")
EAGLE = (*EAGLE, "--speculative-num-steps", "3", "--speculative-eagle-topk", "1", "--speculative-num-draft-tokens", "4")


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    project = write_project(tmp_path / "project")
    play(monkeypatch, project)
    return project


@pytest.fixture
def log(tmp_path: Path) -> Path:
    return tmp_path / "elsewhere" / "their.log"


def measured(*settings: str, url: str, log: Path | None = None, force: bool = False) -> list[Ended]:
    campaign = find_campaign("small", settings)
    return measure.run_campaign(campaign, place=Attachment(url, log), force=force, say=lambda _: None)


def spec_of(campaign: CampaignSpec, info: dict[str, object]) -> RunSpec:
    """The run that a server with that account of itself makes."""
    start = attached._start(campaign, info)
    return attached._run(campaign, start, info, 1)


# --- measuring ---------------------------------------------------------------------------------------------------


def test_an_attached_server_is_measured_and_left_running(root: Path, log: Path) -> None:
    log.parent.mkdir()
    measure.run_campaign(find_campaign("small", ["only=baseline-default"]), say=lambda _: None)
    with running("--enable-metrics", *EAGLE, log=log) as url:
        (ended,) = measured("workload.max_new_tokens=8", url=url, log=log)
        assert attached.attach(url).url == url
        assert ended.run_id.startswith("attached-eagle3-d-s3-k1-n4-c1-")
        (again,) = measured("workload.max_new_tokens=8", url=url, log=log)
        assert not again.reused, "it may be another server by now"
    assert len(starts(root)) == 1, "nothing but the baseline was started"
    assert states(root) == {"baseline-default-c1": "ok", "attached-eagle3-d-s3-k1-n4-c1": "ok"}
    run = read_run(run_folder(root, "attached"))
    decode, baseline = run.spec.spec_decode, read_run(run_folder(root, "baseline"))
    assert decode is not None and decode.model_dump(exclude_none=True) == {
        "speculative_algorithm": "EAGLE3",
        "speculative_num_steps": 3,
        "speculative_eagle_topk": 1,
        "speculative_num_draft_tokens": 4,
    }
    assert (run.spec.drafter, run.spec.baseline_group) == ("d", baseline.spec.baseline_group)
    assert run.provenance.servers_alive is None and run.provenance.argv == ()
    assert run.provenance.source == "campaign small, attached server"
    records, _ = read_requests(run)
    assert len(records) == PROMPTS and all(record["spec_verify_ct"] for record in records)
    # The log was copied into the campaign; the spans are those of the window in it.
    assert run.log is not None and run.log.is_relative_to(root)
    parts = b"".join(run.log.read_bytes()[start:end] for start, end in run.status.log_spans)
    assert parts.count(b"POST /generate") == PROMPTS
    assert b"server_args" in run.log.read_bytes()[: run.status.log_spans[0][0]]


def test_without_speculation_it_is_a_baseline(root: Path) -> None:
    with running("--enable-metrics", "--model-path", "/models/other") as url:
        (ended,) = measured(url=url)
    assert ended.run_id.startswith("attached-baseline-c1-")
    run = read_run(run_folder(root, "attached"))
    assert (run.spec.role, run.spec.baseline_group, run.log) == ("baseline", "default", None)
    assert run.spec.notes == "The server serves other; the campaign's target is T (t)."


def test_a_server_that_says_nothing_of_itself_is_compared_with_none(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(attached, "server_info", lambda url: None)
    said: list[str] = []
    with running() as url:
        measure.run_campaign(find_campaign("small"), place=Attachment(url), say=said.append)
    run = read_run(run_folder(root, "attached-unknown"))
    assert run.spec.baseline_group == "attached-unknown"
    assert any("its configuration is unknown" in line for line in said)


def test_an_attached_server_that_dies(root: Path) -> None:
    with running("--fault", f"die@{WARMUP + 2}", "--model-path", "m") as url:
        (ended,) = measured(url=url)
    assert (str(ended.state), states(root)) == ("failed", {"attached-baseline-c1": "failed"})
    assert "the server that somebody else runs no longer answers" in status(run_folder(root, "attached"))["reason"]


def test_faults_in_what_was_given(root: Path, tmp_path: Path) -> None:
    campaign = find_campaign("small")
    with pytest.raises(UsageError, match="not the URL of a server"):
        attached_plan(campaign, Attachment("127.0.0.1:30000"))
    with pytest.raises(LaunchError, match="no healthy server answers") as caught:
        attached_plan(campaign, Attachment("http://127.0.0.1:9"))
    assert caught.value.exit_code == 6
    with pytest.raises(LogError, match="no such log"):
        attached_plan(campaign, Attachment("http://127.0.0.1:9", tmp_path / "absent.log"))
    with pytest.raises(UsageError, match="a log without a server"):
        attachment("", "x.log")
    assert attachment("") is None
    assert not (root / "data" / "runs").exists()


# --- what it is --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("usual", "info", "group"),
    [
        (None, {"disable_cuda_graph": False}, "default"),
        (None, {"disable_cuda_graph": True}, "nograph"),
        (False, {"disable_cuda_graph": True}, "default"),
        (False, {"disable_cuda_graph": False}, "graph"),
        (None, {"disable_cuda_graph": True, "device": "cpu"}, "default"),
        (None, {}, "default"),
    ],
)
def test_the_baselines_are_those_with_the_same_graphs(
    root: Path, usual: bool | None, info: dict[str, object], group: str
) -> None:
    campaign = find_campaign("small", [f"server.cuda_graph={json.dumps(usual)}"])
    assert spec_of(campaign, info).baseline_group == group


@pytest.mark.parametrize(
    ("name", "value"),
    [
        *(("context_length", value) for value in ("²", "9" * 5000, 0, -1, 1.5, True)),
        *((name, 10**12 + 1) for name in ("tp_size", "dp_size", "max_running_requests", "decode_log_interval")),
        *(("mem_fraction_static", value) for value in (float("inf"), float("nan"), 10**400, -1, 0, 90, True, "0.8")),
        ("speculative_num_steps", 10**13),
    ],
)
def test_what_no_setting_can_be_is_unknown(root: Path, name: str, value: object) -> None:
    campaign, info = find_campaign("small"), {"speculative_algorithm": "EAGLE3", "version": "0.5.14"}
    assert spec_of(campaign, {**info, name: value}) == spec_of(campaign, info)
    assert spec_of(campaign, {"context_length": "4096"}).server.context_length == 4096


def test_settings_are_read_from_any_version(root: Path) -> None:
    info: dict[str, object] = {"speculative_algorithm": "EAGLE3", "speculative_draft_model_path": "/m/their-draft"}
    info |= {"speculative_num_steps": 2, "tp_size": 8, "mem_fraction_static": 0.85, "cuda_graph_max_bs": 16}
    info |= {"version": "0.5.9", "max_running_requests": None, "attention_backend": "triton", "engine": "reference"}
    run = spec_of(find_campaign("small"), info)
    assert run.drafter == "their-draft"
    assert run.server_id == "attached-eagle3-their-draft-s2"
    assert run.server.model_dump(exclude_none=True, exclude_defaults=True) == {
        "tp_size": 8,
        "cuda_graph_max_bs_decode": 16,
        "mem_fraction_static": 0.85,
        "attention_backend": "triton",
    }
    assert (run.engine, run.sglang_version) == ("reference", "0.5.9")


# --- its log -----------------------------------------------------------------------------------------------------


@pytest.fixture
def small_head(monkeypatch: pytest.MonkeyPatch) -> Iterator[int]:
    monkeypatch.setattr(attached, "HEAD_BYTES", 12)
    yield 12


def test_of_a_long_log_only_the_beginning_and_what_is_new_is_copied(log: Path, tmp_path: Path, small_head: int) -> None:
    log.parent.mkdir()
    log.write_bytes(b"first\nsecond\nthird\nfo")
    copy = LogCopy(log, tmp_path / "copy.log")
    assert (tmp_path / "copy.log").read_bytes() == b"first\n"
    with log.open("ab") as file:
        file.write(b"urth\n")
    assert copy.catch_up() == len(b"first\nurth\n")
    assert copy.catch_up() == len(b"first\nurth\n")


REPLACED = "the server's log was emptied or replaced (rotated, say): lines may be missing before that"
GONE = "the server's log can no longer be read (No such file or directory): lines are missing"


def test_a_log_that_is_emptied_or_goes_adds_nothing_and_is_said(log: Path, tmp_path: Path) -> None:
    log.parent.mkdir()
    log.write_bytes(b"one\n")
    copy = LogCopy(log, tmp_path / "copy.log")
    assert copy.catch_up() == 4 and copy.faults == []
    log.write_bytes(b"")
    assert copy.catch_up() == 4 and copy.faults == [REPLACED]
    log.write_bytes(b"two\n")
    assert copy.catch_up() == 8 and copy.faults == [REPLACED]
    log.unlink()
    assert copy.catch_up() == 8 and copy.faults == [REPLACED, GONE]


@pytest.mark.parametrize("new", [b"1\n", b"new", b"a whole new file\n"])
def test_of_a_log_that_was_replaced_all_is_copied(log: Path, tmp_path: Path, new: bytes) -> None:
    """Shorter than the old one, as long, or longer by now."""
    log.parent.mkdir()
    log.write_bytes(b"old\n")
    copy = LogCopy(log, tmp_path / "copy.log")
    log.rename(log.with_suffix(".1"))
    log.write_bytes(new)
    assert copy.catch_up() == 4 + len(new)
    assert copy.faults == [REPLACED]
    assert (tmp_path / "copy.log").read_bytes() == b"old\n" + new
    assert copy.catch_up() == 4 + len(new) and copy.faults == [REPLACED]


def test_a_log_that_begins_alike_and_is_shorter_is_another(log: Path, tmp_path: Path) -> None:
    log.parent.mkdir()
    log.write_bytes(b"the same banner\n" * 40)
    copy = LogCopy(log, tmp_path / "copy.log")
    log.write_bytes(b"the same banner\n" * 30)
    assert copy.catch_up() == 16 * 70 and copy.faults == [REPLACED]


def test_a_run_says_that_its_log_was_rotated_meanwhile(root: Path, log: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Once, though it is seen before and after the window."""
    log.parent.mkdir()
    caught_up = LogCopy.catch_up

    def rotated_before(copy: LogCopy) -> int:
        log.write_bytes(log.read_bytes()[:-1].swapcase())
        return caught_up(copy)

    with running("--model-path", "m", log=log) as url:
        measured(url=url, log=log)
        assert REPLACED not in status(run_folder(root, "attached")).get("reason", "")
        monkeypatch.setattr(LogCopy, "catch_up", rotated_before)
        (ended,) = measured(url=url, log=log)
    assert (ended.state, ended.reason) == ("ok", None)
    assert status(run_folder(root, "attached"))["reason"].count(REPLACED) == 1


def test_secrets_of_an_attached_server_do_not_come_into_the_copy(root: Path, log: Path) -> None:
    log.parent.mkdir()
    with running("--model-path", "m", "--api-key", "s3cr3t-key", log=log) as url:
        measured(url=url, log=log)
    everything = [path.read_bytes() for path in (root / "data" / "runs").rglob("*") if path.is_file()]
    assert any(b"api_key" in content for content in everything)
    assert not any(b"s3cr3t-key" in content for content in everything)
