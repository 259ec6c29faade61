"""Terms of rows and groups that do not fit are refused before anything is sampled."""

import jax.numpy as jnp
import numpy as np
import pytest

import vcmc
from vcmc.data.grouped import GroupedPartition
from vcmc.diagnostics.local_terms import check_locals
from vcmc.errors import ModelError

ROWS = {
    "group": np.repeat(np.arange(6), 4),
    "y": np.arange(24.0),
    "height": np.repeat(np.linspace(0, 1, 6), 4),
}


def check(log_local_prior, log_likelihood):
    model = vcmc.Model(
        space={"mu": vcmc.Real()},
        local_space={"alpha": vcmc.Real()},
        log_prior=lambda params: -0.5 * params["mu"] ** 2,
        log_local_prior=log_local_prior,
        log_likelihood=log_likelihood,
        groups="group",
    )
    shard = GroupedPartition(vcmc.split(ROWS, 1, groups="group"), "group").load(0)
    check_locals(model, shard, jnp.zeros(1))


def by_group(params, local, group):
    return -0.5 * (local["alpha"] - params["mu"]) ** 2


def by_row(params, local, rows):
    return -0.5 * (rows["y"] - local["alpha"]) ** 2


def test_terms_of_their_own_pass():
    check(by_group, by_row)


def test_columns_that_are_constant_within_groups_may_be_used():
    check(lambda params, local, group: by_group(params, local, group) + group["height"], by_row)


@pytest.mark.parametrize(
    ("prior", "likelihood", "message"),
    [
        (lambda *terms: jnp.sum(by_group(*terms)), by_row, r"one value per group, shape \(6,\)"),
        (by_group, lambda *terms: jnp.sum(by_row(*terms)), r"one value per row, shape \(24,\)"),
        (
            by_group,
            lambda params, local, rows: by_row(params, local, rows) / rows["y"].sum(),
            "log_likelihood must return one value per row that depends on this row alone",
        ),
        (
            lambda params, local, group: -0.5 * (local["alpha"] - local["alpha"].mean()) ** 2,
            by_row,
            "log_local_prior must return one value per group that depends on this group alone",
        ),
        (
            lambda params, local, group: by_group(params, local, group) + local["alpha"][0],
            by_row,
            "log_local_prior must return one value per group that depends on this group alone",
        ),
        (
            by_group,
            lambda params, local, rows: by_row(params, local, rows) + local["alpha"][-1],
            "log_likelihood must return one value per row that depends on this row alone",
        ),
        (
            lambda params, local, group: by_group(params, local, group) + group["y"],
            by_row,
            "columns that are constant within groups",
        ),
        (by_group, lambda params, local, rows: rows["x"], "log_likelihood asks for 'x'"),
        (by_group, lambda params, local, rows: rows["y"] + jnp.ones(7), "failed on 24 rows"),
    ],
)
def test_other_terms_are_refused(prior, likelihood, message):
    with pytest.raises(ModelError, match=message):
        check(prior, likelihood)
