"""Does speculation pay: both logs at the loads that they share, and the speed to beat where there is one log only."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from workbench.analysis.diagnosis.model import Certainty, Finding
from workbench.analysis.diagnosis.reading import Case, Reading
from workbench.analysis.diagnosis.speeds import LevelSpeed
from workbench.analysis.diagnosis.words import at_loads, count, shell_word
from workbench.analysis.wording import number, one_of

_COPIED_FLAGS = (
    "tp_size",
    "dp_size",
    "dtype",
    "quantization",
    "kv_cache_dtype",
    "context_length",
    "mem_fraction_static",
    "max_running_requests",
    "attention_backend",
    "page_size",
    "cuda_graph_max_bs",
    "cuda_graph_max_bs_decode",
    "decode_log_interval",
)
_COPIED_SWITCHES = ("trust_remote_code", "enable_dp_attention", "disable_radix_cache", "disable_custom_all_reduce")
_DEFAULT_ONE = ("tp_size", "dp_size", "page_size")


def does_it_pay(case: Case) -> Iterator[Finding]:
    """Speedup and break-even accept length at the loads that both logs hold."""
    if not case.is_pair or case.baseline is None:
        return
    speeds = case.level_speeds
    if not speeds:
        yield _no_common_load(case.log, case.baseline)
        return
    title = _outcome(speeds)
    loses = [item for item in speeds if item.loses]
    yield Finding(
        "does_it_pay",
        title,
        Certainty.LIKELY,
        tuple(_level_evidence(case, case.baseline, item) for item in speeds),
        _pay_action(case, speeds),
        is_fault=bool(loses) and not any(item.wins for item in speeds),
        headline=f"{title}{_needed(case, loses)}",
    )


def _no_common_load(log: Reading, base: Reading) -> Finding:
    here, there = ([str(level) for level in reading.levels] for reading in (log, base))
    return Finding(
        "does_it_pay",
        "Whether speculation pays cannot be decided: the logs share no load",
        Certainty.CERTAIN,
        (f"requests running: {one_of(here)} here, {one_of(there)} in the baseline",),
        "send the same prompts at the same concurrency to both servers",
        is_fault=False,
        headline=f"Whether speculation pays cannot be decided: {one_of(here)} requests run here and {one_of(there)} in "
        "the baseline",
    )


def _outcome(speeds: Sequence[LevelSpeed]) -> str:
    """``Speculation pays at 1 running request (1.50x) and does not pay at 32 running requests (0.63x)``."""
    groups = (
        ("pays", [item for item in speeds if item.wins]),
        ("does not pay", [item for item in speeds if item.loses]),
        ("cannot be judged from these logs", [item for item in speeds if not item.is_decidable]),
    )
    parts = [f"{verb} {_at_loads(chosen)}" for verb, chosen in groups if chosen]
    if all(not item.is_decidable for item in speeds):
        return f"Whether speculation pays is not decidable from these two logs {_at_loads(speeds)}"
    return f"Speculation {one_of(parts)}"


def _at_loads(speeds: Sequence[LevelSpeed]) -> str:
    return f"{at_loads([item.level for item in speeds])} ({', '.join(item.span for item in speeds)})"


def _needed(case: Case, loses: list[LevelSpeed]) -> str:
    """Break-even at the highest load that loses."""
    length = case.log.accept_length_at(loses[-1].level) if loses else None
    if length is None:
        return ""
    where = "" if len(loses) == 1 else f" {at_loads([loses[-1].level])}"
    return f": accept length is {length:.2f}{where} and break-even {loses[-1].break_even(length)}"


def _level_evidence(case: Case, base: Reading, item: LevelSpeed) -> str:
    here, there = case.log.speed_at(item.level), base.speed_at(item.level)
    length = case.log.accept_length_at(item.level)
    # What a client alone sees explains a disagreement; where both agree it only lengthens the line.
    text = f"{item.level} running: {item.reason.split('; ')[0] if item.is_decidable else item.reason}"
    if here is not None and there is not None:
        text += f"; median line {number(here)} against {number(there)} tok/s"
    if length is None or not item.is_decidable:
        return text
    return f"{text}; break-even accept length {item.break_even(length)}, reached {length:.2f}"


def _pay_action(case: Case, speeds: Sequence[LevelSpeed]) -> str:
    steps = case.log.facts.num_steps
    if case.accepts_nothing:
        return "mend what is named above first: as long as nothing is accepted, speculation cannot pay"
    if len(case.log.graph_on) and not case.log.graph_on.all():
        return "switch the CUDA graphs on first: they make a step cheaper and so lower break-even"
    if any(item.loses for item in speeds):
        cheaper = ""
        if steps is None or steps > 1:
            shorter = "fewer draft tokens" if steps is None else f"--speculative-num-steps {steps - 1}"
            cheaper = f"; a cheaper step ({shorter}) lowers break-even, so measure that before training more"
        return f"serve without speculation where it loses{cheaper}"
    if any(not item.is_decidable for item in speeds):
        return (
            "repeat at the undecided load with longer answers and at least 5 passes, both servers in turn: in short "
            "phases prefill, ramp and warm-up decide"
        )
    return "keep it on at these loads, and measure the highest concurrency you serve: there it stops paying first"


def no_baseline(case: Case) -> Iterator[Finding]:
    """Accept length alone never says whether speculation pays: the plain server's speed decides."""
    log = case.log
    if case.baseline is not None or not log.is_speculative or case.has_wrong_flag or case.accepts_nothing:
        return
    speeds = [(level, reached) for level in log.levels if (reached := log.speed_at(level)) is not None]
    if not speeds:
        return
    limits = f"{one_of(number(reached) for _, reached in speeds)} tok/s {at_loads([level for level, _ in speeds])}"
    shape = "" if log.facts.num_steps is None else f" at {count(log.facts.num_steps, 'step')}"
    yield Finding(
        "no_baseline",
        "Whether speculation pays cannot be said without a baseline log",
        Certainty.CERTAIN,
        (f"it pays only where the plain server is slower than {limits}",),
        f"start {baseline_command(log)}, send the same load, then: workbench diagnose LOG --baseline BASELINE_LOG",
        is_fault=False,
        headline=f"Accept length {log.accept_length:.2f}{shape}; whether that pays needs a baseline log (--baseline): "
        f"it does where the plain server is slower than {limits}",
    )


def baseline_command(log: Reading) -> str:
    """The start command of the matching plain server, as far as the log states it."""
    if log.is_vllm:
        return "the same command without --speculative-config"
    if log.arg("model_path") is None:
        return "the same command without the --speculative-* flags (and with the same --max-running-requests)"
    words = ["python -m sglang.launch_server --model-path", shell_word(log.arg("model_path"))]
    for name in _COPIED_FLAGS:
        value = log.running_limit if name == "max_running_requests" else log.arg(name)
        if value not in (None, "auto") and not (name in _DEFAULT_ONE and value == 1):
            words.append(f"--{name.replace('_', '-')} {shell_word(value)}")
    words += [f"--{name.replace('_', '-')}" for name in _COPIED_SWITCHES if log.arg(name) is True]
    return f"`{' '.join(words)}`"
