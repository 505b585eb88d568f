"""What was asked of a server and what it says it uses, setting by setting."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from workbench.files import as_text
from workbench.parse.records import StartupFacts
from workbench.spec import RunSpec
from workbench.store import RunFolder

RESOLVED, LOG = "resolved.json", "server.log"
_SERVER = (
    "tp_size",
    "dp_size",
    "max_running_requests",
    "mem_fraction_static",
    "attention_backend",
    "context_length",
    "decode_log_interval",
)
_SPECULATIVE = (
    "speculative_algorithm",
    "speculative_num_steps",
    "speculative_eagle_topk",
    "speculative_num_draft_tokens",
)
_GRAPH_SIZE = ("cuda_graph_max_bs_decode", "cuda_graph_max_bs")
_GRAPHS_OFF = ("disable_cuda_graph", "disable_decode_cuda_graph")
_SECRET = ("api_key", "password", "hf_token")

Row = dict[str, object]


def setting_rows(run: RunFolder, facts: StartupFacts) -> Iterator[Row]:
    """Rows of the settings table; nothing where the server did not say what it uses."""
    said = used_settings(run.resolved, facts)
    if said is None:
        return
    used, source = said
    asked = _asked(run.spec)
    head = {"campaign": as_text(run.path.parent.name), "run_id": run.spec.run_id, "source": source}
    for name in dict.fromkeys((*asked, *used)):
        wanted, found = _text(asked.get(name)), _text(used.get(name))
        if wanted is not None or found is not None:
            yield {**head, "setting": as_text(name), "asked": wanted, "used": found}


def used_settings(resolved: Mapping[str, object] | None, facts: StartupFacts) -> tuple[dict[str, object], str] | None:
    """What the server says it uses, and where it says so; ``None`` where it does not."""
    if resolved:
        stated, source = dict(resolved), RESOLVED
    elif facts.server_args:
        stated, source = dict(facts.server_args), LOG
    else:
        return None
    used = {name: value for name, value in stated.items() if not any(word in name for word in _SECRET)}
    limit = _effective_limit(stated)
    if limit is not None:
        used["max_running_requests"] = limit
    size = next((value for name in _GRAPH_SIZE if (value := used.pop(name, None)) is not None), None)
    off = [value for name in _GRAPHS_OFF if isinstance(value := used.pop(name, None), bool)]
    if stated.get("device") != "cpu":
        # On a CPU there are no CUDA graphs to be on or off.
        used |= {"cuda_graph_max_bs_decode": size, "cuda_graph": not any(off) if off else None}
    return used, source


def _effective_limit(resolved: Mapping[str, object]) -> object:
    """The limit of running requests that a server of one data parallel rank came to, which the flag need not state."""
    states = resolved.get("internal_states")
    if resolved.get("dp_size") in (None, 1) and isinstance(states, list) and states and isinstance(states[0], dict):
        return states[0].get("effective_max_running_requests_per_dp")
    return None


def _asked(spec: RunSpec) -> dict[str, object]:
    server, decode = spec.server, spec.spec_decode
    asked: dict[str, object] = {name.replace("-", "_"): value for name, value in server.flags.items()}
    asked |= {name: getattr(server, name) for name in (*_SERVER, "cuda_graph", _GRAPH_SIZE[0])}
    if decode is not None:
        asked |= {name: getattr(decode, name) for name in _SPECULATIVE}
    return asked


def _text(value: object) -> str | None:
    """A value for comparing and showing; nothing for what is no single value."""
    if isinstance(value, bool):
        return "on" if value else "off"
    if isinstance(value, float):
        return f"{value:g}"
    return as_text(str(value)) if isinstance(value, int | str) else None
