"""A part of `benchmarks/kills.py`: runs in which something is killed at a given stage."""

import importlib.util
import sys
from pathlib import Path

import pytest

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"
CASES = [
    ("Processes", "process", "sampling"),
    ("Processes", "both processes", "optimiser round"),
    ("Processes", "driver", "sampling"),
    ("Dask", "worker", "listing"),
    ("Dask", "worker", "sampling"),
    ("Dask", "both workers", "start of slots"),
    ("Ray", "actor", "compile"),
    ("Futures", "process", "sampling"),
]

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]


@pytest.fixture(scope="module")
def kills():
    sys.path.insert(0, str(BENCHMARKS))  # for its own modules
    try:
        specification = importlib.util.spec_from_file_location("kills", BENCHMARKS / "kills.py")
        module = importlib.util.module_from_spec(specification)
        specification.loader.exec_module(module)
    finally:
        sys.path.remove(str(BENCHMARKS))
    return module


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("kills")


@pytest.fixture(scope="module")
def expected(kills, folder):
    return kills.reference(folder / "reference")


@pytest.mark.parametrize("case", CASES, ids=", ".join)
def test_a_kill_ends_in_the_same_draws_or_in_one_error(case, kills, folder, expected):
    verdict = kills.judge(kills.Case(*case), folder / "-".join(case), expected)
    assert verdict.is_sound, verdict
    if case[1] in ("process", "worker", "actor", "driver", "both processes"):
        assert case[0] == "Futures" or verdict.end == "same draws", verdict


def test_there_are_at_least_sixty_cases(kills):
    assert len(set(kills.cases())) >= 60
