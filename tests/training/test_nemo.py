"""The loss and its gradients beside those of NVIDIA NeMo AutoModel's EAGLE-3 trainer, on the same weights and batch."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch", reason="training needs torch (extra: reference)")

import torch
from tiny_models import draft_config, draft_tensors, write_model
from training_files import CAPTURE, CPU, VOCAB, greedy_samples, tiny_target

from workbench.drafter.checkpoint import load_draft
from workbench.reference.target import Target
from workbench.training.compiled import Compiled
from workbench.training.features import Features
from workbench.training.loss import Judge, Teacher, weights
from workbench.training.packs import pack
from workbench.training.parts import Sample
from workbench.training.unroll import Unroll

# It needs more than it declares for this part: pip install nemo-automodel datasets
core = pytest.importorskip(
    "nemo_automodel.components.speculative.eagle.core",
    reason="the comparison needs nemo-automodel (0.7.0), which is not installed",
    exc_type=ImportError,
)
draft_llama = pytest.importorskip("nemo_automodel.components.speculative.eagle.draft_llama", exc_type=ImportError)

PASSES = 4
EAGER = Compiled(on=False)
DRAFT = draft_config(vocab=VOCAB, draft_vocab=VOCAB - 4)


def their_batch(target: Target, samples: list[Sample]) -> dict[str, torch.Tensor]:
    """Samples padded on the right, everything but the captured states moved one to the left."""
    longest = max(len(sample.ids) for sample in samples)
    shape = (len(samples), longest)
    ids, mask, loss_mask = (torch.zeros(shape, dtype=torch.long) for _ in range(3))
    width = target.shape.hidden_size
    aux, logits = torch.zeros(*shape, 3 * width), torch.zeros(*shape, VOCAB)
    for i, sample in enumerate(samples):
        length = len(sample.ids)
        features, states = Features(target, CAPTURE, 64, EAGER)(pack([sample], PASSES, frozenset(), CPU))
        aux[i, :length] = features
        logits[i, : length - 1] = target.logits(states)[1:]
        ids[i, : length - 1] = torch.from_numpy(sample.ids.astype("int64"))[1:]
        mask[i, :length] = 1
        ends = length - int(sample.ids[-1] in target.eos_token_ids)
        loss_mask[i, sample.prompt_tokens - 1 : ends - 1] = 1
    return {
        "input_ids": ids,
        "attention_mask": mask,
        "loss_mask": loss_mask,
        "aux_hidden_states": aux,
        "target_logits": logits,
    }


def their_draft(target: Target, tensors: dict[str, torch.Tensor]) -> Any:
    from transformers import LlamaConfig

    kept = {key: value for key, value in DRAFT.items() if key not in ("model_type", "architectures", "dtype")}
    config = LlamaConfig(**kept, attn_implementation="eager", pad_token_id=None, target_hidden_size=16)
    draft = draft_llama.LlamaEagle3DraftModel(config)
    names = {
        name.replace("midlayer.", "model.layers.0.") if name.startswith("midlayer.") else f"model.{name}": tensor
        for name, tensor in tensors.items()
        if name not in ("lm_head.weight", "d2t", "t2d")
    }
    top = {name: tensors[name] for name in ("lm_head.weight", "d2t", "t2d")}
    state = {**names, **top, "model.embed_tokens.weight": target.embed}
    missing, unexpected = draft.load_state_dict(state, strict=False)
    assert not unexpected and not [name for name in missing if "rotary" not in name]
    return draft.float()


def test_loss_and_gradients_are_theirs(tmp_path: Path) -> None:
    target = tiny_target(tmp_path / "target")
    # Its norms begin in bfloat16.
    tensors = {
        name: t.bfloat16().to(t.dtype) if t.is_floating_point() else t for name, t in draft_tensors(DRAFT).items()
    }
    draft = load_draft(write_model(tmp_path / "draft", DRAFT, tensors), dtype=torch.float32, device=CPU)
    samples = [sample for sample in greedy_samples(target, 8) if sample.response_tokens > 1]

    theirs = core.Eagle3TrainerModule(
        their_draft(target, tensors),
        selected_token_ids=draft.target_ids,
        selected_token_mask=tensors["t2d"],
        ttt_steps=PASSES,
    )
    expected = theirs(**their_batch(target, samples)).loss
    expected.backward()

    one = pack(samples, PASSES, target.eos_token_ids, CPU)
    features, states = Features(target, CAPTURE, 64, EAGER)(one)
    teacher = Teacher(target, draft.target_ids)
    labels = teacher.labels(states[one.judged])
    weight = weights(teacher.counts(labels, one, PASSES))
    found = Judge(draft, teacher, EAGER)(
        Unroll(draft, target.embed, PASSES, 64, EAGER)(one, features), one, labels, weight
    )
    torch.autograd.backward(found.loss)
    assert float(found.loss.detach()) == pytest.approx(float(expected.detach()), rel=1e-5)

    model = theirs.draft_model
    pairs = {
        "fc": model.model.fc.weight,
        "lm_head": model.lm_head.weight,
        "norm": model.model.norm.weight,
        "o_proj": model.model.layers[0].self_attn.o_proj.weight,
        "down_proj": model.model.layers[0].mlp.down_proj.weight,
        "hidden_norm": model.model.layers[0].hidden_norm.weight,
    }
    for name, parameter in pairs.items():
        mine = draft.get_parameter(name).grad
        assert mine is not None and parameter.grad is not None
        assert torch.allclose(mine, parameter.grad, rtol=1e-3, atol=1e-6), name
