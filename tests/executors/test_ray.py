"""A slot on a Ray cluster, with a module in place of Ray; test_laws.py has a real cluster."""

import sys
from types import SimpleNamespace

import pytest

from vcmc.errors import SlotLost
from vcmc.executors import Ray
from vcmc.executors.ray import RaySlot


class FakeRay:
    def __init__(self):
        self.options_of_actors, self.killed = [], []

    def is_initialized(self):
        return True

    def cluster_resources(self):
        return {"CPU": 6.0}

    def remote(self, kind):
        def options(**options):
            self.options_of_actors.append(options)
            serve = SimpleNamespace(remote=kind().serve)
            return SimpleNamespace(remote=lambda: SimpleNamespace(serve=serve))

        return SimpleNamespace(options=options)

    def get(self, reply):
        return reply

    def kill(self, actor):
        self.killed.append(actor)


@pytest.fixture
def ray(monkeypatch):
    module = FakeRay()
    monkeypatch.setitem(sys.modules, "ray", module)
    return module


def test_there_is_an_actor_for_each_core(ray):
    executor = Ray()
    assert repr(executor) == "Ray(num_slots=6)"
    assert len(executor.open_slots()) == 6
    options = ray.options_of_actors[0]
    assert options["num_cpus"] == 1
    assert options["runtime_env"]["env_vars"]["OPENBLAS_NUM_THREADS"] == "1"


def test_a_renewed_slot_kills_its_last_actor(ray):
    slot = RaySlot()
    first = slot._actor
    slot.renew()
    assert ray.killed == [first]


def test_an_error_of_ray_means_that_the_actor_is_lost(ray, monkeypatch):
    def fail(reply):
        raise RuntimeError("actor died")

    slot = RaySlot()
    monkeypatch.setattr(ray, "get", fail)
    with pytest.raises(SlotLost, match="RuntimeError: actor died"):
        slot.call(b"message", print)


def test_there_is_a_slot(ray):
    with pytest.raises(ValueError, match="num_slots must be 1 or more; got 0"):
        Ray(num_slots=0)
