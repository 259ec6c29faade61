"""Slots on a Ray cluster, with a module in place of Ray; test_laws.py has a real cluster."""

import gc
import sys
from types import SimpleNamespace

import pytest

from vcmc.errors import ExecutorLost, SlotLost, WaitingWarning
from vcmc.executors import Ray
from vcmc.executors import ray as ray_module
from vcmc.executors.ray import RaySlot

PENDING = object()


class RayError(Exception):
    pass


class FakeRay:
    """A cluster of six cores, on which an actor starts as soon as a core is free."""

    exceptions = SimpleNamespace(RayError=RayError)

    def __init__(self):
        self.options_of_actors, self.killed, self.num_cores, self.num_held = [], [], 6, 0
        self.is_stopped, self.is_open = False, True

    def is_initialized(self):
        return self.is_open

    def cluster_resources(self):
        return {"CPU": float(self.num_cores)}

    def available_resources(self):
        free = self.num_cores - self.num_held
        return {"CPU": float(free)} if free else {}

    def remote(self, kind):
        def options(**options):
            self.options_of_actors.append(options)
            return SimpleNamespace(remote=lambda: self.start(kind()))

        return SimpleNamespace(options=options)

    def start(self, server):
        started = self.num_held < self.num_cores
        self.num_held += started

        def method(function):
            return SimpleNamespace(remote=lambda *given: function(*given) if started else PENDING)

        return SimpleNamespace(
            serve=method(lambda message: PENDING if self.is_stopped else server.serve(message)),
            is_alive=method(lambda: PENDING if self.is_stopped else server.is_alive()),
        )

    def wait(self, references, timeout):
        return [reference for reference in references if reference is not PENDING], []

    def get(self, reply, timeout):
        return reply

    def kill(self, actor):
        self.killed.append(actor)
        self.num_held -= 1


@pytest.fixture
def ray(monkeypatch):
    module = FakeRay()
    monkeypatch.setitem(sys.modules, "ray", module)
    monkeypatch.setattr(ray_module, "POLL_SECONDS", 0.001)
    monkeypatch.setattr(ray_module, "CORE_TIMEOUT", 0.05)
    monkeypatch.setattr(ray_module, "IDLE_SECONDS", 0.01)
    ray_module._executors.clear()
    return module


def started_slot():
    slot = RaySlot()
    slot.renew()
    return slot


def test_there_is_an_actor_for_each_core(ray):
    executor = Ray()
    assert len(executor._open()) == 6
    assert repr(executor) == "Ray(num_slots=6)"
    options = ray.options_of_actors[0]
    assert options["num_cpus"] == 1
    assert options["runtime_env"]["env_vars"]["OPENBLAS_NUM_THREADS"] == "1"


def test_there_are_no_more_actors_than_free_cores(ray):
    ray.num_held = 4
    assert len(Ray().open_slots()) == 2


def test_more_slots_than_free_cores_are_not_awaited_forever(ray):
    ray.num_held = 5
    with pytest.warns(WaitingWarning) as caught:
        slots = Ray(num_slots=2).open_slots()
    assert len(slots) == 1
    texts = [str(warning.message) for warning in caught]
    assert texts[0].startswith("1 of 6 cores of the Ray cluster are free: waiting for 2.")
    assert texts[1] == "1 of 6 cores of the Ray cluster are free: continuing with these."


def test_a_free_core_is_not_awaited_forever(ray):
    ray.num_held = 6  # by another program
    with (
        pytest.warns(WaitingWarning, match="0 of 6 cores"),
        pytest.raises(ExecutorLost, match=r"0 of 6 cores .* are free after 0 s. Close other"),
    ):
        Ray().open_slots()


def test_an_idle_executor_gives_its_cores_to_another(ray):
    first, second = Ray(), Ray()
    assert len(first._open()) == 6
    assert len(second._open()) == 6
    assert len(ray.killed) == 6
    assert first.num_open == 0


def test_a_busy_executor_keeps_its_cores(ray):
    first, second = Ray(), Ray()
    first._open()
    first._num_maps = 1
    with pytest.warns(WaitingWarning), pytest.raises(ExecutorLost):
        second._open()
    assert first.num_open == 6


def test_an_executor_that_is_deleted_gives_its_cores_back(ray):
    executor = Ray()
    actors = [slot._actor for slot in executor._open()]
    del executor
    gc.collect()
    assert {id(actor) for actor in actors} <= {id(actor) for actor in ray.killed}


def test_an_actor_that_does_not_start_is_not_awaited_forever(ray):
    slot = started_slot()
    ray.num_cores = 0  # the node is gone
    with pytest.raises(ExecutorLost, match=r"has not started an actor for 0 s, with -?\d+ of 0"):
        slot.renew()


def test_an_actor_that_dies_at_its_start_is_not_tried_forever(ray, monkeypatch):
    def fail(reply, timeout):
        raise RayError("node is dead\nin many lines")

    monkeypatch.setattr(ray, "get", fail)
    with pytest.raises(ExecutorLost, match=r"not started .*at last: RayError: node is dead\)"):
        Ray().open_slots()


def test_a_renewed_slot_kills_its_last_actor(ray):
    slot = started_slot()
    first = slot._actor
    slot.renew()
    assert ray.killed == [first]


def test_an_error_of_ray_means_that_the_actor_is_lost(ray, monkeypatch):
    def fail(reply, timeout):
        raise RayError("actor died")

    slot = started_slot()
    monkeypatch.setattr(ray, "get", fail)
    with pytest.raises(SlotLost, match="RayError: actor died"):
        slot.call(b"", print)


def test_an_actor_without_a_sign_of_life_is_lost(ray, monkeypatch):
    slot = started_slot()
    ray.is_stopped = True
    monkeypatch.setattr(ray_module, "MAX_SILENCE_SECONDS", 0.02)
    with pytest.raises(SlotLost, match="an actor of Ray has given no sign of life for 0 s"):
        slot.call(b"", lambda steps: None)


def test_no_new_cluster_is_started_for_a_lost_actor(ray):
    slot = started_slot()
    ray.is_open = False
    with pytest.raises(ExecutorLost, match="the connection to the Ray cluster was closed"):
        slot.renew()


def test_the_number_of_slots_is_positive(ray):
    with pytest.raises(ValueError, match="num_slots must be 1 or more; got 0"):
        Ray(num_slots=0)
