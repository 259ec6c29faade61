"""Published data: radon in Minnesota, and an item-response problem with its reference."""

import warnings
from pathlib import Path

import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest

import vcmc

DATA = Path(__file__).parents[3] / "shared" / "data"

RADON = {  # mean and sd, by quadrature over both scales
    "mu": (1.41521, 0.03756),
    "uranium": (0.78648, 0.10090),
    "slope": (-0.63818, 0.06664),
    "tau": (0.14815, 0.04859),
    "sigma": (0.72967, 0.01774),
}
TAU_QUANTILES = (0.06922, 0.22888)  # 5 % and 95 %, by the same quadrature


def published(name):
    if not (DATA / name).exists():
        pytest.skip(f"{DATA / name} is not there")
    with np.load(DATA / name) as file:
        return {key: file[key] for key in file.files}


def radon(county, floor, log_uranium, log_radon, *, num_counties):
    mu = numpyro.sample("mu", dist.Normal(0, 10))
    uranium = numpyro.sample("uranium", dist.Normal(0, 10))
    slope = numpyro.sample("slope", dist.Normal(0, 10))
    tau = numpyro.sample("tau", dist.HalfNormal(1))
    sigma = numpyro.sample("sigma", dist.HalfNormal(1))
    with numpyro.plate("counties", num_counties):
        alpha = numpyro.sample("alpha", dist.Normal(0, tau))
    mean = mu + alpha[county] + uranium * log_uranium + slope * floor
    numpyro.sample("y", dist.Normal(mean, sigma), obs=log_radon)


@pytest.mark.slow
@pytest.mark.parametrize("num_shards", [5, None])
def test_radon_with_a_spread_close_to_zero(num_shards):
    rows = published("radon_mn.npz")
    model = vcmc.from_numpyro(radon, rows, groups="county", num_groups="num_counties")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", vcmc.DoubtfulWarning)  # errors are known only roughly
        tree = vcmc.infer(model, rows, num_shards=num_shards, progress=False, locals="none")
    posterior = tree["posterior"]
    for name, (mean, sd) in RADON.items():
        draws = posterior[name].to_numpy()
        assert draws.mean() == pytest.approx(mean, abs=0.05 * sd), name
        assert draws.std() == pytest.approx(sd, rel=0.04), name
    quantiles = np.quantile(posterior["tau"].to_numpy(), [0.05, 0.95])
    np.testing.assert_allclose(quantiles, TAU_QUANTILES, atol=0.1 * RADON["tau"][1])


def answers(student, question, correct, *, num_students):
    mean_ability = numpyro.sample("mean_ability", dist.Normal(0.75, 1))
    difficulty = numpyro.sample("difficulty", dist.Normal(0, 1).expand([100]).to_event(1))
    with numpyro.plate("students", num_students):
        ability = numpyro.sample("ability", dist.Normal(0, 1))
    logits = mean_ability + ability[student] - difficulty[question]
    numpyro.sample("y", dist.Bernoulli(logits=logits), obs=correct)


@pytest.mark.slow
def test_item_response_against_its_published_reference():
    data = published("irt.npz")
    rows = {name: data[name] for name in ("student", "question", "correct")}
    model = vcmc.from_numpyro(answers, rows, groups="student", num_groups="num_students")
    tree = vcmc.infer(model, rows, num_shards=10, progress=False)
    assert tree.attrs["verdict"] == "good"
    bounds = {"mean_ability": (0.03, 0.03), "difficulty": (0.03, 0.03), "ability": (0.05, 0.05)}
    for name, (of_mean, of_sd) in bounds.items():
        mean, sd = (np.ravel(data[f"{name}_{part}"]) for part in ("mean", "sd"))
        draws = tree["posterior"][name].to_numpy().reshape(-1, mean.size)
        assert np.abs((draws.mean(axis=0) - mean) / sd).max() < of_mean, name
        assert np.abs(draws.std(axis=0) / sd - 1).max() < of_sd, name


@pytest.mark.slow
@pytest.mark.timeout(900)  # five runs of models with groups
def test_item_response_in_five_batches_of_students(tmp_path):
    data = published("irt.npz")
    rows = {name: data[name] for name in ("student", "question", "correct")}
    model = vcmc.from_numpyro(answers, rows, groups="student", num_groups="num_students")
    students = np.unique(rows["student"])
    np.random.default_rng(0).shuffle(students)
    batches = []
    for chosen in np.array_split(students, 5):
        is_chosen = np.isin(rows["student"], chosen)
        batches.append({name: array[is_chosen] for name, array in rows.items()})
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", vcmc.DoubtfulWarning)  # of the first 80 students
        vcmc.infer(model, batches[0], num_shards=2, store=tmp_path, progress=False, locals="none")
        for batch in batches[1:]:
            kept = None if batch is batches[-1] else "none"  # local draws take half of the time
            tree = vcmc.update(tmp_path, model, batch, num_shards=2, progress=False, locals=kept)
    assert tree.attrs["verdict"] == "good", tree.attrs["verdict_text"]
    bounds = {"mean_ability": (0.03, 0.03), "difficulty": (0.03, 0.03), "ability": (0.05, 0.05)}
    for name, (of_mean, of_sd) in bounds.items():
        mean, sd = (np.ravel(data[f"{name}_{part}"]) for part in ("mean", "sd"))
        draws = tree["posterior"][name].to_numpy().reshape(-1, mean.size)
        assert np.abs((draws.mean(axis=0) - mean) / sd).max() < of_mean, name
        assert np.abs(draws.std(axis=0) / sd - 1).max() < of_sd, name
