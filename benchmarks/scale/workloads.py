"""The models and rows of the curves. Sizes that a curve does not vary are constants here."""

from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpyro
import numpyro.distributions as dist
import pyarrow as pa
import pyarrow.parquet as pq

import vcmc

DIM, ROW_SHARDS = 19, 64  # of the curve over rows, whose files have 20 columns
SHARD_ROWS, SHARD_DIM = 200_000, 10  # of the curve over shards: 200 rows in each of 1 000
LEVEL_ROWS, LEVEL_SHARDS = 200_000, 8  # of the curve over coordinates
GROUP_ROWS = 5  # rows of a group
EXECUTOR_SHARDS, EXECUTOR_ROWS, EXECUTOR_DIM = 16, 160_000, 50
COLUMNS = {"x": [f"x{j}" for j in range(DIM)], "y": "y"}
BATCH_ROWS = 250_000  # written at a time


class Workload(NamedTuple):
    """A model, its rows, the number of shards (None: chosen by vcmc), and `locals` of `infer`."""

    model: vcmc.Model
    rows: Any
    num_shards: int | None = None
    locals_mode: Any = None


def write_rows(path: Path, num_rows: int) -> None:
    """Write rows of a logistic regression, sorted by the first covariate, as files often are."""
    generator = np.random.default_rng(0)
    beta = np.linspace(-1, 1, DIM) / 2
    schema = pa.schema([(name, pa.float64()) for name in [*COLUMNS["x"], "y"]])
    with pq.ParquetWriter(path, schema) as writer:
        for first in range(0, num_rows, BATCH_ROWS):
            count = min(BATCH_ROWS, num_rows - first)
            x = generator.normal(size=(count, DIM))
            x[:, 0] = np.linspace(-2, 2, num_rows)[first : first + count]
            y = (x @ beta + generator.logistic(size=count) > 0).astype(float)
            writer.write_table(pa.table([*x.T, y], schema=schema))


def rows_in_shards(num_shards: int) -> Workload:
    """Return a logistic regression in memory, in a number of shards."""
    return logistic(SHARD_ROWS, SHARD_DIM, num_shards)


def logistic(num_rows: int, dim: int, num_shards: int) -> Workload:
    """Return a logistic regression in memory."""
    model = vcmc.models.Logistic(dim)
    beta = {"beta": np.linspace(-1, 1, dim) / 2}
    return Workload(model, model.simulate(0, num_rows, beta).rows, num_shards)


def crossed_levels(num_coordinates: int) -> Workload:
    """Return a logistic regression on two crossed categorical columns, a coordinate per level.

    The rows are the same in number, and so is the work of a row, however many levels there are.
    """
    num_second = max(2, num_coordinates // 5)
    num_first = num_coordinates - num_second
    generator = np.random.default_rng(0)
    first = generator.integers(0, num_first, LEVEL_ROWS)
    second = generator.integers(0, num_second, LEVEL_ROWS)
    a, b = 0.7 * generator.normal(size=num_first), 0.7 * generator.normal(size=num_second)
    y = (a[first] + b[second] + generator.logistic(size=LEVEL_ROWS) > 0).astype(float)
    rows = {"first": first, "second": second, "y": y}

    def model(first: Any, second: Any, y: Any) -> None:
        a = numpyro.sample("a", dist.Normal(0, 1).expand([num_first]).to_event(1))
        b = numpyro.sample("b", dist.Normal(0, 1).expand([num_second]).to_event(1))
        numpyro.sample("y", dist.Bernoulli(logits=a[first] + b[second]), obs=y)

    return Workload(vcmc.from_numpyro(model, rows), rows, LEVEL_SHARDS)


def groups(num_groups: int) -> Workload:
    """Return a hierarchical logistic regression, local intercept and slope, K chosen by vcmc."""
    from groups import logistic_model, logistic_rows

    rows = logistic_rows(num_groups, GROUP_ROWS)
    sample = {name: array[:1000] for name, array in rows.items()}
    model = vcmc.from_numpyro(logistic_model, sample, groups="group", num_groups="num_groups")
    return Workload(model, rows, locals_mode="none")


def from_loader(num_rows: int, dim: int, num_shards: int) -> Workload:
    """Return a logistic regression whose shards are simulated where they are needed."""
    model = vcmc.models.Logistic(dim)
    beta = {"beta": np.linspace(-1, 1, dim) / 2}
    size = num_rows // num_shards

    def load(shard: int) -> dict[str, np.ndarray]:
        rows: dict[str, np.ndarray] = model.simulate(shard, size, beta).rows
        return rows

    return Workload(model, load, num_shards)
