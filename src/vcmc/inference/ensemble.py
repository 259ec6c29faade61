r"""Many short chains on the full target, run as one batch: every pass over the data serves them all.

Hamiltonian Monte Carlo in coordinates that the chains' starts whiten. There a posterior is nearly a standard Gaussian, of which a
trajectory of length $\pi / 2$ makes an independent draw; it takes a few leapfrog steps, each of them one evaluation of the target at
the points of all chains. Lengths are jittered, and the step size is adapted to the acceptance of all chains together
(by the dual averaging of Hoffman and Gelman, 2014).
"""

from collections.abc import Callable
from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

from ..diagnostics import convergence
from ..linalg.whitening import Whitening
from ..target import Target

NUM_CHAINS, MAX_ITERATIONS = 32, 500
MIN_ESS = 400.0
MIN_WARMUP = 10  # iterations in which the step size is adapted
BLOCK = 10  # iterations between looks at R-hat
# iterations: with fewer in each of 32 chains, R-hat of the worst of a hundred coordinates is noise
MIN_KEPT = 40
TARGET_ACCEPT = 0.7
CAREFUL = 0.1  # share of trajectories with a tenth of the step size: they free chains from where the target is steep
MAX_STEPS = 64
GOOD_RHAT = 1.01

Batch = Float[np.ndarray, "chain dim"]


class Goal(NamedTuple):
    """How many effective draws are asked for, and how long chains may run for them."""

    min_ess: float = MIN_ESS
    num_chains: int = NUM_CHAINS
    max_iterations: int = MAX_ITERATIONS


class Run(NamedTuple):
    """Draws of all chains after warm-up, and how they came about."""

    draws: Float[np.ndarray, "chain draw dim"]
    rhat: float
    ess: float
    acceptance: float
    num_evaluations: int
    settled: bool


class State(NamedTuple):
    """Where the chains are, in white coordinates, and the target there."""

    white: Batch
    values: Float[np.ndarray, " chain"]
    scores: Batch


def run_chains(
    target: Target,
    starts: Float[np.ndarray, "draw dim"],
    goal: Goal,
    seed: int = 0,
    advance: Callable[[], None] = lambda: None,
) -> Run:
    """Run chains from some of the draws until R-hat is below 1.01 and there are enough effective draws.

    Draws of the first part of a run, which is a quarter of it or more, are left out.
    """
    generator = np.random.default_rng(seed)
    chains = _Chains(target, starts, generator)
    state = chains.begin(goal.num_chains)
    path: list[Batch] = []
    accepted: list[float] = []
    run = None
    while len(path) < goal.max_iterations:
        state, acceptance = chains.move(state, adapt=len(path) < _warmup(len(path)))
        path.append(state.white)
        accepted.append(acceptance)
        advance()
        if len(path) % BLOCK == 0 and len(path) - _warmup(len(path)) >= MIN_KEPT:
            run = chains.judge(path, accepted, goal.min_ess)
            if run.settled:
                return run
    return run or chains.judge(path, accepted, goal.min_ess)


def _warmup(count: int) -> int:
    return max(MIN_WARMUP, count // 4)


class _Chains:
    """Hamiltonian Monte Carlo on a target, in coordinates that some draws whiten."""

    def __init__(
        self, target: Target, starts: Float[np.ndarray, "draw dim"], generator: np.random.Generator
    ):
        self.target = target
        self.generator = generator
        self.starts = starts
        self.frame = Whitening.from_draws(starts)
        self.num_evaluations = 0
        self.step = _StepSize(starts.shape[1] ** -0.25)

    def begin(self, num_chains: int) -> State:
        """Chains at different draws at which the target is finite."""
        order = self.generator.permutation(len(self.starts))
        for first in range(0, len(order), num_chains):
            chosen = np.resize(order[first : first + num_chains], num_chains)
            state = self._at(self.frame.whiten(self.starts[chosen]))
            finite = np.flatnonzero(
                np.isfinite(state.values) & np.isfinite(state.scores).all(axis=1)
            )
            if len(finite):
                kept = np.resize(finite, num_chains)
                return State(*(part[kept] for part in state))
        raise ValueError(
            "the full-data log density is not finite at any of the combined draws: there is no place to start chains from. "
            "Look at the model there, or use fewer shards."
        )

    def _at(self, white: Batch) -> State:
        values, scores = self.target(jnp.asarray(self.frame.unwhiten(white)))
        self.num_evaluations += len(white)
        return State(white, np.asarray(values), self.frame.whiten_scores(np.asarray(scores)))

    def move(self, state: State, adapt: bool) -> tuple[State, float]:
        """One trajectory of every chain."""
        size = self.step.size if adapt else self.step.settled
        length = self.generator.uniform(0.7, 1.1) * np.pi / 2
        num_steps = int(np.clip(np.ceil(length / size), 1, MAX_STEPS))
        careful = self.generator.uniform(size=(len(state.white), 1)) < CAREFUL
        sizes = np.where(careful, 0.1, 1.0) * min(size, length / num_steps)
        momentum = self.generator.normal(size=state.white.shape)
        energy = state.values - 0.5 * np.sum(momentum**2, axis=1)
        there, speed = state, momentum
        for _ in range(num_steps):
            half = speed + 0.5 * sizes * there.scores
            there = self._at(there.white + sizes * half)
            speed = half + 0.5 * sizes * there.scores
        rise = there.values - 0.5 * np.sum(speed**2, axis=1) - energy
        rise = np.where(np.isfinite(rise), rise, -np.inf)
        probability = np.exp(np.minimum(rise, 0.0))
        taken = self.generator.uniform(size=len(rise)) < probability
        acceptance = float(probability[~careful[:, 0]].mean()) if not careful.all() else 1.0
        if adapt:
            self.step.learn(acceptance)
        chosen = State(
            np.where(taken[:, None], there.white, state.white),
            np.where(taken, there.values, state.values),
            np.where(taken[:, None], there.scores, state.scores),
        )
        return chosen, acceptance

    def judge(self, path: list[Batch], accepted: list[float], min_ess: float) -> Run:
        """Leave out the first part, and see whether chains agree."""
        first = min(_warmup(len(path)), len(path) - 4)
        white = np.stack(path[first:], axis=1)
        rhat = float(np.max(convergence.rhat(white[None])))
        ess = float(np.min(convergence.ess(white[None])))
        draws = self.frame.unwhiten(white)
        settled = rhat < GOOD_RHAT and ess >= min_ess
        acceptance = float(np.mean(accepted[first:]))
        return Run(draws, rhat, ess, acceptance, self.num_evaluations, settled)


class _StepSize:
    """Dual averaging of the log step size."""

    def __init__(self, size: float):
        self.size = self.settled = size
        self._centre, self._count, self._gap, self._mean = np.log(2 * size), 0, 0.0, 0.0

    def learn(self, acceptance: float) -> None:
        self._count += 1
        weight = 1 / (self._count + 3)
        self._gap = (1 - weight) * self._gap + weight * (TARGET_ACCEPT - acceptance)
        log_size = self._centre - np.sqrt(self._count) / 0.2 * self._gap
        keep = self._count**-0.75
        self._mean = keep * log_size + (1 - keep) * self._mean
        self.size, self.settled = float(np.exp(log_size)), float(np.exp(self._mean))
