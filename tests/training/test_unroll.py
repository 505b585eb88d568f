from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("torch", reason="training needs torch (extra: reference)")

import torch
from tiny_models import draft_config, draft_tensors, write_model
from training_files import CAPTURE, CPU, VOCAB, greedy_samples, tiny_target

from workbench.drafter.checkpoint import load_draft
from workbench.drafter.layers import causal_mask
from workbench.drafter.model import Eagle3Draft
from workbench.reference.drafting import Drafting
from workbench.reference.target import Target
from workbench.training.compiled import Compiled
from workbench.training.features import Features
from workbench.training.packs import pack
from workbench.training.parts import Sample
from workbench.training.unroll import Unroll

PASSES = 5
EAGER = Compiled(on=False)


@pytest.fixture
def target(tmp_path: Path) -> Target:
    return tiny_target(tmp_path / "target")


@pytest.fixture
def draft(tmp_path: Path) -> Eagle3Draft:
    config = draft_config(vocab=VOCAB, draft_vocab=VOCAB - 4)
    return load_draft(write_model(tmp_path / "draft", config, draft_tensors(config)), dtype=torch.float32, device=CPU)


def engine_features(target: Target, sample: Sample) -> tuple[torch.Tensor, torch.Tensor]:
    ids = torch.from_numpy(sample.ids.astype("int64"))
    mask = causal_mask(len(ids), 0, dtype=torch.float32, device=CPU)
    rope = target.rope(64).at(slice(0, len(ids)))
    normed, states = target.forward(ids, target.new_cache(64), 0, rope=rope, mask=mask, capture=CAPTURE)
    return states, normed


def engine_chain(
    target: Target, draft: Eagle3Draft, sample: Sample, features: torch.Tensor, slot: int
) -> list[torch.Tensor]:
    """Extend over all slots to ``slot``, then draft on, fed with the sample's own tokens: states of every pass."""
    ids = torch.from_numpy(sample.ids.astype("int64"))
    drafting = Drafting(draft, target.embed, 64)
    drafting.extend(ids[1 : slot + 2], features[: slot + 1], 0)
    states = [drafting._hidden]
    own: list[tuple[torch.Tensor, torch.Tensor]] = []
    for step in range(min(PASSES, len(ids) - 1 - slot) - 1):
        states.append(drafting._grow(ids[slot + 2 + step :][:1], states[-1], step, own))
    return states


def close(found: torch.Tensor, expected: torch.Tensor) -> bool:
    return bool((found - expected).norm() <= 1e-5 * expected.norm())


@torch.no_grad()
def test_features_are_those_of_the_engine(target: Target) -> None:
    samples = greedy_samples(target, 3)
    one = pack(samples, PASSES, frozenset(), CPU)
    features, normed = Features(target, CAPTURE, 64, EAGER)(one)
    start = 0
    for sample in samples:
        part = slice(start, start + len(sample.ids))
        expected, last = engine_features(target, sample)
        assert close(features[part], expected)
        assert close(normed[part], last)
        start = part.stop


@torch.no_grad()
def test_every_slot_of_the_unrolled_pass_is_a_chain_of_the_engine(target: Target, draft: Eagle3Draft) -> None:
    samples = greedy_samples(target, 3)
    one = pack(samples, PASSES, frozenset(), CPU)
    features = Features(target, CAPTURE, 64, EAGER)(one)[0]
    states = Unroll(draft, target.embed, PASSES, 64, EAGER)(one, features)
    row = compared = 0
    for sample, rows in zip(samples, one.queries.lengths, strict=True):
        expected_features, _ = engine_features(target, sample)
        for slot in range(len(sample.ids) - 1 - rows, len(sample.ids) - 1):
            for j, expected in enumerate(engine_chain(target, draft, sample, expected_features, slot)):
                assert close(states[j][row], expected[0])
                compared += 1
            row += 1
    assert compared > 100


@torch.no_grad()
def test_the_slots_of_the_prompt_that_are_left_out_change_nothing(target: Target, draft: Eagle3Draft) -> None:
    samples = greedy_samples(target, 2)
    whole = [Sample(s.ids, 1, s.prompt, s.answer, s.task) for s in samples]
    found = []
    for some in (samples, whole):
        one = pack(some, PASSES, frozenset(), CPU)
        features = Features(target, CAPTURE, 64, EAGER)(one)[0]
        states = Unroll(draft, target.embed, PASSES, 64, EAGER)(one, features)
        found.append({int(t): states[-1][i] for i, t in enumerate(one.row_tokens)})
    assert len(found[0]) < len(found[1])
    assert all(close(state, found[1][token]) for token, state in found[0].items())
