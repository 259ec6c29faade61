"""Packages for mixed models: statsmodels, GPBoost, and R's lme4 and glmmTMB.

They estimate by (restricted) maximum likelihood or variationally, and give a mean and an sd for
each parameter: a normal distribution, on the logarithmic scale for sds of effects. Where they give
no sd, none is scored.
"""

import json
import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from answer import Answer, Draws
from grouped_problems import GroupedProblem
from scipy.stats import norm
from truth import LEVELS

GPBOOST_TOLERANCE = 1e-9


def frame_of(problem: GroupedProblem) -> Any:
    """Return the rows as a data frame, with the columns x1, x2, … without the intercept."""
    import pandas as pd

    x = problem.rows["x"][:, 1:]
    columns = {f"x{number}": column for number, column in enumerate(x.T, start=1)}
    return pd.DataFrame({"y": problem.rows["y"], **columns, "group": problem.rows["group"]})


def _normal(mean: Any, sd: Any) -> np.ndarray:
    """Return mean, sd and quantiles (4, …) of normal distributions."""
    mean, sd = np.asarray(mean, float), np.asarray(sd, float)
    return np.stack([mean, sd, *(mean + norm.ppf(level) * sd for level in LEVELS)])


def _log_normal(median: float, sd: float) -> np.ndarray:
    """Return the same of a log-normal distribution, given the sd of its logarithm."""
    if not np.isfinite(sd):
        return np.array([median, np.nan, np.nan, np.nan])
    mean = median * np.exp(sd**2 / 2)
    return np.stack(
        [
            mean,
            mean * np.sqrt(np.expm1(sd**2)),
            *(median * np.exp(norm.ppf(level) * sd) for level in LEVELS),
        ]
    )


def statsmodels(problem: GroupedProblem) -> Iterator[Answer]:
    """Run MixedLM, or for binary outcomes BinomialBayesMixedGLM's variational Bayes."""
    try:
        import statsmodels  # noqa: F401
    except ImportError as error:
        raise NotImplementedError("not run: statsmodels is missing") from error
    return _bayes_mixed(problem) if problem.is_binary else _mixed_lm(problem)


def _bayes_mixed(problem: GroupedProblem) -> Iterator[Answer]:
    """Use its own priors: normal, with sd 2 for coefficients and 1 for the log sd of effects."""
    from scipy.sparse import csr_matrix
    from statsmodels.genmod.bayes_mixed_glm import BinomialBayesMixedGLM

    rows = problem.rows
    begin = time.perf_counter()
    np.random.seed(0)  # noqa: NPY002  # of its start
    effects = csr_matrix((np.ones(problem.num_rows), (np.arange(problem.num_rows), rows["group"])))
    identity = np.zeros(problem.num_groups, int)
    fit = BinomialBayesMixedGLM(rows["y"], rows["x"], effects, identity).fit_vb()
    summary = {
        "beta": _normal(fit.fe_mean, fit.fe_sd),
        "tau": _log_normal(float(np.exp(fit.vcp_mean[0])), float(fit.vcp_sd[0])),
        "u": _normal(fit.vc_mean, fit.vc_sd)[:, problem.scored],
    }
    yield Answer(
        {}, time.perf_counter() - begin, remark="BinomialBayesMixedGLM.fit_vb", summary=summary
    )


def _mixed_lm(problem: GroupedProblem) -> Iterator[Answer]:
    """Fit by restricted maximum likelihood, its default; it has no sd of the residual sd."""
    from statsmodels.regression.mixed_linear_model import MixedLM

    rows = problem.rows
    begin = time.perf_counter()
    fit = MixedLM(rows["y"], rows["x"], rows["group"]).fit()
    effects, variances = fit.random_effects, fit.random_effects_cov
    seconds = time.perf_counter() - begin
    scored = [(effects[group], variances[group]) for group in problem.scored]
    tau = float(np.sqrt(np.asarray(fit.cov_re)[0, 0]))
    ratio, ratio_sd = float(fit.params[-1]), float(fit.bse[-1])  # τ² / σ²
    summary = {
        "beta": _normal(fit.fe_params, fit.bse_fe),
        "tau": _log_normal(tau, ratio_sd / (2 * ratio)),
        "sigma": _log_normal(float(np.sqrt(fit.scale)), np.nan),
        "u": _normal(*np.array([(e.iloc[0], np.sqrt(v.iloc[0, 0])) for e, v in scored]).T),
    }
    yield Answer({}, seconds, remark="MixedLM, REML", summary=summary)


def gpboost(problem: GroupedProblem) -> Iterator[Answer]:
    """Run GPBoost's GPModel, a Laplace approximation for binary outcomes.

    Its tolerance is tighter than by default, with which it stops 0.12 sd away on `planes`.
    """
    try:
        import gpboost as package
    except ImportError as error:
        raise NotImplementedError("not run: GPBoost is missing") from error

    rows = problem.rows
    likelihood = "bernoulli_logit" if problem.is_binary else "gaussian"
    begin = time.perf_counter()
    model = package.GPModel(group_data=rows["group"], likelihood=likelihood)
    model.fit(y=rows["y"], X=rows["x"], params={"delta_rel_conv": GPBOOST_TOLERANCE})
    coefficients = np.asarray(model.get_coef(std_err=True, format_pandas=False), float)
    variances = model.get_cov_pars(std_err=True)
    effects = model.predict_training_data_random_effects(predict_var=True)
    seconds = time.perf_counter() - begin
    first = np.searchsorted(rows["group"], problem.scored)
    mean, variance = np.asarray(effects)[first].T
    summary = {"beta": _normal(*coefficients), "u": _normal(mean, np.sqrt(variance))}
    for name, column in {"tau": "Group_1", "sigma": "Error_var"}.items():
        if column in variances:
            value, error = variances[column]
            summary[name] = _log_normal(float(np.sqrt(value)), float(error / (2 * value)))
    yield Answer({}, seconds, remark=f"GPBoost {package.__version__}", summary=summary)


def lme4(problem: GroupedProblem) -> Iterator[Answer]:
    """Run lme4's lmer or glmer with its defaults; it has no sds of sds."""
    return _in_r("lme4", problem)


def glmm_tmb(problem: GroupedProblem) -> Iterator[Answer]:
    """Run glmmTMB with its defaults."""
    return _in_r("glmmTMB", problem)


def _in_r(package: str, problem: GroupedProblem) -> Iterator[Answer]:
    """Fit in R; its seconds are those of the fit and the effects, without reading the rows."""
    program = shutil.which("Rscript")
    if program is None:
        raise NotImplementedError(
            f"not run: R is missing; try apt-get install r-cran-{package.lower()}"
        )
    frame = frame_of(problem)
    with tempfile.TemporaryDirectory() as folder:
        np.asarray(frame, float).tofile(f"{folder}/rows.bin")
        family = "binomial" if problem.is_binary else "gaussian"
        script = Path(__file__).with_name("mixed_models.R")
        command = [program, "--vanilla", str(script), package, family, folder, *frame]
        process = subprocess.run(command, capture_output=True, text=True, env=dict(os.environ))
        if process.returncode:
            raise _error_of(process.stderr, package)
        record = json.loads(Path(f"{folder}/record.json").read_text())
        fixed, spreads, effects = (
            np.fromfile(f"{folder}/{name}.bin").reshape(2, -1)
            for name in ("fixed", "spreads", "effects")
        )
    summary: Draws = {"beta": _normal(*fixed), "u": _normal(*effects[:, problem.scored])}
    summary["tau"] = _log_normal(*spreads[:, 0])
    if not problem.is_binary:
        summary["sigma"] = _log_normal(*spreads[:, 1])
    remark = f"{package} {record['version']}, R {record['r']}"
    yield Answer({}, record["seconds"], remark=remark, summary=summary)


def _error_of(stderr: str, package: str) -> Exception:
    if "there is no package called" in stderr:
        return NotImplementedError(
            f"not run: {package} is missing; try apt-get install r-cran-{package.lower()}"
        )
    return RuntimeError((stderr.strip().splitlines() or ["R failed without a message."])[-1])
