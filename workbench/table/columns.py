"""Every column of every table, declared once: dtype, unit, meaning, source. docs/columns.md is made from this."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import pandas as pd

from workbench.errors import InputError


@dataclass(frozen=True, slots=True)
class Column:
    """``dtype`` is one of str, int, float, bool, time, list. Missing is NaN, NA or NaT; lists are ``None``."""

    name: str
    dtype: str
    unit: str
    meaning: str
    source: str


_PANDAS_DTYPE = {
    "str": "str",
    "int": "Int64",
    "float": "float64",
    "bool": "boolean",
    "time": "datetime64[us]",
    "list": "object",
}

_SPEC, _PROV, _STATUS, _REP = "spec.json", "provenance.json", "status.json", "reported.json"
_REQ, _LOG, _DRAFT, _PROM = "requests.jsonl", "server.log", "drafters.json", "metrics.*.prom"
_RESOLVED, _PASSES, _GPU = "resolved.json", "windows.json", "gpu.jsonl, windows.json"
_BEST = f"best of {_REQ}, {_PROM}, {_REP}, {_LOG}"

RUNS: tuple[Column, ...] = (
    Column("campaign", "str", "", "campaign folder", "folder name"),
    Column("run_id", "str", "", "run folder", "folder name"),
    Column("server_id", "str", "", "server start that served the run; runs that differ only in load share one", _SPEC),
    Column("label", "str", "", "short human name, or the run id; says where acceptance was simulated", _SPEC),
    Column("role", "str", "", "baseline (no speculation) or speculative", _SPEC),
    Column("baseline_group", "str", "", "runs are compared only with baselines of their own group", _SPEC),
    Column(
        "origin",
        "str",
        "",
        "measured, recorded, noted, simulated, published or imported; never drawn alike",
        f"{_PROV}, {_SPEC}",
    ),
    Column("source", "str", "", "where the figures come from", _PROV),
    Column("recorded_at", "str", "ISO 8601", "when the run was made, as precisely as known", _PROV),
    Column("status", "str", "", "pending, running, ok, failed, timed_out, interrupted or skipped", _STATUS),
    Column("status_reason", "str", "", "why, where it is not ok", _STATUS),
    Column("engine", "str", "", "sglang, reference, vllm or unknown", _SPEC),
    Column("sglang_version", "str", "", "version stated for the run", _SPEC),
    Column("target", "str", "", "model served", _SPEC),
    Column("machine", "str", "", "machine in words", _PROV),
    Column("gpu_name", "str", "", "GPU model", _PROV),
    Column("gpu_count", "int", "", "GPUs of the machine", _PROV),
    Column("servers_alive", "int", "", "servers alive on its GPUs while measuring, itself included", _PROV),
    Column("places", "int", "", "starts measured side by side by one command meanwhile, itself included", _PROV),
    Column("cpus", "int", "", "CPUs that server and client could use", _PROV),
    Column("device", "str", "", "cuda, cpu or another, as the server says", f"{_RESOLVED}, else {_LOG}"),
    Column("dtype", "str", "", "number format the server computes in", f"{_RESOLVED}, else {_LOG}, else {_SPEC}"),
    Column("tp_size", "int", "", "tensor parallel size", _SPEC),
    Column("dp_size", "int", "", "data parallel size", _SPEC),
    Column("drafter", "str", "", "draft checkpoint", _SPEC),
    Column("drafter_target", "str", "", "model that the drafter was made for", _DRAFT),
    Column("training_samples", "int", "samples", "samples that the drafter was trained on", _DRAFT),
    Column("response_tokens", "int", "tokens", "response tokens that the drafter was trained on", _DRAFT),
    Column("optimizer_steps", "int", "", "optimizer steps done in training", _DRAFT),
    Column("epochs", "float", "", "passes over the training data", _DRAFT),
    Column("data_mix", "str", "", "what the training data is", _DRAFT),
    Column("recipe", "str", "", "training recipe", _DRAFT),
    Column("design", "str", "", "what all sizes of a study share: fixed epochs, fixed steps or fixed time", _DRAFT),
    Column("seed", "int", "", "training seed", _DRAFT),
    Column("draft_vocab_size", "int", "tokens", "tokens that the drafter can propose", _DRAFT),
    Column("speculative_algorithm", "str", "", "as asked", _SPEC),
    Column("asked_num_steps", "int", "", "speculative_num_steps as asked", _SPEC),
    Column("asked_eagle_topk", "int", "", "speculative_eagle_topk as asked", _SPEC),
    Column("asked_num_draft_tokens", "int", "", "speculative_num_draft_tokens as asked", _SPEC),
    Column("num_steps", "int", "", "draft steps the server uses", f"{_LOG}, else {_SPEC} with the server's rewrites"),
    Column("eagle_topk", "int", "", "topk the server uses", f"{_LOG}, else {_SPEC} with the server's rewrites"),
    Column("num_draft_tokens", "int", "", "draft tokens the server uses, root included", f"{_LOG}, else {_SPEC}"),
    Column("simulated_accept_length", "float", "tokens/step", "forced accept length, by setting or environment", _SPEC),
    Column("cuda_graph", "bool", "", "decode steps ran in CUDA graphs", f"{_LOG}, else {_SPEC}"),
    Column("cuda_graph_share", "float", "", "share of decode lines with the graph on", _LOG),
    Column("prompt_set", "str", "", "prompts used", _SPEC),
    Column("temperature", "float", "", "sampling temperature", _SPEC),
    Column("max_new_tokens", "int", "tokens", "limit of an answer", _SPEC),
    Column("ignore_eos", "bool", "", "answers go on to the limit", _SPEC),
    Column("max_concurrency", "int", "", "requests in flight", _SPEC),
    Column("num_requests", "int", "", "finished requests", f"{_REQ}, else {_REP}"),
    Column("num_failed", "int", "", "failed requests; never averaged", f"{_REQ}, else {_REP}"),
    Column("repeats", "int", "", "passes over the prompts", _REQ),
    Column("completion_tokens", "int", "tokens", "tokens produced by finished requests", f"{_REQ}, else {_REP}"),
    Column("spec_verify_ct", "int", "", "verify steps of finished requests", _REQ),
    Column("accept_length", "float", "tokens/step", "tokens a verify step, bonus included, pooled", _BEST),
    Column("accept_length_low", "float", "tokens/step", "low end where a source gives a range", _BEST),
    Column("accept_length_high", "float", "tokens/step", "high end where a source gives a range", _BEST),
    Column("accept_length_source", "str", "", "which one: requests, counters, reported or log", "computed"),
    Column("accept_length_requests", "float", "tokens/step", "from histograms, else (tokens-1)/steps, pooled", _REQ),
    Column("accept_length_log", "float", "tokens/step", "decode lines weighted by running requests", _LOG),
    Column("accept_length_counters", "float", "tokens/step", "counter deltas before and after", _PROM),
    Column("accept_rate", "float", "", "(accept length - 1) / steps", "computed"),
    Column("accept_rate_printed", "float", "", "mean of the log's own rate, whatever it means", f"{_LOG}, else {_REP}"),
    Column("accept_rate_definition", "str", "", "what the printed rate means", f"inferred from {_LOG}"),
    Column("output_tok_per_s", "float", "tok/s", "end-to-end output speed", f"{_REQ}, else {_REP}"),
    Column("output_tok_per_s_low", "float", "tok/s", "low end where a source gives a range", _REP),
    Column("output_tok_per_s_high", "float", "tok/s", "high end where a source gives a range", _REP),
    Column("decode_tok_per_s", "float", "tok/s", "speed while all slots are busy", f"{_PASSES}, {_REQ} or {_REP}"),
    Column("pass_decode_tok_per_s", "list", "tok/s", "speed while all slots are busy, of each pass", _PASSES),
    Column("pass_busy_s", "list", "s", "how long all slots were busy, of each pass", _PASSES),
    Column("energy_j_per_tok", "float", "J/tok", "energy of the server's GPUs a token, prefills included", _GPU),
    Column("gpu_power_w", "float", "W", "mean power of the server's GPUs together while measured", _GPU),
    Column("gpu_sm_clock_mhz", "float", "MHz", "mean clock of the GPUs while measured", _GPU),
    Column("gpu_peak_memory_bytes", "float", "bytes", "most memory in use on one GPU", "gpu.jsonl"),
    Column("log_median_tok_per_s", "float", "tok/s", "median decode line at the load of most lines, DP summed", _LOG),
    Column("log_client_tok_per_s", "float", "tok/s", "all tokens over all time at that load, DP summed", _LOG),
    Column("max_running_requests", "int", "", "effective limit", f"{_LOG}, else {_SPEC}"),
    Column("max_total_num_tokens", "int", "tokens", "size of the KV cache", _LOG),
    Column("peak_running_req", "int", "", "most requests running in a decode line", _LOG),
    Column("peak_queue_req", "int", "", "most requests queued in a decode line", f"{_LOG}, else {_REP}"),
    Column("num_windows", "int", "", "decode lines of the run", _LOG),
    Column("num_idle_windows", "int", "", "decode lines that waited, left out of speeds", _LOG),
    Column("num_truncated", "int", "", "decode lines cut off", _LOG),
    Column("num_retractions", "int", "", "lines that say that requests were retracted", _LOG),
    Column("steps_histogram", "list", "", "verify steps by number of correct drafts", _REQ),
)

REQUESTS: tuple[Column, ...] = (
    Column("campaign", "str", "", "campaign folder", "folder name"),
    Column("run_id", "str", "", "run folder", "folder name"),
    Column("prompt_set", "str", "", "prompts used", _SPEC),
    Column("prompt_index", "int", "", "position in the prompt set; pairs the arms", _REQ),
    Column("repeat", "int", "", "pass over the prompts, from 0", _REQ),
    Column("ok", "bool", "", "finished without error", _REQ),
    Column("error", "str", "", "what went wrong", _REQ),
    Column("prompt_tokens", "int", "tokens", "tokens of the prompt", _REQ),
    Column("completion_tokens", "int", "tokens", "tokens produced", _REQ),
    Column("spec_verify_ct", "int", "", "verify steps", _REQ),
    Column("latency_s", "float", "s", "from sending to the last byte, by the client", _REQ),
    Column("ttft_s", "float", "s", "from sending to the first token, by the client", _REQ),
    Column("e2e_latency_s", "float", "s", "by the server", _REQ),
    Column("text_hash", "str", "", "hash of the answer's text", _REQ),
    Column("output_ids", "list", "", "tokens of the answer, where they were kept", _REQ),
    Column("distinct_4", "float", "", "different runs of four tokens over all of the answer, 0 to 1", _REQ),
    Column("steps_histogram", "list", "", "verify steps by number of correct drafts, index = drafts", _REQ),
)

WINDOWS: tuple[Column, ...] = (
    Column("campaign", "str", "", "campaign folder", "folder name"),
    Column("run_id", "str", "", "run folder; empty where no run owns the line", "folder name"),
    Column("server_id", "str", "", "server start", _SPEC),
    Column("line", "int", "", "line of the log, from 1", _LOG),
    Column("offset", "int", "bytes", "byte offset of the line", _LOG),
    Column("time", "time", "", "time stamp as printed, server's local time, of 1990 to 2100", _LOG),
    Column("dp_rank", "int", "", "data parallel rank, 0 when there is none", _LOG),
    Column("running_req", "int", "", "requests running", _LOG),
    Column("before_req", "int", "", "requests running in the rank's line before, 0 at the start", _LOG),
    Column("queue_req", "int", "", "requests queued", _LOG),
    Column("tokens", "int", "tokens", "tokens in the KV cache", _LOG),
    Column("token_usage", "float", "", "share of the KV cache used", _LOG),
    Column(
        "accept_len",
        "float",
        "tokens/step",
        "accept length as printed, bonus included; missing where it cannot be",
        _LOG,
    ),
    Column("accept_rate_printed", "float", "", "accept rate as printed; see its definition", _LOG),
    Column("cuda_graph", "bool", "", "the window's last step ran in a CUDA graph", _LOG),
    Column("gen_tok_per_s", "float", "tok/s", "tokens since the last line over time since the last line", _LOG),
    Column("opening", "bool", "", "first line of a phase: nothing ran when its window began", "derived"),
    Column("fresh", "bool", "", "first line since the server was ready or its cache was flushed", "derived"),
    Column("idle", "bool", "", "the window holds idle or start-up time: its speed means nothing", "derived"),
    Column("window_tokens", "float", "tokens", "log interval x running requests x accept length", "derived"),
    Column("window_s", "float", "s", "window_tokens / gen_tok_per_s", "derived"),
    Column("prefills", "int", "", "prefill batches since the rank's line before; missing where none are logged", _LOG),
    Column("truncated", "bool", "", "the line was cut off", _LOG),
)

DRAFTERS: tuple[Column, ...] = (
    Column("campaign", "str", "", "campaign folder", "folder name"),
    Column("drafter", "str", "", "draft checkpoint", _DRAFT),
    Column("drafter_target", "str", "", "model that the drafter was made for", _DRAFT),
    Column("training_samples", "int", "samples", "samples trained on", _DRAFT),
    Column("response_tokens", "int", "tokens", "response tokens trained on", _DRAFT),
    Column("optimizer_steps", "int", "", "optimizer steps done", _DRAFT),
    Column("epochs", "float", "", "passes over the data", _DRAFT),
    Column("seed", "int", "", "training seed", _DRAFT),
    Column("draft_vocab_size", "int", "tokens", "tokens that the drafter can propose", _DRAFT),
    Column("data_mix", "str", "", "what the training data is", _DRAFT),
    Column("recipe", "str", "", "training recipe", _DRAFT),
    Column("design", "str", "", "what all sizes of a study share: fixed epochs, fixed steps or fixed time", _DRAFT),
    Column("notes", "str", "", "anything else known", _DRAFT),
)

OFFLINE: tuple[Column, ...] = (
    Column("campaign", "str", "", "campaign folder", "folder name"),
    Column("drafter", "str", "", "draft checkpoint", _DRAFT),
    Column("prompt_set", "str", "", "prompts walked", _DRAFT),
    Column("served_as", "str", "", "prompt set of served runs with the same prompts", _DRAFT),
    Column("num_steps", "int", "", "draft steps", _DRAFT),
    Column("accept_length", "float", "tokens/step", "teacher-forced walk, no server", _DRAFT),
    Column("low", "float", "tokens/step", "its 95 % interval over prompts, low end", _DRAFT),
    Column("high", "float", "tokens/step", "its 95 % interval over prompts, high end", _DRAFT),
    Column("num_prompts", "int", "prompts", "prompts walked", _DRAFT),
    Column("without_repetitive", "float", "tokens/step", "the same without answers that repeat themselves", _DRAFT),
)

SETTINGS: tuple[Column, ...] = (
    Column("campaign", "str", "", "campaign folder", "folder name"),
    Column("run_id", "str", "", "run folder", "folder name"),
    Column("setting", "str", "", "name of the setting, as SGLang's flags name it", _SPEC),
    Column("asked", "str", "", "what was asked for; missing where nothing was", _SPEC),
    Column("used", "str", "", "what the server says it uses", f"{_RESOLVED}, else {_LOG}"),
    Column("source", "str", "", "where the server says so", "computed"),
)

TABLES: Mapping[str, tuple[Column, ...]] = {
    "runs": RUNS,
    "requests": REQUESTS,
    "decode_windows": WINDOWS,
    "drafters": DRAFTERS,
    "offline": OFFLINE,
    "settings": SETTINGS,
}


def frame(columns: tuple[Column, ...], rows: Iterable[Mapping[str, object]]) -> pd.DataFrame:
    """A DataFrame with exactly the declared columns, in order, with their dtypes.

    Raises
    ------
    InputError
        When a row holds an undeclared column, or a value that its dtype cannot hold; the column is named.
    """
    held = list(rows)
    names = [column.name for column in columns]
    known = set(names)
    for row in held:
        if not known.issuperset(row):
            raise InputError(f"undeclared columns: {', '.join(sorted(set(row) - known))}")
    series = {column.name: _series(column, [row.get(column.name) for row in held]) for column in columns}
    return pd.DataFrame(series, columns=names)


def _series(column: Column, values: list[object]) -> pd.Series:
    try:
        return pd.Series(values, dtype=_PANDAS_DTYPE[column.dtype])
    except (TypeError, ValueError, OverflowError) as error:
        raise InputError(f"column {column.name}: a value is not of type {column.dtype} ({error})") from error


def describe(columns: tuple[Column, ...]) -> str:
    """A Markdown table of the declarations."""
    head = "| column | type | unit | meaning | source |\n|---|---|---|---|---|\n"
    return head + "".join(f"| `{c.name}` | {c.dtype} | {c.unit} | {c.meaning} | {c.source} |\n" for c in columns)
