"""One optimizer step, and the figures of some of them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from workbench.training.cache import Cache, Prepared, size_bytes
from workbench.training.compiled import Compiled
from workbench.training.config import TrainConfig
from workbench.training.corpus import Sample
from workbench.training.features import Features
from workbench.training.loss import Judge, Teacher, weights
from workbench.training.optimise import Optimiser
from workbench.training.order import pieces
from workbench.training.packs import Pack, pack
from workbench.training.processes import Processes
from workbench.training.setup import Setup
from workbench.training.unroll import Unroll


class Stepper:
    """Takes optimizer steps, and adds up their figures until they are asked for."""

    def __init__(self, setup: Setup, config: TrainConfig, processes: Processes, compiled: Compiled) -> None:
        longest = config.max_tokens
        self.optimiser = Optimiser(setup.master, setup.draft, config)
        self._processes = processes
        self._passes = config.passes
        self._tokens_per_pass = config.tokens_per_pass
        self._eos = setup.target.eos_token_ids
        self._features = Features(setup.target, setup.capture, longest, compiled)
        self._teacher = Teacher(setup.target, setup.draft.target_ids)
        self._unroll = Unroll(setup.draft, setup.target.embed, config.passes, longest, compiled)
        self._judge = Judge(setup.draft, self._teacher, compiled)
        self._cache = Cache(
            self._prepare,
            self._pack,
            setup.samples,
            size_bytes=size_bytes(config.cache_gb, processes.device),
            widths=(len(setup.capture) * setup.target.shape.hidden_size, setup.target.shape.hidden_size),
            eos=self._eos,
            like=setup.target.embed,
        )
        self._sums = torch.zeros(4, config.passes, device=processes.device)
        self._read = 0
        self._norm = torch.zeros((), device=processes.device)

    def step(self, samples: Sequence[Sample], rate: float) -> float:
        """Train on this process's share of a step. Nothing here waits for the GPU.

        Returns the share of the tokens that the target had to read; the others' states were kept.
        """
        self._read = 0
        prepared = [self._cache(piece) for piece in pieces(tuple(samples), self._tokens_per_pass)]
        counts = torch.zeros(self._passes, dtype=torch.long, device=self._processes.device)
        for one in prepared:
            counts += self._teacher.counts(one.labels, one.pack, self._passes)
        weight = weights(self._processes.total(counts))
        self._sums[3] += counts
        for one in prepared:
            judged = self._judge(self._unroll(one.pack, one.features), one.pack, one.labels, weight)
            torch.autograd.backward(judged.loss)
            self._sums[:3] += torch.stack([judged.losses, judged.hits, judged.judged])
        self._norm = self.optimiser.step(rate)
        return self._read / max(1, sum(len(sample.ids) for sample in samples))

    def _pack(self, samples: Sequence[Sample]) -> Pack:
        return pack(samples, self._passes, self._eos, self._processes.device)

    def _prepare(self, samples: Sequence[Sample]) -> Prepared:
        one = self._pack(samples)
        self._read += sum(one.tokens.lengths)
        features, states = self._features(one)
        return Prepared(one, features, self._teacher.labels(states[one.judged]))

    def figures(self) -> dict[str, Any]:
        """Means over the steps since the last call, of all processes."""
        losses, hits, judged, counts = self._processes.total(self._sums).cpu().clone()
        self._sums.zero_()
        by_pass = losses / counts.clamp(min=1)
        discounts = weights(torch.ones(self._passes))
        return {
            "loss": float(by_pass @ discounts),
            "loss_by_pass": by_pass.tolist(),
            "accuracy_by_pass": (hits / judged.clamp(min=1)).tolist(),
            "kept_share": float(counts[0] / judged[0].clamp(min=1)),
            "gradient_norm": float(self._norm),
        }
