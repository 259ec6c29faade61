r"""Crossed effects: students local, more than a thousand lecturers global, against the posterior.

73 421 ratings by 2 972 students of 1 128 lecturers, simulated in the shape of lme4's InstEval:

$$y = \mu + \beta\,\text{service} + u_{\text{student}} + b_{\text{lecturer}} + \epsilon,$$

with variances 0.11 (students), 0.27 (lecturers) and 1.39. Given the three sds, the posterior of
$(\mu, \beta, b)$ is Gaussian, by Woodbury's identity for the students. The reference averages its
means and variances over a grid of Gauss–Hermite nodes for the logarithms of the sds, whose weights
are the marginal likelihood. `check` compares that with the dense joint covariance on a few rows.

- `check`: the reference's marginal likelihood and moments against dense matrices. Seconds.
- `reference`: the posterior's moments, with 5 and 7 nodes along each axis. A few minutes.
- `infer`: vcmc as it comes, and its errors.

Run: .venv/bin/python benchmarks/crossed.py check reference infer
"""

import resource
import sys
import tempfile
import time
from collections.abc import Callable
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpyro
import numpyro.distributions as dist
from scipy import optimize, stats
from timing import say

import vcmc

NUM_ROWS, NUM_STUDENTS, NUM_LECTURERS = 73_421, 2_972, 1_128
SDS = {"sigma": 1.39**0.5, "tau": 0.11**0.5, "spread": 0.27**0.5}
COEFFICIENT_SD = 5.0  # of the priors of intercept and slope; those of sds are half-normal of sd 1
FILE = Path(tempfile.gettempdir()) / "vcmc-crossed-reference.npz"

Rows = dict[str, np.ndarray]


def simulate(
    num_rows: int = NUM_ROWS,
    num_students: int = NUM_STUDENTS,
    num_lecturers: int = NUM_LECTURERS,
    seed: int = 0,
) -> Rows:
    """Simulate ratings. Lecturers differ in how often they are rated, as in InstEval."""
    generator = np.random.default_rng(seed)
    popularity = generator.gamma(1.5, size=num_lecturers)
    student = generator.integers(0, num_students, size=num_rows)
    lecturer = generator.choice(num_lecturers, size=num_rows, p=popularity / popularity.sum())
    service = (generator.random(num_rows) < 0.43).astype(float)
    effects = SDS["tau"] * generator.normal(size=num_students)
    qualities = SDS["spread"] * generator.normal(size=num_lecturers)
    noise = SDS["sigma"] * generator.normal(size=num_rows)
    y = 3.3 - 0.07 * service + effects[student] + qualities[lecturer] + noise
    return {"student": student, "lecturer": lecturer, "service": service, "y": y}


class Statistics(NamedTuple):
    """Sums over rows, and over the rows of each student, of X = (1, service, lecturers) and y."""

    num_rows: int
    gram: np.ndarray
    moments: np.ndarray
    square: float
    student_sums: np.ndarray
    student_moments: np.ndarray
    student_sizes: np.ndarray


def statistics(rows: Rows, num_lecturers: int) -> Statistics:
    """Return the sums that all evaluations of the marginal likelihood need."""
    from scipy import sparse

    count = len(rows["y"])
    ones = np.ones(count)
    lecturers = sparse.csr_array(
        (ones, (np.arange(count), rows["lecturer"])), shape=(count, num_lecturers)
    )
    x = sparse.hstack([np.column_stack([ones, rows["service"]]), lecturers], format="csr")
    students = sparse.csr_array((ones, (rows["student"], np.arange(count))))
    return Statistics(
        count,
        (x.T @ x).toarray(),
        x.T @ rows["y"],
        float(rows["y"] @ rows["y"]),
        (students @ x).toarray(),
        students @ rows["y"],
        students @ ones,
    )


class Conditional(NamedTuple):
    """The Gaussian posterior given the sds, and the log density of their logarithms."""

    log_density: float
    means: np.ndarray
    variances: np.ndarray


def conditional(sums: Statistics, log_sds: np.ndarray, with_variances: bool = True) -> Conditional:
    r"""Return the posterior of $(\mu, \beta, b)$ given $\log(\sigma, \tau, \lambda)$."""
    sigma, tau, spread = np.exp(log_sds)
    shares = tau**2 / (sigma**2 + sums.student_sizes * tau**2)  # of Woodbury's identity
    weighted = sums.student_sums * shares[:, None]
    likelihood_precision = (sums.gram - sums.student_sums.T @ weighted) / sigma**2
    slope = (sums.moments - weighted.T @ sums.student_moments) / sigma**2
    square = (sums.square - shares @ sums.student_moments**2) / sigma**2
    prior_precision = np.full(len(slope), spread**-2.0)
    prior_precision[:2] = COEFFICIENT_SD**-2.0
    factor = np.linalg.cholesky(likelihood_precision + np.diag(prior_precision))
    whitened = np.linalg.solve(factor, slope)
    log_det_rows = (sums.num_rows - len(shares)) * 2 * np.log(sigma) + np.sum(
        np.log(sigma**2 + sums.student_sizes * tau**2)
    )
    log_density = 0.5 * (
        whitened @ whitened
        - square
        - log_det_rows
        + np.sum(np.log(prior_precision))
        - 2 * np.sum(np.log(np.diag(factor)))
        - sums.num_rows * np.log(2 * np.pi)
    )
    log_density += float(np.sum(stats.halfnorm.logpdf(np.exp(log_sds)) + log_sds))
    inverse = np.linalg.inv(factor) if with_variances else np.zeros((1, 1))
    return Conditional(log_density, np.linalg.solve(factor.T, whitened), np.sum(inverse**2, axis=0))


class Moments(NamedTuple):
    """Means and sds of intercept, slope, lecturers, and the three sds."""

    means: np.ndarray
    sds: np.ndarray


def reference(sums: Statistics, num_nodes: int) -> Moments:
    """Return the posterior's moments, by Gauss–Hermite nodes around the mode of the log sds."""

    def cost(log_sds: np.ndarray) -> float:
        return -conditional(sums, log_sds, with_variances=False).log_density

    start = np.log(list(SDS.values()))
    mode = optimize.minimize(cost, start, method="Nelder-Mead", options={"xatol": 1e-4}).x
    root = np.linalg.cholesky(np.linalg.inv(hessian(cost, mode)))
    line, weights = np.polynomial.hermite_e.hermegauss(num_nodes)
    nodes = np.array(list(product(line, repeat=3)))
    log_weights = np.log([np.prod(parts) for parts in product(weights, repeat=3)])
    points = mode + nodes @ root.T
    answers = [conditional(sums, point) for point in points]
    logs = np.array([answer.log_density for answer in answers])
    logs += log_weights + 0.5 * np.sum(nodes**2, axis=1)
    shares = np.exp(logs - logs.max())
    shares /= shares.sum()
    sds = np.exp(points)
    means = np.column_stack([np.array([answer.means for answer in answers]), sds])
    variances = np.column_stack(
        [np.array([answer.variances for answer in answers]), np.zeros_like(sds)]
    )
    mean = shares @ means
    return Moments(mean, np.sqrt(shares @ (variances + (means - mean) ** 2)))


def hessian(cost: Callable[[np.ndarray], float], centre: np.ndarray) -> np.ndarray:
    """Return second derivatives, by central differences over a hundredth."""
    step = 0.01 * np.eye(len(centre))

    def mixed(i: int, j: int) -> float:
        signs = [(1, 1), (1, -1), (-1, 1), (-1, -1)]
        return sum(a * b * cost(centre + a * step[i] + b * step[j]) for a, b in signs) / 4e-4

    numbers = range(len(centre))
    return np.array([[mixed(i, j) for j in numbers] for i in numbers])


def check() -> None:
    """Compare the conditional posterior with dense matrices on a few rows."""
    rows = simulate(60, 12, 7, seed=3)
    log_sds = np.log([1.1, 0.4, 0.6])
    sigma, tau, spread = np.exp(log_sds)
    x = np.column_stack([np.ones(60), rows["service"], np.eye(7)[rows["lecturer"]]])
    z = np.eye(12)[rows["student"]]
    noise = sigma**2 * np.eye(60) + tau**2 * z @ z.T
    prior = np.diag([COEFFICIENT_SD**2] * 2 + [spread**2] * 7)
    whole = noise + x @ prior @ x.T
    log_density = stats.multivariate_normal(np.zeros(60), whole).logpdf(rows["y"])
    log_density += np.sum(stats.halfnorm.logpdf(np.exp(log_sds)) + log_sds)
    gain = np.linalg.solve(whole, x @ prior).T
    answer = conditional(statistics(rows, 7), log_sds)
    differences = {
        "log density": answer.log_density - log_density,
        "means": np.abs(answer.means - gain @ rows["y"]).max(),
        "variances": np.abs(answer.variances - np.diag(prior - gain @ x @ prior)).max(),
    }
    say("check: " + ", ".join(f"{name} {value:.1e} off" for name, value in differences.items()))
    assert all(abs(value) < 1e-9 for value in differences.values())


def make_reference() -> Moments:
    """Compute and store the reference, and say how much the number of nodes matters."""
    sums = statistics(simulate(), NUM_LECTURERS)
    begin = time.perf_counter()
    coarse, fine = reference(sums, 5), reference(sums, 7)
    say(
        f"reference: {time.perf_counter() - begin:.0f} s; with 5 nodes in place of 7, means "
        f"{np.abs((coarse.means - fine.means) / fine.sds).max():.1e} sd and sds "
        f"{np.abs(coarse.sds / fine.sds - 1).max():.1e} off"
    )
    np.savez(FILE, means=fine.means, sds=fine.sds)
    return fine


def ratings(student: Any, lecturer: Any, service: Any, y: Any = None, *, num_students: int) -> None:
    mu = numpyro.sample("mu", dist.Normal(0, COEFFICIENT_SD))
    slope = numpyro.sample("slope", dist.Normal(0, COEFFICIENT_SD))
    sigma = numpyro.sample("sigma", dist.HalfNormal(1))
    tau = numpyro.sample("tau", dist.HalfNormal(1))
    spread = numpyro.sample("spread", dist.HalfNormal(1))
    with numpyro.plate("lecturers", NUM_LECTURERS):
        quality = numpyro.sample("quality", dist.Normal(0, spread))
    with numpyro.plate("students", num_students):
        effect = numpyro.sample("effect", dist.Normal(0, tau))
    mean = mu + slope * service + effect[student] + quality[lecturer]
    numpyro.sample("y", dist.Normal(mean, sigma), obs=y)


def infer(seed: int = 0) -> None:
    """Run vcmc as it comes, and compare it with the reference."""
    with np.load(FILE) as file:
        truth = Moments(file["means"], file["sds"])
    rows = simulate()
    begin, cpu = time.perf_counter(), time.process_time()
    model = vcmc.from_numpyro(ratings, rows, groups="student", num_groups="num_students")
    tree = vcmc.infer(model, rows, seed=seed, locals="summary", progress=False, compile_cache=False)
    seconds, cpu = time.perf_counter() - begin, time.process_time() - cpu
    names = ("mu", "slope", "quality", "sigma", "tau", "spread")
    posterior = tree["posterior"]
    draws = np.column_stack(
        [posterior[name].to_numpy().reshape(posterior["mu"].size, -1) for name in names]
    )
    parts = {
        name.removeprefix("seconds_"): round(float(value), 1)
        for name, value in tree.attrs.items()
        if name.startswith("seconds_")
    }
    say(f"infer: {seconds:.0f} s, {cpu:.0f} s of CPU {parts}, {tree.attrs['verdict']}")
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    say(
        f"  {tree.attrs['num_shards']} shards, {tree.attrs['shard_draws']} draws of each by "
        f"{tree.attrs['sampler']}, {len(draws)} draws, {memory:.1f} GB"
    )
    off = (draws.mean(axis=0) - truth.means) / truth.sds
    ratios = 100 * (draws.std(axis=0) / truth.sds - 1)
    lecturers = slice(2, 2 + NUM_LECTURERS)
    for name, place in zip(names, (0, 1, lecturers, -3, -2, -1), strict=True):
        means, sds = np.abs(np.atleast_1d(off[place])), np.abs(np.atleast_1d(ratios[place]))
        say(
            f"  {name}: means {np.median(means):.3f} sd off (worst {means.max():.3f}), "
            f"sds {np.median(sds):.1f} % (worst {sds.max():.1f} %)"
        )


if __name__ == "__main__":
    actions = {"check": check, "reference": make_reference, "infer": infer}
    for argument in sys.argv[1:]:
        actions[argument]()
