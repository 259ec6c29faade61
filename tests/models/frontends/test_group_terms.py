"""The rows on which the terms of a model with groups are compared with its joint density."""

import numpy as np
import pytest

import vcmc
from vcmc.models.frontends.group_terms import check_joint, checked_groups


def test_some_rows_of_the_first_groups_are_compared(groups):
    rows = groups.rows(num_groups=9, num_rows=8)
    some = checked_groups(rows, "group", {"height": np.arange(9.0)})
    assert some.num_groups == 4
    assert len(some.numbers) == 20
    assert some.rows_with_table["height"].tolist() == some.numbers.tolist()
    assert some.rows_and_table["height"].tolist() == [0.0, 1.0, 2.0, 3.0]


def test_another_joint_density_is_refused(groups):
    rows = groups.rows()
    model = vcmc.from_numpyro(groups.model, rows, groups="group", num_groups="num_groups")
    some = checked_groups(rows, "group", {})
    params = model.space.constrain(np.zeros(3))
    with pytest.raises(ValueError, match="add up to"):
        check_joint(model, some, params, some.local_values(model, 0), 1.0)
