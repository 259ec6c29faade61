import jax
import jax.numpy as jnp
import numpy as np
import pytest

import vcmc
from vcmc.space import Product

SPACES = {
    "real": vcmc.Real(2, 3),
    "positive": vcmc.Positive(3),
    "interval": vcmc.Interval(-1, 4, 2),
    "simplex": vcmc.Simplex(4),
    "simplices": vcmc.Simplex(2, 3),
    "ordered": vcmc.Ordered(4),
    "positive definite": vcmc.PositiveDefinite(3),
    "correlation": vcmc.Correlation(3),
    "exchangeable": vcmc.Exchangeable(3, vcmc.Simplex(2)),
}


@pytest.mark.parametrize("space", SPACES.values(), ids=SPACES.keys())
def test_points_and_params_are_inverse_and_stay_inside(space):
    product = Product({"value": space})
    points = jax.random.normal(jax.random.key(0), (20, product.dim))
    params = jax.vmap(product.constrain)(points)
    assert params["value"].shape[1:] == space.shape
    assert np.all(jax.vmap(space.constraint({}))(params["value"]))
    np.testing.assert_allclose(jax.vmap(product.unconstrain)(params), points, atol=1e-6)


@pytest.mark.parametrize("name", ["positive", "interval", "ordered", "exchangeable", "simplex"])
def test_log_det_is_that_of_the_jacobian(name):
    product = Product({"value": SPACES[name]})
    point = jax.random.normal(jax.random.key(1), (product.dim,))
    jacobian = jax.jacfwd(lambda u: product.constrain(u)["value"])(point).reshape(-1, product.dim)
    if (
        "simplex" in name or name == "exchangeable"
    ):  # the last entry of a simplex is one minus the rest
        size = SPACES[name].shape[-1]
        jacobian = jacobian[np.arange(len(jacobian)) % size != size - 1]
    expected = np.linalg.slogdet(jacobian)[1]
    np.testing.assert_allclose(product.constrain_with_log_det(point)[1], expected, rtol=1e-10)


def test_product_lays_parameters_side_by_side():
    product = Product({"scale": vcmc.Positive(), "weights": vcmc.Simplex(3), "mean": vcmc.Real(2)})
    assert product.dim == 1 + 2 + 2
    assert product.coordinates == ("scale", "weights[0]", "weights[1]", "mean[0]", "mean[1]")
    params = product.constrain(jnp.arange(5.0))
    np.testing.assert_allclose(params["scale"], 1.0)
    np.testing.assert_allclose(params["mean"], [3.0, 4.0])


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: vcmc.Real(0), "sizes must be positive integers; got 0"),
        (lambda: vcmc.Real(2.5), "sizes must be positive integers; got 2.5"),
        (lambda: vcmc.Interval(1, 1), "must be finite numbers with low < high"),
        (lambda: vcmc.Interval(0, np.inf), "For a half-line use Positive"),
        (lambda: vcmc.Interval(np.zeros(2), np.ones(2)), "must be finite numbers with low < high"),
        (lambda: vcmc.Exchangeable(3, 2), r"e\.g\. Exchangeable\(8, Real\(2\)\); got 2"),
        (lambda: vcmc.Simplex(), "needs the number of categories"),
        (lambda: Product({}), "non-empty mapping"),
        (lambda: Product({"beta": 5}), r"space\['beta'\] must be a Space instance, e\.g\."),
    ],
)
def test_wrong_sizes_are_refused(make, message):
    with pytest.raises((ValueError, TypeError), match=message):
        make()


@pytest.mark.parametrize(
    ("spaces", "message"),
    [
        ({"chain": vcmc.Real()}, r"must not be called 'chain', .* Try 'chain_'"),
        ({"draw": vcmc.Real(2)}, r"must not be called 'draw'"),
        ({"shard": vcmc.Real()}, r"must not be called 'shard'"),
        ({"net/b": vcmc.Real()}, r"'net/b' .* has a slash.* Try 'net\.b'"),
        ({"": vcmc.Real()}, "must be non-empty texts; got ''"),
        ({3: vcmc.Real()}, "must be non-empty texts; got 3"),
        ({"a\nb": vcmc.Real()}, r"printable characters; got 'a\\nb'"),
        ({"a\ud800": vcmc.Real()}, "printable characters"),
        ({"beta": vcmc.Real(2), "beta_dim_0": vcmc.Real()}, r"'beta_dim_0', .* axis of 'beta'"),
        ({"a.npy": vcmc.Real(), "a": vcmc.Real()}, r"'a\.npy' beside 'a'.* NumPy archive"),
    ],
)
def test_names_that_results_cannot_have_are_refused(spaces, message):
    with pytest.raises(ValueError, match=message):
        Product(spaces)


def test_other_names_are_taken():
    names = ["net.b", "a b", "α", "beta_dim_0", "iteration", "x" * 1000, "B", "b", "<!--<script>"]
    assert list(Product({name: vcmc.Real() for name in names})) == names
