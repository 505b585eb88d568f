"""A server that answers for the target: one that runs already, or one started for the time of a block."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from workbench.errors import LaunchError, UsageError
from workbench.launch.argv import server_argv, server_env
from workbench.launch.places import claim, reserved_port
from workbench.launch.process import serve
from workbench.launch.ready import answers
from workbench.load import server_info
from workbench.paths import project_root, slug
from workbench.spec import Scalar, ServerConfig
from workbench.sweep import CampaignSpec, Start, find_campaign

READY_TIMEOUT_S = {"reference": 300.0, "sglang": 3600.0}
REFERENCE = "reference"
_LONGEST_NAME = 200
_REFERENCE_AT_ONCE = 2
"""The embedded engine runs one request at a time; one more waits, so that it never idles."""


@contextlib.contextmanager
def started(
    engine: str,
    target: Path,
    *,
    like: str | None,
    concurrency: int,
    random_seed: int,
    log: Path,
    say: Callable[[str], None],
) -> Iterator[str]:
    """The URL of a server of the target, started for the block with the server settings of the campaign ``like``."""
    campaign = _campaign(engine, target, concurrency)
    server = server_for(like, 1 if engine == REFERENCE else concurrency, random_seed)
    start = Start("answers", server, None, None, ())
    with claim(0 if engine == REFERENCE else 1, on_wait=say) as gpus, reserved_port() as port:
        url = f"http://127.0.0.1:{port}"
        with serve(
            server_argv(start, campaign, port=port, gpus=gpus or None),
            env=server_env(start),
            log=log,
            url=url,
            ready_timeout_s=READY_TIMEOUT_S[engine],
            gpus=gpus or None,
            on_phase=lambda phase: say(f"server: {phase}"),
            cwd=project_root(),
        ):
            yield url


def server_for(like: str | None, at_once: int, random_seed: int) -> ServerConfig:
    """The settings of a campaign's server, or SGLang's own, for so many requests at once."""
    settings = ServerConfig() if like is None else find_campaign(like).server
    flags: dict[str, Scalar] = {**settings.flags, "random_seed": random_seed}
    sizes = {"max_running_requests": at_once, "cuda_graph_max_bs_decode": None}
    return settings.model_copy(update={**sizes, "flags": flags})


def _campaign(engine: str, target: Path, concurrency: int) -> CampaignSpec:
    """What a server's command line is made from; there is nothing to sweep here."""
    return CampaignSpec.model_validate(
        {
            "name": "answers",
            "title": "answers",
            "engine": engine,
            "target": {"name": slug(target.name), "model_path": str(target)},
            "workload": {"prompt_set": "mixed", "num_prompts": 1, "max_new_tokens": 1},
            "max_concurrency": [concurrency],
            "sweep": [{"speculative_num_steps": 1}],
        }
    )


def described(url: str) -> dict[str, Any]:
    """What answers there: engine, version, model, random seed.

    Raises
    ------
    LaunchError
        When nothing does.
    """
    if not answers(url, 10.0):
        raise LaunchError(
            "no server answers", where=url, next_step="start one, or leave --url out to start SGLang here"
        )
    info = server_info(url) or {}
    engine = _said(info, "engine") or "sglang"
    seed = info.get("random_seed")
    return {
        "engine": engine,
        "version": _said(info, "engine_version" if engine == REFERENCE else "version"),
        "model": Path(_said(info, "model_path") or "not stated").name,
        "random_seed": seed if type(seed) is int else None,
        "speculative_algorithm": _said(info, "speculative_algorithm"),
        "deterministic": bool(info.get("enable_deterministic_inference")),
    }


def _said(info: Mapping[str, object], name: str) -> str | None:
    value = info.get(name)
    return value[:_LONGEST_NAME] if isinstance(value, str) and value else None


def check_engine_samples(engine: str, temperature: float) -> None:
    """Refuse what the embedded engine does not do.

    Raises
    ------
    UsageError
        When it is asked to sample.
    """
    if engine == REFERENCE and temperature > 0:
        raise UsageError(
            f"the embedded engine decodes greedily, temperature {temperature:g} is asked for",
            next_step="give --temperature 0, or use SGLang",
        )


def at_once(engine: str, concurrency: int) -> int:
    return min(concurrency, _REFERENCE_AT_ONCE) if engine == REFERENCE else concurrency
