"""The campaign's own server flags and variables: known to the version, and in accord with the rest of the campaign."""

from __future__ import annotations

import difflib
from collections.abc import Iterator

from workbench.preflight.result import CheckResult, Severity
from workbench.preflight.start_case import StartCase
from workbench.reference.arguments import known_flags
from workbench.sglang_rules.environment import variable_problem
from workbench.sglang_rules.flag_names import READ, flag_span, flags_of, is_flag, nearest_flag
from workbench.sglang_rules.flags import (
    CHOSEN_AT_START,
    flag_name,
    flag_problem,
    setting_key,
    simulated_accept_variable,
)
from workbench.sglang_rules.versions import at_least

# What a campaign says elsewhere: the setting, where, and whether a flag for it makes the runs something else than their
# own description says (or takes other GPUs than were claimed).
_ELSEWHERE = {
    "model_path": ("target.model_path", True),
    "tp_size": ("server.tp_size", True),
    "dp_size": ("server.dp_size", True),
    "speculative_algorithm": ("sweep: speculative_algorithm", True),
    "speculative_draft_model_path": ("drafters", True),
    "speculative_num_steps": ("sweep: speculative_num_steps", True),
    "speculative_eagle_topk": ("sweep: speculative_eagle_topk", True),
    "speculative_num_draft_tokens": ("sweep: speculative_num_draft_tokens", True),
    "disable_cuda_graph": ("server.cuda_graph", True),
    "cuda_graph_max_bs_decode": ("server.cuda_graph_max_bs_decode", False),
    "max_running_requests": ("server.max_running_requests", False),
    "mem_fraction_static": ("server.mem_fraction_static", False),
    "attention_backend": ("server.attention_backend", False),
    "context_length": ("server.context_length", False),
    "decode_log_interval": ("server.decode_log_interval", False),
    "dtype": ("target.dtype", False),
}
_LOSSY = ("speculative_accept_threshold_single", "speculative_accept_threshold_acc")


def known(case: StartCase) -> Iterator[CheckResult]:
    """A flag that the server does not know ends it with exit code 2, after a minute of imports."""
    for name, value in case.server.flags.items():
        if value is not None and value is not False:
            found = _spelling(case, name) if case.is_sglang else _embedded(name)
            if found is not None:
                yield found


def _spelling(case: StartCase, name: str) -> CheckResult | None:
    version, spelled = case.version, flag_name(name, case.version)
    where = f"server.flags.{name}"
    if is_flag(spelled, version):
        came = flag_problem(spelled, version)
        if came is not None:
            return CheckResult("flag-version", Severity.ERROR, came, where, "leave it out, or use a newer SGLang")
        written = "--" + name.lstrip("-").replace("_", "-")
        if written == spelled:
            return None
        what = f"{written} is called {spelled} by this version, and is sent so"
        return CheckResult("flag-renamed", Severity.NOTE, what, where, f"write {spelled.removeprefix('--')}")
    longer = [flag for flag in flags_of(version) if flag.startswith(spelled)]
    if len(longer) == 1:
        what = f"{spelled} is an abbreviation of {longer[0]}"
        return CheckResult("flag-short", Severity.WARNING, what, where, f"write {longer[0].removeprefix('--')}")
    return _unknown(version, spelled, where)


def _unknown(version: str | None, spelled: str, where: str) -> CheckResult:
    served = f"SGLang {version}" if version else f"SGLang {READ[-1]}, the newest that was read,"
    why = "the server ends with exit code 2 at its command line"
    # Outside the releases that were read nothing is certain.
    read = version is not None and at_least(version, READ[0]) and at_least(READ[-1], version)
    severity = Severity.ERROR if read else Severity.WARNING
    span = flag_span(spelled)
    if span is not None:
        what = f"{served} has no {spelled}: of the releases that were read {span[0]} to {span[1]} have it"
        near = nearest_flag(spelled, version)
        return CheckResult("flag-gone", severity, what, where, f"leave it out{f', or see {near}' if near else ''}", why)
    near = nearest_flag(spelled, version)
    then = f"did you mean {near.removeprefix('--')}?" if near else "look it up in `python -m sglang.launch_server -h`"
    return CheckResult("flag-unknown", severity, f"{served} has no {spelled}", where, then, why)


def _embedded(name: str) -> CheckResult | None:
    spelled = flag_name(name)
    if spelled in known_flags():
        return None
    near = difflib.get_close_matches(spelled, known_flags(), n=1, cutoff=0.7)
    return CheckResult(
        "flag-unknown",
        Severity.ERROR,
        f"the embedded engine has no {spelled}",
        f"server.flags.{name}",
        f"did you mean {near[0].removeprefix('--')}?" if near else "leave it out",
        "the server ends with exit code 2 at its command line",
    )


def said_elsewhere(case: StartCase) -> Iterator[CheckResult]:
    """A flag that the campaign has a field for, and flags that set one thing twice."""
    seen: dict[str, str] = {}
    for name in case.server.flags:
        key, where = setting_key(name), f"server.flags.{name}"
        if key in seen:
            what = f"{name} and {seen[key]} set the same thing"
            yield CheckResult("flag-twice", Severity.ERROR, what, where, "keep one of them")
        elif key in CHOSEN_AT_START:
            why = "the run is refused: servers are reached at an address of their own"
            yield CheckResult(
                "flag-owned", Severity.ERROR, f"{name} is chosen at the start of a server", where, "leave it out", why
            )
        elif key in _ELSEWHERE:
            place, misleads = _ELSEWHERE[key]
            stated = getattr(case.server, key, None)
            differs = stated is not None and stated != case.server.flags[name]
            yield CheckResult(
                "flag-owned",
                Severity.ERROR if misleads or differs else Severity.WARNING,
                f"the flag {name} sets what {place} is for" + (f", which says {stated}" if differs else ""),
                where,
                f"state it at {place}",
                "the flag wins on the command line, and the runs are then not what their description says"
                if misleads or differs
                else "the runs' description does not show it",
            )
        seen[key] = name


def lossy(case: StartCase) -> Iterator[CheckResult]:
    for key in _LOSSY:
        value = case.flags.get(key)
        if isinstance(value, int | float) and value < 1:
            yield CheckResult(
                "lossy",
                Severity.WARNING,
                f"{key} {value:g} accepts tokens that the target would not have chosen",
                f"server.flags.{key}",
                "leave it at 1.0 for a comparison with plain decoding",
                "outputs are no longer those of the target, and accept length rises for it",
            )


def variables(case: StartCase) -> Iterator[CheckResult]:
    """Variables that nobody reads: misspelt, renamed, or of another version."""
    for name in case.server.env:
        found = variable_problem(name, case.version if case.is_sglang else None)
        if found is not None:
            what, then = found
            why = "a variable that is not read changes nothing, without a word"
            yield CheckResult("variable", Severity.WARNING, what, f"server.env.{name}", then, why)


def forced_length(case: StartCase) -> Iterator[CheckResult]:
    """Forced acceptance makes garbage of the text, so a run must say that it was forced."""
    for name in {"SIMULATE_ACC_LEN", "SGLANG_SIMULATE_ACC_LEN"} & set(case.server.env):
        yield CheckResult(
            "forced-by-hand",
            Severity.ERROR,
            f"{name} forces the accept length of runs that are recorded as real",
            f"server.env.{name}",
            "use simulated_accept_length in the sweep, which marks the runs as simulated",
        )
    decode = case.decode
    forced = decode.simulated_accept_length if decode else None
    if decode is None or forced is None:
        return
    most = (decode.speculative_num_steps or 0) + 1
    if decode.speculative_num_steps is not None and forced > most:
        yield CheckResult(
            "forced-length",
            Severity.WARNING,
            f"an accept length of {forced:g} cannot be forced at {most - 1} steps: {most} is the most",
            "simulated_accept_length",
            f"ask for at most {most}",
            "the server cuts it to the most that there can be",
        )
    if case.version is not None and not at_least(case.version, "0.4.6"):
        yield CheckResult(
            "forced-length",
            Severity.ERROR,
            f"SGLang {case.version} cannot force an accept length",
            "simulated_accept_length",
            f"use 0.4.6 or newer ({simulated_accept_variable()} from 0.5.3 on)",
            "runs with the drafter's own acceptance would be recorded as simulated",
        )
