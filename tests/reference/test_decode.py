from __future__ import annotations

import random
from dataclasses import replace
from pathlib import Path

import pytest

pytest.importorskip("torch", reason="the engine needs torch (extra: reference)")

import numpy as np
import torch
from naive_llama import draft_logits, target_states
from tiny_models import as_numpy, draft_config, draft_tensors, target_config, target_tensors, write_model

from workbench.drafter.checkpoint import load_draft
from workbench.reference.decode import Decoder, Speculation, longest_path, simulated_length, tree_mask
from workbench.reference.engine import _serve_as_eagle1
from workbench.reference.target import load_target

CPU = torch.device("cpu")
PROMPT = [3, 1, 4, 1, 5]
CAPTURE = (1, 2, 4)
CHAIN = Speculation(3, 1, 4, CAPTURE)


def build(tmp_path: Path, speculation: Speculation | None, *, vocab: int = 12, seed: int = 0) -> Decoder:
    config, draft = target_config(vocab=vocab), draft_config(vocab=vocab, draft_vocab=vocab - 2)
    folder = write_model(tmp_path / "t", config, target_tensors(config, seed))
    draft_folder = write_model(tmp_path / "d", draft, draft_tensors(draft, seed + 1))
    target = load_target(folder, dtype=torch.float64, device=CPU)
    loaded = load_draft(draft_folder, dtype=torch.float64, device=CPU).requires_grad_(False)
    return Decoder(target, 64, draft=loaded, speculation=speculation)


def generate(decoder: Decoder, count: int) -> tuple[list[int], list[int]]:
    """Tokens, and correct drafts by step."""
    tokens, correct = [decoder.prefill(PROMPT)], []
    while len(tokens) < count:
        step = decoder.step()
        assert len(step.tokens) == step.correct_drafts + 1
        tokens.extend(step.tokens)
        correct.append(step.correct_drafts)
    return tokens[:count], correct


@pytest.mark.parametrize("seed", [0, 3])
@pytest.mark.parametrize(
    "plan",
    [
        CHAIN,
        replace(CHAIN, num_steps=1, num_draft_tokens=2),
        replace(CHAIN, num_steps=6, num_draft_tokens=7),
        Speculation(3, 4, 8, CAPTURE),
        Speculation(4, 3, 16, CAPTURE),
        Speculation(2, 6, 5, CAPTURE),
    ],
)
def test_drafts_never_change_the_text(tmp_path: Path, plan: Speculation, seed: int) -> None:
    """With a vocabulary of 8, trees of random drafts are often right, so that paths and caches are really used."""
    plain, _ = generate(build(tmp_path / "plain", None, vocab=8, seed=seed), 30)
    tokens, correct = generate(build(tmp_path / "spec", plan, vocab=8, seed=seed), 30)
    assert tokens == plain
    if plan.eagle_topk > 1:
        assert max(correct) >= 1


def test_plain_decoding_is_the_argmax_of_the_formula(tmp_path: Path) -> None:
    tokens, _ = generate(build(tmp_path, None), 12)
    config = target_config()
    _, logits = target_states(as_numpy(target_tensors(config)), config, [*PROMPT, *tokens[:-1]])
    assert tokens == logits[len(PROMPT) - 1 :].argmax(-1).tolist()


def test_drafts_and_their_acceptance_are_those_of_a_teacher_forced_walk(tmp_path: Path) -> None:
    """The served accept lengths must follow from the unrolled draft over the finished text, without any cache."""
    vocab, steps = 8, 3
    tokens, correct = generate(build(tmp_path, CHAIN, vocab=vocab, seed=3), 30)
    config, draft = target_config(vocab=vocab), draft_config(vocab=vocab, draft_vocab=vocab - 2)
    tensors, draft_weights = target_tensors(config, 3), draft_tensors(draft, 4)
    ids = [*PROMPT, *tokens]
    states, _ = target_states(as_numpy(tensors), config, ids)
    features = [np.concatenate([states[layer][t] for layer in CAPTURE]) for t in range(len(ids))]
    target_ids = (draft_weights["d2t"] + torch.arange(vocab - 2)).tolist()
    embed = as_numpy(tensors)["model.embed_tokens.weight"]
    unrolled = draft_logits(as_numpy(draft_weights), draft, embed, features, ids, unroll=steps)
    slot, expected = len(PROMPT) - 1, []
    while slot + steps + 1 < len(ids):
        right = 0
        while right < steps and target_ids[unrolled[right][slot].argmax()] == ids[slot + 2 + right]:
            right += 1
        expected.append(right)
        slot += right + 1
    assert correct[: len(expected)] == expected
    assert len(expected) > 10
    assert sum(expected) > 0


def test_a_long_prompt_is_run_in_chunks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole, correct = generate(build(tmp_path / "a", CHAIN, vocab=8), 20)
    monkeypatch.setattr("workbench.reference.decode.CHUNK_TOKENS", 2)
    assert generate(build(tmp_path / "b", CHAIN, vocab=8), 20) == (whole, correct)


def test_the_next_sequence_starts_clean(tmp_path: Path) -> None:
    decoder = build(tmp_path, CHAIN, vocab=8)
    first = generate(decoder, 20)
    decoder.prefill([7] * 30)
    decoder.step()
    assert generate(decoder, 20) == first


def test_the_wrong_algorithm_works_and_ignores_what_makes_a_draft(tmp_path: Path) -> None:
    """EAGLE with an EAGLE-3 draft: same text, no error; the draft's head and vocabulary map play no part."""
    plan = replace(CHAIN, capture=())
    decoder = build(tmp_path / "one", plan, vocab=8)
    drafting = decoder._drafting
    assert drafting is not None
    _serve_as_eagle1(drafting._draft, decoder._target)
    assert torch.equal(drafting._draft.lm_head, decoder._target.lm_head[:6])
    assert drafting._draft.target_ids.tolist() == list(range(6))
    tokens, _ = generate(decoder, 30)
    assert tokens == generate(build(tmp_path / "two", None, vocab=8), 30)[0]


def test_a_walk_takes_the_child_that_the_target_wants() -> None:
    #      0 -> 1 (5), 2 (6);  1 -> 3 (7);  2 -> 4 (7), 5 (8)
    ids, parents = [9, 5, 6, 7, 7, 8], [0, 0, 1, 2, 2]
    assert longest_path(ids, parents, [6, 0, 8, 0, 0, 3]) == [0, 2, 5]
    assert longest_path(ids, parents, [5, 8, 0, 0, 0, 0]) == [0, 1]
    assert longest_path(ids, parents, [4, 0, 0, 0, 0, 0]) == [0]


def test_a_node_sees_its_ancestors_only() -> None:
    mask = tree_mask([0, 0, 1], 2, like=torch.zeros(1))
    assert (mask == 0).tolist() == [
        [True, True, True, False, False, False],
        [True, True, True, True, False, False],
        [True, True, True, False, True, False],
        [True, True, True, True, False, True],
    ]


def test_simulated_acceptance_replaces_the_verdict(tmp_path: Path) -> None:
    decoder = build(tmp_path, replace(CHAIN, simulated_accept_length=2.5))
    tokens, correct = generate(decoder, 60)
    # SGLang writes token 100; this vocabulary has 12.
    assert set(tokens[1:]) == {100 % 12}
    assert set(correct) == {1, 2}


@pytest.mark.parametrize(("wanted", "expected"), [(2.25, 2.25), (0.5, 1.0), (9.0, 4.0), (3.0, 3.0)])
def test_simulated_lengths_match_their_mean_within_bounds(wanted: float, expected: float) -> None:
    source = random.Random(1)
    plan = replace(CHAIN, simulated_accept_length=wanted)
    lengths = [simulated_length(plan, source) for _ in range(20_000)]
    assert sum(lengths) / len(lengths) == pytest.approx(expected, abs=0.02)
    assert set(lengths) <= {1, 2, 3, 4}


def test_the_older_simulation_is_a_clamped_normal() -> None:
    source = random.Random(1)
    plan = replace(CHAIN, simulated_accept_length=2.5, simulation_method="multinomial")
    assert {simulated_length(plan, source) for _ in range(2000)} == {1, 2, 3, 4}
