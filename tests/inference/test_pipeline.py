"""From rows to one posterior, through the front door."""

import inspect
import threading
import time

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from arviz_stats import ess, rhat, summary
from arviz_stats.base import array_stats

import vcmc
from vcmc._runtime import thread_map
from vcmc.errors import ExecutorLost
from vcmc.executors.base import Outcome, no_progress


def moments(tree, name="beta"):
    """Mean, sd and effective number of draws of the posterior."""
    draws = tree["posterior"][name].to_numpy()
    effective = array_stats.ess(draws, chain_axis=0, draw_axis=1)
    flat = draws.reshape(-1, *draws.shape[2:])
    return flat.mean(axis=0), flat.std(axis=0), effective


@pytest.mark.parametrize("num_shards", [1, 4, pytest.param(16, marks=pytest.mark.slow)])
def test_a_conjugate_posterior_is_recovered(num_shards, conjugate):
    tree = vcmc.infer(conjugate.model, conjugate.rows, num_shards=num_shards, shard_draws=2000)
    mean, covariance = conjugate.posterior()
    sds = np.sqrt(np.diag(covariance))
    found, found_sds, effective = moments(tree)
    # √3: the weights are estimated from the draws too, and the shards' means differ by a few sds
    assert (np.abs(found - mean) < 4 * np.sqrt(3) * sds / np.sqrt(effective)).all()
    assert (np.abs(found_sds / sds - 1) < 4 * np.sqrt(3) / np.sqrt(2 * effective)).all()


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:partial posteriors")
@pytest.mark.parametrize(("prior", "power"), [("subposterior", 0.25), ("partial", 1.0)])
def test_shards_have_the_prior_that_was_asked_for(prior, power, conjugate):
    partition = vcmc.split(conjugate.rows, 4)
    tree = vcmc.infer(conjugate.model, partition, prior=prior, shard_draws=2000)
    for shard, members in enumerate(partition.members):
        mean, covariance = conjugate.posterior(members, power)
        draws = tree["subposterior"]["beta"].to_numpy()[shard]
        effective = array_stats.ess(draws, chain_axis=0, draw_axis=1)
        error = np.abs(draws[0].mean(axis=0) - mean) / np.sqrt(np.diag(covariance))
        assert (error < 4 / np.sqrt(effective)).all()


def test_averages_of_partial_posteriors_are_called_doubtful(conjugate):
    with pytest.warns(vcmc.DoubtfulWarning, match="too narrow and too close to the prior"):
        tree = vcmc.infer(
            conjugate.model,
            conjugate.rows,
            num_shards=4,
            prior="partial",
            shard_draws=300,
            combiner=vcmc.combiners.Consensus(),
        )
    assert "Partial posteriors" in tree.attrs["warnings"][0]
    assert tree.attrs["verdict"] != "good"


def test_the_default_corrects_partial_posteriors(conjugate):
    tree = vcmc.infer(
        conjugate.model, conjugate.rows, num_shards=4, prior="partial", shard_draws=300
    )
    mean, covariance = conjugate.posterior()
    found = np.concatenate(tree["posterior"]["beta"].to_numpy())
    np.testing.assert_allclose(
        found.mean(axis=0), mean, atol=1e-6
    )  # a Gaussian posterior: no Monte Carlo error is left
    np.testing.assert_allclose(np.cov(found.T, bias=True), covariance, rtol=1e-6, atol=1e-9)
    assert tree.attrs["verdict"] == "good"


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:partial posteriors")
def test_a_strong_prior_tells_what_shards_hold():
    """With few rows and a strong prior they differ by many Monte Carlo errors, as they should."""
    rows = {"y": np.random.default_rng(0).normal(3.0, 1.0, size=40)}
    model = vcmc.Model(
        {"mean": vcmc.Real()},
        log_prior=lambda params: -0.5 * 20 * params["mean"] ** 2,
        log_likelihood=lambda params, rows: -0.5 * (rows["y"] - params["mean"]) ** 2,
    )
    for prior, power, times in (
        ("subposterior", 1 / 4, 1),
        ("partial", 1.0, 1),
        ("powered", 1.0, 4),
    ):
        partition = vcmc.split(rows, 4)
        tree = vcmc.infer(model, partition, prior=prior)
        precision = times * 10 + 20 * power
        expected = [times * rows["y"][m].sum() / precision for m in partition.members]
        found = tree["subposterior"]["mean"]
        assert (
            np.abs(found.mean(("chain", "draw")) - expected) < 4 / np.sqrt(200 * precision)
        ).all()
        assert (
            np.abs(found.std(("chain", "draw")) * np.sqrt(precision) - 1) < 4 / np.sqrt(2 * 200)
        ).all()


def test_combiners_get_the_shards_that_they_need(conjugate):
    tree = vcmc.infer(
        conjugate.model, conjugate.rows, num_shards=4, combiner=vcmc.combiners.Swiss()
    )
    assert tree.attrs["prior"] == "powered"
    mean, covariance = conjugate.posterior()
    found = np.concatenate(tree["posterior"]["beta"].to_numpy())
    assert (np.abs(found.mean(axis=0) - mean) < 4 * np.sqrt(np.diag(covariance) / 200)).all()
    assert tree.attrs["verdict"] == "good"
    with pytest.raises(
        ValueError, match=r"Consensus needs shards with prior='subposterior'; got prior='powered'"
    ):
        vcmc.combine(tree, combiner=vcmc.combiners.Consensus())
    with pytest.raises(
        ValueError, match="ImportanceResample needs shards with prior='subposterior'"
    ):
        vcmc.infer(
            conjugate.model,
            conjugate.rows,
            num_shards=4,
            combiner=vcmc.combiners.ImportanceResample(),
            prior="powered",
        )
    with pytest.raises(ValueError, match="Swiss needs shards with prior='powered'"):
        vcmc.infer(
            conjugate.model,
            conjugate.rows,
            num_shards=4,
            combiner=vcmc.combiners.Swiss(),
            prior="partial",
        )


@pytest.mark.slow
def test_a_gibbs_sampler_gives_way_where_likelihoods_are_powered():
    model = vcmc.models.Probit(2)
    rows = model.simulate(0, 400).rows
    swiss = vcmc.combiners.Swiss()
    tree = vcmc.infer(model, rows, num_shards=2, shard_draws=500, combiner=swiss)
    assert "ProbitGibbs" not in tree.attrs["sampler"]
    with pytest.raises(ValueError, match="ProbitGibbs cannot raise a likelihood to a power"):
        vcmc.infer(model, rows, num_shards=2, combiner=swiss, sampler=vcmc.samplers.ProbitGibbs())


def scale_regression(x, y=None):
    beta = numpyro.sample("beta", dist.Normal(0, 1).expand([x.shape[1]]).to_event(1))
    sigma = numpyro.sample("sigma", dist.HalfNormal(2.0))
    numpyro.deterministic("variance", sigma**2)
    numpyro.sample("y", dist.Normal(x @ beta, sigma), obs=y)


@pytest.fixture(scope="module")
def regression_rows():
    generator = np.random.default_rng(0)
    x = generator.normal(size=(500, 3))
    return {"x": x, "y": x @ [1.0, -1.0, 0.5] + 1.5 * generator.normal(size=500)}


@pytest.mark.slow
def test_one_shard_agrees_with_numpyros_own_nuts(regression_rows):
    model = vcmc.from_numpyro(scale_regression, regression_rows)
    tree = vcmc.infer(model, regression_rows, num_shards=1, shard_draws=2000)
    mcmc = numpyro.infer.MCMC(
        numpyro.infer.NUTS(scale_regression), num_warmup=500, num_samples=2000, progress_bar=False
    )
    mcmc.run(jax.random.key(1), **regression_rows)
    theirs = mcmc.get_samples()
    for name in ("beta", "sigma", "variance"):
        mean, sd, effective = moments(tree, name)
        draws = np.asarray(theirs[name])
        their_effective = array_stats.ess(draws[None], chain_axis=0, draw_axis=1)
        error = 4 * sd * np.sqrt(1 / effective + 1 / their_effective)
        assert (np.abs(mean - draws.mean(axis=0)) < error).all()
        assert (np.abs(sd - draws.std(axis=0)) < error).all()


@pytest.mark.slow
def test_positive_parameters_stay_positive_and_come_out_right(regression_rows):
    model = vcmc.from_numpyro(scale_regression, regression_rows)
    one, five = (vcmc.infer(model, regression_rows, num_shards=k) for k in (1, 5))
    assert (five["posterior"]["sigma"] > 0).all()
    np.testing.assert_allclose(
        five["posterior"]["variance"], five["posterior"]["sigma"] ** 2, rtol=1e-10
    )
    mean, sd, _ = moments(one, "sigma")
    assert (
        abs(moments(five, "sigma")[0] - mean) < 0.5 * sd
    )  # shards of 100 rows are a little biased


def test_the_tree_is_arviz_ready(conjugate):
    sampler = vcmc.samplers.NUTS(num_warmup=300, num_chains=2)
    tree = vcmc.infer(
        conjugate.model, conjugate.rows, num_shards=3, shard_draws=400, seed=5, sampler=sampler
    )
    assert dict(tree["posterior"].sizes) == {"chain": 2, "draw": 2500, "beta_dim_0": 3}
    assert dict(tree["subposterior"].sizes) == {
        "shard": 3,
        "chain": 2,
        "draw": 400,
        "beta_dim_0": 3,
    }
    assert tree["sample_stats"]["diverging"].dims == ("shard", "chain", "draw")
    spans = tree["sample_seconds"]
    assert spans["begin"].dims == ("shard", "chain")
    assert ((spans["begin"] >= 0) & (spans["begin"] < spans["end"])).all()
    assert spans["end"].max() <= tree.attrs["seconds_sample"] + 1e-3
    assert (rhat(tree)["beta"] < 1.05).all()
    assert (ess(tree)["beta"] > 200).all()
    assert list(summary(tree).index) == ["beta[0]", "beta[1]", "beta[2]"]
    assert tree["subposterior_rhat"]["beta"].dims == ("shard", "beta_dim_0")
    assert (tree["subposterior_rhat"]["beta"] < 1.05).all()
    assert (tree["subposterior_ess"]["beta"] > 200).all()
    assert tree.attrs["seed"] == 5
    assert tree.attrs["num_shards"] == 3
    assert tree.attrs["shard_sizes"] == [335, 334, 334]
    assert any(entry.startswith("jax ") for entry in tree.attrs["versions"])
    assert tree.attrs["warnings"] == []


def test_the_tree_can_be_saved_and_read_back(conjugate, tmp_path):
    import xarray

    tree = vcmc.infer(conjugate.model, conjugate.rows, num_shards=2, shard_draws=300)
    tree.to_netcdf(tmp_path / "tree.nc")
    again = xarray.open_datatree(tmp_path / "tree.nc")
    np.testing.assert_array_equal(again["posterior"]["beta"], tree["posterior"]["beta"])
    assert again.attrs["seed"] == 0


def test_same_seed_same_draws_other_seed_others(conjugate):
    first, again, other = (
        vcmc.infer(conjugate.model, conjugate.rows, num_shards=2, shard_draws=300, seed=seed)
        for seed in (0, 0, 1)
    )
    np.testing.assert_array_equal(first["posterior"]["beta"], again["posterior"]["beta"])
    assert (first["posterior"]["beta"] != other["posterior"]["beta"]).any()


def test_chains_of_a_shard_and_shards_differ_in_their_draws():
    """Identical rows in every shard: only the keys can make the draws differ."""
    model = vcmc.Model(
        {"mean": vcmc.Real()},
        log_prior=lambda params: -0.5 * params["mean"] ** 2,
        log_likelihood=lambda params, rows: -0.5 * (rows["y"] - params["mean"]) ** 2,
    )
    sampler = vcmc.samplers.NUTS(num_warmup=200, num_chains=2)
    tree = vcmc.infer(model, {"y": np.zeros(40)}, num_shards=4, shard_draws=250, sampler=sampler)
    chains = tree["subposterior"]["mean"].to_numpy().reshape(8, -1)
    assert np.abs(np.corrcoef(chains) - np.eye(8)).max() < 0.4


@pytest.mark.slow
def test_mixture_shards_start_in_the_same_mode():
    generator = np.random.default_rng(0)
    y = np.concatenate([generator.normal(-3, 1, 300), generator.normal(3, 1, 300)])
    model = vcmc.Model(
        {"centres": vcmc.Exchangeable(2, vcmc.Real())},
        log_prior=lambda params: -0.5 * jnp.sum((params["centres"] / 5) ** 2),
        log_likelihood=lambda params, rows: jax.nn.logsumexp(
            -0.5 * (rows["y"][:, None] - params["centres"]) ** 2, axis=1
        ),
    )
    tree = vcmc.infer(model, {"y": y}, num_shards=6, shard_draws=300)
    means = tree["subposterior"]["centres"].mean(("chain", "draw")).to_numpy()
    assert (np.sign(means) == np.sign(means[0])).all()


@pytest.mark.slow
def test_rows_that_differ_between_shards_are_noticed(conjugate):
    x, y = conjugate.rows["x"], conjugate.rows["y"].copy()
    y[:100] += 30.0
    groups = np.minimum(np.arange(len(y)) // 100, 9)
    partition = vcmc.split({"x": x, "y": y}, 10, groups=groups)
    with pytest.warns(vcmc.DoubtfulWarning, match="disagrees with the others"):
        tree = vcmc.infer(conjugate.model, partition, shard_draws=500)
    assert "disagree" in " ".join(tree.attrs["warnings"])


class Broken(vcmc.samplers.NUTS):
    """NUTS whose draws are NaN on the shard with the largest first row."""

    def advance(self, density, state, key, num_steps):
        state, points, stats = super().advance(density, state, key, num_steps)
        bad = density.shard.rows["y"][0] > 0
        return state, jnp.where(bad, jnp.nan, points), stats


def test_broken_shards_are_named_and_the_sound_ones_kept(conjugate):
    partition = vcmc.split(conjugate.rows, 4)
    bad = [k for k in range(4) if partition.load(k).rows["y"][0] > 0]
    assert 0 < len(bad) < 4
    with pytest.raises(
        vcmc.ShardError, match=f"{len(bad)} of 4 shards .* shard {bad[0]}: its draws"
    ) as caught:
        vcmc.infer(conjugate.model, partition, shard_draws=50, sampler=Broken(num_warmup=50))
    assert caught.value.tree.attrs["sound_shards"] == [k for k in range(4) if k not in bad]
    assert caught.value.tree["subposterior"].sizes["shard"] == 4 - len(bad)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"num_shards": 5000}, r"between 1 and the number of rows \(1003\); got 5000"),
        (
            {"num_shards": 2, "seed": -1},
            "seed must be an integer of at least 0, e.g. seed=0; got -1",
        ),
        ({"num_shards": 2, "num_draws": 0}, "num_draws must be an integer of at least 4; got 0"),
        ({"num_shards": 2, "thin": 0}, "thin must be an integer of at least 1; got 0"),
        ({"num_shards": 2, "prior": "full"}, "one of .*'partial', 'powered'.*; got 'full'"),
        (
            {"num_shards": 2, "sampler": "nuts"},
            r"sampler must be a Sampler instance, e\.g\. vcmc.samplers.NUTS\(\); got 'nuts'",
        ),
        (
            {"num_shards": 2, "combiner": "mean"},
            r"combiner must be a Combiner instance, e\.g\. vcmc.combiners.Consensus\(\)",
        ),
        (
            {"num_shards": 2, "executor": 4},
            r"executor must be an Executor instance, e\.g\. vcmc.executors.Local\(\)",
        ),
    ],
)
def test_bad_arguments_are_refused(arguments, message, conjugate):
    with pytest.raises((ValueError, TypeError), match=message):
        vcmc.infer(conjugate.model, conjugate.rows, **arguments)


def test_a_function_is_not_a_model(conjugate):
    with pytest.raises(
        TypeError,
        match=r"model must be a Model instance, e\.g\. vcmc.Model\(...\), vcmc.from_numpyro",
    ):
        vcmc.infer(scale_regression, conjugate.rows, num_shards=2)


def test_num_shards_must_be_the_partitions(conjugate):
    with pytest.raises(ValueError, match=r"equal the partition's number of shards \(3\); got 4"):
        vcmc.infer(conjugate.model, vcmc.split(conjugate.rows, 3), num_shards=4)


@pytest.mark.slow
def test_ctrl_c_stops_the_threads(conjugate):
    class Interrupt(vcmc.samplers.NUTS):
        def advance(self, density, state, key, num_steps):
            if num_steps and threading.current_thread() is not threading.main_thread():
                seen.append(1)
                if len(seen) == 3:
                    raise KeyboardInterrupt
            return super().advance(density, state, key, num_steps)

    seen: list[int] = []
    with pytest.raises(KeyboardInterrupt):
        vcmc.infer(
            conjugate.model, conjugate.rows, num_shards=20, sampler=Interrupt(num_warmup=5000)
        )
    assert list(thread_map(lambda item: item, range(4))) == [0, 1, 2, 3]  # threads are free again
    count = -1
    while count != len(seen):  # blocks that were begun may end
        count = len(seen)
        time.sleep(2)
    assert len(seen) < 20 * 60 / 4  # and nobody goes on: far from done, 20 chains of 60 blocks


class Lost(vcmc.executors.Local):
    """Threads that are lost in one stage of a run."""

    def __init__(self, stage):
        super().__init__()
        object.__setattr__(self, "stage", stage)

    def outcomes(self, work, tasks, shard_cache, advance=no_progress, one_by_one=False):
        if any(frame.function == self.stage for frame in inspect.stack(context=0)):
            return iter([Outcome(error=ExecutorLost("nobody answers"))] * len(tasks))
        return super().outcomes(work, tasks, shard_cache, advance, one_by_one)


@pytest.mark.filterwarnings("ignore::vcmc.DoubtfulWarning")
@pytest.mark.parametrize(
    ("stage", "kind", "message"),
    [
        ("shard_facts", vcmc.ShardError, "nothing was sampled: the checks before sampling failed"),
        ("common_start", vcmc.ShardError, "nothing was sampled: the checks before sampling failed"),
        ("sample_shards", vcmc.ShardError, "no shard could be sampled. Shard 0: "),
        ("combine_shards", vcmc.CombineError, "the shards were sampled, but combining them failed"),
        ("refine_draws", vcmc.AssessmentError, "combined, but refining them failed"),
        ("assess", vcmc.AssessmentError, "combined, but diagnosing them failed"),
    ],
)
def test_the_loss_of_an_executor_names_the_stage_and_keeps_the_draws(
    stage, kind, message, conjugate
):
    with pytest.raises(kind, match=message) as caught:
        vcmc.infer(
            conjugate.model,
            conjugate.rows,
            num_shards=3,
            shard_draws=100,
            sampler=vcmc.samplers.NUTS(num_warmup=50),
            executor=Lost(stage),
            refine=True,
        )
    assert type(caught.value) is kind
    assert "nobody answers" in str(caught.value)
    assert isinstance(caught.value.__cause__, ExecutorLost)
    assert (caught.value.tree is None) == (kind is vcmc.ShardError)
