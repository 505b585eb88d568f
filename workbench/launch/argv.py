"""The command line and the environment of a server, from a start of a campaign, as its version spells them."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import PurePath

from workbench.errors import SpecError
from workbench.sglang_rules.flags import CHOSEN_AT_START, LIST_FLAGS, flag_key, flag_name, simulated_accept_variable
from workbench.spec import Scalar, SpecDecodeConfig
from workbench.sweep import CampaignSpec, Start, running_limit

MODULES = {"sglang": "sglang.launch_server", "reference": "workbench.reference"}
DECODE_LOG_INTERVAL = 10
"""Steps between decode lines when the campaign does not say; SGLang's own 40 leaves short answers without any."""

_NO_DRAFT_MODEL = frozenset({"NGRAM"})
_SAME_MACHINE = frozenset({"srun", "env", "numactl", "nice", "taskset", "setsid"})
"""Launch prefixes after which this Python is the right one."""


def server_argv(
    start: Start,
    campaign: CampaignSpec,
    *,
    port: int,
    host: str = "127.0.0.1",
    version: str | None = None,
    python: str | None = None,
    gpus: Sequence[int] | None = None,
) -> list[str]:
    """Everything that bears on a comparison is stated, so that baseline and candidates get the same.

    Parameters
    ----------
    host
        Where the server listens. A container without ``--network host`` needs 0.0.0.0.
    version
        Of SGLang; the campaign's when left out. An unknown one counts as the newest.
    python
        Interpreter of the server; when left out this one, or ``python3`` behind ``docker``, ``ssh`` and the like.
    gpus
        Behind a launch prefix the only ones that the server sees; without one `serve` takes care of that.

    Returns
    -------
    list of str
        Never meant for a shell. Behind a launch prefix, variables are set by ``env NAME=VALUE``, and what goes
        through ``ssh`` is quoted for the remote shell. The prefix must pass signals on: ``docker run --rm --init``,
        ``ssh -tt``.

    Raises
    ------
    SpecError
        When the target or the drafter has no model path.
    """
    prefix = campaign.launch_prefix
    program = PurePath(prefix[0]).name if prefix else ""
    if python is None:
        python = sys.executable if not prefix or program in _SAME_MACHINE else "python3"
    # The embedded engine comes with this package and speaks the newest names.
    version = None if campaign.engine == "reference" else version or campaign.sglang_version
    # -P: the folder where it starts must not come before installed packages. SGLang may be given models from there.
    safe = ["-P"] if campaign.engine == "reference" and python == sys.executable else []
    argv = [python, *safe, "-m", MODULES[campaign.engine]]
    for name, value in _settings(start, campaign, host, port):
        argv += _flag(name, value, version)
    if not prefix:
        return argv
    variables = server_env(start, version=version)
    if gpus is not None:
        variables["CUDA_VISIBLE_DEVICES"] = ",".join(map(str, gpus))
    inner = [*(["env", *(f"{name}={value}" for name, value in variables.items())] if variables else []), *argv]
    return [*prefix, *(shlex.quote(argument) for argument in inner)] if program == "ssh" else [*prefix, *inner]


def server_env(start: Start, *, version: str | None = None) -> dict[str, str]:
    """Variables of a server: the campaign's, and the forced accept length under the version's name."""
    if version is None and start.runs:
        version = start.runs[0].sglang_version
    variables = dict(start.server.env)
    forced = start.decode.simulated_accept_length if start.decode is not None else None
    if forced is not None:
        variables[simulated_accept_variable(version)] = f"{forced:g}"
    return variables


def _settings(start: Start, campaign: CampaignSpec, host: str, port: int) -> Iterator[tuple[str, Scalar]]:
    """Flags by name without dashes, each once; what the campaign gives as ``flags`` replaces what is made here."""
    settings: dict[str, Scalar] = {"model_path": _path(campaign.target.model_path, f"target {campaign.target.name}")}
    settings |= {"host": host, "port": port}
    settings |= _server_settings(start, campaign)
    if start.decode is not None:
        settings |= _speculative_settings(start, start.decode)
    for name, value in start.server.flags.items():
        key = flag_key(flag_name(name))
        if key in CHOSEN_AT_START:
            raise SpecError(
                "is chosen at the start of a server", where=f"server.flags.{name}", next_step="leave it out"
            )
        settings[key] = value
    yield from settings.items()


def _server_settings(start: Start, campaign: CampaignSpec) -> Mapping[str, Scalar]:
    server, target = start.server, campaign.target
    limit = running_limit(start, campaign)
    graph_limit = server.cuda_graph_max_bs_decode or limit
    return {
        "tp_size": server.tp_size,
        "dp_size": server.dp_size if server.dp_size > 1 else None,
        # Not target.quantization: it describes a checkpoint, whose config.json says it in the server's words.
        "dtype": target.dtype,
        "context_length": server.context_length,
        "mem_fraction_static": server.mem_fraction_static,
        "max_running_requests": limit,
        "attention_backend": server.attention_backend,
        "cuda_graph_max_bs_decode": None if server.cuda_graph is False else graph_limit,
        "disable_cuda_graph": server.cuda_graph is False,
        "decode_log_interval": server.decode_log_interval or DECODE_LOG_INTERVAL,
        "enable_metrics": True,
    }


def _speculative_settings(start: Start, decode: SpecDecodeConfig) -> Mapping[str, Scalar]:
    # Older versions know the algorithms in upper case only.
    algorithm = (decode.speculative_algorithm or "EAGLE3").upper()
    draft: str | None = None
    if start.drafter is not None:
        draft = _path(start.drafter.model_path, f"drafter {start.drafter.name}")
    elif algorithm not in _NO_DRAFT_MODEL and algorithm == "EAGLE3":
        raise SpecError(
            "EAGLE3 without a drafter: SGLang would load the target twice and crash (sglang issue 36528)",
            where=start.server_id,
            next_step="name a drafter with its model_path in the campaign",
        )
    return {
        "speculative_algorithm": algorithm,
        "speculative_draft_model_path": draft,
        "speculative_num_steps": decode.speculative_num_steps,
        "speculative_eagle_topk": decode.speculative_eagle_topk,
        "speculative_num_draft_tokens": decode.speculative_num_draft_tokens,
    }


def _path(path: str | None, whose: str) -> str:
    if not path:
        raise SpecError("has no model_path, so it cannot be served", where=whose, next_step="add it to the campaign")
    return path


def _flag(name: str, value: Scalar, version: str | None) -> list[str]:
    """The arguments of one flag; ``None`` and ``False`` leave it out."""
    if value is None or value is False:
        return []
    flag = flag_name(name, version)
    if value is True:
        return [flag]
    return [flag, *(str(value).replace(",", " ").split() if flag_key(name) in LIST_FLAGS else [str(value)])]
