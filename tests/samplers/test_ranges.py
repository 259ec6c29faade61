import threading

import jax
import numpy as np
import pytest

from vcmc.samplers.ranges import cut, generators, on_each


@pytest.mark.parametrize("num_rows", [1, 7, 100, 1003])
def test_ranges_cover_all_rows_once(num_rows):
    covered = np.concatenate([np.arange(num_rows)[part] for part in cut(num_rows, 10)])
    np.testing.assert_array_equal(covered, np.arange(num_rows))


def test_generators_are_determined_by_the_key():
    first, again, other = (generators(jax.random.key(seed), 3) for seed in (0, 0, 1))
    numbers = [[generator.random() for generator in group] for group in (first, again, other)]
    assert numbers[0] == numbers[1]
    assert len({*numbers[0], *numbers[2]}) == 6


def test_every_part_is_done_once_and_errors_are_raised():
    done, lock = [], threading.Lock()

    def do(part):
        with lock:
            done.append(part)
        if part == 40:
            raise RuntimeError("part 40 is bad")

    on_each(do, list(range(40)))
    assert sorted(done) == list(range(40))
    with pytest.raises(RuntimeError, match="part 40 is bad"):
        on_each(do, [40])
