import json

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from numpyro.distributions import biject_to, constraints
from numpyro.distributions.constraints import Constraint
from numpyro.distributions.transforms import IdentityTransform

import vcmc
from vcmc.data.space_description import describe_space, space_from_description
from vcmc.space import Dependent, Product, Space

third = 1 / 3
SPACES = {
    "scalar": vcmc.Real(),
    "real": vcmc.Real(2, 3),
    "positive": vcmc.Positive(3),
    "interval of integers": vcmc.Interval(-1, 4, 2),
    "interval of floats": vcmc.Interval(-third, 0.1 + 0.2),
    "interval of NumPy numbers": vcmc.Interval(np.float64(third), np.float32(0.7)),
    "simplex": vcmc.Simplex(4),
    "simplices": vcmc.Simplex(2, 3),
    "exchangeable simplex": vcmc.Simplex(3, exchangeable=True),
    "ordered": vcmc.Ordered(2, 4),
    "positive definite": vcmc.PositiveDefinite(3),
    "positive definite matrices": vcmc.PositiveDefinite(2, batch=(3, 2)),
    "correlation": vcmc.Correlation(3),
    "correlations": vcmc.Correlation(3, batch=(2,)),
    "exchangeable": vcmc.Exchangeable(3, vcmc.Real(2)),
    "exchangeable, nested": vcmc.Exchangeable(3, vcmc.Exchangeable(2, vcmc.Simplex(2))),
    "exchangeable intervals": vcmc.Exchangeable(2, vcmc.Interval(0.1, third)),
    "real as a constraint": Space(constraints.real, 2),
    "circular": Space(constraints.circular, 3),
    "unit interval": Space(constraints.unit_interval, 2),
    "softplus positive": Space(constraints.softplus_positive, 2),
    "real vector": Space(constraints.real_vector, 4),
    "real matrix": Space(constraints.real_matrix, 2, 3),
    "lower Cholesky": Space(constraints.lower_cholesky, 3, 3),
    "softplus Cholesky": Space(constraints.softplus_lower_cholesky, 3, 3),
    "correlation Cholesky": Space(constraints.corr_cholesky, 3, 3),
    "above a number": Space(constraints.greater_than(third), 2),
    "from a number": Space(constraints.greater_than_eq(jnp.asarray(0.1)), 2),
    "below an array": Space(constraints.less_than(np.array([0.1, third])), 2),
    "between arrays": Space(
        constraints.interval(jnp.array([[0.1], [third]]), np.float32(2.1)), 2, 3
    ),
    "open interval": Space(constraints.open_interval(0, third)),
    "independent": Space(constraints.independent(constraints.interval(0.1, 0.7), 1), 3),
    "independent twice": Space(
        constraints.independent(constraints.independent(constraints.positive, 1), 1), 2, 2
    ),
    "zero sum": Space(constraints.zero_sum(2), 3, 3),
    "concatenated": Space(
        constraints.cat([constraints.real, constraints.greater_than(0.1)], -1, [1, 2]), 3
    ),
}


def round_trip(space):
    return space_from_description(describe_space(space))


@pytest.mark.parametrize("space", SPACES.values(), ids=SPACES.keys())
def test_a_described_space_has_the_same_coordinates_to_the_last_bit(space):
    before = Product({"value": space})
    after = round_trip(before)
    assert type(after["value"]) is type(space)
    assert repr(after) == repr(before)
    assert after.coordinates == before.coordinates
    assert after["value"].num_labels == space.num_labels
    point = jax.random.normal(jax.random.key(0), (before.dim,))
    params, log_det = before.constrain_with_log_det(point)
    params_after, log_det_after = after.constrain_with_log_det(point)
    np.testing.assert_array_equal(params_after["value"], params["value"])
    np.testing.assert_array_equal(log_det_after, log_det)
    np.testing.assert_array_equal(after.unconstrain(params), before.unconstrain(params))


def test_parameters_keep_their_names_and_order():
    space = Product({"τ": vcmc.Positive(), "a b": vcmc.Real(2), "c": vcmc.Simplex(3)})
    assert list(round_trip(space)) == ["τ", "a b", "c"]
    assert describe_space(round_trip(space)) == describe_space(space)


def test_labels_of_exchangeable_components_are_kept():
    space = Product(
        {
            "weights": vcmc.Simplex(3, exchangeable=True),
            "centres": vcmc.Exchangeable(3, vcmc.Real(2)),
        }
    )
    point, order = jnp.arange(float(space.dim)), jnp.array([2, 0, 1])
    np.testing.assert_array_equal(
        round_trip(space).relabel(point, order), space.relabel(point, order)
    )


class Elsewhere(Constraint):
    def tree_flatten(self):
        return (), ((), {})


biject_to.register(Elsewhere, lambda constraint: IdentityTransform())


class Own(vcmc.Real):
    pass


@pytest.mark.parametrize(
    ("space", "reason"),
    [
        (
            Dependent(
                lambda params: constraints.interval(0.0, params["scale"]),
                constraints.interval(0.0, 1.0),
            ),
            "depends on other parameters",
        ),
        (Own(2), "a Own, which is not one of vcmc's own"),
        (Space(Elsewhere(), 2), "not one of NumPyro's constraints"),
        (Space(constraints.interval(0.0, 1j)), "a parameter of type complex"),
    ],
)
def test_a_space_that_cannot_be_described_is_reported_by_name(space, reason):
    text = describe_space(Product({"scale": vcmc.Positive(), "odd": space}))
    assert json.loads(text)["parameters"]["scale"]["kind"] == "Positive"
    with pytest.raises(ValueError, match=rf"'odd'.*{reason}.*space=model\.space"):
        space_from_description(text)


def parameter(**description):
    return json.dumps({"version": 1, "parameters": {"x": description}})


@pytest.mark.parametrize(
    "constraint",
    [
        "Elsewhere",
        "os",
        "np",
        "math",
        "jax",
        "register_pytree_node",
        "array_equiv",
        "Generic",
        3,
        [],
    ],
)
def test_only_classes_of_numpyros_constraints_are_rebuilt(constraint):
    text = parameter(
        kind="Space", shape=[2], constraint={"constraint": constraint, "arguments": {}}
    )
    with pytest.raises(ValueError, match=r"'x' cannot be read .*not one of NumPyro's constraints"):
        space_from_description(text)


@pytest.mark.parametrize(
    "text",
    [
        parameter(kind="Dependent", shape=[2]),
        parameter(kind="__import__", shape=[2]),
        parameter(kind="Real", shape=[0]),
        parameter(kind="Real"),
        parameter(kind="Space", shape=[2], constraint="real"),
        parameter(
            kind="Space",
            shape=[],
            constraint={
                "constraint": "_GreaterThan",
                "arguments": {"lower_bound": 0, "feasible": 1},
            },
        ),
    ],
)
def test_a_description_that_is_wrong_names_the_parameter(text):
    with pytest.raises(ValueError, match=r"parameter 'x' cannot be read"):
        space_from_description(text)


@pytest.mark.parametrize("text", ["", "[]", "null", "{}", '{"version": 1}', None])
def test_other_text_is_refused(text):
    with pytest.raises(ValueError, match="text from describe_space"):
        space_from_description(text)


def test_another_version_is_refused():
    with pytest.raises(ValueError, match="must have version 1; got 2"):
        space_from_description('{"version": 2, "parameters": {}}')
