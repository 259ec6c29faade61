import numpy as np
import pytest

import vcmc
from vcmc.models.simulated import check_columns


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ({"z": np.zeros((4, 2))}, r"rows must be named x; got \['z'\]"),
        ({"x": np.zeros((4, 3))}, r"must have 2 columns; got shape \(3,\) per row"),
        ({"x": np.zeros(4)}, r"must have 2 columns; got shape \(\) per row"),
    ],
)
def test_other_columns_are_refused(rows, message):
    with pytest.raises(ValueError, match=message):
        check_columns([vcmc.split(rows, 1).load(0)], 2)


def test_right_columns_pass():
    check_columns([vcmc.split({"x": np.zeros((4, 2))}, 1).load(0)], 2)
