"""Variational consensus, through the public functions and against known optima."""

import subprocess
import sys

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from scipy.stats import wishart

import vcmc
import vcmc.target
from vcmc.aggregators import BlockFamily, Precision, SpectralFamily, Uniform, VectorFamily
from vcmc.combiners import Consensus, Subposteriors, Variational
from vcmc.models import GaussianMixture, NormalWishart, Probit
from vcmc.variational import Adaptive, Newton, ProjectedGradient
from vcmc.variational.entropies import EntropyPower, NearestNeighbours, Relaxed, Tighter


@pytest.mark.slow
@pytest.mark.parametrize(("entropy", "expected"), [(Relaxed(), 0.234), (EntropyPower(), 0.1)])
@pytest.mark.parametrize("optimizer", [Adaptive(), ProjectedGradient()])
def test_two_shards_of_precisions_one_and_nine(entropy, expected, optimizer, gaussian_shards):
    """The relaxed entropy does not find precision weights: it is biased if shards differ."""
    like = gaussian_shards(1, 1)
    shards = type(like)(np.zeros((2, 1)), np.array([[[1.0]], [[1 / 9]]])).subposteriors(2000)
    combiner = Variational(
        family=VectorFamily(full=False), entropy=entropy, optimizer=optimizer, start=Uniform()
    )
    # near the summit the objective is flat: 0.01 nats are 0.03 of weight
    assert float(combiner(shards).weights[0, 0]) == pytest.approx(expected, abs=0.03)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("start", "entropy"),
    [(Uniform(), Relaxed()), (Precision(), Tighter()), (Uniform(), EntropyPower())],
)
def test_every_start_and_entropy_gives_a_posterior(start, entropy, gaussian_shards):
    shards = gaussian_shards(5, 2, spread=0.3).subposteriors(500)
    combined = Variational(BlockFamily(), entropy=entropy, start=start)(shards)
    assert np.isfinite(combined.draws).all()
    assert combined.draws.shape == (500, 2)
    assert combined.trace["objective"].shape == combined.trace["objective_error"].shape
    assert combined.notes == []


def test_full_weights_reach_the_product_of_gaussian_shards(gaussian_shards):
    """The entropy power bound has precision weights as optimum for proportional covariances."""
    like = gaussian_shards(1, 3)
    scales = np.array([0.5, 1.0, 2.0, 4.0])
    generator = np.random.default_rng(0)
    means = 0.3 * generator.normal(size=(4, 3))
    shards = type(like)(means, scales[:, None, None] * like.covariances)
    mean, covariance = shards.product()
    combiner = Variational(family=VectorFamily(full=True), entropy=EntropyPower(), start=Uniform())
    merged = np.asarray(combiner(shards.subposteriors(4000)).draws)
    sds = np.sqrt(np.diag(covariance))
    assert (np.abs(merged.mean(axis=0) - mean) < 0.1 * sds).all()
    assert (np.abs(merged.std(axis=0) / sds - 1) < 0.05).all()


@pytest.mark.slow
@pytest.mark.filterwarnings(
    "ignore::vcmc.DoubtfulWarning"
)  # Gibbs chains of small shards have few effective draws
def test_small_shards_of_a_probit_regression_lose_their_common_bias():
    """A small copy of benchmarks/variational.py, where it is 95 % and more."""
    dim, num_shards = 20, 40
    model = Probit(dim)
    beta = np.random.default_rng(1).normal(size=dim) / np.sqrt(dim)
    rows = model.simulate(0, 4000, {"beta": beta}).rows
    settings = {
        "num_shards": num_shards,
        "sampler": vcmc.samplers.ProbitGibbs(),
        "shard_draws": 500,
    }
    tree = vcmc.infer(model, rows, combiner=Variational(BlockFamily()), **settings)
    averaged = vcmc.infer(model, rows, combiner=Consensus(diagonal=True), **settings)
    full = vcmc.infer(model, rows, num_shards=1, shard_draws=2000)
    expected = np.concatenate(full["posterior"]["beta"].to_numpy()).mean(axis=0)

    def error(tree):
        found = np.concatenate(tree["posterior"]["beta"].to_numpy()).mean(axis=0)
        return np.median(np.abs(found - expected) / np.abs(expected))

    assert error(tree) < 0.2 * error(averaged)
    objective = tree["optimization"]["objective"].to_numpy()
    assert objective[-1] > objective[0]
    assert (tree["optimization"]["objective_error"] > 0).all()
    weights = tree["weights"]["beta"].to_numpy()
    assert weights.shape == (num_shards, dim)
    np.testing.assert_allclose(weights.sum(axis=0), 1, rtol=1e-9)


@pytest.mark.slow
def test_mixtures_are_merged_whatever_their_labels():
    model = GaussianMixture(3, 2)
    rows = model.simulate(
        3, 1500, {"centres": np.array([[-3.0, 0.0], [0.0, 3.0], [3.0, 0.0]])}
    ).rows
    partition = vcmc.split(rows, 5)
    tree = vcmc.infer(model, partition, combiner=Variational(BlockFamily()), shard_draws=500)
    values = tree["subposterior"]["centres"].to_numpy()[:, 0].copy()
    values[2] = values[2][:, [1, 2, 0]]
    values[4] = values[4][:, [2, 1, 0]]
    again = vcmc.combine(tree, combiner=Variational(BlockFamily()), model=model, rows=partition)
    relabelled = vcmc.combine(
        {"centres": values}, combiner=Variational(BlockFamily()), model=model, rows=partition
    )
    np.testing.assert_allclose(
        relabelled["posterior"]["centres"], again["posterior"]["centres"], atol=1e-9
    )


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::vcmc.DoubtfulWarning")
def test_matrices_can_be_merged_by_their_spectra():
    model = NormalWishart(3)
    rows = model.simulate(0, 1000, {"precision": np.diag([1.0, 2.0, 4.0])}).rows
    tree = vcmc.infer(
        model, rows, num_shards=4, combiner=Variational(family=SpectralFamily()), shard_draws=400
    )
    assert np.linalg.eigvalsh(tree["posterior"]["precision"]).min() > 0
    shard = vcmc.split(rows, 1).load(0)
    whole = model.fitted([shard]).posterior_of(shard)
    exact = wishart(float(whole.dof), np.asarray(whole.scale))
    gap = tree["posterior"]["precision"].mean(("chain", "draw")) - exact.mean()
    assert np.abs(gap / np.sqrt(exact.var())).max() < 1


def mixed_log_prior(params):
    """Wishart, normal, normal and exponential."""
    precision, centres, beta, scale = (
        params[name] for name in ("precision", "centres", "beta", "scale")
    )
    wishart = 0.5 * jnp.linalg.slogdet(precision)[1] - 0.5 * jnp.trace(precision)
    return wishart - jnp.sum(centres**2) / 18 - jnp.sum(beta**2) / 8 - scale / 2


def mixed_log_likelihood(params, rows):
    """A bivariate normal, a mixture and a regression, in every row."""
    root = jnp.linalg.cholesky(params["precision"])
    normal = jnp.sum(jnp.log(jnp.diag(root))) - 0.5 * jnp.sum((rows["z"] @ root) ** 2, axis=1)
    mixture = jax.nn.logsumexp(-0.5 * (rows["x"][:, None] - params["centres"]) ** 2, axis=1)
    residual = (rows["y"] - rows["covariate"] @ params["beta"]) / params["scale"]
    return normal + mixture - 0.5 * residual**2 - jnp.log(params["scale"])


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::vcmc.DoubtfulWarning")
def test_a_mixed_model_goes_through_blocks_and_beats_consensus():
    generator = np.random.default_rng(0)
    num_rows, num_shards = 600, 15
    covariate = generator.normal(size=(num_rows, 2))
    rows = {
        "z": generator.multivariate_normal([0, 0], [[1.0, 0.6], [0.6, 1.0]], num_rows),
        "x": np.where(generator.random(num_rows) < 0.5, -2.0, 2.0)
        + generator.normal(size=num_rows),
        "y": covariate @ [1.0, -0.5] + 0.7 * generator.normal(size=num_rows),
        "covariate": covariate,
    }
    space = {
        "precision": vcmc.PositiveDefinite(2),
        "centres": vcmc.Exchangeable(2, vcmc.Real()),
        "beta": vcmc.Real(2),
        "scale": vcmc.Positive(),
    }
    model = vcmc.Model(space, mixed_log_prior, mixed_log_likelihood)
    partition = vcmc.split(rows, num_shards)
    tree = vcmc.infer(model, partition, combiner=Variational(BlockFamily()), shard_draws=500)
    consensus = vcmc.combine(tree, model=model, rows=partition, combiner=Consensus())
    affine = vcmc.combine(tree, model=model, rows=partition)
    exact = vcmc.refine(affine, model, partition, min_ess=4000, seed=1)

    def errors(tree):
        """Errors of means, in posterior sds, of all parameters; centres without their labels."""
        found = []
        for name in ("precision", "centres", "beta", "scale"):
            values = [
                np.asarray(each["posterior"][name]).reshape(-1, exact["posterior"][name][0, 0].size)
                for each in (tree, exact)
            ]
            if name == "centres":
                values = [np.sort(value, axis=1) for value in values]
            found.append(
                np.abs(values[0].mean(axis=0) - values[1].mean(axis=0)) / values[1].std(axis=0)
            )
        return np.concatenate(found)

    learned, averaged = errors(tree), errors(consensus)
    assert errors(affine).max() < 4 / np.sqrt(
        exact.attrs["refined_ess"]
    )  # the reference's own Monte Carlo error
    assert np.sqrt(np.mean(learned**2)) < 0.7 * np.sqrt(np.mean(averaged**2))
    assert learned.max() < 0.25
    assert np.linalg.eigvalsh(tree["posterior"]["precision"]).min() > 0
    assert (tree["posterior"]["scale"] > 0).all()


@pytest.mark.slow
def test_combine_takes_rows_split_anyhow(conjugate):
    partition = vcmc.split(conjugate.rows, 4)
    generator = np.random.default_rng(0)
    draws = [
        generator.multivariate_normal(*conjugate.posterior(m, 0.25), 1000)
        for m in partition.members
    ]
    combined = [
        vcmc.combine(
            {"beta": np.stack(draws)},
            combiner=Variational(BlockFamily()),
            model=conjugate.model,
            rows=rows,
        )
        for rows in (conjugate.rows, vcmc.split(conjugate.rows, 7))
    ]
    np.testing.assert_allclose(
        combined[0]["posterior"]["beta"], combined[1]["posterior"]["beta"], rtol=1e-6
    )


def test_a_target_is_needed(gaussian_shards):
    draws = gaussian_shards(3, 2).draws(50)
    with pytest.raises(
        ValueError, match=r"Variational needs the full-data log density.*model=model, rows=rows"
    ):
        vcmc.combine({"theta": draws}, combiner=Variational(BlockFamily()), chains=False)


def test_a_model_needs_rows(conjugate, gaussian_shards):
    with pytest.raises(ValueError, match="a model and its rows together, or neither"):
        vcmc.combine({"beta": gaussian_shards(3, 3).draws(50)}, model=conjugate.model)


def test_an_optimization_that_falls_is_undone(gaussian_shards):
    """Even if it is cut short: then both is said."""
    shards = gaussian_shards(4, 2, spread=0.1).subposteriors(300)
    optimizer = ProjectedGradient(step=lambda _: 1e3, max_iterations=5)
    combined = Variational(family=VectorFamily(full=False), optimizer=optimizer)(shards)
    assert "had not levelled off after 5 iterations" in combined.notes[0]
    assert "start's weights were kept" in combined.notes[1]
    np.testing.assert_allclose(combined.weights, Precision().diagonal(shards.draws).values)


def test_a_start_that_cannot_be_bettered_is_no_cause_for_alarm(gaussian_shards):
    like = gaussian_shards(1, 2)
    shards = type(like)(
        np.zeros((3, 2)), np.array([1.0, 2.0, 4.0])[:, None, None] * like.covariances
    )
    assert Variational(BlockFamily(), entropy=EntropyPower())(shards.subposteriors(500)).notes == []


def test_a_target_that_is_not_finite_is_said(gaussian_shards):
    good = gaussian_shards(3, 2).subposteriors(100)
    target = good.target

    class Broken(type(target)):
        def __init__(self):
            self.shard_cache, self.executor = target.shard_cache, target.executor

        def __call__(self, points, only=None):
            log_densities, scores = target(points, only)
            return log_densities * jnp.nan, scores

    combined = Variational(BlockFamily())(Subposteriors(good.draws, good.space, Broken()))
    assert "not finite in iteration 1" in combined.notes[0]
    start = VectorFamily().fit(good.space, good.draws, Precision())
    np.testing.assert_allclose(combined.weights, start.shard_weights())
    assert np.isfinite(combined.draws).all()


@pytest.mark.slow
def test_combine_gives_what_infer_gave_whatever_the_order_of_names():
    """Names that are not in alphabetical order: trees, and compiled functions, may sort them."""
    rows = {"y": np.random.default_rng(0).normal(2.0, 3.0, size=300)}

    def model(y):
        mean = numpyro.sample("mean", dist.Normal(0, 10))
        log_sd = numpyro.sample("log_sd", dist.Normal(0, 1))
        numpyro.sample("y", dist.Normal(mean, jnp.exp(log_sd)), obs=y)

    model = vcmc.from_numpyro(model, rows)
    partition = vcmc.split(rows, 3)
    combiner = Variational(family=BlockFamily({"log_sd": VectorFamily(full=False)}))
    tree = vcmc.infer(model, partition, combiner=combiner, shard_draws=300)
    assert "BlockFamily" in tree.attrs["combiner"]
    again = vcmc.combine(tree, combiner=combiner, model=model, rows=partition)
    for name in ("mean", "log_sd"):
        np.testing.assert_allclose(again["posterior"][name], tree["posterior"][name], rtol=1e-9)


def test_a_model_says_the_space_and_needs_all_its_draws(conjugate, gaussian_shards):
    draws = {"beta": gaussian_shards(3, 3).draws(200)}
    with pytest.raises(ValueError, match="takes space= or model="):
        vcmc.combine(
            draws, space={"beta": vcmc.Real(3)}, model=conjugate.model, rows=conjugate.rows
        )
    with pytest.raises(
        ValueError, match=r"parameters \['beta'\], but there are no draws of \['beta'\]"
    ):
        vcmc.combine({"gamma": draws["beta"]}, model=conjugate.model, rows=conjugate.rows)
    with pytest.raises(vcmc.ModelError, match="log_likelihood asks for 'x'"):
        vcmc.combine(
            draws,
            combiner=Variational(BlockFamily()),
            model=conjugate.model,
            rows={"y": conjugate.rows["y"]},
        )


WRONG = {
    "Variational(family=VectorFamily)": (
        "family must be a family, e.g. vcmc.aggregators.VectorFamily()"
    ),
    "Variational(BlockFamily(), entropy='relaxed')": (
        "entropy must be an entropy, e.g. vcmc.variational.Relaxed()"
    ),
    "Variational(optimizer='adam')": (
        "optimizer must be an optimizer, e.g. vcmc.variational.Adaptive()"
    ),
    "Variational(start='uniform')": (
        "start must be initial weights, e.g. vcmc.aggregators.Uniform()"
    ),
    "BlockFamily({'beta': VectorFamily})": (
        "families['beta'] must be a family, e.g. VectorFamily(full=True)"
    ),
    "Adaptive(optax.adam(0.1))": "e.g. optax.adam (not optax.adam(0.1))",
    "ProjectedGradient(step=0.1)": (
        "step must be a schedule, e.g. optax.constant_schedule(0.1); got 0.1"
    ),
}


def test_choices_are_values():
    """In a process of its own: in this one, types are checked before vcmc's own checks speak."""
    code = f"""
import optax
from vcmc.combiners import *; from vcmc.aggregators import *; from vcmc.variational import *
for wrong in {list(WRONG)!r}:
    try:
        eval(wrong)
    except TypeError as error:
        print(error)
"""
    found = subprocess.run(
        [sys.executable, "-c", code], check=True, capture_output=True, text=True
    ).stdout
    for message, line in zip(WRONG.values(), found.splitlines(), strict=True):
        assert message in line


def test_a_family_that_does_not_fit_is_refused_before_sampling(conjugate):
    for family in (SpectralFamily(), BlockFamily({"typo": VectorFamily()})):
        with pytest.raises((TypeError, ValueError), match=r"spectral family is for|families name"):
            vcmc.infer(
                conjugate.model, conjugate.rows, num_shards=2, combiner=Variational(family=family)
            )


def test_draws_are_kept_if_combining_fails(conjugate):
    combiner = Variational(BlockFamily(), entropy=EntropyPower(NearestNeighbours(10_000)))
    with pytest.raises(
        vcmc.CombineError, match=r"sampled, but combining them failed.*more draws than"
    ) as caught:
        vcmc.infer(
            conjugate.model, conjugate.rows, num_shards=2, shard_draws=100, combiner=combiner
        )
    assert dict(caught.value.tree["subposterior"].sizes)["draw"] == 100
    assert "posterior" in vcmc.combine(caught.value.tree).children


def test_same_seed_same_draws(gaussian_shards):
    shards = gaussian_shards(4, 2)
    first, again = (Variational(BlockFamily())(shards.subposteriors(200)) for _ in range(2))
    np.testing.assert_array_equal(first.draws, again.draws)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::vcmc.DoubtfulWarning")  # 30 draws
@pytest.mark.parametrize(("num_shards", "num_draws", "dim"), [(1, 30, 40), (2, 30, 80)])
def test_fewer_draws_than_coordinates_are_combined(num_shards, num_draws, dim):
    """There is no covariance to speak of: a scale for every coordinate is learned."""
    model = vcmc.Model(
        {"theta": vcmc.Real(dim)},
        lambda params: -0.5 * jnp.sum(params["theta"] ** 2),
        lambda params, rows: -0.5 * jnp.sum((rows["y"] - params["theta"]) ** 2, axis=1),
    )
    generator = np.random.default_rng(0)
    rows = {"y": generator.normal(size=(200, dim))}
    draws = {
        "theta": rows["y"].mean(axis=0) + generator.normal(size=(num_shards, num_draws, dim)) / 10
    }
    tree = vcmc.combine(draws, model=model, rows=vcmc.split(rows, num_shards), progress=False)
    found = np.concatenate(tree["posterior"]["theta"].to_numpy())
    exact = rows["y"].sum(axis=0) / 201
    assert np.abs(found.mean(axis=0) - exact).max() < (0.05 if num_shards == 1 else 0.01)


def test_newton_is_for_gaussian_sums():
    with pytest.raises(ValueError, match=r"Newton is for the entropy GaussianSum\(\)"):
        Variational(entropy=EntropyPower(), optimizer=Newton())


def regression(dim, num_rows, num_shards):
    """A linear regression on random walks: neighbouring coefficients are strongly correlated."""
    generator = np.random.default_rng(0)
    x = np.cumsum(generator.normal(size=(num_rows, dim)), axis=1) / np.sqrt(dim)
    x += 0.1 * generator.normal(size=(num_rows, dim))
    y = x @ generator.normal(size=dim) + generator.normal(size=num_rows)
    model = vcmc.Model(
        {"beta": vcmc.Real(dim)},
        lambda params: -0.5 * jnp.sum(params["beta"] ** 2),
        lambda params, rows: -0.5 * (rows["y"] - rows["x"] @ params["beta"]) ** 2,
    )
    return model, vcmc.split({"x": x, "y": y}, num_shards), x, y


def exact_draws(partition, dim, num_draws):
    """Draws of every shard's Gaussian subposterior."""
    draws = []
    for index in range(partition.num_shards):
        shard = partition.load(index)
        x, y = (np.asarray(shard.weights * shard.rows[name].T).T for name in ("x", "y"))
        precision = x.T @ x + np.eye(dim) / partition.num_shards
        noise = np.random.default_rng((1, index)).normal(size=(dim, num_draws))
        root = np.linalg.cholesky(precision)
        draws.append(np.linalg.solve(precision, x.T @ y) + np.linalg.solve(root.T, noise).T)
    return np.stack(draws)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::vcmc.errors.DoubtfulWarning")  # few draws, as it says
def test_700_correlated_coordinates_have_the_right_moments_and_estimated_errors():
    """Few draws of a shard: the scale is diagonal in the frame of the target's curvature.

    A variance of the combined draws is that of 10 · 40 draws, by chance; pairs add 1 / 2000.
    """
    dim, num_shards, num_draws = 700, 10, 41
    model, partition, x, y = regression(dim, 12_000, num_shards)
    precision = x.T @ x + np.eye(dim)
    mean, sds = np.linalg.solve(precision, x.T @ y), np.sqrt(np.diag(np.linalg.inv(precision)))
    assert np.median(sds * np.sqrt(np.diag(precision))) > 3  # correlations are strong
    draws = exact_draws(partition, dim, num_draws)
    tree = vcmc.combine(
        {"beta": draws}, model=model, rows=partition, num_draws=2000, progress=False
    )
    combined = np.concatenate(tree["posterior"]["beta"].to_numpy())
    errors = combined.std(axis=0) / sds - 1
    noise = np.sqrt(0.5 / (num_shards * (num_draws - 1)) + 0.5 / 2000)
    assert np.sqrt(np.mean(errors**2)) < 1.2 * noise
    assert np.abs(errors).max() < 4.5 * noise
    np.testing.assert_allclose(combined.mean(axis=0), mean, atol=1e-3 * sds.min())
    # the target is Gaussian: the errors are known
    np.testing.assert_allclose(tree["sd_error"]["beta"], errors, atol=2e-3)
    np.testing.assert_allclose(tree["mean_error"]["beta"], 0, atol=2e-3)


@pytest.mark.filterwarnings("ignore::vcmc.errors.DoubtfulWarning")  # few draws, as it says
def test_the_curvature_of_the_target_is_computed_once(monkeypatch):
    """A frame serves the combination and the diagnosis."""
    directions = []
    products = vcmc.target.Target.hessian_products

    def counted(self, point, vectors):
        directions.append(len(vectors))
        return products(self, point, vectors)

    monkeypatch.setattr(vcmc.target.Target, "hessian_products", counted)
    model, partition, *_ = regression(60, 2000, 5)
    draws = exact_draws(partition, 60, 12)
    target = vcmc.target.Target(model, partition, vcmc.executors.Local())
    target.frame_near(draws.mean(axis=(0, 1)))
    num_directions = sum(directions)
    tree = vcmc.combine({"beta": draws}, model=model, rows=partition, num_draws=70, progress=False)
    assert sum(directions) == 2 * num_directions
    assert np.isfinite(tree["sd_error"]["beta"]).all()
