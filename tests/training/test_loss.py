from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("torch", reason="training needs torch (extra: reference)")

import torch
from naive_llama import draft_logits, target_states
from tiny_models import as_numpy, draft_config, draft_tensors, target_config, target_tensors, write_model
from training_files import CAPTURE, CPU, VOCAB, greedy_samples, sample, tiny_target

from workbench.drafter.checkpoint import load_draft
from workbench.drafter.model import Eagle3Draft
from workbench.reference.target import Target
from workbench.training.compiled import Compiled
from workbench.training.features import Features
from workbench.training.loss import Judge, Judgement, Teacher, cross_entropy, weights
from workbench.training.packs import pack
from workbench.training.parts import Sample
from workbench.training.unroll import Unroll

PASSES, KEPT = 3, VOCAB - 4
EOS = frozenset({0})
EAGER = Compiled(on=False)
DRAFT = draft_config(vocab=VOCAB, draft_vocab=KEPT)


@pytest.fixture
def target(tmp_path: Path) -> Target:
    return tiny_target(tmp_path / "target")


@pytest.fixture
def draft(tmp_path: Path) -> Eagle3Draft:
    return load_draft(write_model(tmp_path / "draft", DRAFT, draft_tensors(DRAFT)), dtype=torch.float32, device=CPU)


def judged(target: Target, draft: Eagle3Draft, samples: list[Sample]) -> tuple[Judgement, torch.Tensor]:
    one = pack(samples, PASSES, EOS, CPU)
    features, normed = Features(target, CAPTURE, 64, EAGER)(one)
    teacher = Teacher(target, draft.target_ids)
    labels = teacher.labels(normed[one.judged])
    counts = teacher.counts(labels, one, PASSES)
    states = Unroll(draft, target.embed, PASSES, 64, EAGER)(one, features)
    return Judge(draft, teacher, EAGER)(states, one, labels, weights(counts)), counts


def by_hand(draft: Eagle3Draft, samples: list[Sample]) -> tuple[float, list[float], list[int], list[int], list[int]]:
    """The loss by its formula, slot by slot in numpy: loss, sums, kept positions, hits and positions by pass."""
    config = target_config(vocab=VOCAB)
    w, d = as_numpy(target_tensors(config)), as_numpy(draft_tensors(DRAFT))
    kept = draft.target_ids.tolist()
    sums, counts, hits, reached = ([0.0] * PASSES, [0] * PASSES, [0] * PASSES, [0] * PASSES)
    for one in samples:
        ids = one.ids.tolist()
        states, z = target_states(w, config, ids)
        features = [np.concatenate([states[layer][t] for layer in CAPTURE]) for t in range(len(ids) - 1)]
        logits = draft_logits(d, DRAFT, w["model.embed_tokens.weight"], features, ids, unroll=PASSES)
        for j in range(PASSES):
            for t in range(len(ids) - 1):
                u = t + 1 + j
                if u >= len(ids) or u < one.prompt_tokens or ids[u] == 0:
                    continue
                reached[j] += 1
                best = int(z[u].argmax())
                hits[j] += kept[int(logits[j][t].argmax())] == best
                if best not in kept:
                    continue
                p = np.exp(z[u][kept] - z[u][kept].max())
                q = logits[j][t] - logits[j][t].max()
                sums[j] += float(-(p / p.sum()) @ (q - np.log(np.exp(q).sum())))
                counts[j] += 1
    discounts = 0.8 ** np.arange(PASSES)
    loss = float(discounts @ (np.array(sums) / counts) / discounts.sum())
    return loss, sums, counts, hits, reached


def test_loss_and_figures_are_those_of_the_formula(target: Target, draft: Eagle3Draft) -> None:
    samples = [*greedy_samples(target, 4), sample([3, 4, 5, 6, 7, 8, 9, 1, 2, 11, 0], 4)]
    found, counts = judged(target, draft, samples)
    loss, sums, kept, hits, reached = by_hand(draft, samples)
    assert kept[0] < reached[0], "the case where the target's best id is not kept must occur"
    assert any(hits)
    assert float(found.loss.detach()) == pytest.approx(loss, rel=1e-5)
    assert found.losses.tolist() == pytest.approx(sums, rel=1e-5)
    assert (counts.tolist(), found.hits.tolist(), found.judged.tolist()) == (kept, hits, reached)


def test_gradients_are_those_of_the_plain_computation(target: Target, draft: Eagle3Draft) -> None:
    samples = greedy_samples(target, 3)
    found, counts = judged(target, draft, samples)
    found.loss.backward()  # type: ignore[no-untyped-call]
    mine = {name: p.grad.clone() for name, p in draft.named_parameters() if p.grad is not None}
    assert mine.keys() == dict(draft.named_parameters()).keys()
    draft.zero_grad()

    one = pack(samples, PASSES, EOS, CPU)
    features, normed = Features(target, CAPTURE, 64, EAGER)(one)
    z = target.logits(normed[one.judged])
    states = Unroll(draft, target.embed, PASSES, 64, EAGER)(one, features)
    best, loss = z.argmax(-1), torch.zeros(())
    is_kept = torch.isin(best, draft.target_ids)
    for j, weight in enumerate(weights(counts)):
        chosen = is_kept & (one.depth > j)
        log_q = draft.logits(states[j])[one.first[chosen] - j].log_softmax(-1)
        loss = loss - weight * (z[chosen][:, draft.target_ids].softmax(-1) * log_q).sum()
    loss.backward()  # type: ignore[no-untyped-call]
    for name, parameter in draft.named_parameters():
        assert parameter.grad is not None
        assert torch.allclose(mine[name], parameter.grad, rtol=1e-4, atol=1e-7), name


def test_small_pieces_give_what_one_gives(target: Target, draft: Eagle3Draft, monkeypatch: pytest.MonkeyPatch) -> None:
    samples = greedy_samples(target, 3)
    whole, _ = judged(target, draft, samples)
    monkeypatch.setattr("workbench.training.loss._CHUNK_LOGITS", {"cpu": 7 * PASSES * KEPT})
    pieces, _ = judged(target, draft, samples)
    assert torch.allclose(whole.losses, pieces.losses)
    assert torch.equal(whole.hits, pieces.hits)


def test_cross_entropy_of_two_ids() -> None:
    # The draft says 1/4 and 3/4, the teacher 1/2 and 1/2: -(ln 1/4 + ln 3/4) / 2 = 0.8370.
    losses, top, grad = cross_entropy(torch.tensor([[[0.0, np.log(3)]]]), torch.zeros(1, 2), torch.tensor([[2.0]]))
    assert losses.tolist() == [[pytest.approx(0.836988, abs=1e-5)]]
    assert top.tolist() == [[1]]
    assert grad.tolist() == [[[pytest.approx(-0.5), pytest.approx(0.5)]]]


def test_weights_are_of_means_and_sum_to_one() -> None:
    # 1, 0.8, 0.64 over 2.44, and a mean over 10, 5 and no position.
    assert weights(torch.tensor([10, 5, 0])).tolist() == pytest.approx([0.040984, 0.065574, 0.262295], abs=1e-6)


def test_an_id_that_is_not_kept_is_numbered_behind_the_vocabulary(target: Target) -> None:
    teacher = Teacher(target, torch.tensor([2, 5]))
    states = torch.linalg.pinv(target.lm_head) @ torch.eye(VOCAB)[[5, 3, 2]].T
    labels = teacher.labels(states.T)
    logits = target.logits(states.T)
    for best, true in zip(labels.best.tolist(), logits.argmax(-1).tolist(), strict=True):
        assert best == {2: 0, 5: 1}.get(true, best)
        assert (best < 2) == (true in (2, 5))
