"""Does speculation pay: both logs at the loads that they share, and the speed to beat where there is one log only."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from workbench.analysis.diagnosis.baseline_command import baseline_command
from workbench.analysis.diagnosis.model import Certainty, Finding
from workbench.analysis.diagnosis.reading import Case, Reading
from workbench.analysis.diagnosis.speeds import LevelSpeed
from workbench.analysis.diagnosis.words import at_loads
from workbench.analysis.wording import count, number, one_of


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
    if set(log.levels) & set(base.levels):
        return _no_times()
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


def _no_times() -> Finding:
    title = "Whether speculation pays is not decidable: the decode lines of one log do not tell their time"
    return Finding(
        "does_it_pay",
        title,
        Certainty.CERTAIN,
        ("a line's time follows from its accept length, running requests and speed, and one of them cannot be read",),
        "give both logs as the servers printed them",
        is_fault=False,
        headline=title,
    )


def _outcome(speeds: Sequence[LevelSpeed]) -> str:
    """``Speculation pays at 1 running request (1.50x) and loses at 32 running requests (0.63x)``."""
    groups = (
        ("pays", [item for item in speeds if item.wins]),
        ("loses", [item for item in speeds if item.loses]),
        ("is not decidable from these two logs", [item for item in speeds if not item.is_decidable]),
    )
    parts = [f"{verb} {_at_loads(chosen)}" for verb, chosen in groups if chosen]
    if all(not item.is_decidable for item in speeds):
        return f"Whether speculation pays is not decidable from these two logs {_at_loads(speeds)}"
    return f"Speculation {one_of(parts)}"


def _at_loads(speeds: Sequence[LevelSpeed]) -> str:
    """``at 1 and 8 running requests (1.07x over the whole log, 1.03x by the median line; 0.48x, 0.97x)``."""
    # The first pair names the two estimates; where it reads as one figure, each later one has to name them.
    named = speeds[0].both != speeds[0].pair
    said = [speeds[0].both, *(item.pair if named else item.both for item in speeds[1:])]
    return f"{at_loads([item.level for item in speeds], [item.ranks for item in speeds])} ({'; '.join(said)})"


def _needed(case: Case, loses: list[LevelSpeed]) -> str:
    """Break-even at the highest load that loses."""
    length = case.log.accept_length_at(loses[-1].level) if loses else None
    if length is None:
        return ""
    is_only_load = len(loses) == len(case.level_speeds) == 1
    where = (
        ": accept length there" if is_only_load else f"; {at_loads([loses[-1].level], [loses[-1].ranks])} accept length"
    )
    return f"{where} is {length:.2f} and break-even {loses[-1].break_even(length)}"


def _level_evidence(case: Case, base: Reading, item: LevelSpeed) -> str:
    here, there = case.log.speed_at(item.level), base.speed_at(item.level)
    length = case.log.accept_length_at(item.level)
    # What a client alone sees explains a disagreement; where both agree it only lengthens the line.
    text = f"{item.load} running: {item.reason.split('; ')[0] if item.is_decidable else item.reason}"
    if here is not None and there is not None and case.log.ranks_at(item.level) == base.ranks_at(item.level):
        text += f"; median line {number(here)} against {number(there)} tok/s"
    if length is None:
        return text
    return f"{text}; break-even accept length {item.break_even(length)}, reached {length:.2f}"


def _pay_action(case: Case, speeds: Sequence[LevelSpeed]) -> str:
    if case.accepts_nothing:
        return "mend what is named above first: as long as nothing is accepted, speculation cannot pay"
    if len(case.log.graph_on) and not case.log.graph_on.all() and not case.log.is_on_cpu:
        return "switch the CUDA graphs on first: they make a step cheaper and so lower break-even"
    if any(item.loses for item in speeds):
        undecided = (
            "" if all(item.is_decidable for item in speeds) else "; repeat the undecided loads with longer answers"
        )
        return (
            f"serve without speculation where it loses{undecided}; before training more, profile one verify cycle"
            f"{_other_steps(case.log.facts.num_steps)}"
        )
    if any(not item.is_decidable for item in speeds):
        return (
            "repeat at the undecided load with longer answers and at least 5 passes, both servers in turn: in short "
            "phases prefill, ramp and warm-up decide"
        )
    return "keep it on at these loads, and measure the highest concurrency you serve: there it stops paying first"


def _other_steps(steps: int | None) -> str:
    """What fewer steps do to break-even: a single log cannot know what part of a cycle is drafting."""
    if steps == 1:
        return ""
    which = "two numbers of steps" if steps is None else f"--speculative-num-steps 1 and {steps}"
    return (
        f"; whether fewer steps help this log cannot tell (they accept less, and make a cycle cheaper only if the "
        f"draft steps are a large part of it): measure {which}"
    )


def no_baseline(case: Case) -> Iterator[Finding]:
    """Accept length alone never says whether speculation pays: the plain server's speed decides."""
    log = case.log
    if case.baseline is not None or not log.is_speculative or case.has_wrong_flag or case.accepts_nothing:
        return
    speeds = [(level, reached) for level in log.levels if (reached := log.speed_at(level)) is not None]
    if not speeds:
        return
    loads = at_loads([level for level, _ in speeds], [log.ranks_at(level) for level, _ in speeds])
    limits = f"{one_of(number(reached) for _, reached in speeds)} tok/s {loads}"
    length = log.accept_length
    reached_length = "Accept length not known" if length is None else f"Accept length {length:.2f}"
    shape = "" if log.facts.num_steps is None else f" at {count(log.facts.num_steps, 'step')}"
    shape += log.over_all_loads.removesuffix(",")
    yield Finding(
        "no_baseline",
        "Whether speculation pays cannot be said without a baseline log",
        Certainty.CERTAIN,
        (f"it pays only where the plain server is slower than {limits}",),
        f"start {baseline_command(log)}, send the same load, then: workbench diagnose LOG --baseline BASELINE_LOG",
        is_fault=False,
        headline=f"{reached_length}{shape}; whether that pays needs a baseline log (--baseline): "
        f"it does where the plain server is slower than {limits}",
    )
