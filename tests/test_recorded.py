"""The committed campaigns: complete, unchanged, and in agreement with where they come from.

Constants were taken from the raw material with grep, awk and a pencil, not with the converters.
"""

from __future__ import annotations

import gzip
import re
import subprocess
import sys
from functools import cache
from itertools import pairwise
from pathlib import Path

import pytest

from workbench.files import read_chunks
from workbench.paths import project_root, recorded_dir
from workbench.spec import Origin, ReportedFigures, RunState
from workbench.store import Campaign, RunFolder, find_campaigns, read_campaign, read_requests

TRIAL, SMOLLM2, COST, KIMI = "h200_first_trial", "h200_smollm2", "h200_step_cost", "kimi_k25"
SHAPE, VARIANTS = "h200_kimi_shape", "h200_variants"
RUNS_AND_DRAFTERS = {
    **{KIMI: (12, 3), SMOLLM2: (9, 1), TRIAL: (35, 5), COST: (46, 1), SHAPE: (22, 1), VARIANTS: (30, 1)},
    "h200_scaling": (7, 27),
    "h200_best_drafter": (24, 14),
    "h200_shipped_drafter": (6, 1),
    "h200_shipped_drafter_t07": (2, 1),
    "h200_shapes": (24, 1),
    "h200_grid": (48, 1),
    "h200_wide": (52, 1),
    "h200_wide_search": (8, 1),
    "h200_wide_search2": (11, 1),
    "h200_wide_finals": (11, 1),
    "h200_wide_finals2": (16, 1),
    "h200_tune": (36, 1),
    "h200_tune_search": (18, 1),
    "cpu_drafters": (7, 3),
}
LOCAL_PATH = re.compile(rb"(?<![\w./:<])/[A-Za-z0-9_.-]+(?:/[A-Za-z0-9_.-]+)+")


@cache
def campaign(name: str) -> Campaign:
    return read_campaign(recorded_dir() / name)


@cache
def log_of(path: Path) -> bytes:
    return b"".join(read_chunks(path))


def run_of(name: str, run_id: str) -> RunFolder:
    return next(run for run in campaign(name).runs if run.spec.run_id == run_id)


def parts(run: RunFolder) -> list[bytes]:
    assert run.log is not None
    return [log_of(run.log)[start:end] for start, end in run.status.log_spans]


def running(part: bytes) -> list[int]:
    return [int(value) for value in re.findall(rb"Decode batch, #running-req: (\d+)", part)]


def all_files() -> list[Path]:
    return [path for path in recorded_dir().rglob("*") if path.is_file()]


# --- every campaign ----------------------------------------------------------------------------------------------


def test_these_campaigns_are_there() -> None:
    assert [path.name for path in find_campaigns(recorded_dir())] == sorted(RUNS_AND_DRAFTERS)


@pytest.mark.parametrize("name", RUNS_AND_DRAFTERS)
def test_a_campaign_reads_whole(name: str) -> None:
    read = campaign(name)
    assert read.problems == ()
    assert (len(read.runs), len(read.drafters)) == RUNS_AND_DRAFTERS[name]
    known = {drafter.name for drafter in read.drafters}
    for run in read.runs:
        assert run.status.status is RunState.OK
        assert run.spec.campaign == name
        assert run.spec.target.name == read.info.target
        assert (run.spec.drafter in known) is (run.spec.role == "speculative")
        assert read_requests(run)[1] == []
        assert run.provenance.source == read.info.source


def test_server_logs_and_runs_belong_together() -> None:
    for name in (SMOLLM2, TRIAL):
        used = {run.log for run in campaign(name).runs}
        assert used == set((recorded_dir() / name / "_servers").glob("*/server.log.gz"))
        assert all(run.log is not None and run.log.parent.name == run.spec.server_id for run in campaign(name).runs)


def test_every_speculative_run_on_the_h200_has_its_baseline() -> None:
    for name in (SMOLLM2, TRIAL):
        keys = [
            (r.spec.role, r.spec.baseline_group, *r.spec.workload.model_dump().values()) for r in campaign(name).runs
        ]
        plain = {key[1:] for key in keys if key[0] == "baseline"}
        assert {key[1:] for key in keys if key[0] == "speculative"} <= plain


@pytest.mark.parametrize("name", [SMOLLM2, TRIAL])
def test_spans_are_whole_lines_and_do_not_overlap(name: str) -> None:
    by_log: dict[Path, list[tuple[int, int]]] = {}
    for run in campaign(name).runs:
        assert run.log is not None
        assert run.status.log_spans
        by_log.setdefault(run.log, []).extend(run.status.log_spans)
    for log, spans in by_log.items():
        text = log_of(log)
        for start, end in spans:
            assert text[start - 1 : start] == b"\n"
            assert text[end - 1 : end] == b"\n"
        assert all(one[1] <= two[0] for one, two in pairwise(sorted(spans)))


@pytest.mark.parametrize("name", [SMOLLM2, TRIAL])
def test_spans_hold_just_the_requests_and_the_load_of_their_run(name: str) -> None:
    for run in campaign(name).runs:
        workload = run.spec.workload
        for part in parts(run):
            assert part.count(b'"POST /generate HTTP') == workload.num_prompts, run.spec.run_id
            assert max(running(part)) == workload.max_concurrency, run.spec.run_id


def test_no_path_of_the_recording_machine_is_left() -> None:
    for path in all_files():
        data = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
        strange = [found for found in LOCAL_PATH.findall(data) if not found.startswith(b"/models/")]
        assert strange == [], path


def test_the_recorded_data_stays_small() -> None:
    assert sum(path.stat().st_size for path in all_files()) < 17_000_000


# --- kimi_k25 ----------------------------------------------------------------------------------------------------

# run: (group, drafter, flag, draft tokens, CUDA graph, concurrency, tok/s, accept length, printed rate)
KIMI_ROWS = {
    "base-a-c1": ("A", None, None, None, None, 1, 63.6, None, None),
    "base-a-c128": ("A", None, None, None, None, 128, 2370, None, None),
    "aq-medai-k2-n4-against-a": ("A", "aq-medai-k2", None, 4, None, 1, 62.9, (1.65, 1.65), (0.42, 0.42)),
    "custom-v1-n4-c1": ("A", "custom-v1", None, 4, True, 1, 40.8, (1.0, 1.0), (0.25, 0.25)),
    "custom-v1-n4-c48": ("A", "custom-v1", None, 4, True, None, 600, (1.0, 1.0), (0.25, 0.25)),
    "base-b-c1": ("B", None, None, None, None, 1, 90, None, None),
    "custom-v3-eagle-flag": ("B", "custom-v3", "EAGLE", None, None, 1, None, (1.0, 1.0), None),
    "custom-v3-n16-nograph": ("B", "custom-v3", "EAGLE3", 16, False, 1, 56.7, (2.0, 2.5), (0.15, 0.15)),
    "custom-v3-n5-nograph": ("B", "custom-v3", "EAGLE3", 5, False, 1, 53.2, (2.0, 2.2), (0.40, 0.45)),
    "aq-medai-k2-nograph": ("B", "aq-medai-k2", "EAGLE3", None, False, 1, 50.5, (1.8, 2.1), None),
    "custom-v3-n16-graph": ("B", "custom-v3", "EAGLE3", 16, True, 1, 74.9, (2.1, 2.1), (0.13, 0.13)),
    "custom-v3-graph-later": ("B", "custom-v3", "EAGLE3", None, True, 1, 82.3, None, None),
}
KIMI_LOGS = {
    "custom-v1-n4-c48": b"""\
[2026-02-23 00:14:33 TP0] Decode batch, #running-req: 48, #token: 6460, token usage: 0.06, accept len: 1.00, accept rate: 0.25, cuda graph: True, gen throughput (token/s): 637.19, #queue-req: 32
[2026-02-23 00:14:37 TP0] Decode batch, #running-req: 48, #token: 8380, token usage: 0.07, accept len: 1.00, accept rate: 0.25, cuda graph: True, gen throughput (token/s): 597.79, #queue-req: 32
[2026-02-23 00:14:40 TP0] Decode batch, #running-req: 48, #token: 10300, token usage: 0.09, accept len: 1.00, ...
""",  # noqa: E501
    "custom-v3-n5-nograph": b"""\
[2026-02-23 17:30:43 TP0] Decode batch, #running-req: 1, #token: 246, token usage: 0.00, accept len: 2.08, accept rate: 0.41, cuda graph: False, gen throughput (token/s): 52.79, #queue-req: 0
[2026-02-23 17:30:45 TP0] Decode batch, #running-req: 1, #token: 325, token usage: 0.00, accept len: 1.98, accept rate: 0.40, cuda graph: False, gen throughput (token/s): 50.39, #queue-req: 0
[2026-02-23 17:30:46 TP0] Decode batch, #running-req: 1, #token: 403, token usage: 0.00, accept len: 1.95, accept ra...
""",  # noqa: E501
    "custom-v3-n16-graph": b"""\
[2026-02-23 17:53:14 TP0] Decode batch, #running-req: 1, #token: 671, token usage: 0.01, accept len: 2.15, accept rate: 0.13, cuda graph: True, gen throughput (token/s): 66.89, #queue-req: 0
[2026-02-23 17:53:16 TP0] Decode batch, #running-req: 1, #token: 756, token usage: 0.01, accept len: 2.12, accept rate: 0.13, cuda graph: True, gen throughput (token/s): 64.25, #queue-req: 0
[2026-02-23 17:53:17 TP0] Decode batch, #running-req: 1, #token: 838, token usage: 0.01, accept len: 2.05, accept rate...
""",  # noqa: E501
}


@pytest.mark.parametrize("run_id", KIMI_ROWS)
def test_kimi_figures_are_those_of_the_notes(run_id: str) -> None:
    run = run_of(KIMI, run_id)
    decode, reported = run.spec.spec_decode, run.reported
    assert reported is not None
    speed = reported.output_tok_per_s
    assert speed is None or speed.low == speed.high
    assert KIMI_ROWS[run_id] == (
        run.spec.baseline_group,
        run.spec.drafter,
        decode.speculative_algorithm if decode else None,
        decode.speculative_num_draft_tokens if decode else None,
        run.spec.server.cuda_graph,
        run.spec.workload.max_concurrency,
        speed.low if speed else None,
        low_high(reported, "accept_length"),
        low_high(reported, "accept_rate_printed"),
    )
    assert run.provenance.origin is Origin.NOTED
    assert (run.provenance.gpu_count, run.spec.server.tp_size) == (8, 8)
    assert run.provenance.machine == "8x NVIDIA RTX PRO 6000 Blackwell, PCIe"


def low_high(reported: ReportedFigures, name: str) -> tuple[float, float] | None:
    value = getattr(reported, name)
    return None if value is None else (value.low, value.high)


def test_what_the_kimi_notes_do_not_state_stays_unknown() -> None:
    for run in campaign(KIMI).runs:
        decode, workload = run.spec.spec_decode, run.spec.workload
        assert decode is None or (decode.speculative_num_steps, decode.speculative_eagle_topk) == (None, None)
        assert (workload.temperature, workload.max_new_tokens, workload.num_prompts) == (None, None, None)
        assert run.spec.sglang_version is None
        assert run.spec.server.max_running_requests is None


def test_kimi_logs_are_the_noted_lines_byte_for_byte() -> None:
    logs = {run.spec.run_id: run.log.read_bytes() for run in campaign(KIMI).runs if run.log is not None}
    assert logs == KIMI_LOGS
    loaded = run_of(KIMI, "custom-v1-n4-c48").reported
    assert loaded is not None
    assert loaded.queue_req == 32


def test_the_kimi_drafter_of_another_target_has_no_training_size_to_fit() -> None:
    by_name = {drafter.name: drafter for drafter in campaign(KIMI).drafters}
    assert (by_name["aq-medai-k2"].target, by_name["aq-medai-k2"].training_samples) == ("Kimi-K2", None)
    assert "1.4M" in (by_name["aq-medai-k2"].notes or "")
    for name in ("custom-v1", "custom-v3"):
        assert (by_name[name].target, by_name[name].training_samples) == ("Kimi-K2.5", 10_000)
    assert by_name["custom-v1"].recipe != by_name["custom-v3"].recipe


def test_the_kimi_campaign_is_what_its_script_writes(tmp_path: Path) -> None:
    script = project_root() / "tools" / "build_recorded.py"
    subprocess.run([sys.executable, script, "--out", tmp_path, "--only", KIMI], check=True, timeout=60)
    made = {p.relative_to(tmp_path): p.read_bytes() for p in tmp_path.rglob("*") if p.is_file()}
    kept = {p.relative_to(recorded_dir()): p.read_bytes() for p in all_files() if KIMI in p.parts}
    assert made == kept


# --- h200_smollm2 ------------------------------------------------------------------------------------------------

# server: client's tok/s at 1, 8, 32; numbers of the lines of the 2nd, 10th, 26th and 90th (last) POST /generate;
# decode lines with 1, 8, 32 running requests in the whole log, and of those with 1 how many are the warm-up's
SMOLLM2_SERVERS = {
    "base": ((767.6, 6046.5, 21046.9), (53, 274, 346, 468), (212, 51, 51), 7),
    "eagle-flag": ((342.0, 1713.7, 7199.9), (63, 280, 355, 479), (208, 50, 48), 7),
    "sim25-s3": ((811.5, 3325.7, 13218.7), (59, 157, 199, 289), (85, 21, 21), 3),
}


@pytest.mark.parametrize("server", SMOLLM2_SERVERS)
def test_smollm2_runs_have_the_clients_speed_and_their_own_part_of_the_log(server: str) -> None:
    speeds, lines, decode_lines, warm_up = SMOLLM2_SERVERS[server]
    for position, concurrency in enumerate((1, 8, 32)):
        run = run_of(SMOLLM2, f"{server}-c{concurrency}")
        assert run.reported is not None
        assert low_high(run.reported, "output_tok_per_s") == (speeds[position], speeds[position])
        ((start, end),) = run.status.log_spans
        assert run.log is not None
        text = log_of(run.log)
        assert (text.count(b"\n", 0, start), text.count(b"\n", 0, end)) == lines[position : position + 2]
        expected = decode_lines[position] - (warm_up if concurrency == 1 else 0)
        assert running(text[start:end]).count(concurrency) == expected


def test_smollm2_asked_for_what_the_logs_say() -> None:
    for run in campaign(SMOLLM2).runs:
        workload, server = run.spec.workload, run.spec.server
        assert (workload.temperature, workload.max_new_tokens, workload.ignore_eos) == (0, 256, True)
        assert (server.max_running_requests, server.decode_log_interval, server.cuda_graph) == (32, 10, True)
        assert (server.mem_fraction_static, server.attention_backend, server.context_length) == (0.5, "triton", 4096)
    flag, simulated = (run_of(SMOLLM2, name).spec.spec_decode for name in ("eagle-flag-c1", "sim25-s3-c1"))
    assert flag is not None and simulated is not None
    assert (flag.speculative_algorithm, flag.simulated_accept_length) == ("EAGLE", None)
    assert (simulated.speculative_algorithm, simulated.simulated_accept_length) == ("EAGLE3", 2.5)
    assert (flag.speculative_num_steps, flag.speculative_eagle_topk, flag.speculative_num_draft_tokens) == (3, 1, 4)
    origins = {run.spec.server_id: run.provenance.origin for run in campaign(SMOLLM2).runs}
    assert origins == {"base": Origin.RECORDED, "eagle-flag": Origin.RECORDED, "sim25-s3": Origin.SIMULATED}


# --- h200_first_trial --------------------------------------------------------------------------------------------

# run: (requests, completion tokens, verify steps); grep and awk over the raw records
TRIAL_TOTALS = {
    "eagle3-n24000L-s3-mix_heldout-c1": (20, 3451, 1805),
    "eagle3-n24000L-s3-alone-mix_heldout-c1": (40, 6902, 3610),
    "eagle3-n500-s3-mt_bench_first_turn-c1": (20, 4608, 3296),
    "eagle3-n24000L-s6-mix_heldout-c1": (20, 3183, 1562),
    "eagle3-n24000-s3-mix_heldout-ignore_eos-c1": (20, 5120, 2861),
    "base-wave1-mix_heldout-c1": (40, 7224, 0),
    "base-wave2-mt_bench_first_turn-c1": (40, 8618, 0),
}
# run: decode lines in each span. A line is 10 steps, and every request runs one step more than it reports: for the
# first, (1805 + 20) / 10. The last would be 443 with the two warm-up requests that precede the next flush.
TRIAL_DECODE_LINES = {
    "eagle3-n24000L-s3-mix_heldout-c1": [182],
    "eagle3-n24000L-s3-alone-mix_heldout-c1": [182, 182],
    "base-wave1-mix_heldout-c1": [361, 361],
    "base-wave2-mt_bench_first_turn-c1": [430, 430],
}
# the totals at concurrency 8 and 32: (requests, tokens, tok/s, accept length)
TRIAL_LOADED = {
    "base-wave1-A-c8": (32, 5275, 4179.7, None),
    "base-wave1-A-c32": (64, 9626, 7884.0, None),
    "eagle3-n24000L-s3-A-c8": (32, 5233, 1394.7, (2.0307, 2.0307)),
    "eagle3-n24000L-s3-A-c32": (64, 10032, 3375.6, (2.0714, 2.0714)),
}
TRIAL_WAVES = {
    "wave1": {"base", "n500_s3", "n2000_s3", "n8000_s3", "n24000_s3", "n24000L_s3"},
    "wave2": {"base2", "n24000L_s1", "n24000L_s2", "n24000L_s4", "n24000L_s5", "n24000L_s6"},
    "alone": {"alone_base", "alone_s3"},
}


def number(record: dict[str, object], key: str) -> int:
    value = record[key]
    return value if isinstance(value, int) else 0


def histogram(record: dict[str, object]) -> list[int]:
    value = record["spec_correct_drafts_histogram"]
    return value if isinstance(value, list) else []


@pytest.mark.parametrize("run_id", TRIAL_TOTALS)
def test_trial_records_add_up(run_id: str) -> None:
    records, _ = read_requests(run_of(TRIAL, run_id))
    totals = [sum(number(record, key) for record in records) for key in ("completion_tokens", "spec_verify_ct")]
    assert (len(records), *totals) == TRIAL_TOTALS[run_id]


def test_trial_records_are_all_there_and_hold_together() -> None:
    total = 0
    for run in campaign(TRIAL).runs:
        records, _ = read_requests(run)
        total += len(records)
        steps = run.spec.spec_decode.speculative_num_steps if run.spec.spec_decode else None
        for record in records:
            counts = histogram(record)
            assert sum(counts) == number(record, "spec_verify_ct")
            if steps is not None:
                # the prefill gives the first token; the last step may accept drafts behind the end
                beyond = sum((i + 1) * n for i, n in enumerate(counts)) - (number(record, "completion_tokens") - 1)
                assert 0 <= beyond <= steps
                assert len(counts) <= steps + 1
    assert total == 740


@pytest.mark.parametrize("run_id", TRIAL_DECODE_LINES)
def test_trial_spans_hold_the_decode_lines_of_their_passes(run_id: str) -> None:
    run = run_of(TRIAL, run_id)
    assert [len(running(part)) for part in parts(run)] == TRIAL_DECODE_LINES[run_id]
    assert {count for part in parts(run) for count in running(part)} == {1}


@pytest.mark.parametrize("run_id", TRIAL_LOADED)
def test_trial_totals_above_one_request_at_a_time(run_id: str) -> None:
    run = run_of(TRIAL, run_id)
    requests, tokens, speed, accept_length = TRIAL_LOADED[run_id]
    assert run.reported is not None
    assert (run.spec.workload.num_prompts, run.reported.completion_tokens) == (requests, tokens)
    assert low_high(run.reported, "output_tok_per_s") == (speed, speed)
    assert low_high(run.reported, "accept_length") == accept_length
    assert (run.spec.workload.prompt_set, run.spec.baseline_group) == ("A", "wave1")


def test_trial_waves_and_servers() -> None:
    waves: dict[str, set[str]] = {}
    for run in campaign(TRIAL).runs:
        waves.setdefault(run.spec.baseline_group, set()).add(run.spec.server_id)
        assert run.provenance.servers_alive == (2 if run.spec.baseline_group == "alone" else 6)
    assert waves == TRIAL_WAVES


def test_trial_accept_length_reproduces_between_passes() -> None:
    alone, _ = read_requests(run_of(TRIAL, "eagle3-n24000L-s3-alone-mix_heldout-c1"))
    wave1, _ = read_requests(run_of(TRIAL, "eagle3-n24000L-s3-mix_heldout-c1"))
    key = ("prompt_index", "text_sha", "spec_verify_ct", "spec_correct_drafts_histogram")
    for repeat in (0, 1):
        again = [[record[k] for k in key] for record in alone if record["repeat"] == repeat]
        assert again == [[record[k] for k in key] for record in wave1]


def test_trial_drafters() -> None:
    by_name = {drafter.name: drafter for drafter in campaign(TRIAL).drafters}
    training = {d.name: (d.training_samples, d.response_tokens, d.optimizer_steps, d.epochs) for d in by_name.values()}
    assert training == {
        "n500": (500, 62_063, 831, 104),
        "n2000": (2_000, 249_154, 762, 28),
        "n8000": (8_000, 996_957, 772, 7),
        "n24000L": (22_383, 2_762_068, 850, 3),
        "n24000": (22_383, 2_762_068, 852, 3),
    }
    assert by_name["n24000"].recipe == by_name["n500"].recipe != by_name["n24000L"].recipe
    assert by_name["n8000"].survival == (1.0, 0.5429, 0.2998, 0.1841, 0.1143, 0.0738, 0.0516)


def test_trial_offline_walk_is_stated_for_the_served_prompt_sets() -> None:
    """The source: at 3 steps the walk predicts completion tokens per verify step within 0.04."""
    offline = {drafter.name: drafter.offline for drafter in campaign(TRIAL).drafters}
    compared = 0
    for run in campaign(TRIAL).runs:
        spec, records = run.spec, read_requests(run)[0]
        if spec.spec_decode is None or spec.workload.ignore_eos or not records:
            continue
        (walk,) = [o for o in offline[spec.drafter or ""] if o.served_as == spec.workload.prompt_set]
        assert set(walk.accept_length_by_steps) == {1, 2, 3, 4, 5, 6}
        if spec.spec_decode.speculative_num_steps == 3:
            served = sum(number(r, "completion_tokens") for r in records) / sum(
                number(r, "spec_verify_ct") for r in records
            )
            assert served == pytest.approx(walk.accept_length_by_steps[3], abs=0.04)
            compared += 1
    assert compared == 12
