from __future__ import annotations

import gzip
import random
from pathlib import Path

import pytest
from bs4 import BeautifulSoup
from log_samples import N5_NO_GRAPH, N16_GRAPH, RECORDED, VLLM_SPEC, decode_line
from model_folders import CONFIG, TARGET_CONFIG, draft_tensors, write_folder
from run_folders import cut_gzip

from workbench.check import check_files, render_checks
from workbench.diagnose import Outcome, diagnose_files, render, write_page
from workbench.errors import CheckpointError, LogError, UsageError
from workbench.paths import ROOT_ENV
from workbench.preflight import CheckResult, Severity

SERVERS = RECORDED / "h200_smollm2" / "_servers"
EAGLE_FLAG, BASE, SIM = (str(SERVERS / name / "server.log.gz") for name in ("eagle-flag", "base", "sim25-s3"))
CHECK = {"algorithm": None, "context_length": None, "version": None, "tp_size": None}


def diagnosed(folder: Path, data: bytes, name: str = "server.log") -> Outcome:
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)
    return diagnose_files(str(path))


# --- logs to an answer -------------------------------------------------------------------------------------------


def test_the_wrong_flag_of_the_recorded_log_exits_with_1() -> None:
    outcome = diagnose_files(EAGLE_FLAG)
    assert outcome.exit_code == 1
    assert outcome.inputs == (Path(EAGLE_FLAG),)
    text = render(outcome)
    assert text.startswith("VERDICT  Wrong flag: LlamaForCausalLMEagle3 is an EAGLE-3 drafter but runs under\n")
    assert "line 3: server_args: speculative_algorithm='EAGLE'" in text


def test_a_healthy_log_exits_with_0() -> None:
    assert diagnose_files(BASE).exit_code == 0


def test_against_a_baseline_both_speeds_are_said() -> None:
    outcome = diagnose_files(SIM, baseline=BASE)
    assert outcome.inputs == (Path(SIM), Path(BASE))
    # The median lines at 8 running requests are 6863.71 and 7072.11: 0.97.
    figures = outcome.diagnosis.figures.set_index("name")["value"]
    assert figures["speedup by median line at 8 running"] == pytest.approx(6863.71 / 7072.11)
    assert outcome.exit_code == 0


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"", "the log is empty"),
        (b"hello\n", "does not look like the log of an SGLang or vLLM server"),
        (b"\x00\xff\xfe" * 1000, "does not look like the log"),
        (b"[2026-01-05 10:00:00] The server is fired up and ready to roll!\n", "no request lived long enough"),
        (VLLM_SPEC.splitlines(keepends=True)[0], "this is a vLLM log without speculative metrics"),
    ],
)
def test_a_log_with_nothing_to_judge_exits_with_3_and_says_what_it_is(tmp_path: Path, data: bytes, words: str) -> None:
    outcome = diagnosed(tmp_path, data)
    assert outcome.exit_code == 3
    assert outcome.diagnosis.verdict.startswith("Nothing to judge: no decode line in ")
    assert words in outcome.diagnosis.verdict


def test_a_server_that_died_before_its_first_line_is_a_fault_and_not_unusable(tmp_path: Path) -> None:
    died = (
        b"[2026-01-05 10:00:00] server_args=ServerArgs(model_path='m', tp_size=1)\n"
        b"[2026-01-05 10:00:09 TP0] Scheduler hit an exception: Traceback (most recent call last):\n"
        b"torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.\n"
    )
    outcome = diagnosed(tmp_path, died)
    assert outcome.exit_code == 1
    assert "failed during start-up" in outcome.diagnosis.verdict


def test_a_vllm_log_is_judged_by_its_acceptance(tmp_path: Path) -> None:
    outcome = diagnosed(tmp_path, VLLM_SPEC)
    assert outcome.exit_code == 0
    assert "2.25" in render(outcome)


def test_a_cut_gzip_is_judged_as_far_as_it_goes_and_the_rest_is_not_known(tmp_path: Path) -> None:
    lines = [N5_NO_GRAPH.splitlines(keepends=True)[0].replace(b"246", b"%d" % (n * 7919 % 10007)) for n in range(2000)]
    outcome = diagnosed(tmp_path, cut_gzip(b"".join(lines)), "server.log.gz")
    assert outcome.diagnosis.findings[0].rule == "graph_off"
    assert outcome.diagnosis.not_known[0].startswith(f"the rest of {tmp_path}/server.log.gz: the gzip file is cut off")
    assert "the gzip file is cut off" in " ".join(render(outcome).split())


def test_an_idle_first_line_does_not_count(tmp_path: Path) -> None:
    idle = decode_line().replace("101.50", "0.77")
    outcome = diagnosed(tmp_path, (idle + decode_line() * 6).encode())
    figures = outcome.diagnosis.figures.set_index("name")["value"]
    assert figures["speed at 1 running"] == 101.5
    assert figures["idle decode lines, left out of speeds"] == 1


def test_hostile_lines_and_names_cannot_steer_the_terminal(tmp_path: Path) -> None:
    line = b"[2026-01-05 10:00:00] server_args=ServerArgs(model_path='\x1b]0;pwned\x07\x1b[2J\x9b', tp_size=1)\n"
    outcome = diagnosed(tmp_path, line + N5_NO_GRAPH, "a\x1b[2J\nb.log")
    assert not any(not c.isprintable() and c != "\n" for c in render(outcome) + outcome.log.name)


def test_wrong_usage_is_named(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="--draft DIR"):
        diagnose_files(BASE, target=tmp_path)
    with pytest.raises(UsageError, match="only one of the logs"):
        diagnose_files("-", baseline="-")
    with pytest.raises(LogError, match=r"none\.log: cannot be read"):
        diagnose_files(str(tmp_path / "none.log"))
    with pytest.raises(LogError, match=r"none\.log: cannot be read"):
        diagnose_files(BASE, baseline=str(tmp_path / "none.log"))
    with pytest.raises(CheckpointError):
        diagnose_files(BASE, draft=tmp_path / "none")


# --- draft checkpoints -------------------------------------------------------------------------------------------


def test_a_good_draft_has_no_fault(tmp_path: Path) -> None:
    draft = write_folder(tmp_path / "draft", CONFIG, draft_tensors())
    target = write_folder(tmp_path / "target", TARGET_CONFIG)
    results = check_files(draft, target=target, **CHECK)
    assert [result.what for result in results if result.severity is Severity.ERROR] == []
    assert render_checks([]).startswith("No fault found in the draft checkpoint.")


def test_a_draft_without_its_vocabulary_table_is_an_error_that_names_the_tensor(tmp_path: Path) -> None:
    draft = write_folder(tmp_path / "draft", CONFIG, draft_tensors(d2t=None))
    text = render_checks(check_files(draft, target=None, **CHECK))
    assert "ERROR" in text
    assert "d2t" in text
    assert "\n  where: " in text
    assert "\n  next:  " in text


def test_a_context_longer_than_the_draft_s_is_an_error(tmp_path: Path) -> None:
    draft = write_folder(tmp_path / "draft", {**CONFIG, "max_position_embeddings": 2048}, draft_tensors())
    results = check_files(draft, target=None, **{**CHECK, "context_length": 8192})
    assert any("2048" in result.what and result.severity is Severity.ERROR for result in results)


def test_a_draft_is_checked_as_the_log_says_it_is_served(tmp_path: Path) -> None:
    # The server runs at a context of 4096.
    for longest, faults in (
        (4096, []),
        (2048, ["max_position_embeddings reaches 2048 tokens and the context is 4096"]),
    ):
        folder = write_folder(tmp_path / str(longest), {**CONFIG, "max_position_embeddings": longest}, draft_tensors())
        diagnosis = diagnose_files(SIM, draft=folder).diagnosis
        errors = [finding.title for finding in diagnosis.findings if finding.rule.startswith("draft_")]
        assert errors == [f"Draft checkpoint: {fault}" for fault in faults]
        assert not any("--draft" in point for point in diagnosis.not_known)
    assert any("--draft" in point for point in diagnose_files(SIM).diagnosis.not_known)


# --- pages -------------------------------------------------------------------------------------------------------


def shown(path: Path) -> BeautifulSoup:
    return BeautifulSoup(path.read_text(encoding="utf-8"), "html.parser")


def test_a_page_says_the_same_with_a_figure(tmp_path: Path) -> None:
    outcome = diagnosed(tmp_path, N16_GRAPH)
    page = write_page(outcome, str(tmp_path / "new" / "page.html"))
    assert page == tmp_path / "new" / "page.html"
    answer, image = shown(page).select_one("p.answer"), shown(page).select_one("figure img")
    assert answer is not None and answer.get_text() == outcome.diagnosis.verdict
    assert image is not None and str(image["alt"]).startswith("Timeline of server.log: 3 rows; ")


def test_without_decode_lines_the_page_has_no_figure(tmp_path: Path) -> None:
    page = write_page(diagnosed(tmp_path, b"hello\n"), str(tmp_path / "page.HTML"))
    assert page.name == "page.HTML"
    assert shown(page).select("figure") == []


def test_in_a_folder_pages_are_named_after_the_log_and_its_folder(tmp_path: Path) -> None:
    for name in ("base", "spec run"):
        outcome = diagnosed(tmp_path / name, b"hello\n")
        write_page(outcome, str(tmp_path / "pages"))
    assert sorted(path.name for path in (tmp_path / "pages").glob("*.html")) == [
        "diagnosis-base-server.html",
        "diagnosis-spec-run-server.html",
    ]


def test_by_default_pages_go_to_reports(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(ROOT_ENV, str(tmp_path))
    page = write_page(diagnosed(tmp_path / "logs", b"hello\n", "a.log.gz"), "")
    assert page == tmp_path / "reports" / "diagnosis-logs-a.html"
    monkeypatch.chdir(tmp_path / "logs")
    assert write_page(diagnosed(tmp_path / "logs", b"hello\n"), ".").parent.resolve() == tmp_path / "logs"


def test_results_are_a_block_each() -> None:
    short = CheckResult("rule", Severity.WARNING, "what", "where", "next")
    long = CheckResult("rule", Severity.NOTE, "what", "where", "next", "why")
    assert render_checks([short, long]) == (
        "WARNING  what\n  where: where\n  next:  next\nNOTE  what\n  where: where\n  why:   why\n  next:  next"
    )


def test_a_cut_gzip_is_copied_again_before_anything_else(tmp_path: Path) -> None:
    text = b"[2026-01-05 10:00:00] server_args=ServerArgs(model_path='m', tp_size=1)\n"
    path = tmp_path / "server.log.gz"
    path.write_bytes(gzip.compress(text + random.Random(0).randbytes(200_000))[:100_000])

    outcome = diagnose_files(str(path))

    assert outcome.exit_code == 3
    first = outcome.diagnosis.findings[0]
    assert first.rule == "no_decode_lines"
    assert first.next_action == "copy the file again, then diagnose it again"
