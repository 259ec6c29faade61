"""check_sampler finds planted faults and names the broken law."""

import jax
import numpy as np
import pytest

from vcmc.samplers import AbstractSampler
from vcmc.testing import check_sampler


class Hidden:
    def __init__(self, step):
        self.step = step


class Exact(AbstractSampler):
    """Independent draws of the regression's posterior, in NumPy, with a fault that is chosen."""

    num_warmup: int = 10
    num_chains: int = 1
    fault: str = ""

    def setup(self, density):
        x, y, weights = (
            np.asarray(each) for each in (*density.shard.rows.values(), density.shard.weights)
        )
        if self.fault == "padding counts":
            weights = np.ones(len(weights))
        prior = np.diag([1.0, 4.0, 0.25])
        covariance = np.linalg.inv(x.T @ (weights[:, None] * x) + prior)
        return covariance @ x.T @ (weights * y), np.linalg.cholesky(covariance)

    def init(self, setup, start, key):
        return 0

    def advance(self, setup, state, key, num_steps):
        if self.fault == "hidden state":  # a class that only pickle could store
            state = getattr(state, "step", state)
            state, *rest = self.steps(setup, state, key, num_steps)
            return Hidden(state), *rest
        if self.fault == "another structure":
            state, *rest = self.steps(setup, state if state == 0 else state[0], key, num_steps)
            return (state,), *rest
        return self.steps(setup, state, key, num_steps)

    def steps(self, setup, state, key, num_steps):
        mean, root = setup
        key = () if self.fault == "no key" else tuple(np.asarray(jax.random.key_data(key)).tolist())
        if self.fault == "blocks":
            noise = np.random.default_rng((*key, state)).normal(size=(num_steps, 3))
        else:
            seeds = [(*key, step) for step in range(state, state + num_steps)]
            noise = np.array([np.random.default_rng(seed).normal(size=3) for seed in seeds])
        noise = noise.reshape(num_steps, 3) * (1.15 if self.fault == "wide" else 1.0)
        return state + num_steps, mean + noise @ root.T, {}


@pytest.mark.parametrize(
    ("fault", "law"),
    [
        ("no key", "another key gives other draws"),
        ("blocks", "the length of blocks does not matter"),
        ("hidden state", "a chain continues from its stored state"),
        ("another structure", "a chain continues from its stored state"),
        ("wide", "moments are those of the known posterior"),
        ("padding counts", "rows of weight zero do not count"),
    ],
)
def test_faults_of_a_sampler_are_found(fault, law, broken):
    with broken(law):
        check_sampler(Exact(fault=fault))


def test_a_right_sampler_passes():
    check_sampler(Exact())


def test_a_wide_sampler_is_found_by_scores_alone(conjugate, broken):
    rows = {name: array[:80] for name, array in conjugate.rows.items()}
    check_sampler(Exact(), conjugate.model, rows)
    with broken("by Stein's identities"):
        check_sampler(Exact(fault="wide"), conjugate.model, rows)


def test_a_model_comes_with_its_rows(conjugate):
    with pytest.raises(ValueError, match="give both a model and its rows, or neither"):
        check_sampler(Exact(), conjugate.model)
