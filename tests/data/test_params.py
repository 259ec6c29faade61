import jax.numpy as jnp
import numpy as np
import pytest

import vcmc
from vcmc.data.params import by_coordinate, check_derived, to_params, to_points
from vcmc.space import Product

MIXED = Product({"weights": vcmc.Simplex(3), "scale": vcmc.Positive(), "mean": vcmc.Real(2)})
REAL = Product({"mean": vcmc.Real(2), "slope": vcmc.Real()})


def test_params_have_the_axes_of_the_batch_and_the_order_of_the_space():
    points = np.random.default_rng(0).normal(size=(4, 5, MIXED.dim))
    params = to_params(MIXED, points, lambda params: {"a_log": np.log(1) + params["scale"]})
    assert list(params) == ["weights", "scale", "mean", "a_log"]
    assert {name: values.shape for name, values in params.items()} == {
        "weights": (4, 5, 3),
        "scale": (4, 5),
        "mean": (4, 5, 2),
        "a_log": (4, 5),
    }
    np.testing.assert_allclose(params["scale"], np.exp(points[..., 2]), rtol=1e-12)
    np.testing.assert_array_equal(params["a_log"], params["scale"])


def test_points_invert_params_for_any_number_of_draws():
    for space in (MIXED, REAL):
        for count in (1, 5, 8):
            points = np.random.default_rng(count).normal(size=(count, space.dim))
            params = to_params(space, points)
            np.testing.assert_allclose(to_points(space, params), points, atol=1e-10)


def test_values_of_coordinates_are_grouped_by_parameter():
    values = by_coordinate(MIXED, np.arange(10.0).reshape(2, 5))
    np.testing.assert_array_equal(values["weights"], [[0, 1], [5, 6]])
    np.testing.assert_array_equal(values["scale"], [2, 7])
    np.testing.assert_array_equal(values["mean"], [[3, 4], [8, 9]])


@pytest.mark.parametrize(
    ("derived", "message"),
    [
        (lambda params: {"chain": params["mean"]}, r"must not be called 'chain'"),
        (lambda params: {"net/b": params["mean"]}, "has a slash"),
        (lambda params: {"mean": params["mean"]}, r"\['mean'\], which are parameters"),
        (lambda params: {"mean_dim_0": 1.0}, "axis of 'mean'"),
        (lambda params: params["mean"], "must return a mapping from names to arrays; got"),
        (lambda params: {"a": params["gone"]}, r"derived fails .*KeyError: 'gone'"),
    ],
)
def test_derived_quantities_are_checked_before_sampling(derived, message):
    space = Product({"mean": vcmc.Real(2)})
    with pytest.raises(ValueError, match=message):
        check_derived(space, derived)
    model = vcmc.Model(
        space,
        lambda params: -jnp.sum(params["mean"] ** 2),
        lambda params, rows: -((rows["y"] - params["mean"][0]) ** 2),
        derived=derived,
    )

    class Never(vcmc.samplers.NUTS):
        def prepare(self, density, start):
            raise AssertionError("it was sampled")

    with pytest.raises(ValueError, match=message):
        vcmc.infer(model, {"y": np.arange(10.0)}, num_shards=2, sampler=Never())
