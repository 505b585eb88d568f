"""What was asked for: frozen models for campaigns and runs. Unknown keys are refused.

Field names are SGLang's flags without dashes. ``None`` means "not stated", never "default".
"""

from __future__ import annotations

import hashlib
import json
import re
from enum import StrEnum
from typing import Annotated, Literal, Self

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, StringConstraints, model_validator

Scalar = str | int | float | bool | None
# Every table holds whole numbers of 64 bits; sums of these stay below.
MAX_COUNT = 10**12
Count = Annotated[int, Field(ge=0, le=MAX_COUNT)]
Positive = Annotated[int, Field(ge=1, le=MAX_COUNT)]


def _no_step(name: str) -> str:
    if name in (".", ".."):
        raise ValueError("a folder cannot be named so")
    return name


Name = Annotated[
    str, StringConstraints(min_length=1, max_length=200, pattern=r"^[^\x00-\x1f/\\]+$"), AfterValidator(_no_step)
]


def _no_password(path: str) -> str:
    if re.search(r"://[^\s/@]*:[^\s/@]+@", path):
        raise ValueError("holds a password, and paths are written down: let the server take it from its environment")
    return path


ModelPath = Annotated[str, AfterValidator(_no_password)]


SECRET_FLAGS = frozenset({"api_key", "admin_api_key", "ssl_keyfile_password", "hf_token", "token"})
_SECRET_VARIABLE = re.compile(
    r"(?:TOKEN|SECRET|PASSWORD|PASSWD|PASSPHRASE|_KEY|APIKEY|CREDENTIALS?|(?<![A-Z0-9])(?:PASS|PAT))\Z", re.I
)


def is_secret_variable(name: str) -> bool:
    """Whether a variable's value must not be written down, going by its name."""
    return _SECRET_VARIABLE.search(name) is not None


class Frozen(BaseModel):
    """Immutable, and a key that is not declared is an error."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


class Range(Frozen):
    """A figure known as a range; a single value has ``low == high``."""

    low: float
    high: float

    @model_validator(mode="after")
    def _ordered(self) -> Self:
        if self.low > self.high:
            raise ValueError(f"low {self.low} is above high {self.high}")
        return self


def _between(low: float, high: float) -> AfterValidator:
    def check(value: Range) -> Range:
        if value.low < low or value.high > high:
            raise ValueError(f"{value.low:g} to {value.high:g} is not within {low:g} to {high:g}")
        return value

    return AfterValidator(check)


def _speeds(value: Range) -> Range:
    """A speed of 0 is no measurement, and what is divided by it no figure."""
    if not (value.low > 0 and value.high < _FASTEST):
        raise ValueError(
            f"{value.low:g} to {value.high:g} tok/s is no speed: it must be above 0 and below {_FASTEST:g}"
        )
    return value


# Beyond these a figure is a slip of the pen, whatever the machine. Printed rates have had definitions that exceed 1.
_FASTEST = 1e9
SpeedRange = Annotated[Range, AfterValidator(_speeds)]
LengthRange = Annotated[Range, _between(1, 1000)]
RateRange = Annotated[Range, _between(0, 2)]
_Speed = Annotated[float, Field(ge=0, lt=_FASTEST)]
_Seconds = Annotated[float, Field(ge=0, le=MAX_COUNT)]


class Target(Frozen):
    """The model that is served."""

    name: Name
    model_path: ModelPath | None = None
    dtype: str | None = None
    quantization: str | None = None
    num_experts: Positive | None = None
    num_experts_per_tok: Positive | None = None
    notes: str | None = None


class OfflineAcceptance(Frozen):
    """Accept length by number of steps, from a teacher-forced walk without a server.

    ``served_as`` names the prompt set of the served runs that used the same prompts, where there is one.
    ``without_repetitive_by_steps`` leaves out answers that go round in circles (distinct-4 below 0.5). Intervals are
    95 % over prompts.
    """

    prompt_set: Name
    served_as: str | None = None
    accept_length_by_steps: dict[Positive, float]
    num_prompts: Count | None = None
    interval_by_steps: dict[Positive, Range] = Field(default_factory=dict)
    without_repetitive_by_steps: dict[Positive, float] = Field(default_factory=dict)


class Drafter(Frozen):
    """An EAGLE-3 draft checkpoint and what is known of its training.

    ``target`` is the model it was made for, which need not be the one that is served. ``design`` says what was the same
    for all sizes of a study: ``fixed epochs``, ``fixed steps`` or ``fixed time``. ``survival`` is the share of verify
    steps that accept at least k drafts, k = 0, 1, ...
    """

    name: Name
    model_path: ModelPath | None = None
    target: str | None = None
    training_samples: Count | None = None
    response_tokens: Count | None = None
    seed: Annotated[int, Field(ge=-(2**63), lt=2**63)] | None = None
    optimizer_steps: Count | None = None
    epochs: float | None = Field(default=None, ge=0)
    draft_vocab_size: Positive | None = None
    data_mix: str | None = None
    recipe: str | None = None
    design: str | None = None
    offline: tuple[OfflineAcceptance, ...] = ()
    survival: tuple[float, ...] = ()
    survival_prompt_set: str | None = None
    notes: str | None = None


class SpecDecodeConfig(Frozen):
    """The speculative flags as asked for; the server may use others. Its presence alone says "with speculation"."""

    speculative_algorithm: str | None = None
    speculative_num_steps: Positive | None = None
    speculative_eagle_topk: Positive | None = None
    speculative_num_draft_tokens: Positive | None = None
    simulated_accept_length: float | None = Field(default=None, ge=1)


class ServerConfig(Frozen):
    """Server settings that bear on speed. ``flags`` holds any other server flag, ``env`` what was set for it."""

    tp_size: Positive = 1
    dp_size: Positive = 1
    cuda_graph: bool | None = None
    cuda_graph_max_bs_decode: Count | None = None
    max_running_requests: Count | None = None
    mem_fraction_static: float | None = Field(default=None, gt=0, le=1)
    attention_backend: str | None = None
    context_length: Count | None = None
    decode_log_interval: Count | None = None
    flags: dict[str, Scalar] = Field(default_factory=dict)
    env: dict[str, str] = Field(default_factory=dict)


class Workload(Frozen):
    """What is sent: which prompts, how many at once, and when an answer ends."""

    prompt_set: Name
    num_prompts: Positive | None = None
    temperature: float | None = Field(default=None, ge=0)
    max_new_tokens: Positive | None = None
    ignore_eos: bool | None = None
    max_concurrency: Positive | None = None


class RunSpec(Frozen):
    """One server configuration at one load.

    Runs with the same ``server_id`` share one server start. A speculative run is compared with the baseline runs of
    the same ``baseline_group``, prompt set and concurrency.
    """

    campaign: Name
    run_id: Name
    server_id: Name
    engine: Literal["sglang", "reference", "vllm", "unknown"] = "sglang"
    sglang_version: str | None = None
    target: Target
    drafter: str | None = None
    spec_decode: SpecDecodeConfig | None = None
    server: ServerConfig = ServerConfig()
    workload: Workload
    baseline_group: str = "default"
    label: str | None = None
    notes: str | None = None
    repeats: Positive | None = None
    drafter_path: ModelPath | None = None
    launch_prefix: tuple[str, ...] | None = None

    @property
    def role(self) -> Literal["baseline", "speculative"]:
        return "baseline" if self.spec_decode is None else "speculative"

    def content_hash(self) -> str:
        """First 6 hex digits of a SHA-256 over everything but names, notes and where things are on a machine.

        What is not stated is left out, so that a field that is added later changes no hash.
        """
        names = ("campaign", "run_id", "server_id", "label", "notes", "repeats", "drafter_path", "launch_prefix")
        target = self.target.model_dump(mode="json", exclude={"notes"}, exclude_none=True)
        content = self.model_dump(mode="json", exclude=set(names), exclude_none=True) | {"target": target}
        return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()[:6]


class Origin(StrEnum):
    """Where figures come from; never drawn alike."""

    MEASURED = "measured"  # by this workbench, on this machine's data/runs
    RECORDED = "recorded"  # committed raw data of a real run
    NOTED = "noted"  # written down by hand from a real run; raw data lost or partial
    SIMULATED = "simulated"  # acceptance forced (SGLANG_SIMULATE_ACC_LEN); text is garbage
    PUBLISHED = "published"  # somebody else's figure
    IMPORTED = "imported"  # result file or log of another tool; nothing beyond what it tells is known


class Provenance(Frozen):
    """Who, when, on what. Unknown stays ``None``.

    ``places`` is how many servers were started or measured at once, this one included, by the command that measured
    it; ``cpus`` those that server and client could use, as Linux lists them (``0-3,8``). ``node`` is the one of a
    cluster, numbered by that command, and ``places`` then counts this node's. ``weights`` are the `weights_id` of what
    was served, by ``target`` and ``drafter``, as the folders were when the server was started.
    """

    origin: Origin
    source: str
    recorded_at: str | None = None
    machine: str | None = None
    gpu_name: str | None = None
    gpu_count: Count | None = None
    servers_alive: Count | None = None
    places: Count | None = None
    cpus: str | None = None
    node: str | None = None
    weights: dict[str, str] | None = None
    versions: dict[str, str] = Field(default_factory=dict)
    git_sha: str | None = None
    argv: tuple[str, ...] = ()


class RunState(StrEnum):
    PENDING = "pending"
    RUNNING = "running"
    OK = "ok"
    FAILED = "failed"
    TIMED_OUT = "timed_out"
    INTERRUPTED = "interrupted"
    SKIPPED = "skipped"


class RunStatus(Frozen):
    """Written last. ``log_file`` is relative to the run folder; spans are [start, end) byte offsets in its text."""

    status: RunState
    reason: str | None = None
    finished_at: str | None = None
    log_file: str | None = None
    log_spans: tuple[tuple[Count, Count], ...] = ()

    @model_validator(mode="after")
    def _forward(self) -> Self:
        for start, end in self.log_spans:
            if start >= end:
                raise ValueError(f"log span {start} to {end} holds nothing")
        return self


class ReportedFigures(Frozen):
    """Figures that stand in a source but cannot be recomputed from files here, ranges kept as ranges."""

    source: str
    output_tok_per_s: SpeedRange | None = None
    decode_tok_per_s: SpeedRange | None = None
    accept_length: LengthRange | None = None
    accept_rate_printed: RateRange | None = None
    completion_tokens: Count | None = None
    queue_req: Count | None = None
    num_requests: Count | None = None
    num_failed: Count | None = None
    notes: str | None = None


class LoadWindow(Frozen):
    """One pass at one load, as the client saw it: ``windows.json`` holds a list of them.

    ``busy_window_s`` is how long every slot had a request, ``decode_tok_per_s`` the speed within it; both ``None`` when
    there were fewer requests than slots. ``client_cpu_share`` near 1 means that the client was the limit.
    ``started_s`` is when it began by the clock of ``gpu.jsonl``.
    """

    repeat: Count
    wall_s: _Seconds
    busy_window_s: _Seconds | None = None
    decode_tok_per_s: _Speed | None = None
    output_tok_per_s: _Speed | None = None
    completion_tokens: Count = 0
    failed: Count = 0
    client_cpu_share: float | None = Field(default=None, ge=0)
    started_s: _Seconds | None = None


class CampaignInfo(Frozen):
    """A target, a workload, a machine, and the runs measured on them."""

    name: Name
    title: str
    target: str
    machine: str
    question: str | None = None
    source: str | None = None
    num_experts: Positive | None = None
    num_experts_per_tok: Positive | None = None
    notes: tuple[str, ...] = ()
