"""Laws of executors: order is kept, errors are raised, the answer does not depend on them."""

import threading
import time

import numpy as np
import pytest

import vcmc
from vcmc import executors

EXECUTORS = {
    "Local": executors.Local(),
    "Local, one thread": executors.Local(num_threads=1),
    "Local, three threads": executors.Local(num_threads=3),
}


def test_every_executor_is_here(members):
    classes = members(executors, executors.AbstractExecutor)
    assert classes == {type(executor) for executor in EXECUTORS.values()}


@pytest.mark.parametrize("executor", EXECUTORS.values(), ids=EXECUTORS.keys())
def test_order_is_kept(executor):
    assert list(executor.map(lambda k: (time.sleep(0.01 * (3 - k)), k)[1], range(4))) == [0, 1, 2, 3]


@pytest.mark.parametrize("executor", EXECUTORS.values(), ids=EXECUTORS.keys())
def test_the_error_of_an_item_is_raised(executor):
    def fail(item):
        if item == 2:
            raise RuntimeError("item 2 is bad")
        return item

    with pytest.raises(RuntimeError, match="item 2 is bad"):
        list(executor.map(fail, range(5)))


@pytest.mark.filterwarnings("ignore::vcmc.DoubtfulWarning")  # chains of 50 draws are short
@pytest.mark.parametrize("executor", EXECUTORS.values(), ids=EXECUTORS.keys())
def test_draws_do_not_depend_on_the_executor(executor, conjugate):
    arguments = {"num_shards": 3, "num_draws": 50, "sampler": vcmc.samplers.NUTS(num_warmup=100)}
    local = vcmc.infer(conjugate.model, conjugate.rows, **arguments)
    tree = vcmc.infer(conjugate.model, conjugate.rows, executor=executor, **arguments)
    for group in ("posterior", "subposterior"):
        np.testing.assert_array_equal(tree[group]["beta"], local[group]["beta"])


def test_both_cores_are_used():
    together = threading.Barrier(2, timeout=10)
    assert len(list(executors.Local(num_threads=2).map(lambda _: together.wait(), range(2)))) == 2


def test_bad_settings_are_refused():
    with pytest.raises(ValueError, match="num_threads must be 1 or more; got 0"):
        executors.Local(num_threads=0)


def test_maps_may_be_nested():
    """More maps wait in the pool than it has threads: those inside get threads of their own."""
    executor = vcmc.executors.Local(num_threads=2)
    found = executor.map(lambda item: sum(executor.map(lambda inner: inner * item, [1, 2, 3])), [1, 2, 3, 4])
    assert list(found) == [6, 12, 18, 24]
