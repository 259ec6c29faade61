"""The roles of sites in NumPyro models with groups."""

import numpy as np
import numpyro
import numpyro.distributions as dist

from vcmc.models.frontends.group_sites import GroupArguments, group_axis, group_roles


def mixed(group, y, height, *, num_groups):
    mu = numpyro.sample("mu", dist.Normal(0, 1))
    with numpyro.plate("groups", num_groups), numpyro.plate("effects", 2):
        alpha = numpyro.sample("alpha", dist.Normal(mu, 1))
    numpyro.deterministic("square", mu**2)
    numpyro.deterministic("first", alpha[0])
    mean = numpyro.deterministic("mean", alpha[0, group])
    numpyro.sample("height", dist.Normal(alpha[1], 1), obs=height)
    numpyro.sample("y", dist.Normal(mean, 1), obs=y)


def test_roles_follow_from_shapes():
    rows = {"group": np.arange(20) % 4, "y": np.zeros(20)}
    table = {"group": np.arange(4), "height": np.zeros(4)}
    roles = group_roles(mixed, rows, GroupArguments("group", "num_groups", table), {})
    assert roles.latents == ["mu"]
    assert roles.local_latents == {"alpha": 1}
    assert roles.observed == ["y"]
    assert roles.group_observed == ["height"]
    assert roles.derived == {"square": None, "first": 0}
    assert roles.by_row == ["mean"]


def test_the_table_is_an_example_for_any_number_of_groups():
    arguments = GroupArguments("group", "num_groups", {"group": np.arange(2), "z": np.arange(2.0)})
    assert arguments.names == ["z"]
    constants = arguments.constants(3)
    assert constants["num_groups"] == 3
    assert constants["z"].tolist() == [0.0, 1.0, 0.0]


def test_the_axis_of_groups_has_their_number():
    assert group_axis((11,), (13,)) == 0
    assert group_axis((2, 11), (2, 13)) == 1
    assert group_axis((11, 11), (13, 13)) is None
    assert group_axis((4,), (4,)) is None
