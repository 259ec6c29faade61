"""The rows on which the terms of a model with groups are compared with its joint density."""

import jax.numpy as jnp
import numpy as np
import pytest

import vcmc
from vcmc.models.frontends.group_terms import (
    Parts,
    check_joint,
    checked_groups,
    same_by_group,
    warn_of_omitted_values,
)
from vcmc.space import Product


def test_some_rows_of_some_groups_are_compared(groups):
    rows = groups.rows(num_groups=50, num_rows=12)
    some = checked_groups(rows, "group", {"height": np.arange(50.0)})
    assert some.num_groups == 30
    assert len(some.numbers) == 300
    assert len(np.unique(some.rows["group"])) == 30
    assert some.rows_with_table["height"].tolist() == some.rows["group"].tolist()
    assert some.rows_and_table["height"].tolist() == np.unique(some.rows["group"]).tolist()
    assert some.first_rows["group"].tolist() == np.unique(some.rows["group"]).tolist()


@pytest.mark.parametrize(
    ("part", "message"),
    [
        ("prior", "the prior of global parameters has the log density"),
        ("local_prior", "the prior of local parameters has the log density"),
        ("likelihood", "local parameters of its own group only"),
    ],
)
def test_the_part_that_differs_is_named(part, message, groups):
    rows = groups.rows()
    model = vcmc.from_numpyro(groups.model, rows, groups="group", num_groups="num_groups")
    some = checked_groups(rows, "group", {})
    params = model.space.constrain(np.zeros(3))
    local = some.local_values(model.local.space, 0)
    of_row = {name: value[some.numbers] for name, value in local.items()}
    right = Parts(
        model.log_prior(params),
        jnp.sum(model.local.log_prior(params, local, some.first_rows)),
        jnp.sum(model.local.log_likelihood(params, of_row, some.rows)),
    )
    check_joint(model, some, params, local, right)
    wrong = right._replace(**{part: getattr(right, part) + 1e-4})
    with pytest.raises(ValueError, match=message):
        check_joint(model, some, params, local, wrong)


def test_values_of_several_groups_are_told_from_those_of_one(groups):
    some = checked_groups(groups.rows(), "group", {})
    spaces = Product({"mu": vcmc.Real()}), Product({"alpha": vcmc.Real()})
    names = same_by_group(
        spaces,
        some,
        ({"alpha": 0}, {"double": 0, "sum": None, "square": None}),
        lambda params, local, row: {
            "double": 2 * local["alpha"],
            "sum": local["alpha"],
            "square": params["mu"] ** 2,
        },
        lambda values, rows: {
            "double": 2 * values["alpha"],
            "sum": jnp.sum(values["alpha"]),
            "square": values["mu"] ** 2,
        },
    )
    assert names == ["double", "square"]


def test_omitted_values_are_named():
    with pytest.warns(UserWarning, match="'a', 'b' depend on rows or on several groups"):
        warn_of_omitted_values(["a", "b"])
