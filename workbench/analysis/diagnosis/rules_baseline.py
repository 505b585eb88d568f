"""Against a server without speculation: is it a baseline, and is the comparison fair?"""

from __future__ import annotations

from collections.abc import Iterator

from workbench.analysis.diagnosis.model import Certainty, Finding
from workbench.analysis.diagnosis.reading import Case, Reading
from workbench.analysis.diagnosis.words import at_line, shell_word
from workbench.analysis.wording import count

# Settings that bear on speed and have to be the same in both arms; the attention backend has a rule of its own.
_SAME = (
    "model_path",
    "dtype",
    "quantization",
    "kv_cache_dtype",
    "tp_size",
    "dp_size",
    "pp_size",
    "ep_size",
    "mem_fraction_static",
    "page_size",
    "context_length",
    "chunked_prefill_size",
    "disable_overlap_schedule",
    "disable_radix_cache",
    "decode_log_interval",
)


def unusable_baseline(case: Case) -> Iterator[Finding]:
    """The logs are swapped, or the baseline is no baseline."""
    base = case.baseline
    if base is None or case.is_pair:
        return
    if base.is_speculative and case.log.is_speculative is False:
        yield _unusable("The two logs are swapped: the baseline is the speculative one", "exchange LOG and --baseline")
    elif base.is_speculative:
        yield _unusable(
            "The baseline log is itself speculative",
            "give the log of a server started without the --speculative-* flags as --baseline",
        )
    elif case.log.is_speculative is False:
        yield _unusable("Neither log is speculative", "give the speculative server's log as LOG", is_fault=False)
    elif base.is_speculative is None and len(base.lines):
        yield _unusable(
            f"Whether the baseline log speculates is not known: {base.num_cut:,} of "
            f"{count(len(base.lines), 'decode line')} are cut or unreadable",
            "give the baseline log as the server printed it, with its first lines",
        )
    elif not len(base.busy) and base.is_vllm:
        yield _unusable(
            "The baseline log has no engine line with a usable speed",
            "give a stretch of the vLLM log under load, with 'Avg generation throughput' above 0",
        )
    elif not len(base.busy):
        yield _unusable(
            "The baseline log has no decode line with a usable speed",
            "give a baseline log that covers load: requests of at least 256 tokens, --decode-log-interval 10",
        )


def _unusable(title: str, next_action: str, *, is_fault: bool = True) -> Finding:
    return Finding(
        "unusable_baseline",
        title,
        Certainty.CERTAIN,
        (),
        next_action,
        is_fault=is_fault,
        headline=f"{title}; {next_action}" if is_fault else "",
    )


def not_comparable(case: Case) -> Iterator[Finding]:
    """Both logs can be read and yet say nothing of each other; or this one has no speed."""
    log, base = case.log, case.baseline
    if base is None or not log.is_speculative or base.is_speculative is not False:
        return
    if not len(log.busy):
        how = "with its 'Avg generation throughput' lines" if log.is_vllm else "--decode-log-interval 10"
        yield _refused(
            f"this log has no usable speed in {count(len(log.lines), 'decode line')}",
            f"give a stretch of this server's log under load: requests of at least 256 tokens, {how}",
        )
    elif len(base.busy) and log.log.kind is not base.log.kind:
        yield _refused(
            f"this log is {_engine(log)}'s and the baseline {_engine(base)}'s",
            f"give the log of the same {_engine(log)} server without speculation as --baseline: between engines the "
            "difference in speed is not that of speculation",
        )
    elif len(base.busy) and log.ranks != base.ranks:
        yield _refused(
            f"{count(log.ranks, 'data parallel rank')} here, {base.ranks:,} in the baseline",
            f"start both servers with the same --dp-size ({log.ranks}) and send the same load",
        )


def _refused(why: str, next_action: str) -> Finding:
    title = f"Whether speculation pays cannot be said: {why}"
    return Finding("not_comparable", title, Certainty.CERTAIN, (), next_action, headline=f"{title}; {next_action}")


def _engine(log: Reading) -> str:
    return "vLLM" if log.is_vllm else "SGLang"


def other_backend(case: Case) -> Iterator[Finding]:
    """A baseline on another attention backend is another server (each arm should use its own best one)."""
    base = case.baseline
    if base is None or not case.is_pair:
        return
    here, there = case.log.arg("attention_backend"), base.arg("attention_backend")
    if here is None or there is None or here == there:
        return
    yield Finding(
        "other_backend",
        f"The attention backend differs: {here} here, {there} in the baseline",
        Certainty.CERTAIN,
        (
            at_line(case.log.facts.server_args_line, f"server_args: attention_backend='{here}'"),
            at_line(base.facts.server_args_line, f"baseline server_args: attention_backend='{there}'"),
        ),
        f"serve both with --attention-backend {shell_word(there)}, or say that part of the difference is the backend's",
        "sglang 12411",
        is_fault=False,
    )


def unfair_comparison(case: Case) -> Iterator[Finding]:
    """Settings in which the two servers differ although they bear on speed."""
    base = case.baseline
    if base is None or not case.is_pair:
        return
    differences = [
        f"{name}: {here} here, {there} in the baseline" for name, here, there in _differences(case.log, base)
    ]
    if not differences:
        return
    yield Finding(
        "unfair_comparison",
        f"The baseline differs in {count(len(differences), 'setting')} that bear on speed"
        if len(differences) > 1
        else "The baseline differs in a setting that bears on speed",
        Certainty.CERTAIN,
        tuple(differences),
        "set them explicitly and alike on both servers, and measure again",
        is_fault=False,
    )


def _differences(log: Reading, base: Reading) -> Iterator[tuple[str, object, object]]:
    derived = (
        ("max_running_requests", log.running_limit, base.running_limit),
        ("largest CUDA graph batch", log.graph_limit, base.graph_limit),
        ("decode lines in a CUDA graph", _graph_share(log), _graph_share(base)),
        ("SGLang version", _version(log), _version(base)),
    )
    stated = ((name, log.arg(name), base.arg(name)) for name in _SAME)
    for name, here, there in (*derived, *stated):
        if here is not None and there is not None and here != there:
            yield name, here, there


def _graph_share(log: Reading) -> str | None:
    return f"{log.graph_on.mean():.0%}" if len(log.graph_on) else None


def _version(log: Reading) -> str | None:
    """A known version; brackets are no statement unless they exclude each other, which is not worth a rule."""
    bracket = log.facts.version_bracket
    return bracket[0] if bracket is not None and bracket[0] == bracket[1] else None
