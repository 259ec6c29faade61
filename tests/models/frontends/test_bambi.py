"""Bambi models: the densities that Bambi has, groups by the formula, and Bambi's own posterior."""

import warnings
from types import SimpleNamespace

import numpy as np
import pytest
from scipy import stats
from scipy.stats import multivariate_normal

import vcmc
from vcmc.data.grouped import GroupedPartition, encode_groups

pytestmark = pytest.mark.slow  # importing PyMC and Bambi takes seconds

NUM_ROWS = 90


@pytest.fixture(scope="session")
def bmb():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return pytest.importorskip("bambi")


@pytest.fixture(scope="session")
def frame():
    pd = pytest.importorskip("pandas")
    generator = np.random.default_rng(0)
    frame = pd.DataFrame(
        {
            "x": 3 + generator.normal(size=NUM_ROWS),
            "z": generator.normal(size=NUM_ROWS),
            "county": np.array([f"c{i:02d}" for i in generator.integers(0, 12, NUM_ROWS)]),
            "year": generator.integers(2001, 2006, NUM_ROWS).astype(str),
            "colour": generator.choice(["red", "green", "blue"], NUM_ROWS),
            "y": generator.normal(size=NUM_ROWS),
            "late": generator.integers(0, 2, NUM_ROWS),
            "trials": generator.integers(5, 15, NUM_ROWS),
            "count": generator.poisson(3, NUM_ROWS),
            "size": generator.gamma(2, 1, NUM_ROWS),
            "share": generator.beta(2, 3, NUM_ROWS),
            "weight": generator.uniform(0.5, 2, NUM_ROWS),
        }
    )
    frame["status"] = np.where(frame["size"] > 3, "right", "none")
    frame["won"] = generator.binomial(frame["trials"], 0.4)
    frame["log_trials"] = np.log(frame["trials"])
    return frame


@pytest.fixture(scope="session")
def make(bmb, frame):
    """A function that makes a Bambi model of the rows."""

    def make(formula, family="gaussian", data=frame, **options):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return bmb.Model(formula, data, family=family, **options)

    return make


def log_density_of_bambi(model, params):
    """Return the log density of Bambi's own PyMC model, by PyTensor without a C compiler."""
    from pytensor.compile.mode import Mode

    mode = Mode(linker="py", optimizer="fast_compile")
    pymc_model = model.backend.model
    point = {}
    for variable in pymc_model.free_RVs:
        name = variable.name
        value = np.asarray(params[name if name in params else f"{name}_centered"], float)
        transform = pymc_model.rvs_to_transforms[variable]
        if transform is not None:
            value = transform.forward(value, *variable.owner.inputs).eval(mode=mode)
        point[pymc_model.rvs_to_values[variable].name] = value
    run = pymc_model.compile_fn(pymc_model.logp(jacobian=False), mode=mode)
    return float(run(point))


CASES = {
    "y ~ x + colour + x:z": "gaussian",
    "y ~ bs(x, df=5) + scale(z)": "t",
    "y ~ x + (x|county) + (1|year)": "gaussian",
    "y ~ x + (0 + colour|county)": "laplace",
    "y ~ hsgp(x, m=6, c=2)": "gaussian",
    "late ~ x + (1|county)": "bernoulli",
    "count ~ x + offset(log_trials) + (1|county)": "poisson",
    "count ~ x + (1|year/colour)": "negativebinomial",
    "size ~ x + (1|county)": "gamma",
    "share ~ x + (1|county)": "beta",
    "colour ~ x + (1|county)": "categorical",
}


@pytest.mark.parametrize("formula", CASES)
def test_the_density_is_that_of_bambi(make, formula):
    """PyTensor takes logarithms of some constants in 32 bits, hence the tolerance."""
    link = {"link": "log"} if CASES[formula] == "gamma" else {}
    bambi_model = make(formula, CASES[formula], noncentered=False, **link)
    bambi_model.build()
    model, rows = vcmc.from_bambi(bambi_model, groups=False)
    point = 0.5 * np.random.default_rng(1).normal(size=model.space.dim)
    params = model.space.constrain(point)
    ours = model.log_prior(params) + model.log_likelihood(params, rows).sum()
    assert float(ours) == pytest.approx(log_density_of_bambi(bambi_model, params), rel=1e-7)


def test_binomial_rows_have_trials(make, frame):
    """Against SciPy: PyTensor computes the coefficients in 32 bits."""
    model, rows = vcmc.from_bambi(make("p(won, trials) ~ x", "binomial"))
    params = {"Intercept_centered": np.array(-0.3), "x": np.array(0.2)}
    logits = -0.3 + 0.2 * (frame["x"] - frame["x"].mean())
    expected = stats.binom.logpmf(frame["won"], frame["trials"], 1 / (1 + np.exp(-logits)))
    np.testing.assert_allclose(model.log_likelihood(params, rows), expected, rtol=1e-10)


def shard_of(rows, groups):
    encoded, labels = encode_groups(rows, groups, None)
    partition = vcmc.split(encoded, 1, groups=groups)
    return GroupedPartition(partition, groups, labels, None).load(0)


@pytest.mark.parametrize("noncentered", [True, False])
def test_group_effects_are_integrated_out(make, frame, noncentered):
    """Against the multivariate normal distribution of the rows given the global parameters."""
    model, rows = vcmc.from_bambi(make("y ~ x + (x|county)", noncentered=noncentered))
    assert list(model.local.space) == ["1|county", "x|county"]
    shard = shard_of(rows, "county__factor_dim")
    model = model.fitted([shard])
    assert isinstance(model.local.quadrature, vcmc.ExactGaussian)
    params = {
        "sigma": 0.9,
        "Intercept_centered": 0.2,
        "x": -0.1,
        "1|county_sigma": 0.6,
        "x|county_sigma": 0.3,
    }
    point = model.space.unconstrain({name: np.asarray(value) for name, value in params.items()})
    x = frame["x"].to_numpy()
    same = np.equal.outer(frame["county"].to_numpy(), frame["county"].to_numpy())
    covariance = 0.81 * np.eye(len(x)) + same * (0.36 + 0.09 * np.outer(x, x))
    normal = multivariate_normal(0.2 - 0.1 * (x - x.mean()), covariance)
    value = float(model.log_likelihood_at(point, shard))
    assert value == pytest.approx(normal.logpdf(frame["y"]), rel=1e-9)


def test_the_factor_with_the_most_levels_is_local(make):
    bambi_model = make("y ~ x + (1|county) + (1|year)")
    model, rows = vcmc.from_bambi(bambi_model)
    assert model.local.groups == "county__factor_dim"
    assert set(rows["county__factor_dim"]) == {f"c{i:02d}" for i in range(12)}
    assert model.space["1|year"].shape == (5,)
    other = vcmc.from_bambi(bambi_model, groups="year").model
    assert other.local.groups == "year__factor_dim"
    assert other.space["1|county"].shape == (12,)


def test_an_alias_names_parameters(make):
    bambi_model = make("y ~ x + (x|county)")
    bambi_model.set_alias({"1|county": "level", "x|county": "slope", "Intercept": "a"})
    model = vcmc.from_bambi(bambi_model).model
    assert set(model.local.space) == {"level", "slope"}
    assert {"a_centered", "level_sigma", "slope_sigma"} <= set(model.space)


def test_the_model_of_the_user_is_not_changed(make):
    bambi_model = make("y ~ x + (1|county)")
    bambi_model.build()
    backend = bambi_model.backend
    vcmc.from_bambi(bambi_model)
    assert bambi_model.backend is backend
    assert bambi_model.noncentered
    assert "1|county_offset" in backend.model.named_vars


def test_a_spread_has_a_formula(bmb, make):
    formula = bmb.Formula("y ~ x", "sigma ~ z + (1|county)")
    model = vcmc.from_bambi(make(formula)).model
    assert {"Intercept_centered", "sigma_Intercept_centered", "sigma_z"} <= set(model.space)
    assert list(model.local.space) == ["sigma_1|county"]


REFUSED = {
    "censored(size, status) ~ x": ("gamma", "infinite bounds"),
    "weighted(y, weight) ~ x": ("gaussian", "weights="),
    "y ~ x": ("asymmetriclaplace", "y ~ x.*asymmetriclaplace"),
    "count ~ x": ("hurdle_poisson", "count ~ x.*hurdle_poisson"),
}


@pytest.mark.filterwarnings("ignore:Scan return signature:DeprecationWarning")  # of PyTensor
@pytest.mark.parametrize("formula", REFUSED)
def test_what_cannot_be_split_is_refused(make, formula):
    family, message = REFUSED[formula]
    bambi_model = make(formula, family)
    with pytest.raises(ValueError, match=message):
        vcmc.from_bambi(bambi_model)


def test_what_is_no_model_or_no_factor_is_refused(bmb, make):
    with pytest.raises(TypeError, match=r"bambi\.Model"):
        vcmc.from_bambi("y ~ x")
    with pytest.raises(ValueError, match=r"\['county'\]"):
        vcmc.from_bambi(make("y ~ x + (1|county)"), groups="town")


def test_without_bambi_the_error_names_the_extra(monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "bambi", None)
    with pytest.raises(ImportError, match=r"pip install 'vcmc\[bambi\]'"):
        vcmc.from_bambi(None)


def flights(num_rows=3000, num_planes=60):
    pd = pytest.importorskip("pandas")
    generator = np.random.default_rng(4)
    plane = generator.integers(0, num_planes, num_rows)
    hour = generator.uniform(5, 23, num_rows)
    effect = 0.8 * generator.normal(size=num_planes)
    logits = -2.5 + 0.12 * hour + effect[plane]
    late = (generator.random(num_rows) < 1 / (1 + np.exp(-logits))).astype(int)
    labels = np.array([f"N{number:03d}" for number in range(num_planes)])
    return pd.DataFrame({"hour": hour, "plane": labels[plane], "late": late})


@pytest.fixture(scope="module", params=["late ~ hour", "late ~ hour + (1|plane)"])
def fits(bmb, request):
    """Bambi's NUTS and vcmc on the same model, flat and hierarchical."""
    data = flights()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        bambi_model = bmb.Model(request.param, data, family="bernoulli")
        chains = bambi_model.fit(
            draws=1000,
            tune=1000,
            chains=2,
            cores=1,
            random_seed=1,
            progressbar=False,
            inference_method="numpyro",
        )
    model, rows = vcmc.from_bambi(bambi_model)
    tree = vcmc.infer(model, rows, num_shards=4, progress=False)
    return SimpleNamespace(data=data, bambi_model=bambi_model, chains=chains, tree=tree)


def test_the_posterior_is_that_of_bambi(fits):
    """Means and sds within four standard errors of Bambi's chains; sds also have vcmc's error."""
    import arviz

    assert fits.tree.attrs["verdict"] == "good"
    names = set(fits.chains.posterior.data_vars)
    assert {"Intercept", "hour"} <= names <= set(fits.tree["posterior"].data_vars)
    for name in names:
        theirs, ours = fits.chains.posterior[name], fits.tree["posterior"][name]
        if "plane__factor_dim" in theirs.dims:
            ours = ours.sel(plane__factor_dim=theirs["plane__factor_dim"].values)
        sd = theirs.std(("chain", "draw"))
        effective = arviz.ess(theirs)[name]
        off = np.abs(ours.mean(("chain", "draw")) - theirs.mean(("chain", "draw"))) / sd
        assert (off < 4 / np.sqrt(effective)).all(), name
        ratio = np.abs(ours.std(("chain", "draw")) / sd - 1)
        assert (ratio < 4 / np.sqrt(2 * effective) + 0.04).all(), name


def test_bambi_predicts_from_the_draws(fits):
    """Bambi's predictions for new rows, from vcmc's draws, are the formula's."""
    import arviz

    posterior = fits.tree["posterior"].to_dataset()
    new = fits.data[:5]
    predicted = fits.bambi_model.predict(
        arviz.InferenceData(posterior=posterior), data=new, inplace=False
    )
    slope = posterior["hour"].to_numpy()[..., None] * new["hour"].to_numpy()
    logits = posterior["Intercept"].to_numpy()[..., None] + slope
    if "1|plane" in posterior:
        logits += posterior["1|plane"].sel(plane__factor_dim=list(new["plane"])).to_numpy()
    np.testing.assert_allclose(predicted.posterior["p"], 1 / (1 + np.exp(-logits)), atol=1e-12)
