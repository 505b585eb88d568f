"""What came of one training, in sentences and small tables."""

from __future__ import annotations

import pandas as pd

from workbench.analysis.answers.model import Answer, keep
from workbench.analysis.frames import Row, records
from workbench.analysis.views.texts import renamed, spans
from workbench.analysis.wording import count, number, signed, span
from workbench.table.training import Training

USUAL_STEPS = 3
_STILL_FALLING = 0.01  # of the loss over the last tenth of the tokens


def training_answer(training: Training) -> Answer:
    """How long the drafts are that the target would accept, on what, and after what training."""
    facts, walks = training.facts, training.walks
    trained = (
        f"{training.name}: {count(_int(facts['samples']), 'sample')}, "
        f"{count(_int(facts['response tokens']), 'response token')}, {count(_int(facts['optimizer steps']), 'step')}"
    )
    best = _usual(walks)
    if best is None:
        return Answer(f"{trained}; its accept length was not measured.", keep(_learnt(training)), ("Evaluate it.",))
    sentence = f"{trained}; accept length {best['accept_length']:.2f}{_ends(best)} at {_steps(best)} offline."
    points = keep(_depths(walks, best), _repetitive(best), _learnt(training))
    headline = {
        "accept length": f"{best['accept_length']:.2f} at {_steps(best)}",
        "samples": f"{_int(facts['samples']):,}",
        "optimizer steps": f"{_int(facts['optimizer steps']):,}",
    }
    return Answer(sentence, points, keep(_falling(training)), headline)


def _usual(walks: pd.DataFrame) -> Row | None:
    """The first prompt set at the usual number of steps, or at the most there are below it."""
    first = walks[walks["prompt_set"] == walks["prompt_set"].iloc[0]] if len(walks) else walks
    own = first[first["num_steps"] <= USUAL_STEPS]
    return records(own.tail(1))[0] if len(own) else None


def _ends(row: Row) -> str:
    return "" if row["low"] is None else f" (95 % {span(row['low'], row['high'])}, {row['num_prompts']} prompts)"


def _steps(row: Row) -> str:
    return count(int(row["num_steps"]), "step")


def _depths(walks: pd.DataFrame, best: Row) -> str | None:
    own = walks[walks["prompt_set"] == best["prompt_set"]]
    if len(own) < 2:
        return None
    first, last = records(own)[0], records(own)[-1]
    return (
        f"From {_steps(first)} to {_steps(last)} accept length goes from {first['accept_length']:.2f} to "
        f"{last['accept_length']:.2f}."
    )


def _repetitive(best: Row) -> str | None:
    if not best["repetitive_answers"] or best["without_repetitive"] is None:
        return None
    change = best["without_repetitive"] - best["accept_length"]
    return (
        f"{count(int(best['repetitive_answers']), 'answer')} repeat themselves; without them accept length is "
        f"{best['without_repetitive']:.2f} ({signed(change)})."
    )


def _learnt(training: Training) -> str | None:
    curve, speed = training.curve, training.facts.get("response tokens a second")
    if curve.empty:
        return None
    fast = f", {number(float(str(speed)))} response tokens a second" if speed is not None else ""
    return f"The loss went from {curve['loss'].iloc[0]:.2f} to {curve['loss'].iloc[-1]:.2f}{fast}."


def _falling(training: Training) -> str | None:
    """Longer training promises something where the loss still falls at the end, although its rate has gone down."""
    curve = training.curve.dropna(subset=["loss"])
    late = curve[curve["response_tokens"] >= 0.8 * curve["response_tokens"].max()] if len(curve) else curve
    if len(late) < 4:
        return None
    half = len(late) // 2
    before, after = late["loss"].iloc[:half].mean(), late["loss"].iloc[half:].mean()
    fell = (before - after) / before
    return f"Train longer: the loss still fell by {fell:.1%} over the last tenth." if fell > _STILL_FALLING else None


def _int(value: object) -> int:
    return int(str(value))


def lengths_view(training: Training) -> pd.DataFrame:
    """Accept length offline by prompts and steps."""
    names = {
        "prompt_set": "prompts",
        "num_steps": "steps",
        "accept_length": "accept length",
        "ends": "95 % over prompts",
        "without_repetitive": "without repetitive answers",
        "survival": "rounds that accept so many",
        "num_prompts": "n prompts",
    }
    return renamed(training.walks.assign(ends=spans(training.walks, "low", "high")), names)


def facts_view(training: Training) -> pd.DataFrame:
    """What was trained, on what, where."""
    shown = [f"{value:,}" if isinstance(value, int) else _shown(value) for value in training.facts.values()]
    return pd.DataFrame({"fact": list(training.facts), "value": shown})


def _shown(value: object) -> str:
    return number(value) if isinstance(value, float) else str(value)
