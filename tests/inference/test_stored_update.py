"""An update that is interrupted at any write leaves the last good state, and goes on."""

import os
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest

import vcmc
from vcmc.inference.stored_update import stream_seed

MARKER = 123456.789012345
ARGUMENTS = {"num_shards": 2, "progress": False}


class Crash(BaseException):
    """The process ends here."""


class CrashAt:
    """End the process before or after the n-th file gets its name."""

    def __init__(self, monkeypatch, last=None, is_after=False):
        self.count = 0
        replace = os.replace

        def count_and_replace(*arguments):
            if "run" not in Path(arguments[1]).parts:  # a file of JAX's cache
                return replace(*arguments)
            self.count += 1
            if last is not None and self.count > last:
                raise Crash  # other threads of the process have ended, too
            if self.count == last and not is_after:
                raise Crash
            replace(*arguments)
            if self.count == last:
                raise Crash
            return None

        monkeypatch.setattr(os, "replace", count_and_replace)


@pytest.fixture
def months(conjugate):
    note = np.zeros(1003)
    note[[5, 800]] = MARKER
    rows = {**conjugate.rows, "note": note}
    return [{n: a[part] for n, a in rows.items()} for part in (slice(700), slice(700, None))]


def digest(tree):
    return [tree[group]["beta"].to_numpy().tobytes() for group in ("posterior", "subposterior")]


def first_run(folder, conjugate, months):
    vcmc.infer(conjugate.model, months[0], store=folder, **ARGUMENTS)
    return vcmc.load(folder)


FAST = (4, 17)
WRITES = [pytest.param(n, marks=() if n in FAST else pytest.mark.slow) for n in range(1, 25)]


# after the last write, the update is complete, and the call says so
@pytest.mark.filterwarnings("ignore::vcmc.StoreWarning")
@pytest.mark.parametrize("is_after", [False, pytest.param(True, marks=pytest.mark.slow)])
@pytest.mark.parametrize("number", WRITES)
def test_an_update_goes_on_after_a_crash_at_any_write(
    number, is_after, tmp_path, conjugate, months, monkeypatch
):
    first_run(tmp_path / "undisturbed", conjugate, months)
    before = first_run(tmp_path / "run", conjugate, months)
    expected = vcmc.update(tmp_path / "undisturbed", conjugate.model, months[1], **ARGUMENTS)
    with monkeypatch.context() as patch:
        CrashAt(patch, number, is_after)
        with pytest.raises(Crash):
            vcmc.update(tmp_path / "run", conjugate.model, months[1], **ARGUMENTS)
    assert digest(vcmc.load(tmp_path / "run")) in (digest(before), digest(expected))
    tree = vcmc.update(tmp_path / "run", conjugate.model, months[1], **ARGUMENTS)
    assert digest(tree) == digest(expected)
    assert digest(vcmc.load(tmp_path / "run")) == digest(expected)
    assert len(vcmc.history(tmp_path / "run")) == 2


def test_all_writes_of_an_update_are_tried(tmp_path, conjugate, months, monkeypatch):
    first_run(tmp_path / "run", conjugate, months)
    writes = CrashAt(monkeypatch)
    vcmc.update(tmp_path / "run", conjugate.model, months[1], **ARGUMENTS)
    assert writes.count == len(WRITES)


def test_another_update_replaces_one_that_was_interrupted(tmp_path, conjugate, months, monkeypatch):
    first_run(tmp_path / "run", conjugate, months)
    with monkeypatch.context() as patch:
        CrashAt(patch, 7)
        with pytest.raises(Crash):
            vcmc.update(tmp_path / "run", conjugate.model, months[1], **ARGUMENTS)
    part = {name: array[:200] for name, array in months[1].items()}
    tree = vcmc.update(tmp_path / "run", conjugate.model, part, num_shards=1, progress=False)
    assert tree["updates"]["num_rows"].to_numpy().tolist() == [700, 200]
    assert len(vcmc.history(tmp_path / "run")) == 2


@pytest.mark.filterwarnings("ignore::vcmc.StoreWarning")
@pytest.mark.parametrize(
    "number", [8, *(pytest.param(n, marks=pytest.mark.slow) for n in (1, 3, 6, 10, 12, 14, 16))]
)
def test_a_deletion_goes_on_after_a_crash(number, tmp_path, conjugate, months, monkeypatch):
    first_run(tmp_path / "run", conjugate, months)
    vcmc.update(tmp_path / "run", conjugate.model, months[1], **ARGUMENTS)
    before = digest(vcmc.load(tmp_path / "run"))

    def forget():
        return vcmc.forget(
            tmp_path / "run", conjugate.model, lambda rows: rows["note"] == MARKER, progress=False
        )

    with monkeypatch.context() as patch:
        crash = CrashAt(patch, number)
        with suppress(Crash):
            forget()
    if crash.count >= number:
        states = vcmc.history(tmp_path / "run")
        assert digest(vcmc.load(tmp_path / "run")) == before or states.current == 2
        tree = forget()
        assert tree.attrs["update"] == 2
    marker = np.float64(MARKER).tobytes()
    files = [path for path in (tmp_path / "run").rglob("*") if path.is_file()]
    assert not [path for path in files if marker in path.read_bytes()]
    assert len(vcmc.history(tmp_path / "run")) == 1


def test_every_update_has_random_numbers_of_its_own():
    seeds = {stream_seed(seed, number, s) for seed in (0, 1) for number in (1, 2) for s in (0, 1)}
    assert len(seeds) == 8
