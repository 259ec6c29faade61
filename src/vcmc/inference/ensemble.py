r"""Many short chains on the full target, in one batch: each pass over the data serves them all.

Hamiltonian Monte Carlo in coordinates that the chains' starting points whiten. There a posterior
is nearly a standard Gaussian, of which a trajectory of length $\pi / 2$ makes an independent draw.
It takes a few leapfrog steps, each of which evaluates the target once, at the points of all
chains. Lengths are jittered, and the step size is adapted to the acceptance of all chains together,
by the dual averaging of Hoffman and Gelman (2014). Where the chains disagree after a while, the
coordinates are whitened again by their recent positions, and what came before is warm-up.
"""

from collections.abc import Callable
from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

from ..diagnostics import convergence
from ..linalg.whitening import Whitening
from ..samplers.mixture import ModeMixture
from ..target import Target

NUM_CHAINS, MAX_ITERATIONS = 32, 500  # defaults of `refine`
# Where chains are close to each other by then, they run on, up to so many iterations.
MAX_CLOSE_RHAT, MAX_CLOSE_ITERATIONS = 1.1, 2000
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
# Iterations after which coordinates are whitened again, if R-hat is above a limit and there are
# enough positions for a covariance. R-hat of few iterations, of the worst of many coordinates, is
# noise; most chains have converged by the third.
MAX_WHITE_RHATS = {50: 1.3, 100: 1.3, 200: 1.05, 400: 1.05}
MIN_ACCEPTANCE = 0.2  # below, steps are too long for the chains to tell their covariance
MIN_POSITIONS_PER_COORDINATE = 5

Batch = Float[np.ndarray, "chain dim"]


class Goal(NamedTuple):
    """The number of effective draws to reach, and the longest run allowed for it.

    Without `max_iterations`, it depends on how close the chains have come.
    """

    min_ess: float = MIN_ESS
    num_chains: int = NUM_CHAINS
    max_iterations: int | None = None


class Jumps(NamedTuple):
    """Jumps between modes, one after every trajectory, and coordinates in which modes are white."""

    proposals: ModeMixture
    scale: Whitening


class Run(NamedTuple):
    """Draws of all chains after warm-up, and how they were made."""

    draws: Float[np.ndarray, "chain draw dim"]
    rhat: float
    ess: float
    acceptance: float
    num_evaluations: int
    num_iterations: int
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
    other_starts: Batch | None = None,
    jumps: Jumps | None = None,
) -> Run:
    """Run chains from some of the draws until R-hat is below 1.01 with enough effective draws.

    Warm-up, the first quarter of a run or more, is left out. `other_starts` replace the starts of
    the first chains. With `jumps`, chains jump between modes.
    """
    generator = np.random.default_rng(seed)
    chains = _Chains(target, starts, generator, jumps)
    state = chains.initial_state(goal.num_chains, other_starts)
    run = None
    count, last = 0, goal.max_iterations or MAX_ITERATIONS
    while count < last:
        count += 1
        with np.errstate(over="ignore", invalid="ignore"):  # trajectories that leave the support
            state = chains.move(state)
        advance()
        if count in MAX_WHITE_RHATS and jumps is None:
            state = chains.whitened_again(state, MAX_WHITE_RHATS[count])
        if count % CHECK_INTERVAL == 0 and chains.num_kept >= MIN_ITERATIONS:
            run = chains.summarize(goal.min_ess)
            if run.has_converged:
                return run
            if count == MAX_ITERATIONS and goal.max_iterations is None:
                last = MAX_CLOSE_ITERATIONS if run.rhat < MAX_CLOSE_RHAT else count
    return run or chains.summarize(goal.min_ess)


class _Chains:
    """Hamiltonian Monte Carlo on a target, in coordinates that some draws whiten."""

    def __init__(
        self,
        target: Target,
        starts: Float[np.ndarray, "draw dim"],
        generator: np.random.Generator,
        jumps: Jumps | None = None,
    ):
        self.jumps = jumps
        self.target = target
        self.generator = generator
        self.starts = starts
        self.whitening = Whitening.from_draws(starts) if jumps is None else jumps.scale
        self.num_evaluations = 0
        self.step_size = _StepSize(starts.shape[1] ** -0.25)
        self.positions: list[Batch] = []  # of all iterations, as points
        self.acceptances: list[float] = []
        self.first = 0  # iteration, in the current coordinates

    @property
    def num_warmup(self) -> int:
        """Iterations to leave out: the first quarter since the coordinates were chosen, or more."""
        fewest = 2 * MIN_WARMUP if self.first else MIN_WARMUP  # other coordinates, other steps
        return self.first + max(fewest, (len(self.positions) - self.first) // 4)

    @property
    def num_kept(self) -> int:
        """Iterations after warm-up."""
        return len(self.positions) - self.num_warmup

    def initial_state(self, num_chains: int, other_starts: Batch | None = None) -> State:
        """Return chains at different draws at which the target is finite."""
        state = self._state_at_draws(num_chains)
        if other_starts is None or not len(other_starts):
            return state
        others = self._evaluate(self.whitening.whiten(other_starts[:num_chains]))
        is_finite = np.isfinite(others.log_densities) & np.isfinite(others.scores).all(axis=1)
        count = int(is_finite.sum())
        return State(
            *(
                np.concatenate([part[is_finite], own[count:]])
                for part, own in zip(others, state, strict=True)
            )
        )

    def _state_at_draws(self, num_chains: int) -> State:
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

    def move(self, state: State) -> State:
        """Run one trajectory of every chain, and record the new positions."""
        adapt = len(self.positions) < self.num_warmup
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
        new_state = _accepted(is_accepted, proposal, state)
        if self.jumps is not None:
            new_state = self._jump(new_state, self.jumps.proposals)
        self.positions.append(self.whitening.unwhiten(new_state.position))
        self.acceptances.append(acceptance)
        return new_state

    def _jump(self, state: State, proposals: ModeMixture) -> State:
        """Propose an independent point to every chain."""
        points = proposals.draw(len(state.position), self.generator)
        proposal = self._evaluate(self.whitening.whiten(points))
        log_densities = proposals.log_density(self.whitening.unwhiten(state.position))
        change = proposal.log_densities - proposals.log_density(points)
        change = change - state.log_densities + log_densities
        change = np.where(np.isfinite(change), change, -np.inf)
        is_accepted = np.log(self.generator.uniform(size=len(change))) < change
        return _accepted(is_accepted, proposal, state)

    def whitened_again(self, state: State, max_rhat: float) -> State:
        """Whiten the coordinates by the recent positions, if the chains disagree in them.

        Where hardly a trajectory is accepted, the step size is reduced instead.
        """
        half = len(self.positions) // 2
        recent = np.stack(self.positions[half:], axis=1)
        points = recent.reshape(-1, recent.shape[2])
        # NaN for a coordinate that does not vary at all: chains may have stood still
        rhat = convergence.rhat(recent[None])
        if not np.isnan(rhat).all() and np.nanmax(rhat) <= max_rhat:
            return state
        size = self.step_size.averaged
        if np.mean(self.acceptances[half:]) < MIN_ACCEPTANCE:
            self.step_size, self.first = _StepSize(size / 3), len(self.positions)
            return state
        if len(points) < MIN_POSITIONS_PER_COORDINATE * points.shape[1]:
            return state
        self.whitening = Whitening.from_draws(points)
        self.step_size, self.first = _StepSize(size), len(self.positions)
        return self._evaluate(self.whitening.whiten(self.positions[-1]))

    def summarize(self, min_ess: float) -> Run:
        """Drop the warm-up, and judge whether the chains have converged."""
        first = min(self.num_warmup, len(self.positions) - 4)
        draws = np.stack(self.positions[first:], axis=1)
        white = self.whitening.whiten(draws.reshape(-1, draws.shape[2])).reshape(draws.shape)
        # NaN for a coordinate that does not vary at all
        rhats = convergence.rhat(white[None])
        rhat = float(np.max(np.where(np.isnan(rhats), np.inf, rhats)))
        ess = float(np.min(np.nan_to_num(convergence.ess(white[None]), nan=0.0)))
        return Run(
            draws,
            rhat,
            ess,
            float(np.mean(self.acceptances[first:])),
            self.num_evaluations,
            len(self.positions),
            has_converged=rhat < MAX_RHAT and ess >= min_ess,
        )


def _accepted(is_accepted: np.ndarray, proposal: State, state: State) -> State:
    """Return the proposal for the chains that have accepted it, and the state for others."""
    return State(
        np.where(is_accepted[:, None], proposal.position, state.position),
        np.where(is_accepted, proposal.log_densities, state.log_densities),
        np.where(is_accepted[:, None], proposal.scores, state.scores),
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
