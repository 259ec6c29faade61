"""A slot on a Dask cluster, with a client in this process; test_laws.py has a real cluster."""

import pytest

from vcmc.errors import SlotLost
from vcmc.executors import dask
from vcmc.executors.dask import DaskSlot


class Future:
    def __init__(self, value):
        self.value = value

    def result(self):
        if isinstance(self.value, Exception):
            raise self.value
        return self.value


class Actor:
    def __init__(self, reply):
        self.reply = reply

    def serve(self, message):
        return Future(self.reply)


class Client:
    def __init__(self, *addresses, reply=b"reply"):
        self.addresses, self.reply, self.started = addresses, reply, []

    def nthreads(self):
        return dict.fromkeys(self.addresses, 1)

    def submit(self, kind, actor, workers, pure):
        self.started += workers
        return Future(Actor(self.reply))


def test_the_reply_of_the_actor_is_returned():
    assert DaskSlot(Client("a"), "a").call(b"message", print) == b"reply"


def test_an_error_of_the_actor_means_that_it_is_lost():
    slot = DaskSlot(Client("a", reply=OSError("closed")), "a")
    with pytest.raises(SlotLost, match="OSError: closed"):
        slot.call(b"message", print)


def test_a_slot_moves_to_another_worker_if_its_own_is_gone():
    client = Client("a", "b")
    slot = DaskSlot(client, "a")
    slot.renew()
    client.addresses = ("b",)
    slot.renew()
    assert client.started == ["a", "a", "b"]


def test_workers_are_not_awaited_forever(monkeypatch):
    client = Client("a")
    slot = DaskSlot(client, "a")
    client.addresses = ()
    monkeypatch.setattr(dask, "WORKER_TIMEOUT", -1.0)
    with pytest.raises(SlotLost, match="no worker of the Dask cluster was available"):
        slot.renew()
