"""What was checked beside the runs of a campaign: files of its folder ``_checks``, each absent where it was not done.

``cross_check.json`` and ``step_profile.json`` come from the tools of those names, ``router.json`` from servers that
count experts (tools/kimi_shape).
"""

from __future__ import annotations

from pathlib import Path
from typing import TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from workbench.errors import Problem

FOLDER = "_checks"
_MOST_BYTES = 4 << 20


class _File(BaseModel):
    model_config = ConfigDict(frozen=True, allow_inf_nan=False, extra="ignore")


class ClientPass(_File):
    """One pass of one client. ``accept_length`` is that client's own; the server's counts the prefill's token."""

    completed: int = Field(ge=0)
    duration_s: float = Field(gt=0)
    total_output_tokens: int = Field(ge=0)
    output_tok_per_s: float = Field(gt=0)
    accept_length: float | None = None
    server_accept_length: float | None = None


class CrossPass(_File):
    """Both clients in turn, with the same prompts and limits; ours also without streaming where it was tried."""

    max_concurrency: int = Field(gt=0)
    workbench: ClientPass
    bench_serving: ClientPass
    workbench_not_streaming: ClientPass | None = None


class CrossCheck(_File):
    """Our client and ``sglang.bench_serving`` against one server."""

    prompt_set: str
    num_prompts: int
    max_new_tokens: int
    passes: tuple[CrossPass, ...] = Field(min_length=1)


class Share(_File):
    """A kernel, a call of CUDA's runtime or a function: milliseconds and number of calls a step."""

    name: str
    ms_a_step: float = Field(ge=0)
    a_step: float = Field(ge=0)


class StepProfile(_File):
    """Where a step's time went under SGLang's profiler, which makes the host's side slower than it is without."""

    steps: int = Field(gt=0)
    cycle_ms: float = Field(gt=0)
    gpu_busy_ms: float = Field(ge=0)
    kernels_a_step: float = Field(ge=0)
    kernels: tuple[Share, ...] = ()
    runtime_calls: tuple[Share, ...] = ()
    python: tuple[Share, ...] = ()


class ExpertCount(_File):
    """Distinct experts that a layer reached, in the mean over its passes with some number of tokens."""

    passes: int = Field(gt=0)
    experts: float = Field(gt=0)


class Router(_File):
    """By number of tokens a pass: with the random router of the runs, and with the model's own where it was tried."""

    noise: dict[int, ExpertCount] = Field(default_factory=dict)
    plain: dict[int, ExpertCount] = Field(default_factory=dict)


class SideChecks(_File):
    """``None`` for what was not done."""

    cross_check: CrossCheck | None = None
    step_profile: StepProfile | None = None
    router: Router | None = None


_Model = TypeVar("_Model", bound=_File)


def read_side_checks(campaign: Path) -> tuple[SideChecks, list[Problem]]:
    """The checks of a campaign folder, and which files cannot be used."""
    problems: list[Problem] = []
    folder = campaign / FOLDER
    return (
        SideChecks(
            cross_check=_read(folder / "cross_check.json", CrossCheck, problems),
            step_profile=_read(folder / "step_profile.json", StepProfile, problems),
            router=_read(folder / "router.json", Router, problems),
        ),
        problems,
    )


def _read(path: Path, model: type[_Model], problems: list[Problem]) -> _Model | None:
    try:
        if not path.is_file():
            return None
        if path.stat().st_size > _MOST_BYTES:
            problems.append(Problem(str(path), f"larger than {_MOST_BYTES >> 20} MiB; not used"))
            return None
        return model.model_validate_json(path.read_bytes())
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        at = ".".join(map(str, first["loc"])) or "the whole"
        problems.append(Problem(str(path), f"not used: {at}: {first['msg']}"))
    except OSError as error:
        problems.append(Problem(str(path), f"not used: {error.strerror or error}"))
    return None
