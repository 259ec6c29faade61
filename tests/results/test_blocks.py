"""Blocks of a chain survive the round trip through named arrays."""

import numpy as np

from vcmc.results.blocks import join_blocks, pack_block
from vcmc.samplers.base import Chain


def test_packed_blocks_are_joined_in_order():
    points = np.arange(10.0).reshape(5, 2)
    stats = {"energy": np.arange(5.0), "diverging": np.arange(5) == 3}
    packed = [
        pack_block(
            Chain(points[part], {name: values[part] for name, values in stats.items()}), (1.0, 2.5)
        )
        for part in (slice(0, 3), slice(3, 5))
    ]
    assert set(packed[0]) == {"points", "span", "stats/energy", "stats/diverging"}
    np.testing.assert_array_equal(packed[1]["span"], [1.0, 2.5])
    chain = join_blocks(packed)
    np.testing.assert_array_equal(chain.points, points)
    assert set(chain.stats) == set(stats)
    for name, values in stats.items():
        np.testing.assert_array_equal(chain.stats[name], values)
