"""The check of integrals over local parameters: more nodes, and other modes."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import vcmc
from vcmc.data.grouped import GroupedPartition
from vcmc.diagnostics.integrals import IntegralCheck, check_integrals, integral_sentences
from vcmc.executors import Local
from vcmc.target import Target

ROWS = {
    "group": np.repeat(np.arange(20), 3),
    "y": (np.random.default_rng(0).random(60) < 0.6).astype(float),
}


def target_of(log_likelihood, quadrature, rows=ROWS):
    model = vcmc.Model(
        space={"mu": vcmc.Real()},
        local_space={"alpha": vcmc.Real()},
        log_prior=lambda params: -0.5 * params["mu"] ** 2,
        log_local_prior=lambda params, local, group: (
            -0.5 * ((local["alpha"] - params["mu"]) / 3) ** 2
        ),
        log_likelihood=log_likelihood,
        groups="group",
        quadrature=quadrature,
    )
    partition = GroupedPartition(vcmc.split(rows, 2, groups="group"), "group")
    return Target.fitted(model, partition, Local())


def binary(params, local, rows):
    return jax.nn.log_sigmoid((2 * rows["y"] - 1) * local["alpha"])


def square(params, local, rows):
    return -0.5 * ((rows["y"] + 4 - local["alpha"] ** 2) / 0.3) ** 2


DRAWS = np.random.default_rng(1).normal(0.5, 0.4, size=(200, 1))


def test_enough_nodes_change_nothing():
    check = check_integrals(DRAWS, target_of(binary, vcmc.GaussHermite(15)), seed=0)
    assert check.change_sd < 0.01
    assert check.num_several_modes == 0
    assert check.num_groups == 20
    assert integral_sentences(check) == ([], [])


def steep(params, local, rows):
    return jax.nn.log_sigmoid((2 * rows["y"] - 1) * 8 * local["alpha"])


def test_few_nodes_change_more():
    few, more = (
        check_integrals(DRAWS, target_of(steep, vcmc.GaussHermite(number)), seed=0).change_sd
        for number in (3, 31)
    )
    assert few > 3 * more


def test_two_modes_of_every_group_are_counted():
    check = check_integrals(DRAWS, target_of(square, vcmc.GaussHermite(9)), seed=0)
    assert check.num_several_modes == 20
    faults, _ = integral_sentences(check)
    assert "of 20 of 20 groups have several modes" in faults[0]


@pytest.mark.parametrize(("change", "counts"), [(0.01, (0, 0)), (0.05, (0, 1)), (0.5, (1, 0))])
def test_a_large_change_is_a_fault_and_a_small_one_a_doubt(change, counts):
    sentences = integral_sentences(IntegralCheck(change, 0, 10))
    assert tuple(map(len, sentences)) == counts
    assert jnp.isfinite(change)
