"""Worlds with known true speeds: a server that is a formula, noise, and what measuring costs there.

The truth is made otherwise than the predictions are: trees are grown best first from what the drafter believes, which
is not what is accepted; the time of a step has a roofline.
"""

from __future__ import annotations

import heapq
from dataclasses import dataclass, replace

import numpy as np

from workbench.tune.plan import Step, estimated_s, next_step
from workbench.tune.state import Config, State, Visit

PROMPTS = 24
STEPS_A_PROMPT = 60


@dataclass(frozen=True)
class World:
    configs: tuple[Config, ...]
    loads: tuple[int, ...]
    first: float  # share of first drafts that are accepted
    decay: float  # that share falls by this factor a depth
    ranks: float  # the next candidate is accepted so many times as often as the one before it
    doubt: float  # the same in the drafter's belief
    draft_ms: float
    verify_ms: float
    token_us: float  # a token beyond the roofline
    experts: float  # more experts are read for more tokens: up to this factor
    start_s: float
    pass_s: float
    start_noise: float
    pass_noise: float
    seed: int

    def depths(self, config: Config) -> np.ndarray:
        """Share of steps that accept at least 1, 2 ... drafts."""
        by_depth = np.zeros(config.steps)
        heap = [(-self._share(1, 0, self.doubt), 1, 0, 1.0)]
        for _ in range(config.draft_tokens - 1):
            if not heap:
                break
            belief, depth, rank, above = heapq.heappop(heap)
            by_depth[depth - 1] += (reached := above * self._share(depth, rank, self.ranks))
            own = self._share(depth, rank, self.doubt)
            if rank + 1 < config.topk:
                sibling = belief / own * self._share(depth, rank + 1, self.doubt)
                heapq.heappush(heap, (sibling, depth, rank + 1, above))
            if depth < config.steps:
                heapq.heappush(heap, (belief * self._share(depth + 1, 0, self.doubt), depth + 1, 0, reached))
        return by_depth

    def _share(self, depth: int, rank: int, ranks: float) -> float:
        best = self.first * self.decay ** (depth - 1)
        return best * min(ranks, 1 - best) ** rank if rank else best

    def length(self, config: Config) -> float:
        return 1 + float(self.depths(config).sum())

    def speed(self, config: Config, load: int) -> float:
        draft = 0.0 if config.is_baseline else config.steps * self._pass_ms(load * config.topk) * self.draft_ms
        cycle = draft + self.verify_ms * self._pass_ms(load * config.draft_tokens) + (0 if config.is_baseline else 0.4)
        return 1000 * load * self.length(config) / cycle

    def _pass_ms(self, tokens: int) -> float:
        """Of one pass over so many tokens, as a multiple: experts fill up, then the roofline rises."""
        read = 1 + self.experts * (1 - np.exp(-tokens / 12))
        return float((read**2 + (self.token_us * tokens / 1000) ** 2) ** 0.5)

    def regret(self, name: str, load: int) -> float:
        """What is lost by taking this configuration."""
        best = max(self.speed(config, load) for config in self.configs)
        return 1 - self.speed(next(each for each in self.configs if each.name == name), load) / best


SMALL = ((2, 6), (2, 10), (4, 10), (4, 16))
LARGE = ((2, 4), (2, 6), (2, 10), (4, 6), (4, 10), (4, 16), (8, 16))


def grid(trees: tuple[tuple[int, int], ...] = SMALL) -> tuple[Config, ...]:
    """A baseline, 8 chains, and trees of (topk, draft tokens) at four depths: 25 or 37 configurations."""
    chains = [Config(f"s{n}-k1-n{n + 1}", drafter="d", steps=n, draft_tokens=n + 1) for n in range(1, 9)]
    wider = [
        Config(f"s{n}-k{k}-n{tokens}", drafter="d", steps=n, topk=k, draft_tokens=tokens)
        for n in (2, 3, 5, 7)
        for k, tokens in trees
    ]
    return (Config("baseline"), *chains, *wider)


def random_world(seed: int, configs: tuple[Config, ...] = grid()) -> World:
    """Drafters from poor to good, targets from large to small, drafts from cheap to dear, quiet to noisy machines."""
    rng = np.random.default_rng(seed)
    ranks = rng.uniform(0.1, 0.3)
    return World(
        configs=configs,
        loads=(1, 16),
        first=rng.uniform(0.45, 0.85),
        decay=rng.uniform(0.88, 1.0),
        ranks=ranks,
        doubt=ranks * rng.uniform(1.0, 1.6),
        draft_ms=rng.uniform(0.2, 1.2),
        verify_ms=rng.uniform(4.0, 12.0),
        token_us=10 ** rng.uniform(0.3, 1.5),
        experts=max(0.0, rng.uniform(-2.0, 3.0)),
        start_s=60.0,
        pass_s=5.0,
        start_noise=rng.uniform(0.002, 0.01),
        pass_noise=rng.uniform(0.003, 0.02),
        seed=seed,
    )


def measure(world: World, state: State, step: Step, passes: int) -> State:
    """The state after one more start."""
    start = f"start-{len(state.start_s):03}"
    rng = np.random.default_rng([world.seed, len(state.start_s)])
    visits = [_visit(world, step.config, load, passes, start, rng) for load in step.loads]
    seconds = world.start_s + world.pass_s * (passes + 0.5) * len(step.loads)
    return replace(state, visits=(*state.visits, *visits), start_s={**state.start_s, start: seconds})


def _visit(world: World, config: Config, load: int, passes: int, start: str, rng: np.random.Generator) -> Visit:
    true = world.speed(config, load) * np.exp(rng.normal(0, world.start_noise))
    speeds = tuple(true * np.exp(rng.normal(0, world.pass_noise, passes)))
    if config.is_baseline:
        return Visit(config.name, load, speeds, pass_s=world.pass_s, start=start, at=start)
    reached = np.array([1.0, *world.depths(config), 0.0])
    shares = (reached[:-1] - reached[1:]).clip(min=0)
    counts = {prompt: tuple(rng.multinomial(STEPS_A_PROMPT, shares / shares.sum())) for prompt in range(PROMPTS)}
    total = np.sum(list(counts.values()), axis=0)
    length = float(total @ np.arange(1, len(total) + 1) / total.sum())
    return Visit(config.name, load, speeds, length, counts, world.pass_s, start, start)


def search(world: World, budget_s: float, screen: int = 2, final: int = 5) -> State:
    """The command's main loop, on a world."""
    state = State(world.configs, world.loads)
    while (step := next_step(state)) is not None:
        passes = final if step.confirms else screen
        if state.spent_s + (estimated_s(state, step, passes) or 0.0) > budget_s:
            break
        state = measure(world, state, step, passes)
    return state


def full_s(world: World, passes: int = 5) -> float:
    """Every configuration once, with all passes at all loads, and the baseline again."""
    each = world.start_s + world.pass_s * (passes + 0.5) * len(world.loads)
    return each * (len(world.configs) + 1)
