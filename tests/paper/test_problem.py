"""Sizes and expectations of a problem."""

import numpy as np

from vcmc.paper import probit_300
from vcmc.paper.problem import CLASSES, Size


def test_settings_of_a_size_are_its_fields():
    size = Size(400, 3, shards=(2, 4))
    assert size.settings()["num_rows"] == 400
    assert size.settings()["shards"] == (2, 4)
    assert len(size.settings()) == 9


def test_expectations_are_means_of_test_functions():
    problem = probit_300.problem(Size(200, 3), 0)
    beta = np.random.default_rng(0).normal(size=(120, 3))
    expectations = problem.expectations({"beta": beta})
    assert list(expectations) == [name for name in CLASSES if name in expectations]
    np.testing.assert_allclose(expectations["first"], beta.mean(axis=0), rtol=1e-10)
    np.testing.assert_allclose(
        np.sort(expectations["pure second"]), np.sort((beta**2).mean(axis=0)), rtol=1e-10
    )
