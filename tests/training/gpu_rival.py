"""Training steps of NVIDIA NeMo AutoModel's EAGLE-3 recipe and ours, in turns, on one GPU and the same samples.

Both train a draft of SmolLM2-135M's shape over 7 passes, read the target in every step, and clip and step AdamW. Theirs
is put together from the parts of nemo-automodel 0.7.0 as its recipe ``train_eagle3`` does by default: target and draft
in bfloat16, eager attention, not compiled (compiled, its draft is compiled anew for each pass, for minutes), samples
padded to the longest. Runs without pytest, where nemo-automodel is
importable: ``PYTHONPATH=.:tests:tests/training python3 tests/training/gpu_rival.py [OUT.json]``.
"""

from __future__ import annotations

import json
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import gpu_speed
import torch
from gpu_speed import CAPTURE_IDS, KEPT, PASSES, SMOLLM2, TOKENS, say
from nemo_automodel.components.speculative.eagle.core import Eagle3TrainerModule
from nemo_automodel.components.speculative.eagle.draft_llama import LlamaEagle3DraftModel
from nemo_automodel.components.speculative.eagle.target import HFEagle3TargetModel
from transformers import LlamaConfig, LlamaForCausalLM

from workbench.training.parts import Sample

ROUNDS, STEPS, WARM = 3, 20, 5
Batch = Sequence[Sample]
Step = Callable[[Batch], None]


def their_step(place: torch.device, vocab: int = SMOLLM2.vocab_size, kept: int = KEPT) -> Step:
    dtype = torch.bfloat16 if place.type == "cuda" else torch.float32
    config = _config(SMOLLM2.num_layers, vocab)
    target = HFEagle3TargetModel(LlamaForCausalLM(config).to(place, dtype), CAPTURE_IDS)
    small = _config(1, vocab)
    for key, value in {"draft_vocab_size": kept, "target_hidden_size": SMOLLM2.hidden_size}.items():
        setattr(small, key, value)
    small.attn_implementation = "eager"
    draft = LlamaEagle3DraftModel(small).to(place, dtype)
    mask = torch.zeros(vocab, dtype=torch.bool, device=place)
    mask[:kept] = True
    trainer = Eagle3TrainerModule(
        draft, selected_token_ids=torch.arange(kept, device=place), selected_token_mask=mask, ttt_steps=PASSES
    )
    optimiser = torch.optim.AdamW(draft.parameters(), lr=1e-4)

    def step(batch: Batch) -> None:
        found = target.generate_batch(*_padded(batch, place))
        loss = trainer(**found.to_trainer_inputs()).loss
        loss.backward()
        torch.nn.utils.clip_grad_norm_(trainer.parameters(), 0.5)
        optimiser.step()
        optimiser.zero_grad(set_to_none=True)

    return step


def our_step(compile_: bool, place: torch.device, batches: Sequence[Batch]) -> Step:
    dtype = torch.bfloat16 if place.type == "cuda" else torch.float32
    stepper = gpu_speed._stepper(SMOLLM2, place, dtype, batches, KEPT, compile_, cache_gb=0.0)

    def step(batch: Batch) -> None:
        stepper.step(batch, 1e-4)

    return step


def _config(layers: int, vocab: int) -> LlamaConfig:
    return LlamaConfig(
        vocab_size=vocab,
        hidden_size=SMOLLM2.hidden_size,
        intermediate_size=SMOLLM2.intermediate_size,
        num_hidden_layers=layers,
        num_attention_heads=SMOLLM2.num_heads,
        num_key_value_heads=SMOLLM2.num_kv_heads,
        head_dim=SMOLLM2.head_dim,
        max_position_embeddings=SMOLLM2.max_position_embeddings,
        tie_word_embeddings=True,
        pad_token_id=None,
    )


def _padded(batch: Batch, place: torch.device) -> tuple[torch.Tensor, ...]:
    longest = max(len(sample.ids) for sample in batch)
    ids, mask, judged = (torch.zeros(len(batch), longest, dtype=torch.long) for _ in range(3))
    for row, sample in enumerate(batch):
        ids[row, : len(sample.ids)] = torch.from_numpy(sample.ids.astype("int64"))
        mask[row, : len(sample.ids)] = 1
        judged[row, sample.prompt_tokens : len(sample.ids)] = 1
    return tuple(tensor.to(place, non_blocking=True) for tensor in (ids, mask, judged))


def main(out: Path | None) -> None:
    place = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    tokens, steps, rounds = (TOKENS, STEPS, ROUNDS) if place.type == "cuda" else (512, 2, 2)
    batches = [gpu_speed._samples(number, tokens, SMOLLM2.vocab_size) for number in range(steps)]
    ways: dict[str, Step] = {}
    for name, make in {
        "nemo-automodel 0.7.0": lambda: their_step(place),
        "workbench, eager": lambda: our_step(False, place, batches),
        "workbench, compiled": lambda: our_step(True, place, batches),
    }.items():
        try:
            step = make()
            for batch in batches[:WARM]:
                step(batch)
            ways[name] = step
        except Exception as error:  # noqa: BLE001 - the others are to be seen, too
            say(f"{name}: {type(error).__name__}: {str(error)[:300]}")
    seconds: dict[str, list[float]] = {name: [] for name in ways}
    for _ in range(rounds):
        for name, step in ways.items():
            seconds[name].append(_timed(step, batches, place))
    _report(seconds, batches, place, out)


def _timed(step: Step, batches: Sequence[Batch], place: torch.device) -> float:
    gpu_speed._wait(place)
    began = time.perf_counter()
    for batch in batches:
        step(batch)
    gpu_speed._wait(place)
    return time.perf_counter() - began


def _report(seconds: dict[str, list[float]], batches: Sequence[Batch], place: torch.device, out: Path | None) -> None:
    responses = sum(sample.response_tokens for batch in batches for sample in batch)
    padded = sum(len(batch) * max(len(sample.ids) for sample in batch) for batch in batches)
    tokens = sum(len(sample.ids) for batch in batches for sample in batch)
    found: dict[str, Any] = {
        "device": torch.cuda.get_device_name() if place.type == "cuda" else "cpu",
        "torch": torch.__version__,
        "steps_a_round": len(batches),
        "tokens_a_step": tokens / len(batches),
        "padded_tokens_a_step": padded / len(batches),
        "response_tokens_per_s": {name: [responses / each for each in every] for name, every in seconds.items()},
    }
    for name, each in found["response_tokens_per_s"].items():
        say(f"{name}: {statistics.median(each):,.0f} response tokens/s, rounds {', '.join(f'{x:,.0f}' for x in each)}")
    if out is not None:
        out.write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else None)
