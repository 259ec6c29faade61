r"""Many short chains on the full target, in one batch: each pass over the data serves them all.

Hamiltonian Monte Carlo in coordinates that the chains' starting points whiten. There a posterior
is nearly a standard Gaussian, of which a trajectory of length $\pi / 2$ makes an independent draw.
It takes a few leapfrog steps, each of which evaluates the target once, at the points of all
chains. Lengths are jittered, and the step size is adapted to the acceptance of all chains together,
by the dual averaging of Hoffman and Gelman (2014).
"""

from collections.abc import Callable
from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

from ..diagnostics import convergence
from ..linalg.whitening import Whitening
from ..target import Target

NUM_CHAINS, MAX_ITERATIONS = 32, 500  # defaults of `refine`
MIN_ESS, MAX_RHAT = 400.0, 1.01  # as Vehtari et al. (2021) recommend
MIN_WARMUP = 10  # iterations in which the step size is adapted
CHECK_INTERVAL = 10  # iterations between two computations of R-hat
# After warm-up, before convergence is judged. With fewer iterations, in 32 chains, R-hat of the
# worst of a hundred coordinates is noise.
MIN_ITERATIONS = 40
TARGET_ACCEPTANCE = 0.7  # acceptance rate to which the step size is adapted
# Share of trajectories with a tenth of the step size: they free chains from steep places.
SMALL_STEP_SHARE = 0.1
MAX_LEAPFROG_STEPS = 64  # in a trajectory

Batch = Float[np.ndarray, "chain dim"]


class Goal(NamedTuple):
    """The number of effective draws to reach, and the longest run allowed for it."""

    min_ess: float = MIN_ESS
    num_chains: int = NUM_CHAINS
    max_iterations: int = MAX_ITERATIONS


class Run(NamedTuple):
    """Draws of all chains after warm-up, and how they were made."""

    draws: Float[np.ndarray, "chain draw dim"]
    rhat: float
    ess: float
    acceptance: float
    num_evaluations: int
    has_converged: bool


class State(NamedTuple):
    """Whitened positions of the chains, with the target's log densities and whitened scores."""

    position: Batch
    log_densities: Float[np.ndarray, " chain"]
    scores: Batch


def run_chains(
    target: Target,
    starts: Float[np.ndarray, "draw dim"],
    goal: Goal,
    seed: int = 0,
    advance: Callable[[], None] = lambda: None,
) -> Run:
    """Run chains from some of the draws until R-hat is below 1.01 with enough effective draws.

    Warm-up, the first quarter of a run or more, is left out.
    """
    generator = np.random.default_rng(seed)
    chains = _Chains(target, starts, generator)
    state = chains.initial_state(goal.num_chains)
    positions: list[Batch] = []
    acceptances: list[float] = []
    run = None
    while len(positions) < goal.max_iterations:
        is_warmup = len(positions) < _num_warmup(len(positions))
        state, acceptance = chains.move(state, adapt=is_warmup)
        positions.append(state.position)
        acceptances.append(acceptance)
        advance()
        count = len(positions)
        if count % CHECK_INTERVAL == 0 and count - _num_warmup(count) >= MIN_ITERATIONS:
            run = chains.summarize(positions, acceptances, goal.min_ess)
            if run.has_converged:
                return run
    return run or chains.summarize(positions, acceptances, goal.min_ess)


def _num_warmup(num_iterations: int) -> int:
    return max(MIN_WARMUP, num_iterations // 4)


class _Chains:
    """Hamiltonian Monte Carlo on a target, in coordinates that some draws whiten."""

    def __init__(
        self,
        target: Target,
        starts: Float[np.ndarray, "draw dim"],
        generator: np.random.Generator,
    ):
        self.target = target
        self.generator = generator
        self.starts = starts
        self.whitening = Whitening.from_draws(starts)
        self.num_evaluations = 0
        self.step_size = _StepSize(starts.shape[1] ** -0.25)

    def initial_state(self, num_chains: int) -> State:
        """Return chains at different draws at which the target is finite."""
        order = self.generator.permutation(len(self.starts))
        for first in range(0, len(order), num_chains):
            chosen = np.resize(order[first : first + num_chains], num_chains)
            state = self._evaluate(self.whitening.whiten(self.starts[chosen]))
            is_finite = np.isfinite(state.log_densities) & np.isfinite(state.scores).all(axis=1)
            finite = np.flatnonzero(is_finite)
            if len(finite):
                indices = np.resize(finite, num_chains)
                return State(*(part[indices] for part in state))
        raise ValueError(
            "chains need a start at which the full-data log density is finite; it is not finite "
            "at any of the combined draws. Check the model there, or use fewer shards."
        )

    def _evaluate(self, position: Batch) -> State:
        log_densities, scores = self.target(jnp.asarray(self.whitening.unwhiten(position)))
        self.num_evaluations += len(position)
        return State(
            position, np.asarray(log_densities), self.whitening.whiten_scores(np.asarray(scores))
        )

    def move(self, state: State, adapt: bool) -> tuple[State, float]:
        """Run one trajectory of every chain; return the new state and the mean acceptance."""
        size = self.step_size.current if adapt else self.step_size.averaged
        length = self.generator.uniform(0.7, 1.1) * np.pi / 2
        num_steps = int(np.clip(np.ceil(length / size), 1, MAX_LEAPFROG_STEPS))
        is_small = self.generator.uniform(size=(len(state.position), 1)) < SMALL_STEP_SHARE
        sizes = np.where(is_small, 0.1, 1.0) * min(size, length / num_steps)
        momentum = self.generator.normal(size=state.position.shape)
        energy = state.log_densities - 0.5 * np.sum(momentum**2, axis=1)
        proposal = state
        for _ in range(num_steps):
            half = momentum + 0.5 * sizes * proposal.scores
            proposal = self._evaluate(proposal.position + sizes * half)
            momentum = half + 0.5 * sizes * proposal.scores
        change = proposal.log_densities - 0.5 * np.sum(momentum**2, axis=1) - energy
        change = np.where(np.isfinite(change), change, -np.inf)
        probability = np.exp(np.minimum(change, 0.0))
        is_accepted = self.generator.uniform(size=len(change)) < probability
        acceptance = float(probability[~is_small[:, 0]].mean()) if not is_small.all() else 1.0
        if adapt:
            self.step_size.update(acceptance)
        new_state = State(
            np.where(is_accepted[:, None], proposal.position, state.position),
            np.where(is_accepted, proposal.log_densities, state.log_densities),
            np.where(is_accepted[:, None], proposal.scores, state.scores),
        )
        return new_state, acceptance

    def summarize(self, positions: list[Batch], acceptances: list[float], min_ess: float) -> Run:
        """Drop the warm-up, and judge whether the chains have converged."""
        first = min(_num_warmup(len(positions)), len(positions) - 4)
        white = np.stack(positions[first:], axis=1)
        rhat = float(np.max(convergence.rhat(white[None])))
        ess = float(np.min(convergence.ess(white[None])))
        return Run(
            self.whitening.unwhiten(white),
            rhat,
            ess,
            float(np.mean(acceptances[first:])),
            self.num_evaluations,
            has_converged=rhat < MAX_RHAT and ess >= min_ess,
        )


class _StepSize:
    """Dual averaging of the log step size."""

    def __init__(self, size: float):
        self.current = self.averaged = size
        self._log_centre, self._count = np.log(2 * size), 0
        self._mean_error, self._mean_log_size = 0.0, 0.0

    def update(self, acceptance: float) -> None:
        self._count += 1
        weight = 1 / (self._count + 3)
        error = TARGET_ACCEPTANCE - acceptance
        self._mean_error = (1 - weight) * self._mean_error + weight * error
        log_size = self._log_centre - np.sqrt(self._count) / 0.2 * self._mean_error
        weight = self._count**-0.75
        self._mean_log_size = weight * log_size + (1 - weight) * self._mean_log_size
        self.current = float(np.exp(log_size))
        self.averaged = float(np.exp(self._mean_log_size))
