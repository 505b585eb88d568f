"""The loads of a start against its limits, and settings that both arms must share (the same in every start)."""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path

from workbench.chat import load_chat
from workbench.errors import WorkbenchError
from workbench.plain import whole_number
from workbench.preflight.case import listing
from workbench.preflight.result import CheckResult, Severity
from workbench.preflight.start_case import StartCase
from workbench.prompts import PromptSet, prompt_set

_REPEATS_FOR_A_VERDICT = 5


def queueing(case: StartCase) -> Iterator[CheckResult]:
    """Loads that the server would not run at once."""
    limit = case.running_limit if case.is_sglang else 1
    above = [level for level in case.levels if level > limit]
    if not above:
        return
    what = f"of {_levels(above)} requests at once only {limit} run, the others wait"
    why = "the decode window is then not the one of its concurrency, and latency counts the wait"
    if case.is_sglang:
        then = f"raise max_running_requests to {max(above)}, alike for every start, or leave these loads out"
        yield CheckResult("queueing", Severity.WARNING, what, "server.max_running_requests", then, why)
    else:
        then = "measure concurrency 1 on the embedded engine"
        yield CheckResult("queueing", Severity.WARNING, what, "max_concurrency", then, why)


def graph_limit(case: StartCase) -> Iterator[CheckResult]:
    """Batches above the largest captured one run without graphs (``cuda graph: False``), a big slowdown."""
    if not case.is_sglang or case.server.cuda_graph is False or case.flags.get("disable_cuda_graph"):
        return
    listed = case.flags.get("cuda_graph_bs_decode")
    sizes = [whole_number(size) or 0 for size in str(listed).replace(",", " ").split()] if listed else []
    limit = max(sizes, default=0) or case.number("cuda_graph_max_bs_decode") or case.running_limit
    # Requests are spread over the replicas, and each has graphs of its own.
    above = [level for level in case.levels if -(-min(level, case.running_limit) // case.dp_size) > limit]
    if above:
        yield CheckResult(
            "graph-limit",
            Severity.WARNING,
            f"graphs are captured up to {limit} requests, and loads of {_levels(above)} run without them",
            "server.cuda_graph_max_bs_decode",
            f"capture up to {-(-max(above) // case.dp_size)}",
            "no error; decode lines say 'cuda graph: False' and each step pays the launches of its kernels",
        )


def memory_fraction(case: StartCase) -> Iterator[CheckResult]:
    """0.4.9 to 0.5.13 keep 2 GB more back under speculation, and 0.5.16 and later may size the cache after capture."""
    stated = case.server.mem_fraction_static is not None or case.flags.get("mem_fraction_static") is not None
    if case.is_sglang and not stated:
        yield CheckResult(
            "memory-fraction",
            Severity.WARNING,
            "mem_fraction_static is not stated",
            "server.mem_fraction_static",
            "state it, such as 0.85",
            "SGLang takes another fraction with speculation than without, and the arms then differ in their caches",
        )


# --- the same for every start ------------------------------------------------------------------------------------


def prompts(case: StartCase) -> Iterator[CheckResult]:
    for name, wanted in case.campaign.workload.prompt_sets.items():
        found = _prompt_set(name)
        if isinstance(found, WorkbenchError):
            then = found.next_step or "name a set of data/prompts or a .jsonl file"
            yield CheckResult("prompt-set", Severity.ERROR, found.what, "workload.prompt_set", then)
        elif wanted > len(found.prompts):
            yield CheckResult(
                "num-prompts",
                Severity.ERROR,
                f"{wanted} prompts are asked for, {found.name} has {len(found.prompts)}",
                "workload.num_prompts",
                f"ask for at most {len(found.prompts)}, or give a larger set",
            )


def answers_fit(case: StartCase) -> Iterator[CheckResult]:
    """Prompt and answer within the context; prompts are counted where the target's tokenizer is here."""
    context, answer = case.number("context_length"), case.campaign.workload.max_new_tokens
    if context is None:
        return
    where, longest = "server.context_length", _longest_prompt(case)
    if answer >= context:
        yield CheckResult(
            "context",
            Severity.ERROR,
            f"answers of up to {answer} tokens do not fit into a context of {context}, prompt included",
            where,
            "raise context_length or lower max_new_tokens",
            "the server refuses the requests or cuts the answers",
        )
    elif longest is not None and longest + answer > context:
        yield CheckResult(
            "context",
            Severity.WARNING,
            f"the longest prompt has {longest} tokens, and with {answer} more it leaves the context of {context}",
            where,
            f"serve with context_length {longest + answer} or more",
            "such answers are cut, or refused when the prompt alone is too long",
        )


def sampling(case: StartCase) -> Iterator[CheckResult]:
    work = case.campaign.workload
    if work.temperature > 0 and case.is_sglang:
        yield CheckResult(
            "temperature",
            Severity.WARNING,
            f"at temperature {work.temperature:g} outputs of the arms differ by chance",
            "workload.temperature",
            "use temperature 0 to compare outputs token by token",
            "whether speculation changed an output cannot be told, and fewer drafts are accepted than at 0",
        )
    elif work.temperature > 0:
        yield CheckResult(
            "temperature",
            Severity.ERROR,
            f"the embedded engine does not sample, and temperature is {work.temperature:g}",
            "workload.temperature",
            "use temperature 0",
            "it answers every request with an error",
        )
    if work.ignore_eos:
        yield CheckResult(
            "ignore-eos",
            Severity.WARNING,
            "answers go on after their end (ignore_eos)",
            "workload.ignore_eos",
            "leave it off for accept lengths that hold in service",
            "what follows the end of an answer repeats itself and is easy to draft",
        )


def windows(case: StartCase) -> Iterator[CheckResult]:
    """Loads too short for their slots, and too few passes for a verdict."""
    campaign, highest = case.campaign, max(case.campaign.max_concurrency)
    requests = {level: campaign.workload.at(level).num_prompts or 0 for level in campaign.max_concurrency}
    short = [level for level, count in requests.items() if level > 1 and count <= level]
    if short:
        yield CheckResult(
            "short-load",
            Severity.WARNING,
            f"loads of {_levels(short)} at once have no more requests than slots",
            "workload.num_prompts",
            "set workload.requests_per_slot to 2 or more",
            "slots are never all busy, or only until the first answer ends: there is little or no decode window",
        )
    if highest > 1 and campaign.repeats < _REPEATS_FOR_A_VERDICT:
        yield CheckResult(
            "repeats",
            Severity.NOTE,
            f"{campaign.repeats} passes above concurrency 1 give no verdict",
            "repeats",
            f"measure {_REPEATS_FOR_A_VERDICT} or more",
            "requests cannot be paired there, so intervals come from repeated windows",
        )
    if not campaign.baseline_again:
        yield CheckResult(
            "baseline-once",
            Severity.NOTE,
            "the baseline is measured once, at the beginning",
            "baseline_again",
            "leave it on",
            "a machine that becomes slower in between looks like a slow drafter",
        )


def _prompt_set(name: str) -> PromptSet | WorkbenchError:
    try:
        return prompt_set(name)
    except WorkbenchError as error:
        return error


def _longest_prompt(case: StartCase) -> int | None:
    folder = case.target_folder
    if folder is None or not (folder / "tokenizer.json").is_file():
        return None
    sets = [(_prompt_set(name), count) for name, count in case.campaign.workload.prompt_sets.items()]
    texts = tuple(
        prompt.text for found, count in sets if isinstance(found, PromptSet) for prompt in found.prompts[:count]
    )
    return _longest(folder, texts, (folder / "tokenizer.json").stat().st_mtime_ns)


@lru_cache(maxsize=4)  # for all starts of a campaign; a large tokenizer takes a second to load
def _longest(folder: Path, texts: tuple[str, ...], changed: int) -> int | None:
    try:
        chat = load_chat(folder)
        return max((len(chat.prompt_ids([{"role": "user", "content": text}])) for text in texts), default=None)
    except WorkbenchError:
        return None


def _levels(levels: list[int]) -> str:
    ordered = list(map(str, sorted(set(levels))))
    return listing(ordered) if len(ordered) < 3 else f"{ordered[0]} to {ordered[-1]}"
