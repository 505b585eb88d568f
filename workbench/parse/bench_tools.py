"""What each benchmark tool writes, key by key. Versions are named in `workbench.parse.bench`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Any

from workbench.parse.bench_record import BenchResult, known, number, objects, part, text, whole

Entry = Mapping[str, object]
SERVING, GRID = "sglang.bench_serving", "SGLang bench_speculative"
SPECFORGE, GUIDELLM, AIPERF = "SpecForge", "GuideLLM", "AIPerf"
_LIFETIME = "accept length is the server's own average since its start or last flush, other loads included"
_PREFILL = "accept length counts the token of each prefill, so it reads a little high"


def results_of(entry: Entry, where: str) -> list[BenchResult]:
    """The results that one JSON object holds; none where it is of no known tool."""
    for is_of, read in _TOOLS:
        if is_of(entry):
            return read(entry, where)
    return []


def _inside(where: str, place: str) -> str:
    return f"{where}, {place}" if where else place


# --- sglang.bench_serving ----------------------------------------------------------------------------------------


def _is_serving(entry: Entry) -> bool:
    return "output_throughput" in entry and "duration" in entry


def _serving(entry: Entry, where: str) -> list[BenchResult]:
    """One line of ``--output-file``. ``server_info`` is there since 0.5.5; before, a line does not name its server."""
    backend, info = text(entry.get("backend")), part(entry, "server_info")
    # With prefill and decode apart, the account of the decode servers is a list.
    info = part(info, "decode", 0) or info
    length, completed = number(entry.get("accept_length")), whole(entry.get("completed"))
    # The server has an accept length only where it speculates; without one it may be another backend's server.
    speculative = True if length is not None else None
    return [
        BenchResult(
            tool=SERVING,
            where=where,
            engine=_engine(backend),
            speculative=speculative,
            prompt_set=_serving_prompts(entry),
            max_concurrency=whole(entry.get("max_concurrency")),
            output_tok_per_s=known(number(entry.get("output_throughput"))),
            accept_length=known(length),
            completion_tokens=whole(entry.get("total_output_tokens")),
            num_requests=completed,
            server_info=info if isinstance(info, Mapping) and "model_path" in info else None,
            unfinished="no request was completed" if completed == 0 else None,
            notes=() if length is None else (_LIFETIME,),
        )
    ]


def _engine(backend: str | None) -> str | None:
    names = {"sglang": "sglang", "vllm": "vllm"}
    return next((name for start, name in names.items() if (backend or "").startswith(start)), None)


def _serving_prompts(entry: Entry) -> str | None:
    """The data set; made-up prompts are told apart by their lengths."""
    name = text(entry.get("dataset_name"))
    if name is None or not name.startswith(("random", "generated")):
        return name
    sizes = (whole(entry.get("random_input_len")), whole(entry.get("random_output_len")))
    ratio = number(entry.get("random_range_ratio"))
    said = [f"{size} {word}" for size, word in zip(sizes, ("in", "out"), strict=True) if size is not None]
    return ", ".join([name, *said, *([] if ratio is None else [f"ratio {ratio:g}"])])


# --- SGLang bench_speculative ------------------------------------------------------------------------------------


def _is_grid(entry: Entry) -> bool:
    return "acc_length" in entry and "num_draft_tokens" in entry


def _grid(entry: Entry, where: str) -> list[BenchResult]:
    """One grid point. ``speed`` is accept length over the 20th percentile of the step time, of one request."""
    steps, batch = whole(entry.get("steps")), whole(entry.get("batch_size"))
    speed, speculative = number(entry.get("speed")), None if steps is None else steps > 0
    return [
        BenchResult(
            tool=GRID,
            where=where,
            engine="sglang",
            speculative=speculative,
            **_shape(entry, "num_draft_tokens"),
            # Its prompts are part of the script.
            prompt_set="bench_speculative's own",
            max_new_tokens=512,
            max_concurrency=batch,
            decode_tok_per_s=() if speed is None or batch is None else (speed * batch,),
            # Written as 1.0 where the server has none.
            accept_length=known(number(entry.get("acc_length"))) if speculative else (),
            notes=(
                "decode speed is accept length over the 20th percentile of the step time, times the batch size",
                *([_LIFETIME] if speculative else []),
            ),
        )
    ]


def _shape(entry: Entry, draft_tokens: str) -> dict[str, Any]:
    """Steps, topk and draft tokens; 0 stands for none."""
    names = {"num_steps": "steps", "eagle_topk": "topk", "num_draft_tokens": draft_tokens}
    return {name: whole(entry.get(key)) or None for name, key in names.items()}


# --- SpecForge ---------------------------------------------------------------------------------------------------


def _is_eagle3(entry: Entry) -> bool:
    return any(_eagle3_results(value) for value in entry.values())


def _eagle3_results(value: object) -> list[Entry]:
    return [item for item in objects(value) if "batch_size" in item and "metrics" in item]


def _eagle3(entry: Entry, where: str) -> list[BenchResult]:
    """``bench_eagle3.py``: data sets to configurations, each with a list of repetitions. ``model`` is the draft."""
    results = []
    for dataset, value in entry.items():
        for place, result in enumerate(_eagle3_results(value), 1):
            metrics, steps = objects(result.get("metrics")), whole(result.get("steps"))
            lengths = known(*(number(metric.get("accept_length")) for metric in metrics))
            # 1.0 is also written where the server counted no verify step.
            speculative = steps > 0 if steps is not None else True if any(length > 1 for length in lengths) else None
            results.append(
                BenchResult(
                    tool=SPECFORGE,
                    where=_inside(where, f"{dataset} {place}"),
                    engine="sglang",
                    draft=text(entry.get("model")) if speculative else None,
                    speculative=speculative,
                    **_shape(result, "num_draft_tokens"),
                    prompt_set=dataset,
                    num_prompts=whole(result.get("num_samples")),
                    max_concurrency=whole(result.get("batch_size")),
                    output_tok_per_s=known(*(number(metric.get("output_throughput")) for metric in metrics)),
                    accept_length=lengths if speculative else (),
                    notes=(_PREFILL,) if speculative else (),
                )
            )
    return results


def _is_report(entry: Entry) -> bool:
    return "sampling" in entry and isinstance(entry.get("runs"), list)


def _report(entry: Entry, where: str) -> list[BenchResult]:
    """The report of SpecForge's benchmark runner: a row for each configuration and task."""
    return [
        _report_row(entry, run, _inside(where, f"run {place}"))
        for place, run in enumerate(objects(entry.get("runs")), 1)
        if isinstance(run.get("metrics"), Mapping)
    ]


def _report_row(entry: Entry, run: Entry, where: str) -> BenchResult:
    config, metrics = part(run, "config"), part(run, "metrics")
    steps = whole(part(config, "steps"))
    verified, tokens, requests = (
        whole(part(metrics, key)) for key in ("spec_verify_count", "output_tokens", "num_requests")
    )
    speculative = steps > 0 if steps is not None else True if verified else None
    lengths, exact = known(number(part(metrics, "accept_length"))), False
    if verified and tokens is not None and requests is not None:
        lengths, exact = ((tokens - requests) / verified,), True
    return BenchResult(
        tool=SPECFORGE,
        where=where,
        engine="sglang",
        model=text(entry.get("model")),
        draft=text(entry.get("draft_model")) if speculative else None,
        speculative=speculative,
        algorithm=text(part(config, "algorithm")) if steps else None,
        **_shape(config if isinstance(config, Mapping) else {}, "draft_tokens"),
        prompt_set=_named_task(part(run, "task")),
        num_prompts=whole(part(metrics, "num_samples")),
        temperature=number(part(entry, "sampling", "temperature")),
        max_new_tokens=whole(part(run, "task", "max_new_tokens")) or whole(part(entry, "sampling", "max_new_tokens")),
        max_concurrency=whole(part(config, "batch_size")) or whole(entry.get("concurrency")),
        output_tok_per_s=known(number(part(metrics, "throughput_tokens_per_second"))),
        accept_length=lengths if speculative else (),
        completion_tokens=tokens,
        num_requests=requests,
        recorded_at=text(entry.get("created_at")),
        notes=(_PREFILL,) if speculative and lengths and not exact else (),
    )


def _named_task(task: object) -> str | None:
    name, subset = text(part(task, "name")), part(task, "subset")
    parts = [part for part in subset if isinstance(part, str)] if isinstance(subset, list) else []
    return name if name is None or not parts else f"{name} ({', '.join(parts)})"


def _is_sglang_run(entry: Entry) -> bool:
    return "throughput_tokens_per_second" in entry and "spec_verify_count" in entry


def _sglang_run(entry: Entry, where: str) -> list[BenchResult]:
    """``specforge benchmark --output-json`` of 0.2.0; it names neither the server's settings nor the load."""
    verified, tokens, samples = (whole(entry.get(key)) for key in ("spec_verify_count", "output_tokens", "samples"))
    lengths: tuple[float, ...] = ()
    if verified and tokens is not None and samples is not None:
        lengths = ((tokens - samples) / verified,)
    return [
        BenchResult(
            tool=SPECFORGE,
            where=where,
            engine=_engine(text(entry.get("backend"))),
            speculative=True if verified else None,
            prompt_set=text(entry.get("dataset")),
            output_tok_per_s=known(number(entry.get("throughput_tokens_per_second"))),
            accept_length=lengths,
            completion_tokens=tokens,
            num_requests=samples,
        )
    ]


# --- GuideLLM ----------------------------------------------------------------------------------------------------


def _is_guidellm(entry: Entry) -> bool:
    return any("request_totals" in _metrics(each) for each in objects(entry.get("benchmarks")))


def _metrics(benchmark: Entry) -> Entry:
    found = benchmark.get("metrics")
    return found if isinstance(found, Mapping) else {}


def _guidellm(entry: Entry, where: str) -> list[BenchResult]:
    """A report. It never tells whether the server speculates; the load is only told by strategies that fix it."""
    return [
        _guidellm_row(entry, benchmark, _inside(where, f"benchmark {place}"))
        for place, benchmark in enumerate(objects(entry.get("benchmarks")), 1)
    ]


def _guidellm_row(entry: Entry, benchmark: Entry, where: str) -> BenchResult:
    metrics, totals = _metrics(benchmark), part(benchmark, "metrics", "request_totals")
    backend = part(benchmark, "config", "backend")
    done = whole(part(totals, "successful"))
    lost = [whole(part(totals, key)) for key in ("errored", "incomplete")]
    return BenchResult(
        tool=GUIDELLM,
        where=where,
        model=text(part(backend, "model")) or text(part(entry, "config", "spec", "backend", "model")),
        prompt_set=_guidellm_prompts(entry),
        max_concurrency=_guidellm_load(part(benchmark, "config", "strategy")),
        output_tok_per_s=known(number(part(metrics, "output_tokens_per_second", "successful", "mean"))),
        completion_tokens=whole(part(metrics, "output_token_count", "successful", "total_sum")),
        num_requests=done,
        num_failed=lost[0],
        recorded_at=_moment(number(benchmark.get("start_time"))),
        tool_version=text(part(entry, "metadata", "guidellm_version")),
        unfinished="no request was completed" if done == 0 else None,
        notes=(f"{lost[1]} requests were cut off at the end of the measurement",) if lost[1] else (),
    )


def _guidellm_load(strategy: object) -> int | None:
    kind = text(part(strategy, "type_"))
    if kind == "synchronous":
        return 1
    return whole(part(strategy, "streams")) if kind == "concurrent" else None


def _guidellm_prompts(entry: Entry) -> str | None:
    """The data as asked for: ``args.data`` until 0.7, ``config.spec.data`` since."""
    data = part(entry, "config", "spec", "data") or part(entry, "args", "data")
    sources = data if isinstance(data, list) else [data]
    said = [text(source) or _described(source) for source in sources if source is not None]
    return "; ".join(each for each in said if each) or None


def _described(source: object) -> str | None:
    """``synthetic_text, prompt_tokens 128, output_tokens 64``, or the kind and where the data comes from."""
    kind = text(part(source, "kind"))
    sizes = ((key, whole(part(source, key))) for key in ("prompt_tokens", "output_tokens"))
    names = (text(part(source, key)) for key in ("source", "path"))
    said = [kind, *names, *(f"{key} {size}" for key, size in sizes if size is not None)]
    return ", ".join(each for each in said if each) or None


def _moment(seconds: float | None) -> str | None:
    """A time since 1970, told where it is one of 1990 to 2100."""
    if seconds is None or not 6.3e8 < seconds < 4.1e9:
        return None
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="seconds")


# --- AIPerf ------------------------------------------------------------------------------------------------------


def _is_aiperf(entry: Entry) -> bool:
    return isinstance(entry.get("output_token_throughput"), Mapping) and "request_count" in entry


def _aiperf(entry: Entry, where: str) -> list[BenchResult]:
    """``profile_export_aiperf.json``. Accept lengths are there where the engine reports them by request (vLLM)."""
    config = entry.get("input_config")
    length = _average(entry, "spec_decode_token_weighted_acceptance_length")
    model = text(part(config, "models", "items", 0, "name")) or text(part(config, "endpoint", "model_names", 0))
    failed = _average(entry, "error_request_count")
    return [
        BenchResult(
            tool=AIPERF,
            where=where,
            model=model,
            speculative=True if length is not None else None,
            prompt_set=_aiperf_prompts(part(config, "datasets", 0)),
            max_concurrency=_aiperf_load(config),
            output_tok_per_s=known(_average(entry, "output_token_throughput")),
            accept_length=known(length),
            completion_tokens=whole(_average(entry, "total_osl")),
            num_requests=whole(_average(entry, "request_count")),
            num_failed=whole(failed),
            recorded_at=text(entry.get("start_time")),
            tool_version=text(entry.get("aiperf_version")),
            unfinished=_aiperf_broken_off(entry),
        )
    ]


def _average(entry: Entry, tag: str) -> float | None:
    return number(part(entry, tag, "avg"))


def _aiperf_load(config: object) -> int | None:
    """Requests in flight of the phase that is measured, unless a rate decides; until 0.8 of ``loadgen``."""
    for phase in reversed(objects(part(config, "phases"))):
        if text(phase.get("name")) == "profiling":
            return whole(phase.get("concurrency")) if text(phase.get("type")) in (None, "concurrency") else None
    rate = part(config, "loadgen", "request_rate")
    return whole(part(config, "loadgen", "concurrency")) if rate is None else None


def _aiperf_prompts(dataset: object) -> str | None:
    """A public data set or a file by its name, made-up prompts by their lengths."""
    named = text(part(dataset, "dataset")) or text(part(dataset, "path"))
    if named is not None:
        return named
    kind = text(part(dataset, "type"))
    said = []
    for key, word in (("isl", "in"), ("osl", "out")):
        size = part(dataset, "prompts", key) or part(dataset, key)
        tokens = number(part(size, "mean") or part(size, "value") or size)
        said += [] if tokens is None else [f"{tokens:g} {word}"]
    return ", ".join([kind, *said]) if kind and said else None


def _aiperf_broken_off(entry: Entry) -> str | None:
    if entry.get("was_cancelled") is True:
        return "it was cancelled"
    if entry.get("is_complete") is False:
        return text(entry.get("incomplete_reason")) or "it did not come to its end"
    return "no request was completed" if _average(entry, "request_count") == 0 else None


_TOOLS: tuple[tuple[Callable[[Entry], bool], Callable[[Entry, str], list[BenchResult]]], ...] = (
    (_is_serving, _serving),
    (_is_grid, _grid),
    (_is_aiperf, _aiperf),
    (_is_guidellm, _guidellm),
    (_is_report, _report),
    (_is_sglang_run, _sglang_run),
    (_is_eagle3, _eagle3),
)
