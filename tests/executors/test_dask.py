"""Slots on a Dask cluster, with a client in this process; test_laws.py has a real cluster."""

from types import SimpleNamespace

import pytest

from vcmc.errors import ExecutorLost, Interrupted, SlotLost, WaitingWarning
from vcmc.executors import dask
from vcmc.executors.dask import Dask, DaskSlot

PENDING = object()


class Future:
    def __init__(self, value):
        self.value = value

    def done(self):
        return self.value is not PENDING

    def result(self, timeout=None):
        assert timeout is not None, "waits without an end"
        if self.value is PENDING:
            raise TimeoutError
        if isinstance(self.value, Exception):
            raise self.value
        return self.value


class Actor:
    def __init__(self, reply):
        self.reply = reply

    def serve(self, message):
        return Future(self.reply)


class Client:
    """A cluster whose workers `addresses` are listed, and of which those in `gone` are dead."""

    def __init__(self, *addresses, reply=b"reply", gone=()):
        self.addresses, self.reply, self.gone, self.started = addresses, reply, gone, []
        self.status, self.answers = "running", True
        self.scheduler = SimpleNamespace(address="tcp://scheduler")

    def nthreads(self, workers=None, callback_timeout=None):
        assert callback_timeout is not None, "waits without an end"
        if not self.answers:
            raise TimeoutError
        return {name: 1 for name in self.addresses if workers is None or name in workers}

    def submit(self, kind, actor, workers, pure):
        self.started += workers
        if workers[0] in self.gone:  # lost after it was listed
            self.addresses = tuple(name for name in self.addresses if name not in self.gone)
            return Future(PENDING)
        return Future(Actor(self.reply))


@pytest.fixture(autouse=True)
def short_limits(monkeypatch):
    monkeypatch.setattr(dask, "POLL_SECONDS", 0.001)
    monkeypatch.setattr(dask, "ASK_INTERVAL", 0.0)
    monkeypatch.setattr(dask, "WORKER_TIMEOUT", 0.05)


def executor_on(client):
    executor = Dask.__new__(Dask)
    super(Dask, executor).__init__()
    executor.client = client
    return executor


def open_slot(client, address):
    slot = DaskSlot(client, address)
    slot.submit()
    slot.wait_until_started()
    return slot


def test_the_reply_of_the_actor_is_returned():
    assert open_slot(Client("a"), "a").call(b"message", print) == b"reply"


@pytest.mark.parametrize("error", [OSError("closed"), TimeoutError("closed")])
def test_an_error_of_the_actor_means_that_it_is_lost(error):
    slot = open_slot(Client("a", reply=error), "a")
    with pytest.raises(SlotLost, match=f"{type(error).__name__}: closed"):
        slot.call(b"message", print)


def test_a_slot_moves_to_another_worker_if_its_own_is_gone():
    client = Client("a", "b")
    slot = open_slot(client, "a")
    slot.renew()
    client.addresses = ("b",)
    slot.renew()
    assert client.started == ["a", "a", "b"]


def test_a_worker_that_is_lost_after_it_was_listed_is_replaced():
    client = Client("a", "b", gone=("a",))
    slots = executor_on(client).open_slots()
    assert [slot.address for slot in slots] == ["b", "b"]
    assert slots[0].call(b"message", print) == b"reply"


def test_workers_are_not_awaited_forever():
    client = Client("a")
    slot = open_slot(client, "a")
    client.addresses = ()
    message = r"no worker of the Dask cluster at tcp://scheduler has answered for 0 s .*no workers"
    with pytest.raises(ExecutorLost, match=message):
        slot.renew()


def test_a_cluster_without_workers_is_not_awaited_forever():
    with (
        pytest.warns(WaitingWarning, match="cluster at tcp://scheduler has no workers yet"),
        pytest.raises(ExecutorLost, match="has had no workers for 0 s"),
    ):
        executor_on(Client()).open_slots()


def test_a_closed_client_is_noticed():
    def refuse(*arguments, **options):
        raise RuntimeError("client is closed")

    client = Client("a")
    client.submit = refuse
    with pytest.raises(ExecutorLost, match="at last: RuntimeError: client is closed"):
        executor_on(client).open_slots()
    assert repr(executor_on(client)) == "Dask('tcp://scheduler')"


def test_all_workers_may_be_lost_while_actors_start():
    with pytest.raises(ExecutorLost, match="no worker of the Dask cluster"):
        executor_on(Client("a", "b", gone=("a", "b"))).open_slots()


def test_a_worker_that_is_lost_while_it_works_is_noticed():
    client = Client("a", reply=PENDING)
    slot = open_slot(client, "a")
    client.addresses = ()
    with pytest.raises(SlotLost, match="the Dask worker at a is gone"):
        slot.call(b"message", lambda steps: None)


def test_a_scheduler_that_does_not_answer_is_noticed():
    client = Client("a", reply=PENDING)
    slot = open_slot(client, "a")
    client.answers = False
    with pytest.raises(SlotLost, match="scheduler at tcp://scheduler has not answered for 0 s"):
        slot.call(b"message", lambda steps: None)


def test_a_lost_connection_to_the_scheduler_is_noticed():
    client = Client("a", reply=PENDING)
    slot = open_slot(client, "a")
    client.status = "connecting"
    with pytest.raises(SlotLost, match="the connection to the Dask scheduler"):
        slot.call(b"message", lambda steps: None)
    client.status, client.answers = "closed", False
    with pytest.raises(ExecutorLost, match="scheduler at tcp://scheduler has not answered within"):
        slot.renew()


def test_a_long_task_is_not_ended():
    client = Client("a", reply=PENDING)
    slot, polls = open_slot(client, "a"), []

    def count(steps):
        polls.append(steps)
        if len(polls) == 200:  # far beyond all limits
            raise Interrupted

    with pytest.raises(Interrupted):
        slot.call(b"message", count)


def test_an_abandoned_slot_does_not_wait_for_workers(monkeypatch):
    monkeypatch.setattr(dask, "WORKER_TIMEOUT", 1e9)
    client = Client("a")
    slot = open_slot(client, "a")

    def stop():
        slot.abandon()
        return {}

    client.nthreads = lambda callback_timeout: stop()
    with pytest.raises(SlotLost, match="the run was stopped"):
        slot.renew()
