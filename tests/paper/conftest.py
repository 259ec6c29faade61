"""A small experiment, run once for all tests of its output."""

import pytest
from rich.console import Console

from vcmc.paper import Job, probit_300
from vcmc.paper.errors_by_shards import ErrorsByShards
from vcmc.paper.problem import Size

SIZE = Size(
    400,
    3,
    shards=(2, 4),
    num_draws=150,
    thin=2,
    iterations=4,
    num_reference=2,
    num_floor=1,
    refined=(4,),
)


@pytest.fixture(scope="session")
def experiment():
    return ErrorsByShards("tiny", "A tiny experiment", probit_300.problem, {"small": SIZE})


@pytest.fixture(scope="session")
def job(experiment, tmp_path_factory):
    """Return a finished job, whose folder has all files of an experiment."""
    job = Job("small", tmp_path_factory.mktemp("reproduced"))
    experiment.run(job, Console(quiet=True))
    return job
