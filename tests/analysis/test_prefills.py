import math
from pathlib import Path

import pytest

from workbench.analysis.cost import cost_df
from workbench.analysis.diagnosis import diagnose
from workbench.analysis.prefills import MIN_LINES, prefills_df, prefills_of_runs_df, prefills_words
from workbench.campaigns import campaign_folder
from workbench.table import load_tables
from workbench.table.logs import LogSummary, summarise_log

ARGS = (
    "[2026-11-30 10:00:00] server_args=ServerArgs(model_path='m', speculative_algorithm={algorithm}, "
    "speculative_num_steps=3, speculative_num_draft_tokens=4, decode_log_interval=10)"
)
PREFILL = (
    "[2026-11-30 10:00:01] Prefill batch, #new-seq: 1, #new-token: 80, #cached-token: 0, #running-req: 7, #queue-req: 0"
)
DECODE = (
    "[2026-11-30 10:00:02] Decode batch, #running-req: 8, #token: 900, token usage: 0.01, {accepted}cuda graph: True, "
    "gen throughput (token/s): {speed}, #queue-req: 0"
)


ACCEPTED = "accept len: 2.00, accept rate: 0.33, "


def log(folder: Path, *, clean: int, hit: int, prefills: int, algorithm: str = "'EAGLE3'") -> Path:
    """Cycles of 4 ms at accept length 2.0 and 8 running; with prefills of 30 ms each in ``hit`` lines."""
    accepted = ACCEPTED if algorithm != "None" else ""
    tokens = 8 * 10 * (2.0 if accepted else 1.0)  # of ten steps
    opening = DECODE.format(accepted=accepted, speed=5.0)
    lines = [ARGS.format(algorithm=algorithm), PREFILL.replace("req: 7", "req: 0"), opening]
    lines += [DECODE.format(accepted=accepted, speed=tokens / 0.040)] * clean
    lines += [*[PREFILL] * prefills, DECODE.format(accepted=accepted, speed=tokens / (0.040 + 0.030 * prefills))] * hit
    path = folder / "server.log"
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


def summary(path: Path) -> LogSummary:
    return summarise_log([path.read_bytes()], name=path.name)


def test_time_is_split_into_steps_and_prefills(tmp_path: Path) -> None:
    windows = summary(log(tmp_path, clean=5, hit=10, prefills=2)).windows
    (row,) = prefills_df(windows).to_dict("records")
    # 15 lines of ten cycles of 4 ms, ten of which wait for two prefills of 30 ms: 0.6 of 1.2 s.
    assert (row["running_req"], row["num_windows"], row["prefills"]) == (8, 15, 20)
    assert row["clean_step_ms"] == pytest.approx(4.0, rel=1e-3)
    assert row["prefill_share"] == pytest.approx(0.5, rel=1e-3)
    assert row["prefill_ms"] == pytest.approx(30.0, rel=1e-3)
    assert row["step_ms"] == pytest.approx(8.0, rel=1e-3)


def test_too_few_lines_between_prefills_tell_nothing(tmp_path: Path) -> None:
    windows = summary(log(tmp_path, clean=MIN_LINES - 1, hit=10, prefills=1)).windows
    (row,) = prefills_df(windows).to_dict("records")
    assert math.isnan(row["clean_step_ms"]) and math.isnan(row["prefill_share"])
    assert not math.isnan(row["step_ms"])


def test_a_log_without_prefill_lines_is_not_taken_for_one_without_prefills(tmp_path: Path) -> None:
    path = log(tmp_path, clean=8, hit=0, prefills=0)
    path.write_text(
        "".join(line for line in path.read_text().splitlines(keepends=True) if "Prefill" not in line), encoding="utf-8"
    )
    windows = summary(path).windows
    assert windows["prefills"].isna().all()
    assert prefills_df(windows).empty


def tagged(path: Path, prefill: str, decode: str) -> list[int]:
    """Prefills by decode line, of a log whose lines are tagged."""
    lines = [
        line.replace(":00:01]", f":00:01{prefill}]").replace(":00:02]", f":00:02{decode}]")
        for line in path.read_text().splitlines(keepends=True)
    ]
    path.write_text("".join(lines), encoding="utf-8")
    return [int(count) for count in summary(path).windows["prefills"]]


def test_prefills_are_those_of_the_data_parallel_rank(tmp_path: Path) -> None:
    path = log(tmp_path, clean=6, hit=2, prefills=1)
    assert tagged(path, " DP1 TP1", " DP0 TP0") == [0] * 9


@pytest.mark.parametrize(("prefill", "decode"), [(" TP0", " TP1"), ("", " TP0"), (" TP0", "")])
def test_prefills_that_only_another_tensor_rank_logs_count(tmp_path: Path, prefill: str, decode: str) -> None:
    path = log(tmp_path, clean=6, hit=2, prefills=3)
    assert tagged(path, prefill, decode) == [1, 0, 0, 0, 0, 0, 0, 3, 3]


def test_text_that_only_looks_like_a_prefill_is_none(tmp_path: Path) -> None:
    path = log(tmp_path, clean=6, hit=2, prefills=1)
    path.write_text(path.read_text().replace("#new-seq: 1", "#new-seq: NaN"), encoding="utf-8")
    assert summary(path).windows["prefills"].fillna(0).sum() == 0


def test_first_lines_count_where_the_client_never_waits(tmp_path: Path) -> None:
    path = log(tmp_path, clean=5, hit=0, prefills=0)
    # A phase that begins with a prefill of 30 ms, and one after a flush.
    opening = [PREFILL.replace("req: 7", "req: 0"), DECODE.format(accepted=ACCEPTED, speed=160 / 0.070)]
    flush = "[2026-11-30 10:00:03] Cache flushed successfully!"
    path.write_text(path.read_text() + "\n".join([*opening, flush, *opening]) + "\n", encoding="utf-8")
    windows = summary(path).windows
    assert list(windows["fresh"].fillna(False))[-2:] == [False, True]
    (row,) = prefills_df(windows, always_busy=True).to_dict("records")
    # Six lines of 40 ms (the very first is idle), one prefill of 30 ms.
    assert row["prefill_share"] == pytest.approx(0.030 / (6 * 0.040 + 0.030), rel=1e-3)
    (row,) = prefills_df(windows).to_dict("records")
    assert row["prefill_share"] == 0


def test_a_speculative_line_without_its_length_tells_no_cycle(tmp_path: Path) -> None:
    path = log(tmp_path, clean=6, hit=0, prefills=0)
    text = path.read_text()
    path.write_text(text.replace("accept len: 2.00, accept rate: 0.33, ", "", 3), encoding="utf-8")
    (row,) = prefills_df(summary(path).windows).to_dict("records")
    assert row["num_windows"] == 4  # of six, two without; the opening line lost its own, too
    assert row["clean_step_ms"] != row["clean_step_ms"]


def test_the_diagnosis_names_what_prefills_take(tmp_path: Path) -> None:
    (tmp_path / "plain").mkdir()
    found = diagnose(
        summary(log(tmp_path, clean=5, hit=10, prefills=2)),
        baseline=summary(log(tmp_path / "plain", clean=10, hit=2, prefills=1, algorithm="None")),
    )
    (finding,) = [finding for finding in found.findings if finding.rule == "prefills_interrupt"]
    assert finding.title == "Prefills take 50% of the time at 8 running requests"
    assert "a verify cycle takes 4.00 ms between them and 8.00 ms over all time" in finding.evidence[0]
    # Baseline: 12 lines of 40 ms, two of which wait 30 ms.
    assert "baseline: 11% of the time, 4.00 ms a step" in finding.evidence[1]
    assert "between prefills 1.00" in finding.evidence[1]
    assert not finding.is_fault


def test_few_prefills_are_not_worth_a_word(tmp_path: Path) -> None:
    found = diagnose(summary(log(tmp_path, clean=20, hit=1, prefills=1)))
    assert "prefills_interrupt" not in {finding.rule for finding in found.findings}


def test_where_every_line_has_a_prefill_it_cannot_be_told(tmp_path: Path) -> None:
    (tmp_path / "plain").mkdir()
    found = diagnose(
        summary(log(tmp_path, clean=1, hit=9, prefills=1)),
        baseline=summary(log(tmp_path / "plain", clean=10, hit=2, prefills=1, algorithm="None")),
    )
    (finding,) = [finding for finding in found.findings if finding.rule.startswith("prefills")]
    assert finding.title.startswith("What prefills take at 8 running requests cannot be told")
    assert "--decode-log-interval 10" in finding.next_action


def test_a_speculative_log_is_no_baseline_to_compare_with(tmp_path: Path) -> None:
    one = summary(log(tmp_path, clean=5, hit=10, prefills=2))
    (finding,) = [item for item in diagnose(one, baseline=one).findings if item.rule == "prefills_interrupt"]
    assert not any("baseline" in evidence for evidence in finding.evidence)


def test_recorded_runs_tell_a_load_from_a_cycle() -> None:
    """By the logs at 32 at once: about 132 prefills a pass with the drafter, 15 when forced; at 1 both read alike."""
    tables = load_tables(campaign_folder("h200_variants"))
    found = prefills_of_runs_df(tables, cost_df(tables.runs)).set_index("label")
    real, forced, alone = (
        found.loc[f"eagle3-smollm2-135m-eagle3-s3-k1-n4{name}"]
        for name in (", 32 at once", "-sim2.5, 32 at once (simulated)", ", 1 at once")
    )
    assert real["prefill_share"] > 0.6 > real["base_prefill_share"] - 0.05 and 0.2 < forced["prefill_share"] < 0.4
    assert 2 < forced["clean_break_even"] < 3.5 and forced["break_even"] < 1.6
    assert alone["clean_break_even"] == pytest.approx(alone["break_even"], rel=0.03)
    words = prefills_words(found.reset_index())
    assert words.startswith("At 32 at once prefills take 68% of the time of eagle3-smollm2-135m-eagle3-s3-k1-n4")
    assert "Forced acceptance ends requests together" in words
