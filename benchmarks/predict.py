"""Predict many rows of a logistic regression, Parquet to Parquet: seconds, rows/s and memory.

    python benchmarks/predict.py                      # 10^7 rows x 5 covariates, 200 draws
    python benchmarks/predict.py --rows 1000000

The draws are normal around known coefficients: predictions take as long as from a fitted model.
Means of the first rows are compared with NumPyro's `Predictive` at the same draws. Peak memory is
that of this process beyond what it had before predicting; with --executor processes:2 the memory of
other processes is not counted.
"""

import argparse
import resource
import tempfile
import time
from pathlib import Path

import jax
import numpy as np
import numpyro
import numpyro.distributions as dist
import pyarrow as pa
import pyarrow.parquet as pq
from numpyro.infer import Predictive

import vcmc
from vcmc.cli.inputs import parse_executor
from vcmc.results.tree import make_tree

NUM_COVARIATES = 5
CHUNK_ROWS = 250_000  # that are written at once
COMPARED_ROWS = 1000
COLUMNS = [f"x{number}" for number in range(NUM_COVARIATES)]


def logistic(x0, x1, x2, x3, x4, y=None):
    beta = numpyro.sample("beta", dist.Normal(0, 1).expand([NUM_COVARIATES]).to_event(1))
    logits = sum(beta[number] * x for number, x in enumerate((x0, x1, x2, x3, x4)))
    numpyro.sample("y", dist.Bernoulli(logits=logits), obs=y)


def chunk(seed: int, num_rows: int) -> dict[str, np.ndarray]:
    """Return some rows of covariates."""
    values = np.random.default_rng(seed).normal(size=(NUM_COVARIATES, num_rows))
    return dict(zip(COLUMNS, values, strict=True))


def write_rows(path: Path, num_rows: int) -> None:
    """Write rows to a Parquet file."""
    with pq.ParquetWriter(path, pa.table(chunk(0, 1)).schema) as writer:
        for seed, first in enumerate(range(0, num_rows, CHUNK_ROWS)):
            writer.write_table(pa.table(chunk(seed, min(CHUNK_ROWS, num_rows - first))))


def peak_megabytes() -> float:
    """Return the largest memory of this process so far."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def worst_difference(beta: np.ndarray, rows: Path, out: Path) -> float:
    """Return the largest difference of means from NumPyro's, in standard errors."""
    table = next(pq.ParquetFile(rows).iter_batches(COMPARED_ROWS))
    few = {name: table[name].to_numpy() for name in COLUMNS}
    expected = Predictive(logistic, {"beta": beta})(jax.random.key(1), **few)["y"]
    means = next(pq.ParquetFile(out).iter_batches(COMPARED_ROWS))["mean"].to_numpy()
    p = 1 / (1 + np.exp(-beta @ np.stack(list(few.values()))))
    error = np.sqrt(2 * np.mean(p * (1 - p), axis=0) / len(beta))
    return float(np.max(np.abs(means - np.asarray(expected).mean(axis=0)) / error))


def main() -> None:
    """Predict, and print the figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=10**7)
    parser.add_argument("--draws", type=int, default=200)
    parser.add_argument("--executor", default="local")
    arguments = parser.parse_args()
    model = vcmc.from_numpyro(logistic, {**chunk(0, 100), "y": np.zeros(100)})
    generator = np.random.default_rng(1)
    beta = [1, -1, 0.5, 0, 2] + 0.05 * generator.normal(size=(1, arguments.draws, NUM_COVARIATES))
    tree = make_tree({"posterior": {"beta": beta}}, {"num_shards": 1})
    with tempfile.TemporaryDirectory() as folder:
        rows, out = Path(folder) / "rows.parquet", Path(folder) / "predictions.parquet"
        write_rows(rows, arguments.rows)
        before, begin = peak_megabytes(), time.perf_counter()
        vcmc.predict(tree, model, rows, "y", out=out, executor=parse_executor(arguments.executor))
        seconds = time.perf_counter() - begin
        print(
            f"{arguments.rows:,} rows x {NUM_COVARIATES} covariates, {arguments.draws} draws: "
            f"{seconds:.1f} s, {arguments.rows / seconds:,.0f} rows/s, "
            f"{peak_megabytes() - before:.0f} MB beyond what it had before; "
            f"means differ from NumPyro's by at most {worst_difference(beta[0], rows, out):.1f} "
            f"standard errors (of {COMPARED_ROWS} rows)"
        )


if __name__ == "__main__":
    main()
