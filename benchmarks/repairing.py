"""Few draws of a shard, paired at random, against many draws: errors where the truth is known.

Eight Poisson rates with 60 to 6,000 events (or, `--events 20`, one rate with 20), whose posterior
is a product of Gamma distributions. Shards are Gamma, too, and drawn exactly, so that all errors
are those of the combination. Errors are those of the logarithms of the rates, averaged over rates
and data sets.

    .venv/bin/python benchmarks/repairing.py               # the table, about five minutes
    .venv/bin/python benchmarks/repairing.py --coverage 40 # do standard errors cover the truth?
"""

import argparse
import warnings
from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
from scipy import special, stats

import vcmc

PRIOR_SHAPE, PRIOR_RATE = 1.0, 0.1
NUM_ROWS = 2000
NUM_SHARDS = 5, 20, 100
SHARD_DRAWS = 1000, 200, 100, 50, 25
LEVELS = (0.05, 0.95)
MOMENTS = ("mean", "sd", "q05", "q95")


class Rates(NamedTuple):
    """Counts of events by row and rate."""

    rows: dict[str, np.ndarray]
    model: vcmc.Model

    @classmethod
    def simulated(cls, events: np.ndarray, seed: int) -> "Rates":
        counts = np.random.default_rng(seed).poisson(events / NUM_ROWS, (NUM_ROWS, len(events)))
        return cls({"count": counts.astype(float)}, poisson_rates(len(events)))

    @property
    def truth(self) -> dict[str, np.ndarray]:
        """Mean, sd and quantiles of the logarithms of the rates."""
        shape = PRIOR_SHAPE + self.rows["count"].sum(axis=0)
        log_rate = np.log(PRIOR_RATE + NUM_ROWS)
        quantiles = [np.log(stats.gamma.ppf(level, shape)) - log_rate for level in LEVELS]
        mean, sd = special.digamma(shape) - log_rate, np.sqrt(special.polygamma(1, shape))
        return dict(zip(MOMENTS, (mean, sd, *quantiles), strict=True))

    def shard_draws(
        self, partition: vcmc.Partition, num_draws: int, seed: int
    ) -> dict[str, np.ndarray]:
        """Draw the rates of every shard from its Gamma distribution."""
        generator = np.random.default_rng((seed, 1))
        draws, num_shards = [], partition.num_shards
        for shard in range(num_shards):
            loaded = partition.load(shard)
            counts = np.asarray(loaded.rows["count"])[np.asarray(loaded.weights) > 0]
            shape = PRIOR_SHAPE / num_shards + counts.sum(axis=0)
            size = num_draws, len(shape)
            # the logarithm, as rates of shards without an event are smaller than any float
            logs = np.log(generator.gamma(shape + 1, size=size))
            logs += np.log(generator.uniform(size=size)) / shape
            draws.append(logs - np.log(PRIOR_RATE / num_shards + len(counts)))
        return {"log_rate": np.stack(draws)}


def poisson_rates(num_rates: int) -> vcmc.Model:
    """Return the model of counts with Gamma priors, in the logarithms of the rates."""
    return vcmc.Model(
        space={"log_rate": vcmc.Real(num_rates)},
        log_prior=lambda params: jnp.sum(
            PRIOR_SHAPE * params["log_rate"] - PRIOR_RATE * jnp.exp(params["log_rate"])
        ),
        log_likelihood=lambda params, rows: jnp.sum(
            rows["count"] * params["log_rate"] - jnp.exp(params["log_rate"]), axis=-1
        ),
    )


def combined(
    rates: Rates, num_shards: int, shard_draws: int, num_draws: int, seed: int
) -> "vcmc.DataTree":
    """Return the result of combining exact draws of the shards."""
    partition = vcmc.split(rates.rows, num_shards, seed=seed)
    draws = rates.shard_draws(partition, shard_draws, seed)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return vcmc.combine(
            draws,
            model=rates.model,
            rows=partition,
            num_draws=num_draws,
            seed=seed,
            progress=False,
        )


def errors_of(tree: "vcmc.DataTree", truth: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Return errors of means and quantiles in posterior sds, and relative errors of sds."""
    values = tree["posterior"]["log_rate"].values.reshape(-1, len(truth["mean"]))
    estimates = values.mean(axis=0), values.std(axis=0), *np.quantile(values, LEVELS, axis=0)
    return {
        name: (estimate - truth[name]) / truth["sd"]
        for name, estimate in zip(MOMENTS, estimates, strict=True)
    }


def table(events: np.ndarray, num_data_sets: int) -> None:
    """Print average errors by number of shards, draws of a shard and combined draws."""
    print(
        "| K | draws a shard | combined draws | means, sds off | sds, % off "
        "| 5 %/95 % quantiles, sds off | verdicts |\n|---|---|---|---|---|---|---|"
    )
    for num_shards in NUM_SHARDS:
        for shard_draws in SHARD_DRAWS:
            for num_draws in sorted({shard_draws, 5000, 16_000}):
                trees, errors = [], []
                for seed in range(num_data_sets):
                    rates = Rates.simulated(events, seed)
                    trees.append(combined(rates, num_shards, shard_draws, num_draws, seed))
                    errors.append(errors_of(trees[-1], rates.truth))
                mean, sd, *quantiles = (
                    np.mean([np.abs(error[name]) for error in errors]) for name in MOMENTS
                )
                verdicts = [tree.attrs["verdict"] for tree in trees]
                counts = ", ".join(f"{verdicts.count(v)} {v}" for v in dict.fromkeys(verdicts))
                print(
                    f"| {num_shards} | {shard_draws} | {num_draws} | {mean:.4f} "
                    f"| {100 * sd:.2f} | {np.mean(quantiles):.3f} | {counts} |",
                    flush=True,
                )


def coverage(events: np.ndarray, num_shards: int, shard_draws: int, num_repetitions: int) -> None:
    """Print how often the truth is within one and two reported standard errors."""
    scores: dict[str, list[np.ndarray]] = {name: [] for name in MOMENTS}
    for seed in range(num_repetitions):
        rates = Rates.simulated(events, seed)
        tree = combined(rates, num_shards, shard_draws, 5000, seed)
        errors = errors_of(tree, rates.truth)
        for name in MOMENTS:
            if f"{name}_error" in tree.children:
                estimate, standard_error = (
                    tree[f"{name}_error{suffix}"]["log_rate"].values for suffix in ("", "_se")
                )
                scores[name].append((errors[name] - estimate) / standard_error)
    for name, values in scores.items():
        z = np.abs(np.array(values))
        shares = f"{np.mean(z < 1):.2f} within one, {np.mean(z < 2):.2f} within two"
        print(
            f"K = {num_shards}, {shard_draws} draws a shard, {name}: {shares} standard errors "
            f"({z.size} statistics, rms {np.sqrt(np.mean(z**2)):.2f})",
            flush=True,
        )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--events", type=float, help="events of a single rate")
    parser.add_argument("--data-sets", type=int, default=4)
    parser.add_argument("--coverage", type=int, metavar="N", help="repetitions")
    options = parser.parse_args()
    events = np.geomspace(60, 6000, 8) if options.events is None else np.array([options.events])
    if options.coverage:
        for num_shards, shard_draws in ((5, 200), (20, 100), (20, 50)):
            coverage(events, num_shards, shard_draws, options.coverage)
        return
    table(events, options.data_sets)


if __name__ == "__main__":
    main()
