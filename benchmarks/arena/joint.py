"""Chains on the joint model of globals and locals: NumPyro's NUTS, nutpie and Bambi."""

import time
from collections.abc import Iterator
from typing import Any

import chains
import kernels
import numpy as np
from answer import Answer, Draws
from grouped_problems import GroupedProblem
from mixed_models import frame_of

BAMBI_CHAINS, BAMBI_DRAWS = 2, 1000


def nuts_centred(problem: GroupedProblem) -> Iterator[Answer]:
    """Run NumPyro's NUTS on the centred model: two chains, 500 warm-up steps, 1000 draws."""
    _refuse_vast(problem)
    return kernels.nuts(problem.parametrized(is_centred=True))


def nuts_non_centred(problem: GroupedProblem) -> Iterator[Answer]:
    """Run NumPyro's NUTS on the non-centred model, in the same way."""
    _refuse_vast(problem)
    return kernels.nuts(problem.parametrized(is_centred=False))


def nutpie(problem: GroupedProblem) -> Iterator[Answer]:
    """Run nutpie on the parametrization in which NumPyro's NUTS is faster."""
    _refuse_vast(problem)
    return chains.nutpie(problem)


def _refuse_vast(problem: GroupedProblem) -> None:
    if problem.is_vast:
        raise NotImplementedError(
            "not run: the joint model has more groups than chains can sample within the time limit"
        )


def bambi(problem: GroupedProblem) -> Iterator[Answer]:
    """Run Bambi with its defaults: its priors, its parametrization, PyMC's sampler.

    It has two chains on one core each, of its usual length: four would take twice as long on two
    cores. PyMC reports when each draw is ready.
    """
    _refuse_vast(problem)
    try:
        import bambi as package
    except ImportError as error:
        raise NotImplementedError("not run: Bambi is missing; it needs Python 3.11") from error

    frame = frame_of(problem)
    frame["group"] = frame["group"].map("{:07d}".format)  # labels are sorted as text
    ready: list[list[float]] = [[] for _ in range(BAMBI_CHAINS)]
    begin = time.perf_counter()

    def record(trace: Any, draw: Any) -> None:  # noqa: ARG001
        if not draw.tuning:
            ready[draw.chain].append(time.perf_counter() - begin)

    covariates = " + ".join(name for name in frame if name.startswith("x"))
    model = package.Model(
        f"y ~ {covariates} + (1|group)",
        frame,
        family="bernoulli" if problem.is_binary else "gaussian",
    )
    fit = model.fit(
        draws=BAMBI_DRAWS,
        chains=BAMBI_CHAINS,
        cores=BAMBI_CHAINS,
        random_seed=0,
        progressbar=False,
        callback=record,
    )
    seconds = time.perf_counter() - begin
    times = np.array([each[-BAMBI_DRAWS:] for each in ready]).T.ravel()
    yield Answer(
        problem.reported(_bambi_draws(fit.posterior, problem)),
        seconds,
        ready=np.append(times[:-1], seconds),
        num_chains=BAMBI_CHAINS,
        remark=f"{BAMBI_CHAINS} chains, 1000 warm-up steps, the package's own priors",
    )


def _bambi_draws(posterior: Any, problem: GroupedProblem) -> Draws:
    """Return the draws, interleaved, by our names."""
    slopes = [f"x{number}" for number in range(1, problem.rows["x"].shape[1])]
    arrays = {
        "beta": np.stack([posterior[name].values for name in ("Intercept", *slopes)], axis=-1),
        "tau": posterior["1|group_sigma"].values,
        "u": posterior["1|group"].values,
    }
    if not problem.is_binary:
        arrays["sigma"] = posterior["sigma"].values
    return {
        name: np.swapaxes(array, 0, 1).reshape(-1, *array.shape[2:])
        for name, array in arrays.items()
    }
