"""What the words mean: one place for the pages, which define those that they use, and for ``docs/glossary.md``.

A word has the same name in a flag, a column, a table, a label of a plot and a sentence.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Word:
    """``also`` are other forms of it in texts; ``column`` the column of `docs/columns.md` that holds it."""

    name: str
    meaning: str
    also: tuple[str, ...] = ()
    column: str | None = None

    @property
    def id(self) -> str:
        return f"word-{self.name.lower().replace(' ', '-').replace('/', '-')}"


WORDS = (
    Word(
        "accept length",
        "Tokens produced per verify step, the bonus token included and the prefill's token not, pooled over all steps. "
        "1.0 is no gain, steps + 1 the most that a chain can reach. SGLang's own spec_accept_length also counts the "
        "prefill's token and reads a little higher.",
        ("accept lengths",),
        "accept_length",
    ),
    Word(
        "accept rate",
        "(accept length - 1) / steps: the share of drafts that were right. The rate that SGLang prints has had three "
        "definitions; it is shown as printed, with its definition, and never mixed with this one.",
        ("accept rates",),
        "accept_rate",
    ),
    Word(
        "baseline",
        "The same server without speculation, under the same prompts, concurrency and limits. Speedups are against it.",
        ("baselines",),
        "role",
    ),
    Word(
        "bonus token",
        "The token that the target itself gives at the end of every verify step, whatever was accepted.",
    ),
    Word(
        "break-even",
        "Accept length x baseline speed / speculative speed: the accept length at which a configuration is as fast as "
        "no speculation. It pays when its accept length is above its own break-even.",
        ("break-evens",),
    ),
    Word(
        "campaign",
        "A target, a workload, a machine, and the runs measured on them, with at least one baseline.",
        ("campaigns",),
        "campaign",
    ),
    Word("chain", "Drafts one after the other (topk 1). Draft tokens are then steps + 1.", ("chains",)),
    Word(
        "concurrency",
        "Requests in flight at the same time: the client sends the next when one ends. Columns call it "
        "max_concurrency, as sglang.bench_serving does.",
        ("at once", "requests in flight"),
        "max_concurrency",
    ),
    Word(
        "CUDA graphs",
        "Recorded sequences of GPU work, replayed without launching each kernel from the CPU. Without them a small "
        "model waits for the CPU at every step.",
        ("CUDA graph",),
        "cuda_graph",
    ),
    Word(
        "decode line",
        "A line of the server log about the last decode steps (--decode-log-interval of them): running requests, "
        "tokens, speed and, under speculation, accept length.",
        ("decode lines",),
    ),
    Word(
        "decode speed",
        "Tokens a second while all slots are busy, after discarded requests at that concurrency.",
        ("decode tok/s",),
        "decode_tok_per_s",
    ),
    Word(
        "draft tokens",
        "Tokens that the target checks in one verify step, as SGLang counts them: the root included.",
        (),
        "num_draft_tokens",
    ),
    Word(
        "drafter",
        "The small model that proposes tokens; for EAGLE-3 one layer that reads hidden states of the target.",
        ("drafters",),
        "drafter",
    ),
    Word(
        "drift",
        "How much the baseline changed between its first and its last measurement: what the machine did meanwhile.",
    ),
    Word(
        "gain needed",
        "Break-even less accept length: how many more tokens a step would have to bring.",
        (),
    ),
    Word(
        "imported",
        "Read from the result file of another tool; what the file does not tell is unknown.",
    ),
    Word(
        "interval",
        "The 95 % interval of a figure: over prompts by a bootstrap, paired between the arms, or over repeated passes.",
        ("intervals",),
    ),
    Word(
        "noise",
        "A verdict: the interval of the speedup holds 1, so what was measured does not tell a gain from a loss.",
    ),
    Word("noted", "Written down by hand, without the files that would show it."),
    Word(
        "output speed",
        "All tokens over all time, prefills and the ends of the pass included, as a client sees it.",
        ("output tok/s",),
        "output_tok_per_s",
    ),
    Word("pass", "One walk over all prompts of a set at one concurrency.", ("passes",), "repeats"),
    Word(
        "plain step",
        "One decode step of the baseline: every running request gets one token.",
        ("plain steps",),
    ),
    Word(
        "prefill",
        "The step that reads a new prompt. While it runs, the requests that decode wait.",
        ("prefills",),
    ),
    Word("published", "A figure of a paper or a model card, with its source; measured elsewhere, so never on a line."),
    Word("recorded", "Measured before by this workbench or from kept files of a real server."),
    Word(
        "run",
        "One server configuration at one load. Runs that differ only in load share one server start.",
        ("runs",),
        "run_id",
    ),
    Word(
        "simulated acceptance",
        "The server was told how many drafts to accept (SGLANG_SIMULATE_ACC_LEN): the cost of a cycle is real, "
        "the text and the accept length are not.",
        ("simulated", "forced acceptance"),
        "simulated_accept_length",
    ),
    Word(
        "speculation",
        "Speculative decoding: a drafter proposes tokens, the target checks them all in one step, and keeps the right "
        "ones.",
        ("speculative",),
    ),
    Word(
        "speedup",
        "Speed over the baseline's at the same concurrency, prompts and limits. 1.0 is no gain.",
        ("speedups",),
    ),
    Word("steps", "Draft steps: how often the drafter runs before the target checks.", (), "num_steps"),
    Word("target", "The model that is served, and that checks what the drafter proposes.", ("targets",), "target"),
    Word("topk", "Candidates that the drafter keeps at each step; above 1 the drafts form a tree.", (), "eagle_topk"),
    Word("tree", "Drafts that branch (topk above 1); the target keeps the best path.", ("trees",)),
    Word(
        "verdict",
        "Win, loss or noise by the interval of the speedup; not decidable where prompts or passes are too few, or "
        "where two ways to measure disagree.",
        ("verdicts",),
    ),
    Word(
        "verify cycle",
        "The drafter's steps and the target's check together: the time from one verify step to the next.",
        ("verify cycles",),
    ),
    Word(
        "verify step",
        "One check of all draft tokens by the target; it yields the accepted ones and the bonus token.",
        ("verify steps",),
        "spec_verify_ct",
    ),
)


@functools.cache
def pattern() -> re.Pattern[str]:
    """Finds every form of every word, longest first, as a whole word."""
    forms = sorted(_by_form(), key=len, reverse=True)
    return re.compile(rf"(?<![\w-])(?:{'|'.join(map(re.escape, forms))})(?![\w-])", re.IGNORECASE)


def word_of(form: str) -> Word | None:
    """The word that a text means by ``form``, whatever its case."""
    return _by_form().get(form.lower())


def words_in(texts: Iterable[str]) -> list[Word]:
    """The words that these texts use, in the order of the alphabet."""
    used = {word_of(found) for text in texts for found in pattern().findall(text)}
    return [word for word in WORDS if word in used]


@functools.cache
def _by_form() -> dict[str, Word]:
    return {form.lower(): word for word in WORDS for form in (word.name, *word.also)}
