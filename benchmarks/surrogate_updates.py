"""Measure updates without the old rows against the posterior of all rows.

    python benchmarks/surrogate_updates.py --seeds 10 [--cases rates,logistic] [--shift 0]

For every case and seed: the largest move of a mean, in sds of the old posterior, the largest error
of a mean and of an sd after the update, in sds of the posterior of all rows, the largest ratio of
an estimated error's own error to its standard error, and the verdict. The truth is a closed form
(normal, rates), a grid (cauchy, banana), or a run of `infer` on all rows, whose error is below 0.02
sd.
"""

import argparse
import warnings
from collections.abc import Callable
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
from scipy.special import digamma, polygamma
from xarray import DataTree

import vcmc
from vcmc.inference.surrogate_update import update_without_rows

Rows = dict[str, np.ndarray]
Moments = tuple[np.ndarray, np.ndarray]


class Case(NamedTuple):
    """A model, old and new rows, and means and sds of the posterior of all rows."""

    model: vcmc.Model
    old: Rows
    new: Rows
    truth: Callable[[Rows], Moments]
    num_shards: int


def normal(generator: np.random.Generator, shift: float) -> Case:
    """Linear regression with known noise: the surrogate is exact."""
    model = vcmc.Model(
        {"beta": vcmc.Real(3)},
        lambda params: -0.5 * jnp.sum(params["beta"] ** 2) / 100,
        lambda params, rows: -0.5 * (rows["y"] - rows["x"] @ params["beta"]) ** 2,
    )

    def simulate(count: int, shift: float) -> Rows:
        x = generator.normal(size=(count, 3))
        return {"x": x, "y": x @ np.array([1 + shift, 1, 1]) + generator.normal(size=count)}

    def truth(rows: Rows) -> Moments:
        precision = rows["x"].T @ rows["x"] + np.eye(3) / 100
        mean = np.linalg.solve(precision, rows["x"].T @ rows["y"])
        return mean, np.sqrt(np.diag(np.linalg.inv(precision)))

    return Case(model, simulate(2000, 0), simulate(1000, shift * 3 / 2000**0.5), truth, 8)


def regression(kind: str, generator: np.random.Generator, shift: float) -> Case:
    """Logistic or Poisson regression on four columns."""
    beta = np.array([-1.0, 0.5, 0.0, 1.0]) if kind == "logistic" else np.array([0.2, 0.3, 0, -0.5])
    model: Any = vcmc.models.Logistic(4) if kind == "logistic" else _poisson()

    def simulate(count: int, shift: float) -> Rows:
        x = generator.normal(size=(count, 4))
        x[:, 0] = 1
        linear = x @ (beta + np.array([0, shift, 0, 0]))
        if kind == "logistic":
            y = (generator.uniform(size=count) < 1 / (1 + np.exp(-linear))).astype(float)
        else:
            y = generator.poisson(np.exp(linear)).astype(float)
        return {"x": x, "y": y}

    def truth(rows: Rows) -> Moments:
        tree = vcmc.infer(model, rows, num_shards=8, progress=False)
        assert tree.attrs["verdict"] == "good", tree.attrs["verdict_text"]
        return _moments(tree)

    sd = 0.055 if kind == "logistic" else 0.024
    return Case(model, simulate(2000, 0), simulate(1000, shift * 3 * sd), truth, 8)


def _poisson() -> vcmc.Model:
    return vcmc.Model(
        {"beta": vcmc.Real(4)},
        lambda params: -0.5 * jnp.sum(params["beta"] ** 2) / 100,
        lambda params, rows: (
            rows["y"] * (rows["x"] @ params["beta"]) - jnp.exp(rows["x"] @ params["beta"])
        ),
    )


def rates(generator: np.random.Generator, shift: float) -> Case:
    """Six Poisson rates with 2 to 300 events, in log coordinates: skewed posteriors."""
    num_events = np.array([2.0, 4.0, 8.0, 20.0, 80.0, 300.0])
    model = vcmc.Model(
        {"rate": vcmc.Positive(6)},
        lambda params: -jnp.sum(params["rate"]) / 1000,
        lambda params, rows: jnp.sum(
            rows["y"] * jnp.log(params["rate"]) - params["rate"] / 400, axis=1
        ),
        derived=lambda params: {"log_rate": jnp.log(params["rate"])},
    )

    def simulate(count: int, factor: float) -> Rows:
        return {"y": generator.poisson(factor * num_events / 400, (count, 6)).astype(float)}

    def truth(rows: Rows) -> Moments:
        shape = rows["y"].sum(axis=0) + 1
        rate = 1 / 1000 + len(rows["y"]) / 400
        logs = digamma(shape) - np.log(rate), np.sqrt(polygamma(1, shape))
        pairs = zip((shape / rate, np.sqrt(shape) / rate), logs, strict=True)
        mean, sd = (np.concatenate(pair) for pair in pairs)
        return mean, sd

    return Case(model, simulate(400, 1), simulate(200, 1 + shift), truth, 1)


def cauchy(generator: np.random.Generator, shift: float) -> Case:
    """The location of one Cauchy variable: the old posterior has no moments; then normal rows."""
    model = vcmc.Model(
        {"mu": vcmc.Real()},
        lambda params: -0.5 * params["mu"] ** 2 / 50**2,
        lambda params, rows: jnp.where(
            rows["old"] > 0,
            -jnp.log1p((rows["y"] - params["mu"]) ** 2),
            -0.5 * (rows["y"] - params["mu"]) ** 2 / 4,
        ),
    )
    old = {"y": np.zeros(2), "old": np.ones(2)}
    new = {"y": generator.normal(2 * shift + 1, 1, size=4), "old": np.zeros(4)}

    def truth(rows: Rows) -> Moments:
        grid = np.linspace(-200, 200, 400_001)
        values = -0.5 * grid**2 / 50**2
        for y, is_old in zip(rows["y"], rows["old"], strict=True):
            values += -np.log1p((y - grid) ** 2) if is_old else -0.5 * (y - grid) ** 2 / 4
        return _grid_moments(values, [grid])

    return Case(model, old, new, truth, 1)


def banana(generator: np.random.Generator, shift: float) -> Case:
    """Two parameters of which the old rows tell a curve, y = b + a² / 2, and the new ones a."""
    model = vcmc.Model(
        {"a": vcmc.Real(), "b": vcmc.Real()},
        lambda params: -0.5 * (params["a"] ** 2 + params["b"] ** 2 / 4),
        lambda params, rows: jnp.where(
            rows["old"] > 0,
            -0.5 * (rows["y"] - params["b"] - params["a"] ** 2 / 2) ** 2,
            -0.5 * (rows["y"] - params["a"]) ** 2 / 4,
        ),
    )
    old = {"y": generator.normal(1, 1, size=10), "old": np.ones(10)}
    new = {"y": generator.normal(0.7 + shift, 2, size=4), "old": np.zeros(4)}

    def truth(rows: Rows) -> Moments:
        a, b = np.meshgrid(np.linspace(-5, 5, 1001), np.linspace(-8, 5, 1301), indexing="ij")
        values = -0.5 * (a**2 + b**2 / 4)
        for y, is_old in zip(rows["y"], rows["old"], strict=True):
            values += -0.5 * ((y - b - a**2 / 2) ** 2 if is_old else (y - a) ** 2 / 4)
        return _grid_moments(values, [a, b])

    return Case(model, old, new, truth, 1)


def _grid_moments(log_density: np.ndarray, axes: list[np.ndarray]) -> Moments:
    weights = np.exp(log_density - log_density.max())
    weights /= weights.sum()
    means = np.array([np.sum(weights * axis) for axis in axes])
    variances = [np.sum(weights * (axis - m) ** 2) for axis, m in zip(axes, means, strict=True)]
    return means, np.sqrt(variances)


def _moments(tree: DataTree) -> Moments:
    posterior = tree["posterior"].to_dataset().transpose("chain", "draw", ...)
    values = [
        posterior[name].to_numpy().reshape(posterior.sizes["chain"] * posterior.sizes["draw"], -1)
        for name in posterior.data_vars
    ]
    joined = np.concatenate(values, axis=1)
    return joined.mean(axis=0), joined.std(axis=0)


CASES: dict[str, Callable[[np.random.Generator, float], Case]] = {
    "normal": normal,
    "logistic": lambda generator, shift: regression("logistic", generator, shift),
    "poisson": lambda generator, shift: regression("poisson", generator, shift),
    "rates": rates,
    "cauchy": cauchy,
    "banana": banana,
}


def measure(name: str, seed: int, shift: float) -> dict[str, Any]:
    """Run a case and return what it shows."""
    case = CASES[name](np.random.default_rng((seed, 1)), shift)
    old = vcmc.infer(case.model, case.old, num_shards=case.num_shards, seed=seed, progress=False)
    new = update_without_rows(old, case.model, case.new, seed=seed + 1000, progress=False)
    both = {key: np.concatenate([case.old[key], case.new[key]]) for key in case.old}
    mean, sd = case.truth(both)
    (old_mean, old_sd), (new_mean, new_sd) = (_moments(tree) for tree in (old, new))
    names = list(new["posterior"].data_vars)
    # of means as the result corrects them
    known, ses = (
        np.concatenate([np.ravel(new[group][name]) for name in names])
        if group in new.children
        else np.full(len(mean), np.nan)
        for group in ("mean_error", "mean_error_se")
    )
    return {
        "move": np.abs((mean - old_mean) / old_sd).max(),
        "mean": np.abs((new_mean - mean) / sd).max(),
        "sd": np.abs(new_sd / sd - 1).max(),
        "ratio": np.abs(((new_mean - mean) / sd - known) / ses).max(),
        "verdict": new.attrs["verdict"],
        "text": new.attrs["verdict_text"],
        "old": old.attrs["verdict"],
    }


def main() -> None:
    """Print a line for every run, and the worst of every case."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--cases", default=",".join(CASES))
    parser.add_argument("--shift", type=float, default=0.0, help="change of the parameters")
    parser.add_argument("--text", action="store_true", help="print the verdicts in full")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    for name in options.cases.split(","):
        for seed in range(options.first, options.first + options.seeds):
            run = measure(name, seed, options.shift)
            print(
                f"{name:9s} {seed:3d}  move {run['move']:5.2f}  mean off {run['mean']:.3f}  sd off "
                f"{run['sd']:6.1%}  error/se {run['ratio']:5.2f}  {run['old']} → {run['verdict']}",
                flush=True,
            )
            if options.text:
                print("    " + run["text"])


if __name__ == "__main__":
    main()
