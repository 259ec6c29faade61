"""Leave-one-out cross-validation against one evaluation of all draws at all rows.

A logistic regression with 50 coefficients and 5000 draws of the normal approximation of its
posterior. One pass evaluates the log likelihoods of blocks of rows at all draws on all cores, and
keeps their sums. Printed are the seconds and the processor seconds of the pass and of `vcmc.loo`,
their ratios, and the memory that `vcmc.loo` takes beyond what the process had with the rows:

    python benchmarks/loo.py --rows 100000
"""

import argparse
import resource
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np

import vcmc
from vcmc._runtime import num_cores
from vcmc.results.tree import make_tree

sys.path.insert(0, str(Path(__file__).parent))
from timing import say

DIM = 50
BLOCK_ROWS, BATCH_SIZE = 800, 32  # of the pass
MAX_RATIO, MAX_BYTES = 3.0, 2**30


def problem(num_rows: int, num_draws: int) -> tuple[dict[str, np.ndarray], np.ndarray]:
    """Return rows, and draws of a normal approximation of their posterior."""
    rng = np.random.default_rng(0)
    beta = rng.normal(size=DIM) / 7
    x = rng.normal(size=(num_rows, DIM))
    y = (x @ beta + rng.logistic(size=num_rows) > 0).astype(float)
    for _ in range(8):  # Newton's method
        p = 1 / (1 + np.exp(-(x @ beta)))
        precision = np.eye(DIM) + x.T @ (x * (p * (1 - p))[:, None])
        beta = beta + np.linalg.solve(precision, x.T @ (y - p) - beta)
    draws = rng.multivariate_normal(beta, np.linalg.inv(precision), size=num_draws)
    return {"x": x, "y": y}, draws


def log_likelihood(params: dict[str, jax.Array], rows: dict[str, jax.Array]) -> jax.Array:
    return -jnp.logaddexp(0.0, (1 - 2 * rows["y"]) * (rows["x"] @ params["beta"]))


MODEL = vcmc.Model(
    space={"beta": vcmc.Real(DIM)},
    log_prior=lambda params: -0.5 * jnp.sum(params["beta"] ** 2),
    log_likelihood=log_likelihood,
)


@jax.jit
def block_sums(rows: dict[str, jax.Array], draws: jax.Array) -> jax.Array:
    return jax.lax.map(
        lambda beta: log_likelihood({"beta": beta}, rows).sum(), draws, batch_size=BATCH_SIZE
    )


def one_pass(rows: dict[str, np.ndarray], draws: np.ndarray) -> None:
    """Evaluate all draws at all rows, block by block, on all cores."""
    on_device = jnp.asarray(draws)

    def evaluate(first: int) -> None:
        block = {name: array[first : first + BLOCK_ROWS] for name, array in rows.items()}
        block_sums(block, on_device).block_until_ready()

    with ThreadPoolExecutor(num_cores()) as pool:
        list(pool.map(evaluate, range(0, len(rows["y"]), BLOCK_ROWS)))


def timed(function: Callable[[], object]) -> tuple[float, float]:
    """Return seconds, and processor seconds of all threads."""
    begin, begin_cpu = time.perf_counter(), time.process_time()
    function()
    return time.perf_counter() - begin, time.process_time() - begin_cpu


def resident_bytes() -> int:
    """Return the memory of this process, as Linux has it."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * resource.getpagesize()


class PeakMemory:
    """The largest memory of this process within a `with` block, looked up every 10 ms."""

    def __enter__(self) -> "PeakMemory":
        self.peak, self._ended = resident_bytes(), threading.Event()
        self._thread = threading.Thread(target=self._watch)
        self._thread.start()
        return self

    def _watch(self) -> None:
        while not self._ended.wait(0.01):
            self.peak = max(self.peak, resident_bytes())

    def __exit__(self, *exception: object) -> None:
        self._ended.set()
        self._thread.join()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--draws", type=int, default=5000)
    parser.add_argument("--shards", type=int, default=4)
    arguments = parser.parse_args()
    rows, draws = problem(arguments.rows, arguments.draws)
    tree = make_tree({"posterior": {"beta": draws[None]}}, {"num_shards": arguments.shards})
    few = {name: array[: 2 * BLOCK_ROWS] for name, array in rows.items()}
    one_pass(few, draws)  # compile
    vcmc.loo(tree, MODEL, few, progress=False)
    passes = [timed(partial(one_pass, rows, draws))]
    before = resident_bytes()
    with PeakMemory() as memory:
        loo = timed(partial(vcmc.loo, tree, MODEL, rows, progress=False))
    beyond = memory.peak - before
    passes.append(timed(partial(one_pass, rows, draws)))  # another: the machine may be busy
    evaluation = np.mean(passes, axis=0)
    say(f"{arguments.rows} rows, {arguments.draws} draws, {arguments.shards} shards")
    say(f"one pass:  {evaluation[0]:8.2f} s, {evaluation[1]:8.2f} processor seconds")
    say(f"vcmc.loo:  {loo[0]:8.2f} s, {loo[1]:8.2f} processor seconds")
    say(f"ratio:     {loo[0] / evaluation[0]:8.2f}    {loo[1] / evaluation[1]:8.2f}")
    row_bytes = sum(array.nbytes for array in rows.values())
    say(f"memory beyond the rows: {beyond / 2**20:.0f} MB (rows: {row_bytes / 2**20:.0f} MB)")
    is_met = loo[0] <= MAX_RATIO * evaluation[0] and beyond <= MAX_BYTES
    say("goal met" if is_met else "goal missed: ratio of at most 3, at most 1 GB beyond the rows")


if __name__ == "__main__":
    main()
