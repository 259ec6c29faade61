import multiprocessing
from concurrent.futures import ProcessPoolExecutor

import pytest

from vcmc.executors import Futures, Local
from vcmc.executors.resolve import executor_of


def test_the_default_is_threads():
    assert executor_of(None) == Local()


def test_an_executor_is_taken_as_it_is():
    executor = Local(3)
    assert executor_of(executor) is executor


def test_a_pool_of_processes_is_wrapped():
    with ProcessPoolExecutor(3, mp_context=multiprocessing.get_context("spawn")) as pool:
        executor = executor_of(pool)
        assert isinstance(executor, Futures)
        assert executor.pool is pool
        assert executor.num_slots == 3


@pytest.mark.parametrize("argument", ["dask", 4, Local])
def test_other_arguments_are_refused(argument):
    message = r"executor must be an Executor instance, e\.g\. vcmc\.executors\.Local\(\), .* got "
    with pytest.raises(TypeError, match=message):
        executor_of(argument)
