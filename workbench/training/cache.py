"""What the target says about samples, kept in the device's memory from one epoch to the next as far as it fits."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from workbench.training.config import SHARING
from workbench.training.loss import Labels
from workbench.training.packs import Pack, judged_count, runs, to_device
from workbench.training.parts import Sample

# Of the memory that a run has when it begins; the rest is for passes and logits.
_SHARE_OF_MEMORY = 0.6


@dataclass(frozen=True, slots=True)
class Prepared:
    """A pack with its captured states [N, captured * H] and its labels."""

    pack: Pack
    features: Tensor
    labels: Labels


@dataclass(slots=True)
class _Rows:
    """Rows of equal width, one sample's behind another's."""

    rows: Tensor
    used: int = 0

    def room(self, count: int) -> bool:
        return self.used + count <= len(self.rows)

    def add(self, found: Tensor) -> range:
        place = range(self.used, self.used + len(found))
        self.rows[place.start : place.stop] = found
        self.used = place.stop
        return place


class Cache:
    """Prepares samples with ``prepare``, and those that it has room for only once.

    Parameters
    ----------
    size_bytes
        0 keeps nothing.
    widths
        Of the captured states and of the labels' states.
    samples
        All that may come, so that no more memory is taken than they need.
    """

    def __init__(
        self,
        prepare: Callable[[Sequence[Sample]], Prepared],
        make_pack: Callable[[Sequence[Sample]], Pack],
        samples: Sequence[Sample],
        *,
        size_bytes: int,
        widths: tuple[int, int],
        eos: frozenset[int],
        like: Tensor,
    ) -> None:
        self._prepare = prepare
        self._pack = make_pack
        self._eos = eos
        tokens = sum(len(sample.ids) for sample in samples)
        judged = sum(judged_count(sample, eos) for sample in samples)
        needed = like.element_size() * (tokens * widths[0] + judged * widths[1]) + 4 * judged
        share = min(1.0, size_bytes / max(1, needed))
        self._features = _Rows(like.new_empty(int(share * tokens), widths[0]))
        self._states = _Rows(like.new_empty(int(share * judged), widths[1]))
        self._best = _Rows(torch.empty(int(share * judged), dtype=torch.int32, device=like.device))
        self._places: dict[tuple[int, int], tuple[range, range]] = {}

    def __call__(self, samples: Sequence[Sample]) -> Prepared:
        """A pack of the samples, those that are not kept yet in front."""
        known = [sample for sample in samples if _key(sample) in self._places]
        fresh = [sample for sample in samples if _key(sample) not in self._places]
        if not known:
            prepared = self._prepare(fresh)
            self._keep(fresh, prepared)
            return prepared
        places = [self._places[_key(sample)] for sample in known]
        tokens, judged = (self._rows(part) for part in zip(*places, strict=True))
        features, states = [self._features.rows[tokens]], [self._states.rows[judged]]
        best = [self._best.rows[judged].long()]
        if fresh:
            new = self._prepare(fresh)
            self._keep(fresh, new)
            features.insert(0, new.features)
            states.insert(0, new.labels.states)
            best.insert(0, new.labels.best)
        return Prepared(self._pack([*fresh, *known]), torch.cat(features), Labels(torch.cat(states), torch.cat(best)))

    def _keep(self, samples: Sequence[Sample], prepared: Prepared) -> None:
        token = judged = 0
        for sample in samples:
            tokens, positions = len(sample.ids), judged_count(sample, self._eos)
            if self._features.room(tokens) and self._states.room(positions):
                rows = slice(judged, judged + positions)
                place = self._features.add(prepared.features[token : token + tokens])
                self._best.add(prepared.labels.best[rows].int())
                self._places[_key(sample)] = place, self._states.add(prepared.labels.states[rows])
            token, judged = token + tokens, judged + positions

    def _rows(self, places: Sequence[range]) -> Tensor:
        starts, ends = np.array([(place.start, place.stop) for place in places], np.int64).T
        return to_device(runs(starts, ends - starts), self._features.rows.device)


def size_bytes(asked: float | str, device: torch.device) -> int:
    """Bytes to keep: as asked (in GB), else a share of a GPU's memory; nothing on a CPU."""
    if not isinstance(asked, str):
        return int(asked * 1e9)
    if device.type != "cuda":
        return 0
    free, total = torch.cuda.mem_get_info(device)
    return int(_SHARE_OF_MEMORY * min(free, total / int(os.environ.get(SHARING, "1"))))


def _key(sample: Sample) -> tuple[int, int]:
    return sample.prompt, sample.answer
