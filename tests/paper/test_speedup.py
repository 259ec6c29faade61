import csv
import json
import os

import jax.numpy as jnp
import numpy as np
import pytest
from rich.console import Console

from vcmc.executors import Local
from vcmc.paper import speedup
from vcmc.paper.speedup import EXPERIMENT, Apart, one_core


@pytest.fixture
def alone(experiment, monkeypatch):
    """Sampling in this process: one that is spawned would not know the experiment of these tests."""
    monkeypatch.setattr(speedup, "EXPERIMENTS", {experiment.name: experiment})
    monkeypatch.setattr(speedup, "in_one_core", lambda function, *arguments: function(*arguments))


def test_speed_up_is_serial_time_over_slowest_shard_and_combination(job, alone):
    EXPERIMENT.run(job, Console(quiet=True))
    with (job.out / "speedup.csv").open() as file:
        entries = list(csv.DictReader(file))
    assert [(each["num_shards"], each["method"]) for each in entries] == [
        (count, method) for count in ("2", "4") for method in ("Gaussian", "VCMC", "default")
    ]
    for each in json.loads((job.out / "speedup.json").read_text())["seconds"]:
        total = each["slowest_shard_seconds"] + each["combine_seconds"]
        assert each["speedup"] == pytest.approx(each["serial_seconds"] / total)
        assert each["combine_seconds_rows_apart"] > 0


def test_rows_apart_are_the_same_target(experiment, job):
    target = experiment.trial(job).target(4)
    apart = Apart(target.model, target.shard_cache.partition, Local())
    points = jnp.asarray(0.1 * np.arange(6.0).reshape(2, 3))
    for found, expected in zip(apart(points), target(points), strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-12)
    directions = jnp.eye(3)
    np.testing.assert_allclose(
        apart.hessian_products(points[0], directions),
        target.hessian_products(points[0], directions),
        rtol=1e-10,
    )
    assert apart.saved > 0


@pytest.mark.skipif(
    not hasattr(os, "sched_setaffinity"), reason="the system does not bind threads to cores"
)
def test_one_core_is_one_core():
    before = os.sched_getaffinity(0)
    with one_core():
        assert len(os.sched_getaffinity(0)) == 1
    assert os.sched_getaffinity(0) == before
