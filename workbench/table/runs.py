"""Run folders to rows: what was asked, what the server used, what came out, each figure from its best source."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence

from workbench.files import as_text
from workbench.parse.records import RateDefinition, StartupFacts
from workbench.sglang_rules import effective_shape
from workbench.spec import Drafter, LoadWindow, Origin, Range, ReportedFigures, RunSpec
from workbench.store import RunFolder
from workbench.table.logs import LogSummary
from workbench.table.requests import add_histograms, decode_speed, output_speed, pooled_accept_length
from workbench.table.settings import used_settings

Row = dict[str, object]
_LEAST_ACCEPT = 0.9
# SGLang renamed the variable at 0.5.3.
_SIMULATED_BY = ("SGLANG_SIMULATE_ACC_LEN", "SIMULATE_ACC_LEN")
_SIMULATED = "(simulated)"
_CPU_LIST = re.compile(r"\d{1,6}(-\d{1,6})?(,\d{1,6}(-\d{1,6})?)*", re.ASCII)


def run_row(
    run: RunFolder,
    *,
    drafter: Drafter | None,
    requests: Sequence[Mapping[str, object]],
    log: LogSummary | None,
    log_row: Mapping[str, object],
    accept_length_counters: float | None,
    gpu: Mapping[str, object],
) -> tuple[Row, list[str]]:
    """One row of the runs table, and which of its figures cannot be and are left out.

    ``log_row`` holds the figures of this run's own decode windows, ``gpu`` those of its GPU samples.
    """
    facts = log.facts if log is not None else StartupFacts()
    row: Row = {**_asked(run), **_training(drafter), **log_row, **gpu}
    row |= _server(run, facts, row)
    row |= _measured(run, requests)
    row["accept_length_counters"] = accept_length_counters
    faults = _take_out_impossible(row)
    row |= _reported(run.reported, row)
    row |= _accept_length(row, run.reported)
    steps, length = row.get("num_steps"), row.get("accept_length")
    if isinstance(steps, int) and isinstance(length, float):
        row["accept_rate"] = (length - 1) / steps
    return row, faults


def _take_out_impossible(row: Row) -> list[str]:
    """Remove accept lengths that no server can have, and speeds that are none; say what was said of the former."""
    steps = row.get("num_steps")
    most = steps + 1 if isinstance(steps, int) else math.inf
    faults = []
    for source in ("requests", "counters"):
        name = f"accept_length_{source}"
        value = row.get(name)
        # A server may count one step more than a request needed, so a drafter that is never right can end below 1.
        if isinstance(value, float) and not _LEAST_ACCEPT <= value <= most + 0.01:
            row[name] = None
            said = f"below 1 or above steps + 1 = {most}" if most < math.inf else "below 1"
            faults.append(f"accept length {value:.4g} from {source} cannot be ({said}); it is not used")
    for name in ("output_tok_per_s", "decode_tok_per_s"):
        speed = row.get(name)
        if isinstance(speed, float) and not 0 < speed < math.inf:
            row[name] = None
    return faults


def _asked(run: RunFolder) -> Row:
    spec, provenance, workload, server = run.spec, run.provenance, run.spec.workload, run.spec.server
    decode, forced = spec.spec_decode, _forced_length(run.spec)
    # What measures cannot know that it simulates: whoever set the acceptance knows.
    origin = Origin.SIMULATED if forced is not None else provenance.origin
    return {
        "campaign": as_text(run.path.parent.name),
        "run_id": spec.run_id,
        "server_id": spec.server_id,
        "label": _label(spec, origin),
        "role": spec.role,
        "baseline_group": spec.baseline_group,
        "origin": origin.value,
        "source": provenance.source,
        "recorded_at": provenance.recorded_at,
        "status": run.status.status.value,
        "status_reason": run.status.reason,
        "engine": spec.engine,
        "sglang_version": spec.sglang_version or provenance.versions.get("sglang"),
        "target": spec.target.name,
        "machine": provenance.machine,
        "gpu_name": provenance.gpu_name,
        "gpu_count": provenance.gpu_count,
        "servers_alive": provenance.servers_alive,
        "places": provenance.places,
        "cpus": _count_cpus(provenance.cpus),
        "tp_size": server.tp_size,
        "dp_size": server.dp_size,
        "drafter": spec.drafter,
        "speculative_algorithm": decode.speculative_algorithm if decode else None,
        "asked_num_steps": decode.speculative_num_steps if decode else None,
        "asked_eagle_topk": decode.speculative_eagle_topk if decode else None,
        "asked_num_draft_tokens": decode.speculative_num_draft_tokens if decode else None,
        "simulated_accept_length": forced,
        "prompt_set": workload.prompt_set,
        "temperature": workload.temperature,
        "max_new_tokens": workload.max_new_tokens,
        "ignore_eos": workload.ignore_eos,
        "max_concurrency": workload.max_concurrency,
    }


def _count_cpus(listed: str | None) -> int | None:
    """Of a list as Linux writes it: ``0-3,8`` are five."""
    if not listed or not _CPU_LIST.fullmatch(listed):
        return None
    ranges = [part.split("-") for part in listed.split(",")]
    counts = [int(part[-1]) - int(part[0]) + 1 for part in ranges]
    return sum(counts) if min(counts) > 0 else None


def _forced_length(spec: RunSpec) -> float | None:
    """The accept length that the server was told to pretend, by the campaign's setting or in its environment."""
    if spec.spec_decode is None:
        return None
    texts = [spec.server.env.get(name) for name in _SIMULATED_BY]
    named = [float(text) for text in texts if text and text.replace(".", "", 1).isdecimal()]
    return spec.spec_decode.simulated_accept_length or next((length for length in named if length > 0), None)


def _label(spec: RunSpec, origin: Origin) -> str:
    """The run's short name, in which simulated acceptance is always said: it stands in tables, figures, sentences."""
    name = spec.label or spec.run_id
    return f"{name} {_SIMULATED}" if origin is Origin.SIMULATED and _SIMULATED not in name else name


def _training(drafter: Drafter | None) -> Row:
    if drafter is None:
        return {}
    return {
        "drafter_target": drafter.target,
        "training_samples": drafter.training_samples,
        "response_tokens": drafter.response_tokens,
        "optimizer_steps": drafter.optimizer_steps,
        "epochs": drafter.epochs,
        "data_mix": drafter.data_mix,
        "recipe": drafter.recipe,
        "design": drafter.design,
        "seed": drafter.seed,
        "draft_vocab_size": drafter.draft_vocab_size,
    }


def _server(run: RunFolder, facts: StartupFacts, row: Row) -> Row:
    """What the server used: the log's word first, else the asked values with the server's own rewrites."""
    server, decode = run.spec.server, run.spec.spec_decode
    said = used_settings(run.resolved, facts)
    stated = said[0] if said is not None else {}
    used: Row = {
        "device": _word(stated.get("device")),
        "dtype": _word(stated.get("dtype"), unless="auto") or run.spec.target.dtype,
        "max_running_requests": facts.max_running_requests or server.max_running_requests,
        "max_total_num_tokens": facts.max_total_num_tokens,
    }
    if used["device"] == "cpu":
        # There are no CUDA graphs to be on or off.
        used["cuda_graph"] = used["cuda_graph_share"] = None
    elif row.get("cuda_graph") is None:
        used["cuda_graph"] = server.cuda_graph
    if facts.rate_definition is not RateDefinition.UNKNOWN:
        used["accept_rate_definition"] = facts.rate_definition.value
    if decode is None:
        return used
    shape = effective_shape(
        decode.speculative_num_steps,
        decode.speculative_eagle_topk,
        decode.speculative_num_draft_tokens,
        version=run.spec.sglang_version,
    )
    used["num_steps"] = facts.num_steps or shape.num_steps
    used["eagle_topk"] = facts.eagle_topk or shape.eagle_topk
    used["num_draft_tokens"] = facts.draft_tokens_effective or shape.num_draft_tokens
    return used


def _word(value: object, unless: str = "") -> str | None:
    return as_text(value) if isinstance(value, str) and value not in ("", unless) else None


def _measured(run: RunFolder, requests: Sequence[Mapping[str, object]]) -> Row:
    if not requests:
        return {}
    good = [row for row in requests if row["ok"]]
    concurrency = run.spec.workload.max_concurrency
    passes = _busy_passes(run.windows)
    histograms = [row["steps_histogram"] for row in good if isinstance(row["steps_histogram"], list)]
    steps = [row["spec_verify_ct"] for row in good if isinstance(row["spec_verify_ct"], int)]
    tokens = [row["completion_tokens"] for row in good if isinstance(row["completion_tokens"], int)]
    return {
        "num_requests": len(good),
        "num_failed": len(requests) - len(good),
        "repeats": len({row["repeat"] for row in requests}),
        "completion_tokens": sum(tokens) if tokens else None,
        "spec_verify_ct": sum(steps) if steps else None,
        "accept_length_requests": pooled_accept_length(good) if run.spec.spec_decode else None,
        "output_tok_per_s": output_speed(good, concurrency) or _output_speed(run.windows),
        "decode_tok_per_s": decode_speed(good, concurrency) or _decode_speed(passes),
        "pass_decode_tok_per_s": [speed for speed, _ in passes] or None,
        "pass_busy_s": [seconds for _, seconds in passes] or None,
        "steps_histogram": add_histograms(h for h in histograms if isinstance(h, list)) if histograms else None,
    }


def _output_speed(windows: Sequence[LoadWindow]) -> float | None:
    """Tokens of all passes over their wall time."""
    seconds = sum(window.wall_s for window in windows)
    return sum(window.completion_tokens for window in windows) / seconds if seconds > 0 else None


def _busy_passes(windows: Sequence[LoadWindow]) -> list[tuple[float, float]]:
    """Speed while all slots were busy, and how long they were, by pass; nothing unless every pass has both."""
    pairs = [(window.decode_tok_per_s, window.busy_window_s) for window in windows]
    known = [
        (speed, seconds)
        for speed, seconds in pairs
        if speed is not None and seconds is not None and 0 < speed < math.inf and 0 < seconds < math.inf
    ]
    return known if len(known) == len(pairs) else []


def _decode_speed(passes: Sequence[tuple[float, float]]) -> float | None:
    """Speed while all slots were busy, passes weighted by how long that was."""
    seconds = sum(seconds for _, seconds in passes)
    return sum(speed * seconds for speed, seconds in passes) / seconds if passes else None


def _reported(reported: ReportedFigures | None, row: Row) -> Row:
    """Reported figures fill what was not measured; they never replace it."""
    output = reported.output_tok_per_s if reported and row.get("output_tok_per_s") is None else None
    low, value, high = _spread(output)
    measured = row.get("output_tok_per_s")
    filled: Row = {
        "output_tok_per_s": value if measured is None else measured,
        "output_tok_per_s_low": low if measured is None else measured,
        "output_tok_per_s_high": high if measured is None else measured,
    }
    if reported is None:
        return filled
    if row.get("decode_tok_per_s") is None:
        filled["decode_tok_per_s"] = _spread(reported.decode_tok_per_s)[1]
    if row.get("accept_rate_printed") is None:
        filled["accept_rate_printed"] = _spread(reported.accept_rate_printed)[1]
    if row.get("peak_queue_req") is None:
        filled["peak_queue_req"] = reported.queue_req
    for name in ("completion_tokens", "num_requests", "num_failed"):
        if row.get(name) is None:
            filled[name] = getattr(reported, name)
    return filled


def _accept_length(row: Row, reported: ReportedFigures | None) -> Row:
    """The pooled accept length from the best source there is; a reported range stays a range."""
    for source in ("requests", "counters"):
        value = row.get(f"accept_length_{source}")
        if isinstance(value, float):
            return _same(value, source)
    if reported is not None and reported.accept_length is not None:
        low, middle, high = _spread(reported.accept_length)
        return {
            "accept_length": middle,
            "accept_length_low": low,
            "accept_length_high": high,
            "accept_length_source": "reported",
        }
    value = row.get("accept_length_log")
    return _same(value, "log") if isinstance(value, float) else {}


def _same(value: float, source: str) -> Row:
    return {
        "accept_length": value,
        "accept_length_low": value,
        "accept_length_high": value,
        "accept_length_source": source,
    }


def _spread(value: Range | None) -> tuple[float | None, float | None, float | None]:
    return (None, None, None) if value is None else (value.low, (value.low + value.high) / 2, value.high)
