"""The methods of every figure."""

import numpy as np

from vcmc.aggregators import Uniform
from vcmc.combiners import Average, Consensus, Variational
from vcmc.combiners.base import Subposteriors
from vcmc.paper import probit_300
from vcmc.paper.methods import Fixed, methods_of, paper_method
from vcmc.paper.problem import Size

SIZE = Size(200, 3, iterations=7)


def test_methods_are_the_baselines_the_papers_and_ours():
    problem = probit_300.problem(SIZE, 0)
    methods = methods_of(problem, SIZE)
    assert list(methods)[-1] == "default"
    assert isinstance(methods["default"].combiner, Variational)
    assert isinstance(methods["full Gaussian"].combiner, Consensus)
    assert methods["VCMC"].as_paper
    assert not methods["default"].as_paper


def test_the_papers_method_has_its_numbers_of_draws_and_iterations():
    optimizer = paper_method(probit_300.problem(SIZE, 0), 7).optimizer
    assert (optimizer.num_samples, optimizer.max_iterations) == (40, 7)


def test_fixed_uniform_weights_are_averages():
    import jax.numpy as jnp

    problem = probit_300.problem(SIZE, 0)
    draws = jnp.asarray(np.random.default_rng(0).normal(size=(4, 50, 3)))
    shards = Subposteriors(draws, problem.model.space)
    np.testing.assert_allclose(
        Fixed(problem.family, Uniform())(shards).draws, Average()(shards).draws, rtol=1e-10
    )
