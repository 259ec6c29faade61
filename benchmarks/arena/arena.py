"""`make bench`: vcmc and what a user would pick instead, on the same rows in the same run; writes benchmarks/RESULTS.md.

Every method of every problem runs in a process of its own, one after the other, and is stopped after some minutes: what it had by then is
kept. Answers lie in `benchmarks/arena/answers/`, where a second run finds those that are there already; `--again` makes them anew.
"""

import argparse
import json
import os
import platform
import resource
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np

FOLDER = Path(__file__).parent
ANSWERS = FOLDER / "answers"
NUM_CORES = (
    len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--problems", default="all", help="names, with commas between them")
    parser.add_argument("--methods", default="all", help="names, with semicolons between them")
    parser.add_argument(
        "--minutes",
        type=float,
        help="after which a method is stopped: 4, or 10 where rows are many, unless told",
    )
    parser.add_argument(
        "--again", action="store_true", help="make answers anew that are there already"
    )
    parser.add_argument(
        "--page-only", action="store_true", help="write the page of the answers that are there"
    )
    parser.add_argument("--child", nargs=3, help=argparse.SUPPRESS)
    said = parser.parse_args()
    if said.child:
        _child(*said.child)
        return
    ANSWERS.mkdir(exist_ok=True)
    if not said.page_only:
        begin = time.perf_counter()
        _run_all(said)
        sys.stdout.write(f"{(time.perf_counter() - begin) / 60:.0f} minutes in all\n")
    from results import write_page

    write_page(ANSWERS, FOLDER.parent / "RESULTS.md")


def _run_all(said: Any) -> None:
    from methods import METHODS
    from problems import PROBLEMS

    names = (
        list(dict.fromkeys(["logistic", "probit", *SWEEP, *PROBLEMS]))
        if said.problems == "all"
        else said.problems.split(",")
    )
    chosen = list(METHODS) if said.methods == "all" else said.methods.split(";")
    for problem in names:
        swept = "@" in problem
        for method in [] if swept else ["reference", *chosen]:
            _run(problem, method, said)
        for method in SWEEP.get(problem, []):
            _run(problem, method, said)


# Cost against N, and against K: logistic@N/K.
SWEEP = {
    "logistic@10000/20": ["vcmc, 100 draws", "NumPyro NUTS"],
    "logistic@100000/20": ["vcmc, 100 draws", "NumPyro NUTS"],
    "logistic@100000/5": ["vcmc, 100 draws"],
    "logistic@100000/80": ["vcmc, 100 draws"],
}


def _run(problem: str, method: str, said: Any) -> None:
    from answer import path_of

    path = path_of(ANSWERS, problem, method)
    if path.with_suffix(".json").exists() and not said.again:
        return
    for ending in (".json", ".npz"):
        path.with_suffix(ending).unlink(missing_ok=True)
    own = None if method == "reference" else said.minutes
    limit = 60 * (own or _minutes(problem, method))
    begin = time.perf_counter()
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join([str(FOLDER), os.environ.get("PYTHONPATH", "")]),
        "ARENA_ANSWERS": str(ANSWERS),
    }
    if method == "NumPyro NUTS":  # its chains run side by side on as many devices
        environment["XLA_FLAGS"] = f"--xla_force_host_platform_device_count={NUM_CORES}"
    words = [sys.executable, __file__, "--child", problem, method, str(path)]
    try:
        child = subprocess.Popen(
            words,
            env=environment,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        _, stderr = child.communicate(timeout=limit)
        failure = "" if child.returncode == 0 else _error_of(stderr)
    except subprocess.TimeoutExpired:
        os.killpg(child.pid, signal.SIGKILL)  # with those that it has started
        child.wait()
        failure = f"stopped after {limit / 60:.0f} minutes"
    kept = (
        json.loads(path.with_suffix(".json").read_text())
        if path.with_suffix(".json").exists()
        else {}
    )
    kept |= {"problem": problem, "method": method, "failure": failure}
    kept |= {
        "seconds_waited": time.perf_counter() - begin,
        "ended": time.strftime("%Y-%m-%d %H:%M"),
    }
    path.with_suffix(".json").write_text(json.dumps(kept, indent=1))
    took = time.perf_counter() - begin
    sys.stdout.write(f"{problem:20s} {method:20s} {took:7.1f} s  {failure}\n")
    sys.stdout.flush()


def _minutes(problem: str, method: str) -> float:
    """After how many a method is stopped; full-data NUTS, which all others are measured by, is waited for."""
    from problems import LARGE

    if method == "reference":
        return 60
    if problem not in LARGE and "@" not in problem:
        return 4
    return 30 if method == "NumPyro NUTS" else 10


def _error_of(stderr: str) -> str:
    """The line that names the error."""
    lines = [line for line in stderr.splitlines() if "Error" in line and not line.startswith(" ")]
    return (lines or stderr.strip().splitlines() or ["?"])[-1].removeprefix("NotImplementedError: ")


def _child(problem: str, method: str, where: str) -> None:
    from answer import Answer
    from methods import METHODS
    from problems import PROBLEMS
    from reference import reference

    import vcmc  # first: it switches to double precision, for all

    name, _, size = problem.partition("@")
    if size:
        num_rows, num_shards = map(int, size.split("/"))
        found: Any = PROBLEMS[name](num_rows)
        found = type(found)(
            **{
                **found.__dict__,
                "name": problem,
                "num_shards": num_shards,
                "is_large": num_rows >= 100_000,
            }
        )
    else:
        found = PROBLEMS[name]()
    path = Path(where)
    if method == "reference":
        begin = time.perf_counter()
        draws, num_chains = reference(found)
        answers = iter([Answer(draws, time.perf_counter() - begin, remark=f"{num_chains} chains")])
    else:
        answers = METHODS[method](found)
    for answer in answers:
        arrays = dict(answer.draws) | ({} if answer.ready is None else {"ready!": answer.ready})
        if answer.draws:
            np.savez(path.with_suffix(".part.npz"), **arrays)
            path.with_suffix(".part.npz").replace(
                path.with_suffix(".npz")
            )  # or half of it may be there when it is stopped
        kept = {
            "problem": problem,
            "method": method,
            "about": found.about,
            "num_shards": found.num_shards,
            "is_skewed": found.is_skewed,
            "seconds": answer.seconds,
            "seconds_compile": answer.seconds_compile,
            "seconds_critical": answer.seconds_critical,
            "seconds_slowest": answer.seconds_slowest,
            "remark": answer.remark,
            "megabytes": max(map(_most_memory, (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))),
            "versions": _versions(),
            "vcmc": vcmc.__version__,
        }
        path.with_suffix(".part").write_text(json.dumps(kept, indent=1))
        path.with_suffix(".part").replace(path.with_suffix(".json"))


def _most_memory(who: int) -> float:
    return resource.getrusage(who).ru_maxrss / 1024


def _versions() -> list[str]:
    from importlib.metadata import PackageNotFoundError, version

    found = [f"Python {platform.python_version()}"]
    for package in ("vcmc", "jax", "numpyro", "blackjax", "pymc", "nutpie", "numpy"):
        try:
            found.append(f"{package} {version(package)}")
        except PackageNotFoundError:
            continue
    return found


if __name__ == "__main__":
    main()
