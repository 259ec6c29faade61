"""The cache of compiled programs: a second process compiles nothing, and no state of it matters."""

import os
import subprocess
import sys
import time
import warnings
from pathlib import Path

import jax
import pytest
from jax.experimental.compilation_cache import compilation_cache

from vcmc import _compile_cache
from vcmc._compile_cache import (
    MARKER,
    VARIABLE,
    default_folder,
    enable_compile_cache,
    trim,
    use_compile_cache,
)

SCRIPT = """
import sys, warnings
warnings.simplefilter("always")
import jax.monitoring
counts = {"requests": 0, "hits": 0}
def count(name, **_):
    for key, event in (("requests", "compile_requests_use_cache"), ("hits", "cache_hits")):
        counts[key] += name == f"/jax/compilation_cache/{event}"
jax.monitoring.register_event_listener(count)
import numpy as np
import numpyro, numpyro.distributions as dist
import vcmc
generator = np.random.default_rng(0)
x = generator.normal(size=(200, 2))
rows = {"x": x, "y": (generator.random(200) < 1 / (1 + np.exp(-x[:, 0]))).astype(float)}
def model(x, y):
    beta = numpyro.sample("beta", dist.Normal(0, 2).expand([2]).to_event(1))
    numpyro.sample("y", dist.Bernoulli(logits=x @ beta), obs=y)
with warnings.catch_warnings():
    warnings.simplefilter("ignore", vcmc.DoubtfulWarning)
    tree = vcmc.infer(
        vcmc.from_numpyro(model, rows),
        rows,
        num_shards=2,
        num_draws=40,
        sampler=vcmc.samplers.NUTS(num_warmup=40),
    )
print(counts["requests"], counts["hits"], tree["posterior"]["beta"].to_numpy().tobytes().hex())
"""


def run_script(folder, executable=sys.executable):
    environment = {
        name: value for name, value in os.environ.items() if not name.startswith("JAX_")
    } | {VARIABLE: str(folder)}
    result = subprocess.run(
        [executable, "-c", SCRIPT], env=environment, capture_output=True, text=True, timeout=600
    )
    assert result.returncode == 0, result.stderr
    requests, hits, draws = result.stdout.split()
    return int(requests), int(hits), draws, result.stderr


def test_a_second_process_compiles_nothing_and_damaged_entries_do_no_harm(tmp_path):
    requests, _, draws, _ = run_script(tmp_path)
    assert requests > 30
    second_requests, second_hits, second_draws, _ = run_script(tmp_path)
    assert second_requests == second_hits > 30
    assert second_draws == draws
    entries = sorted(tmp_path.glob("jax-*/*-cache"))
    for number, path in enumerate(entries):
        content = path.read_bytes()
        damaged = [b"", content[: len(content) // 2], b"x" + content[1:], content[:-1] + b"?"]
        path.write_bytes(damaged[number % 4])
    damaged_requests, damaged_hits, damaged_draws, errors = run_script(tmp_path)
    assert damaged_hits < damaged_requests
    assert damaged_draws == draws
    assert "persistent compilation cache" not in errors


@pytest.fixture
def no_cache(monkeypatch):
    """JAX without the cache that tests use, which comes back afterwards."""
    names = ["jax_compilation_cache_dir", *_compile_cache.SETTINGS]
    before = {name: getattr(jax.config, name) for name in names}
    jax.config.update("jax_compilation_cache_dir", None)
    monkeypatch.delenv(VARIABLE, raising=False)
    with warnings.catch_warnings():
        yield
    for name, value in before.items():
        jax.config.update(name, value)
    compilation_cache.reset_cache()


@pytest.mark.usefixtures("no_cache")
def test_the_folder_is_the_users_own(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    folder = enable_compile_cache()
    assert folder == tmp_path / "cache" / "vcmc" / f"jax-{jax.__version__}"
    assert jax.config.jax_compilation_cache_dir == str(folder)
    for path in (folder, folder.parent):
        assert path.stat().st_mode & 0o777 == 0o700


@pytest.mark.usefixtures("no_cache")
def test_a_folder_that_others_can_write_to_is_not_used(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    (tmp_path / "vcmc").mkdir()
    (tmp_path / "vcmc").chmod(0o777)
    assert enable_compile_cache() is None
    assert jax.config.jax_compilation_cache_dir is None


@pytest.mark.usefixtures("no_cache")
@pytest.mark.parametrize("setting", ["0", "off", "False"])
def test_a_variable_switches_it_off(setting, monkeypatch):
    monkeypatch.setenv(VARIABLE, setting)
    assert enable_compile_cache() is None
    assert jax.config.jax_compilation_cache_dir is None


@pytest.mark.usefixtures("no_cache")
def test_a_variable_chooses_the_folder(tmp_path, monkeypatch):
    monkeypatch.setenv(VARIABLE, str(tmp_path / "programs"))
    folder = enable_compile_cache()
    assert folder is not None
    assert folder.parent == tmp_path / "programs"


@pytest.mark.usefixtures("no_cache")
def test_a_chosen_folder_that_cannot_be_used_is_one_warning(tmp_path, monkeypatch):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv(VARIABLE, str(tmp_path / "file"))
    with pytest.warns(UserWarning, match="compiled programs are not kept") as caught:
        assert enable_compile_cache() is None
    assert len(caught) == 1
    monkeypatch.setenv(VARIABLE, "1")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))  # not chosen for vcmc: no warning
    assert enable_compile_cache() is None


@pytest.mark.usefixtures("no_cache")
def test_a_cache_that_jax_has_already_is_left_alone(tmp_path):
    jax.config.update("jax_compilation_cache_dir", str(tmp_path))
    assert enable_compile_cache() is None
    assert jax.config.jax_compilation_cache_dir == str(tmp_path)


@pytest.mark.usefixtures("no_cache")
@pytest.mark.parametrize(
    ("platform", "expected"),
    [
        ("linux", ".cache/vcmc"),
        ("darwin", "Library/Caches/vcmc"),
        ("win32", "AppData/Local/vcmc/Cache"),
    ],
)
def test_the_default_folder_is_the_platforms(platform, expected, monkeypatch):
    monkeypatch.setattr(sys, "platform", platform)
    for name in ("XDG_CACHE_HOME", "LOCALAPPDATA"):
        monkeypatch.delenv(name, raising=False)
    assert default_folder() == Path.home() / expected


def entry(folder, name, size, age):
    path = folder / "jax-1" / f"{name}-cache"
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(bytes(size))
    os.utime(path, (time.time() - age, time.time() - age))
    return path


def test_entries_that_were_not_used_for_longest_are_deleted_once_a_day(tmp_path):
    old, older, new, empty = (
        entry(tmp_path, name, size, age)
        for name, size, age in (("a", 40, 50), ("b", 40, 60), ("c", 40, 1), ("d", 0, 0))
    )
    trim(tmp_path, max_bytes=100)
    assert [path.exists() for path in (old, older, new, empty)] == [True, False, True, False]
    trim(tmp_path, max_bytes=0)
    assert new.exists()
    os.utime(tmp_path / MARKER, (0, 0))
    trim(tmp_path, max_bytes=0)
    assert not new.exists()


@pytest.mark.usefixtures("no_cache")
def test_a_block_can_do_without(tmp_path, monkeypatch):
    monkeypatch.setenv(VARIABLE, str(tmp_path))
    folder = enable_compile_cache()
    with use_compile_cache(is_used=False):
        jax.jit(lambda value: value * 3.5)(2.0)
    assert not list(folder.glob("*-cache"))
    with use_compile_cache():
        jax.jit(lambda value: value * 4.5)(2.0)
    assert list(folder.glob("*-cache"))
