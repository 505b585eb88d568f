"""What was checked beside the runs of a campaign: files of its folder ``_checks``, each absent where it was not done.

``cross_check.json`` and ``step_profile.json`` come from the tools of those names, ``router.json`` from servers that
count experts (tools/kimi_shape).
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Self, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from workbench.errors import Problem, RunFolderError
from workbench.files import require_inside

FOLDER = "_checks"
_MOST_BYTES = 4 << 20


class File(BaseModel):
    """What is taken from a file of JSON: finite numbers, and nothing that is not asked for."""

    model_config = ConfigDict(frozen=True, allow_inf_nan=False, extra="ignore")


class ClientPass(File):
    """One pass of one client. ``accept_length`` is that client's own; the server's counts the prefill's token."""

    completed: int = Field(ge=0)
    duration_s: float = Field(gt=0)
    total_output_tokens: int = Field(ge=0)
    output_tok_per_s: float = Field(gt=1e-3, lt=1e9)
    accept_length: float | None = Field(default=None, ge=0, le=1000)
    server_accept_length: float | None = Field(default=None, ge=0, le=1000)

    @model_validator(mode="after")
    def _requests_give_tokens(self) -> Self:
        if self.total_output_tokens < self.completed:
            raise ValueError("fewer tokens than answers")
        return self


class CrossPass(File):
    """Both clients in turn, with the same prompts and limits; ours also without streaming where it was tried."""

    max_concurrency: int = Field(gt=0)
    workbench: ClientPass
    bench_serving: ClientPass
    workbench_not_streaming: ClientPass | None = None


class CrossCheck(File):
    """Our client and ``sglang.bench_serving`` against one server."""

    prompt_set: str
    num_prompts: int
    max_new_tokens: int
    passes: tuple[CrossPass, ...] = Field(min_length=1)


class Share(File):
    """A kernel, a call of CUDA's runtime or a function: milliseconds and number of calls a step."""

    name: str = Field(max_length=500)
    ms_a_step: float = Field(ge=0)
    a_step: float = Field(ge=0)


class StepProfile(File):
    """Where a step's time went under SGLang's profiler, which makes the host's side slower than it is without."""

    steps: int = Field(gt=0)
    cycle_ms: float = Field(gt=0)
    gpu_busy_ms: float = Field(ge=0)
    kernels_a_step: float = Field(ge=0)
    kernels: tuple[Share, ...] = ()
    runtime_calls: tuple[Share, ...] = ()
    python: tuple[Share, ...] = ()

    @model_validator(mode="after")
    def _the_gpu_works_within_the_step(self) -> Self:
        if self.gpu_busy_ms > self.cycle_ms:
            raise ValueError("the GPU worked longer than the step took")
        return self


class ExpertCount(File):
    """Distinct experts that a layer reached, in the mean over its passes with some number of tokens."""

    passes: int = Field(gt=0)
    experts: float = Field(gt=0)


Tokens = Annotated[int, Field(gt=0, le=1_000_000)]


class Router(File):
    """By number of tokens a pass: with the random router of the runs, and with the model's own where it was tried."""

    noise: dict[Tokens, ExpertCount] = Field(default_factory=dict)
    plain: dict[Tokens, ExpertCount] = Field(default_factory=dict)

    @model_validator(mode="after")
    def _something_was_counted(self) -> Self:
        if not self.noise and not self.plain:
            raise ValueError("neither noise nor plain holds a count")
        return self


class SideChecks(File):
    """``None`` for what was not done."""

    cross_check: CrossCheck | None = None
    step_profile: StepProfile | None = None
    router: Router | None = None


_Model = TypeVar("_Model", bound=File)


def read_side_checks(campaign: Path) -> tuple[SideChecks, list[Problem]]:
    """The checks of a campaign folder, and which files cannot be used."""
    problems: list[Problem] = []
    folder = campaign / FOLDER
    return (
        SideChecks(
            cross_check=read_json(folder / "cross_check.json", campaign, CrossCheck, problems),
            step_profile=read_json(folder / "step_profile.json", campaign, StepProfile, problems),
            router=read_json(folder / "router.json", campaign, Router, problems),
        ),
        problems,
    )


def read_json(path: Path, campaign: Path, model: type[_Model], problems: list[Problem]) -> _Model | None:
    """A file of a campaign folder; ``None`` where it is not there, or cannot be used: then a problem says why."""
    try:
        if not path.exists() and not path.is_symlink():
            return None
        if not path.is_file():
            problems.append(Problem(str(path), "not used: it is no file"))
            return None
        if path.stat().st_size > _MOST_BYTES:
            problems.append(Problem(str(path), f"larger than {_MOST_BYTES >> 20} MiB; not used"))
            return None
        return model.model_validate_json(require_inside(path, campaign).read_bytes())
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        at = ".".join(map(str, first["loc"])) or "the whole"
        advice = "make it again, or remove the file"
        problems.append(Problem(str(path), f"not used: {at}: {first['msg']}; {advice}"))
    except RunFolderError as error:
        problems.append(Problem(str(path), f"not used: {error.what}"))
    except OSError as error:
        problems.append(Problem(str(path), f"not used: {error.strerror or error}"))
    return None
