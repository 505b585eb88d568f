"""SpecForge's offline features: what the target computes over each sample, a file of plain tensors a sample."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from workbench.files import replacing
from workbench.reference.target import Target
from workbench.specforge.samples import Ints, loss_mask
from workbench.training.compiled import Compiled
from workbench.training.corpus import Sample
from workbench.training.features import Features
from workbench.training.packs import pack

_BATCH_TOKENS = {"cpu": 2048, "cuda": 32768}


def write_features(
    target: Target,
    samples: Sequence[Sample],
    paths: Sequence[Path],
    *,
    capture: Sequence[int],
    mask: str,
    dtype: torch.dtype,
    say: Callable[[str], None],
) -> None:
    """Write the files of those samples that have none yet.

    A file holds ``input_ids`` and ``loss_mask`` int64 [T], ``hidden_state`` [1, T, H], the last states behind the final
    norm, and ``aux_hidden_state`` [1, T, 3H], the outputs of the layers ``capture`` side by side
    (SpecForge 0.2.0, ``algorithms/eagle3/data.py``).
    """
    left = [(sample, path) for sample, path in zip(samples, paths, strict=True) if not path.is_file()]
    if not left:
        return
    longest = max(len(sample.ids) for sample, _ in left)
    # An id names a layer's output, which is the next one's input.
    features = Features(target, tuple(i + 1 for i in capture), longest, Compiled(on=False))
    device, done = target.embed.device, 0
    for batch in _batches(left, _BATCH_TOKENS[device.type]):
        one = pack([sample for sample, _ in batch], 1, frozenset(), device)
        lengths = list(one.tokens.lengths)
        aux, last = (states.to(dtype).cpu().split(lengths) for states in features(one))
        for (sample, path), captured, normed in zip(batch, aux, last, strict=True):
            _write(path, sample, loss_mask(sample, target.eos_token_ids, mask), captured, normed)
        done += len(batch)
        say(f"features of {done:,} of {len(left):,} samples")


def _batches(left: Sequence[tuple[Sample, Path]], most: int) -> Iterator[list[tuple[Sample, Path]]]:
    batch: list[tuple[Sample, Path]] = []
    size = 0
    for item in left:
        if batch and size + len(item[0].ids) > most:
            yield batch
            batch, size = [], 0
        batch.append(item)
        size += len(item[0].ids)
    yield batch


def _write(path: Path, sample: Sample, mask: Ints, captured: Tensor, normed: Tensor) -> None:
    content = {
        "input_ids": torch.from_numpy(sample.ids.astype(np.int64)),
        "loss_mask": torch.from_numpy(mask),
        # A piece of a larger tensor would be saved with all of it.
        "hidden_state": normed.clone().unsqueeze(0),
        "aux_hidden_state": captured.clone().unsqueeze(0),
    }
    with replacing(path) as temporary:
        torch.save(content, temporary)


def write_vocabulary(ids: Ints, vocab_size: int, path: Path) -> None:
    """SpecForge's ``model.vocab_mapping_path``: ``d2t`` are offsets int64 [draft], ``t2d`` is bool [target]."""
    kept = torch.from_numpy(ids)
    mapping = {
        "d2t": kept - torch.arange(len(kept)),
        "t2d": torch.zeros(vocab_size, dtype=torch.bool).index_fill(0, kept, True),
    }
    with replacing(path) as temporary:
        torch.save(mapping, temporary)
