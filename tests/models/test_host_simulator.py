"""Simulators in Python: another one than PyMC's can be used by `predict`."""

import jax.numpy as jnp
import numpy as np

import vcmc
from vcmc.models.host_simulator import AbstractHostSimulator
from vcmc.results.tree import make_tree


class Shifted(AbstractHostSimulator):
    """Returns x + mean, without noise."""

    names = ("y",)
    columns = ("x",)
    known_columns = ("x",)

    def simulate(self, name, seed, params, local, rows):
        del name, seed, local
        return params["mean"][:, None] + rows["x"]

    def simulate_local(self, seed, params):
        raise NotImplementedError


def test_values_are_those_of_the_simulator():
    model = vcmc.Model(
        space={"mean": vcmc.Real()},
        log_prior=lambda params: -0.5 * params["mean"] ** 2,
        log_likelihood=lambda params, rows: -0.5 * jnp.square(rows["y"] - params["mean"]),
        simulate=Shifted(),
    )
    means = np.array([[1.0, 2.0, 4.0]])
    tree = make_tree({"posterior": {"mean": means}}, {"num_shards": 1})
    result = vcmc.predict(tree, model, {"x": np.arange(5.0)}, draws=True, progress=False)["y"]
    np.testing.assert_array_equal(result[0], means[0][:, None] + np.arange(5.0))
