"""Command-line flags of the server: how a version spells them, and which versions have them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from workbench.sglang_rules.versions import FIRST_VERSION, at_least


@dataclass(frozen=True, slots=True)
class Renamed:
    """``new`` is known from version ``since`` on, ``old`` is refused from version ``gone`` on."""

    old: str
    new: str
    since: str
    gone: str


RENAMED: tuple[Renamed, ...] = (
    # From 0.5.20 on argparse calls the old names ambiguous or unknown and the server ends with exit code 2.
    Renamed("cuda_graph_max_bs", "cuda_graph_max_bs_decode", "0.5.14", "0.5.20"),
    Renamed("cuda_graph_bs", "cuda_graph_bs_decode", "0.5.14", "0.5.20"),
    Renamed("disable_piecewise_cuda_graph", "disable_prefill_cuda_graph", "0.5.14", "0.5.20"),
    Renamed("stream_output", "incremental_streaming_output", "0.5.10", "0.5.20"),
)

FLAG_SINCE: Mapping[str, str] = {
    "speculative_algorithm": "0.4.1",
    "speculative_draft_model_path": "0.4.1",
    "speculative_num_steps": "0.4.1",
    "speculative_eagle_topk": "0.4.1",
    "speculative_num_draft_tokens": "0.4.1",
    "cuda_graph_bs": "0.4.2",
    "stream_output": "0.4.2",
    "dist_timeout": "0.4.4.post4",
    "page_size": "0.4.4.post4",
    "enable_nccl_nvls": "0.4.4.post4",
    "enable_return_hidden_states": "0.4.8",
    "skip_server_warmup": "0.4.9",
    "speculative_attention_mode": "0.5.2",
    "speculative_draft_load_format": "0.5.5",
    "speculative_draft_model_quantization": "0.5.7",
    "speculative_draft_attention_backend": "0.5.7",
    "disable_piecewise_cuda_graph": "0.5.10",
    "enable_mfu_metrics": "0.5.10",
    "speculative_adaptive": "0.5.11",
    "speculative_adaptive_config": "0.5.11",
    "speculative_draft_window_size": "0.5.12",
    "speculative_use_rejection_sampling": "0.5.14",
    "speculative_draft_kv_cache_dtype": "0.5.18",
    "speculative_use_block_verification": "0.5.22",
    "attn_dp_size": "0.5.23",
}
"""First version of the flags that came after 0.3.6 and that bear on speed or speculation. Renamed ones: `RENAMED`."""

LIST_FLAGS = frozenset({"cuda_graph_bs", "cuda_graph_bs_decode", "cuda_graph_bs_prefill"})
"""Flags that take several values, which stand as arguments of their own."""

CHOSEN_AT_START = frozenset({"host", "port"})
"""Flags that a campaign cannot give: a start listens where nothing else does."""


ALIASES: Mapping[str, str] = {
    "model": "model_path",
    "tp": "tp_size",
    "tensor_parallel_size": "tp_size",
    "dp": "dp_size",
    "data_parallel_size": "dp_size",
    "pp": "pp_size",
    "pipeline_parallel_size": "pp_size",
    "speculative_draft_model": "speculative_draft_model_path",
}
"""Other names of a setting, as old as the setting."""


def flag_key(name: str) -> str:
    """A flag without dashes, as the server's own arguments are called."""
    return name.lstrip("-").replace("-", "_")


def setting_key(name: str) -> str:
    """The setting that a flag sets, under its newest name: ``tp_size`` for ``--tensor-parallel-size``."""
    key = flag_key(name)
    key = next((rename.new for rename in RENAMED if key == rename.old), key)
    return ALIASES.get(key, key)


def flag_name(name: str, version: str | None = None) -> str:
    """A flag as a version spells it: ``--cuda-graph-max-bs-decode`` is ``--cuda-graph-max-bs`` before 0.5.14."""
    key = flag_key(name)
    for rename in RENAMED:
        if key in (rename.old, rename.new):
            key = rename.new if at_least(version, rename.since) else rename.old
    return "--" + key.replace("_", "-")


def flag_problem(name: str, version: str | None = None) -> str | None:
    """Why a version refuses a flag that is spelled like this; None when nothing is known against it."""
    key = flag_key(name)
    for rename in RENAMED:
        if key == rename.old and at_least(version, rename.gone):
            return f"--{_dashed(key)} ends the server with exit code 2 since {rename.gone}: use --{_dashed(rename.new)}"
        if key == rename.new and not at_least(version, rename.since):
            return f"--{_dashed(key)} came with {rename.since}: before that it is --{_dashed(rename.old)}"
    since = FLAG_SINCE.get(key, FIRST_VERSION)
    return None if at_least(version, since) else f"--{_dashed(key)} came with {since}"


def simulated_accept_variable(version: str | None = None) -> str:
    """The environment variable that forces the accept length; other versions ignore it in silence."""
    return "SGLANG_SIMULATE_ACC_LEN" if at_least(version, "0.5.3") else "SIMULATE_ACC_LEN"


def _dashed(key: str) -> str:
    return key.replace("_", "-")
