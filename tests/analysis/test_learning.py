from __future__ import annotations

from pathlib import Path
from typing import Any

from training_records import HELD_OUT, LINES, write_training, write_walk

from workbench.analysis.learning import facts_view, lengths_view, training_answer
from workbench.table.training import Training, load_training


def of(folder: Path, **changes: Any) -> Training:
    return load_training(write_training(folder / "run", **changes))


def test_the_answer_and_what_carries_it(tmp_path: Path) -> None:
    answer = training_answer(of(tmp_path))
    assert answer.sentence == (
        "tiny: 500 samples, 62,063 response tokens, 831 steps; accept length 1.80 (95 % 1.70-1.90, 20 prompts) "
        "at 3 steps offline."
    )
    assert answer.points == (
        "From 1 step to 3 steps accept length goes from 1.50 to 1.80.",
        "2 answers repeat themselves; without them accept length is 1.65 (-0.15).",
        "The loss went from 5.00 to 2.00, 2,000 response tokens a second.",
    )
    assert answer.headline["accept length"] == "1.80 at 3 steps"


def test_nothing_held_out(tmp_path: Path) -> None:
    answer = training_answer(of(tmp_path, held_out=None))
    assert answer.sentence.endswith("its accept length was not measured.")
    assert answer.actions == ("Evaluate it.",)


def test_deeper_walks_are_answered_at_three_steps(tmp_path: Path) -> None:
    deep = {**HELD_OUT, "accept_length": {str(steps): 1 + 0.1 * steps for steps in range(1, 8)}, "interval_95": {}}
    sentence = training_answer(of(tmp_path, held_out=deep)).sentence
    assert "accept length 1.30 at 3 steps offline" in sentence


def test_a_loss_that_still_falls_at_the_end_asks_for_more(tmp_path: Path) -> None:
    def curve(end: float) -> list[dict[str, Any]]:
        losses = [6.0, 5.0, 4.5, 4.0, 3.8, 3.6, 3.4, 3.2, *([3.0, 3.0] * 6), *([end, end] * 4)]
        return [{**LINES[0], "response_tokens": 100 * i, "loss": loss} for i, loss in enumerate(losses, 1)]

    falling = training_answer(of(tmp_path / "a", curve=curve(2.7))).actions
    # The last fifth holds 6 of 28 steps at 2.7, all alike; its first half is not higher.
    assert falling == ()
    steep = [{**LINES[0], "response_tokens": 100 * i, "loss": 10.0 - 0.3 * i} for i in range(1, 21)]
    # Tokens 1600 to 2000: 5.2, 4.9 against 4.6, 4.3, 4.0.
    (said,) = training_answer(of(tmp_path / "b", curve=steep)).actions
    assert said == "Train longer: the loss still fell by 14.9% over the last tenth."


def test_tables(tmp_path: Path) -> None:
    training = of(tmp_path)
    write_walk(tmp_path / "run", "mt_bench", 6)
    shown = lengths_view(load_training(tmp_path / "run"))
    assert shown["prompts"].tolist()[-1] == "mt_bench" and len(shown) == 5
    facts = dict(facts_view(training).to_numpy().tolist())
    assert (facts["samples"], facts["device"], facts["draft vocabulary"]) == ("500", "a processor", "16,384")
