"""Whether a comparison is fair: settings that differ between the arms, and points that are one."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import pandas as pd

from workbench.analysis.frames import Row, grouped, known, number, records, typed
from workbench.analysis.pairing import Pair, pairs

_FAIRNESS = {
    "campaign": "str",
    "run_id": "str",
    "label": "str",
    "baseline_run_id": "str",
    "setting": "str",
    "speculative": "str",
    "baseline": "str",
    "matters": "boolean",
    "why": "str",
}
_RESOLVED = ("campaign", "run_id", "label", "setting", "asked", "used")
_SAME_POINTS = {
    "campaign": "str",
    "drafter": "str",
    "prompt_set": "str",
    "max_concurrency": "Int64",
    "num_steps": "Int64",
    "eagle_topk": "Int64",
    "num_draft_tokens": "Int64",
    "asked": "str",
    "run_ids": "object",
    "labels": "object",
}
_ASKED = ("asked_num_steps", "asked_eagle_topk", "asked_num_draft_tokens")
_SHAPE = ("num_steps", "eagle_topk", "num_draft_tokens")
_SAME_POINT = (
    "campaign",
    "baseline_group",
    "drafter",
    "speculative_algorithm",
    *_SHAPE,
    "simulated_accept_length",
    "cuda_graph",
    "prompt_set",
    "max_concurrency",
    "ignore_eos",
    "temperature",
)


@dataclass(frozen=True, slots=True)
class _Setting:
    """A setting that both arms should share, why it matters, and when it does (always, unless said)."""

    name: str
    why: str
    matters: Callable[[Row, Row], bool] = lambda run, base: True


def _cap_binds(run: Row, base: Row) -> bool:
    limits = [limit for limit in (_limit(run), _limit(base)) if limit is not None]
    asked = number(run["max_concurrency"])
    return _queues(run) or _queues(base) or asked is None or min(limits, default=asked) < asked


def _cache_filled(run: Row, base: Row) -> bool:
    return any((number(row["num_retractions"]) or 0) > 0 for row in (run, base))


_SETTINGS = (
    _Setting("target", "another model is served"),
    _Setting("sglang_version", "speed differs by version"),
    _Setting("machine", "another machine"),
    _Setting("gpu_name", "another GPU"),
    _Setting("tp_size", "another split over GPUs"),
    _Setting("dp_size", "another number of replicas"),
    _Setting("cuda_graph", "without CUDA graphs each step pays the launches of its kernels"),
    _Setting("servers_alive", "other servers shared the GPU in one arm"),
    _Setting("places", "other starts were measured on the machine meanwhile, and may have slowed one arm down"),
    _Setting("cpus", "server and client had another number of CPUs"),
    _Setting("max_new_tokens", "answers end at other lengths"),
    _Setting("ignore_eos", "answers end at other places"),
    _Setting("temperature", "sampling changes texts and acceptance"),
    _Setting(
        "max_total_num_tokens", "the draft's cache takes memory; it matters once requests are retracted", _cache_filled
    ),
)
# Of what servers say they use: settings that bear on speed or text. Those in `_SETTINGS` are compared from the runs.
_USED = {
    "device": "another kind of processor",
    "dtype": "another number format",
    "quantization": "other weights",
    "kv_cache_dtype": "another number format of the KV cache",
    "attention_backend": "other attention kernels",
    "decode_attention_backend": "other attention kernels",
    "prefill_attention_backend": "other attention kernels",
    "sampling_backend": "other sampling kernels",
    "moe_runner_backend": "other expert kernels",
    "page_size": "another layout of the KV cache",
    "cuda_graph_max_bs_decode": "batches above the smaller size run without CUDA graphs in one arm",
    "disable_overlap_schedule": "host and GPU work overlap in one arm only",
    "disable_radix_cache": "prompts are reused in one arm only",
    "disable_prefill_cuda_graph": "prefills run in CUDA graphs in one arm only",
    "enable_torch_compile": "compiled kernels in one arm only",
    "enable_dp_attention": "attention is split otherwise",
    "ep_size": "experts are split otherwise",
    "pp_size": "another split over GPUs",
    "schedule_policy": "requests are taken in another order",
    "schedule_conservativeness": "another number of requests is let in",
    "chunked_prefill_size": "prefills are cut otherwise",
    "mem_fraction_static": "another size of the KV cache",
    "stream_interval": "answers are sent in other pieces",
}
_CAP = "fewer requests run at once in one arm; set max_running_requests explicitly and alike"


def fairness_df(runs: pd.DataFrame, settings: pd.DataFrame | None = None) -> pd.DataFrame:
    """Settings in which a speculative run and its baseline are known to differ, and whether that matters.

    ``settings`` (the table of what servers say they use) adds those that bear on speed or text. A run that queues
    under its limit of running requests is listed also where the baseline's limit is not known, and where no baseline
    ran at its load: then against another baseline of its group, on this setting alone.
    """
    baselines = [row for row in records(runs) if row["role"] == "baseline"]
    used = _used_settings(settings)
    return typed((row for pair in pairs(runs) for row in _differences(pair, baselines, used)), _FAIRNESS)


def _used_settings(settings: pd.DataFrame | None) -> Mapping[tuple[str, str], Mapping[str, str]]:
    """What each (campaign, run_id) uses of `_USED`."""
    if settings is None:
        return {}
    kept = settings[settings["setting"].isin(_USED)].dropna(subset=["used"])
    used: dict[tuple[str, str], dict[str, str]] = {}
    for row in records(kept[["campaign", "run_id", "setting", "used"]]):
        used.setdefault((row["campaign"], row["run_id"]), {})[row["setting"]] = row["used"]
    return used


def resolved_df(runs: pd.DataFrame, settings: pd.DataFrame) -> pd.DataFrame:
    """Settings that were asked for and of which the server says that it uses another value, a row a run and setting.

    Columns campaign, run_id, label, setting, asked, used.
    """
    labels = runs[["campaign", "run_id", "label"]].drop_duplicates(["campaign", "run_id"])
    stated = settings.dropna(subset=["asked", "used"])
    differing = stated[stated["asked"].str.upper() != stated["used"].str.upper()]
    return differing.merge(labels, on=["campaign", "run_id"])[list(_RESOLVED)].reset_index(drop=True)


def same_points_df(runs: pd.DataFrame) -> pd.DataFrame:
    """Runs that asked for different steps, topk or draft tokens, and that the server rewrites to the same ones.

    Such runs are one point measured more than once. ``asked`` lists steps, topk and draft tokens as asked.
    """
    candidates = runs[runs["role"] == "speculative"].dropna(subset=list(_SHAPE))
    rows: list[Row] = []
    for same in grouped(records(candidates), _SAME_POINT).values():
        asked = list(dict.fromkeys(tuple(run[name] for name in _ASKED) for run in same))
        if len(asked) > 1:
            said = "; ".join(", ".join(_text(value) for value in values) for values in asked)
            ids, labels = [run["run_id"] for run in same], [run["label"] for run in same]
            rows.append({**same[0], "asked": said, "run_ids": ids, "labels": labels})
    return typed(rows, _SAME_POINTS)


def _differences(
    pair: Pair, baselines: Sequence[Row], used: Mapping[tuple[str, str], Mapping[str, str]]
) -> Iterator[Row]:
    run = pair.run
    head = {name: run[name] for name in ("campaign", "run_id", "label")} | {"baseline_run_id": pair.baseline_run_id}
    if pair.baselines:
        base = pair.baselines[0]
        for setting in _SETTINGS:
            left, right = run[setting.name], base[setting.name]
            if known(left) and known(right) and left != right:
                yield {
                    **head,
                    "setting": setting.name,
                    "speculative": _text(left),
                    "baseline": _text(right),
                    "matters": setting.matters(run, base),
                    "why": setting.why,
                }
        own, other = (used.get((row["campaign"], row["run_id"]), {}) for row in (run, base))
        for name, why in _USED.items():
            if name in own and name in other and own[name] != other[name]:
                both = {"speculative": own[name], "baseline": other[name]}
                yield {**head, **both, "setting": name, "matters": True, "why": why}
        yield from _cap(head, run, base)
    elif _queues(run):
        group = (run["campaign"], run["baseline_group"])
        others = [row for row in baselines if (row["campaign"], row["baseline_group"]) == group]
        # The one with the most load says most about a limit.
        for base in sorted(others, key=lambda row: number(row["max_concurrency"]) or 0.0)[-1:]:
            yield from _cap({**head, "baseline_run_id": base["run_id"]}, run, base)


def _cap(head: Row, run: Row, base: Row) -> Iterator[Row]:
    """The limit of running requests: stated, or seen because requests queue behind it."""
    limits = _limit(run), _limit(base)
    differ = None not in limits and limits[0] != limits[1]
    unknown = None in limits and (_queues(run) or _queues(base))
    if differ or unknown:
        yield {
            **head,
            "setting": "max_running_requests",
            "speculative": _limit_text(run),
            "baseline": _limit_text(base),
            "matters": _cap_binds(run, base),
            "why": _CAP,
        }


def _limit(run: Row) -> float | None:
    stated = number(run["max_running_requests"])
    return number(run["peak_running_req"]) if stated is None and _queues(run) else stated


def _queues(run: Row) -> bool:
    return (number(run["peak_queue_req"]) or 0) > 0


def _limit_text(run: Row) -> str:
    limit = _limit(run)
    said = "not stated" if limit is None else f"{limit:.0f}"
    return f"{said} ({number(run['peak_queue_req']):.0f} queued)" if _queues(run) else said


def _text(value: object) -> str:
    if not known(value):
        return "not stated"
    return f"{value:g}" if isinstance(value, float) else str(value)
