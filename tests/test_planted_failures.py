"""Planted failures: none may pass as good, and the verdict must name the cause.

Draws are exact draws of the shards, by closed forms or on a grid, before they are corrupted. The
same settings without a fault are good. Where the default combiner corrects a fault, the result is
compared with the exact posterior.
"""

import jax.numpy as jnp
import numpy as np
import pytest

import vcmc

pytestmark = pytest.mark.slow

NUM_SHARDS, NUM_DRAWS = 8, 1000
CONSENSUS, DEFAULT = vcmc.combiners.Consensus(), vcmc.combiners.Variational()

both = pytest.mark.parametrize("combiner", [CONSENSUS, DEFAULT], ids=["consensus", "default"])


def combined(draws, model, rows, combiner):
    return vcmc.combine(draws, model=model, rows=rows, combiner=combiner, progress=False)


def assert_not_good(verb, *words):
    """The result of a verb is not good, and says so in these words; all that it says."""
    with pytest.warns(vcmc.DoubtfulWarning):
        tree = verb()
    assert tree.attrs["verdict"] in ("doubtful", "poor")
    for word in words:
        assert word in tree.attrs["verdict_text"]
        assert any(word in warning for warning in tree.attrs["warnings"])
    assert vcmc.diagnose(tree).verdict == tree.attrs["verdict"]
    return tree.attrs["verdict_text"]


def assert_good_and_right(tree, name, mean, sd):
    """The verdict is good, and it is true: moments are those of the exact posterior."""
    assert tree.attrs["verdict"] == "good", tree.attrs["verdict_text"]
    found = tree["posterior"][name].to_numpy().reshape(-1, *np.shape(mean))
    # consensus weights are estimated, too, and cost up to √3 times the draws' own error
    assert (np.abs(found.mean(axis=0) - mean) / sd < 4 * np.sqrt(3 / NUM_DRAWS)).all()
    assert (np.abs(found.std(axis=0) / sd - 1) < 4 * np.sqrt(3 / (2 * NUM_DRAWS))).all()


def draws_on_grid(grid, log_density, seed):
    """Draws of a density that is known on a grid."""
    cumulated = np.cumsum(np.exp(log_density - log_density.max()))
    return np.interp(
        np.random.default_rng(seed).uniform(size=NUM_DRAWS), cumulated / cumulated[-1], grid
    )


# A linear regression: shards and posterior are known Gaussians.


@pytest.fixture(scope="module")
def partition(conjugate):
    return vcmc.split(conjugate.rows, NUM_SHARDS)


def exact_draws(conjugate, partition, power=1 / NUM_SHARDS):
    generator = np.random.default_rng(0)
    regression = conjugate._replace(rows=partition.rows)
    moments = [regression.posterior(members, power) for members in partition.members]
    return np.stack([generator.multivariate_normal(*each, size=NUM_DRAWS) for each in moments])


@pytest.fixture
def draws(conjugate, partition):
    return exact_draws(conjugate, partition)


def assert_exact(tree, conjugate):
    mean, covariance = conjugate.posterior()
    assert_good_and_right(tree, "beta", mean, np.sqrt(np.diag(covariance)))


@both
def test_a_regression_without_a_plant_is_good(combiner, conjugate, partition, draws):
    assert_exact(combined({"beta": draws}, conjugate.model, partition, combiner), conjugate)


@both
def test_a_shard_of_corrupted_rows_is_named(combiner, conjugate, partition):
    y = partition.rows["y"].copy()
    y[partition.members[3]] *= 100
    corrupted = vcmc.Partition({"x": partition.rows["x"], "y": y}, partition.members)
    beta = exact_draws(conjugate, corrupted)
    assert_not_good(
        lambda: combined({"beta": beta}, conjugate.model, corrupted, combiner),
        "Shard 3 disagrees",
        "are they sound",
    )


@both
def test_a_constant_chain_is_refused(combiner, conjugate, partition, draws):
    draws[2] = draws[2, 0]
    with pytest.raises(
        ValueError, match="shard 2: one of its chains never moved: all draws are the same"
    ):
        combined({"beta": draws}, conjugate.model, partition, combiner)


@both
def test_a_chain_that_got_stuck_is_named(combiner, conjugate, partition, draws):
    draws[2, 200:] = draws[2, 200]
    assert_not_good(
        lambda: combined({"beta": draws}, conjugate.model, partition, combiner),
        "Shard 2 did not converge",
    )


def test_a_chain_that_hardly_moves_is_named(conjugate, partition, draws):
    draws[2] = np.repeat(draws[2, ::20], 20, axis=0)
    assert_not_good(
        lambda: combined({"beta": draws}, conjugate.model, partition, DEFAULT),
        "Shard 2 has few effective draws",
    )


@both
@pytest.mark.parametrize("shards", [[2], list(range(NUM_SHARDS))], ids=["one", "all"])
def test_chains_that_drift_are_named(shards, combiner, conjugate, partition, draws):
    trend = np.linspace(-1.5, 1.5, NUM_DRAWS)[:, None]
    draws[shards] += trend * draws[shards].std(axis=1, keepdims=True)
    assert_not_good(
        lambda: combined({"beta": draws}, conjugate.model, partition, combiner),
        f"{', '.join(map(str, shards))} did not converge",
    )


@both
@pytest.mark.parametrize("order", [1, -1], ids=["in order", "reversed"])
def test_draws_of_one_shard_in_place_of_anothers_are_refused(
    order, combiner, conjugate, partition, draws
):
    draws[5] = draws[1, ::order]
    with pytest.raises(ValueError, match="shard 5: its draws are the same as those of shard 1"):
        combined({"beta": draws}, conjugate.model, partition, combiner)


@both
def test_a_shard_without_information_is_named(combiner, conjugate, partition):
    x = partition.rows["x"].copy()
    x[partition.members[3], 2] = 0
    silent = vcmc.Partition({"x": x, "y": partition.rows["y"]}, partition.members)
    beta = exact_draws(conjugate, silent)
    assert_not_good(
        lambda: combined({"beta": beta}, conjugate.model, silent, combiner),
        "Shard 3 is more than 20 times as wide as the others",
        "beta[2]",
        "the rows say next to nothing there",
    )


def test_infer_names_a_shard_without_information(conjugate, partition):
    x = partition.rows["x"].copy()
    x[partition.members[3], 2] = 0
    silent = vcmc.Partition({"x": x, "y": partition.rows["y"]}, partition.members)
    assert_not_good(
        lambda: vcmc.infer(conjugate.model, silent, shard_draws=300, progress=False),
        "1 of 8 shards holds no information on beta[2]",
    )


@pytest.fixture(scope="module")
def strong(conjugate):
    """The regression with a prior that weighs as much as two shards."""
    precision = np.full(3, 300.0)
    model = vcmc.Model(
        space=dict(conjugate.model.space),
        log_prior=lambda params: -0.5 * jnp.sum(precision * params["beta"] ** 2),
        log_likelihood=conjugate.model.log_likelihood,
    )
    return conjugate._replace(model=model, prior_precision=precision)


def test_draws_with_the_full_prior_in_every_shard_are_found_to_be_off(strong, partition):
    partial = exact_draws(strong, partition, power=1.0)
    assert_not_good(
        lambda: combined({"beta": partial}, strong.model, partition, CONSENSUS),
        "The mean of beta",
        "The sd of beta",
        "(and 2 more) is off by",
    )
    assert_exact(
        combined({"beta": partial}, strong.model, partition, DEFAULT), strong
    )  # corrected, truly


def test_draws_for_other_rows_are_found_to_be_off(conjugate, partition):
    noise = np.random.default_rng(9).normal(size=len(partition.rows["y"]))
    others = {"x": partition.rows["x"], "y": partition.rows["x"] @ [1.1, -2.1, 0.4] + noise}
    beta = exact_draws(conjugate, vcmc.Partition(others, partition.members))
    assert_not_good(
        lambda: combined({"beta": beta}, conjugate.model, partition, CONSENSUS),
        "(and 2 more) is off by",
    )
    assert_exact(combined({"beta": beta}, conjugate.model, partition, DEFAULT), conjugate)


# A probit regression, sampled by `infer`.

PROBIT, WIDE_PROBIT = vcmc.models.Probit(2), vcmc.models.Probit(2, prior_scale=100.0)


@pytest.fixture(scope="module")
def outcomes():
    generator = np.random.default_rng(0)
    x = np.column_stack([np.ones(800), generator.normal(size=800)])
    y = (x @ [0.3, -1.0] + generator.normal(size=800) > 0).astype(float)
    return vcmc.split({"x": x, "y": y}, 4)


def inferred(model, partition, y, combiner):
    rows = {"x": partition.rows["x"], "y": y}
    return vcmc.infer(
        model, vcmc.Partition(rows, partition.members), combiner=combiner, progress=False
    )


def test_a_probit_regression_without_a_plant_is_good(outcomes):
    tree = inferred(PROBIT, outcomes, outcomes.rows["y"], DEFAULT)
    whole = vcmc.infer(PROBIT, outcomes.rows, num_shards=1, shard_draws=2000, progress=False)[
        "posterior"
    ]["beta"]
    assert_good_and_right(
        tree, "beta", whole.mean(("chain", "draw")).values, whole.std(("chain", "draw")).values
    )


@both
def test_a_shard_of_flipped_labels_is_named(combiner, outcomes):
    y, flipped = outcomes.rows["y"].copy(), outcomes.members[2]
    y[flipped] = 1 - y[flipped]
    assert_not_good(
        lambda: inferred(PROBIT, outcomes, y, combiner),
        "Shard 2 disagrees",
        "are they sound",
    )


@both
def test_a_separated_shard_that_its_prior_does_not_hold_is_named(combiner, outcomes):
    y, separated = outcomes.rows["y"].copy(), outcomes.members[2]
    y[separated] = outcomes.rows["x"][separated, 1] < 0.3
    assert_not_good(
        lambda: inferred(WIDE_PROBIT, outcomes, y, combiner),
        "Shard 2 is more than 20 times as wide as the others",
        "the tempered prior is weak",
    )


# Two modes: y is about θ², so that θ and -θ fit alike.


class TwoModes:
    """Rows with mean 4, so that θ is 2 or -2, and a Gaussian prior that may prefer one of them."""

    def __init__(self, centre, width):
        self.prior = lambda theta: -0.5 * ((theta - centre) / width) ** 2
        self.partition = vcmc.split(
            {"y": 4 + np.random.default_rng(0).normal(size=400)}, NUM_SHARDS
        )
        self.model = vcmc.Model(
            space={"theta": vcmc.Real()},
            log_prior=lambda params: self.prior(params["theta"]),
            log_likelihood=lambda params, rows: -0.5 * (rows["y"] - params["theta"] ** 2) ** 2,
        )

    def draws(self, signs):
        """Draws of the shards, each in the mode of its sign."""
        drawn = []
        for shard, (members, sign) in enumerate(zip(self.partition.members, signs, strict=True)):
            grid = sign * np.linspace(0.01, 4, 8001)
            gaps = self.partition.rows["y"][members, None] - grid**2
            log_density = self.prior(grid) / NUM_SHARDS - 0.5 * np.sum(gaps**2, axis=0)
            drawn.append(draws_on_grid(grid, log_density, shard))
        return np.stack(drawn)


@pytest.fixture(scope="module")
def even():
    return TwoModes(0.0, 3.0)


@pytest.fixture(scope="module")
def tilted():
    return TwoModes(2.0, 1.0)


@both
@pytest.mark.parametrize("missed", [[5], [0, 2, 4, 6]], ids=["one", "half"])
def test_shards_in_different_modes_are_named(missed, combiner, even):
    signs = np.ones(NUM_SHARDS)
    signs[missed] = -1
    theta = even.draws(signs)
    words = [f"{', '.join(map(str, missed))} disagree", "The posterior has another mode"]
    assert_not_good(
        lambda: combined({"theta": theta}, even.model, even.partition, combiner), *words
    )


@both
def test_shards_that_all_sit_in_the_wrong_mode_are_found_out(combiner, tilted):
    theta = tilted.draws(-np.ones(NUM_SHARDS))
    assert_not_good(
        lambda: combined({"theta": theta}, tilted.model, tilted.partition, combiner),
        "The posterior has another mode, far from the draws",
        "100 % of the mass",
        "near theta = 1.99",
    )


@both
def test_shards_that_all_sit_in_the_right_mode_are_good(combiner, tilted):
    theta = tilted.draws(np.ones(NUM_SHARDS))
    tree = combined({"theta": theta}, tilted.model, tilted.partition, combiner)
    assert tree.attrs["verdict"] == "good"


def test_averages_of_shards_that_visit_both_modes_lie_between_them(even):
    visits = np.random.default_rng(1).choice([-1, 1], size=(NUM_SHARDS, NUM_DRAWS))
    theta = visits * even.draws(np.ones(NUM_SHARDS))
    words = "The posterior does not fall off around the combined draws", "they lie between modes"
    assert_not_good(
        lambda: combined({"theta": theta}, even.model, even.partition, CONSENSUS), *words
    )
    words = "The posterior has another mode", "50 % of the mass"
    assert_not_good(lambda: combined({"theta": theta}, even.model, even.partition, DEFAULT), *words)


def test_draws_where_the_target_is_a_valley_are_named(even):
    theta = 0.05 * np.random.default_rng(2).normal(size=(NUM_SHARDS, NUM_DRAWS))
    words = "The posterior does not fall off around the combined draws", "they lie between modes"
    assert_not_good(
        lambda: combined({"theta": theta}, even.model, even.partition, CONSENSUS), *words
    )
    words = "The posterior has another mode", "50 % of the mass"
    assert_not_good(lambda: combined({"theta": theta}, even.model, even.partition, DEFAULT), *words)


# A mixture whose components lie far apart: given the shard, their centres are Gaussian.


@pytest.fixture(scope="module")
def mixture():
    generator = np.random.default_rng(2)
    component = generator.integers(2, size=800)
    x = np.where(component, 4.0, -4.0) + generator.normal(size=800)
    partition = vcmc.split({"x": x[:, None]}, NUM_SHARDS)
    centres = np.empty((NUM_SHARDS, NUM_DRAWS, 2, 1))
    for shard, members in enumerate(partition.members):
        for label in (0, 1):
            own = x[members][component[members] == label]
            precision = len(own) + 1 / (9 * NUM_SHARDS)
            noise = generator.normal(size=NUM_DRAWS) / np.sqrt(precision)
            centres[shard, :, label, 0] = own.sum() / precision + noise
    return vcmc.models.GaussianMixture(2, 1, prior_scale=3.0), partition, centres


def test_a_mixture_without_a_plant_is_good_whatever_its_labels(mixture):
    model, partition, centres = mixture
    relabelled = centres.copy()
    relabelled[3] = relabelled[3, :, ::-1]
    for each, combiner in ((centres, CONSENSUS), (centres, DEFAULT), (relabelled, DEFAULT)):
        assert combined({"centres": each}, model, partition, combiner).attrs["verdict"] == "good"


@both
@pytest.mark.parametrize("share", [0.5, 0.05])
def test_labels_that_switch_within_a_chain_are_named(share, combiner, mixture):
    model, partition, centres = mixture
    switched = centres.copy()
    first = round((1 - share) * NUM_DRAWS)
    switched[3, first:] = switched[3, first:, ::-1]
    assert_not_good(
        lambda: combined({"centres": switched}, model, partition, combiner),
        "Shard 3: exchangeable components switch labels within the chains",
    )


# A scale: given the shard, σ⁻² has a gamma distribution.


class Scale:
    """Rows of mean zero and an unknown scale, whose square has an inverse gamma prior."""

    def __init__(self, scale):
        self.y = scale * np.random.default_rng(5).normal(size=800)
        self.partition = vcmc.split({"y": self.y}, NUM_SHARDS)

    @staticmethod
    def log_prior(params):
        return -5 * jnp.log(params["sigma"]) - 2 / params["sigma"] ** 2

    @staticmethod
    def log_likelihood(params, rows):
        return -jnp.log(params["sigma"]) - 0.5 * (rows["y"] / params["sigma"]) ** 2

    def draws(self, members, power, size=NUM_DRAWS):
        generator = np.random.default_rng(len(members) + int(members[0]))
        shape, rate = 2 * power + len(members) / 2, 2 * power + np.sum(self.y[members] ** 2) / 2
        return (rate / generator.gamma(shape, size=size)) ** 0.5

    @property
    def shards(self):
        return np.stack([self.draws(members, 1 / NUM_SHARDS) for members in self.partition.members])


SCALE = vcmc.Model(
    space={"sigma": vcmc.Positive()}, log_prior=Scale.log_prior, log_likelihood=Scale.log_likelihood
)


def test_a_scale_on_a_wrong_scale_is_found_to_be_off():
    large = Scale(5.0)
    exact = large.draws(np.arange(800), 1.0, size=100_000)
    for combiner in (CONSENSUS, DEFAULT):
        tree = combined({"sigma": large.shards}, SCALE, large.partition, combiner)
        assert_good_and_right(tree, "sigma", exact.mean(), exact.std())
    logs = np.log(large.shards)  # all of them positive
    assert_not_good(
        lambda: combined({"sigma": logs}, SCALE, large.partition, CONSENSUS),
        "The mean of sigma",
        "The sd of sigma",
    )
    corrected = combined({"sigma": logs}, SCALE, large.partition, DEFAULT)
    assert_good_and_right(corrected, "sigma", exact.mean(), exact.std())


@both
def test_a_log_scale_below_zero_is_refused(combiner):
    small = Scale(0.5)
    with pytest.raises(
        ValueError, match=r"lie inside the parameter's space .*; got shard 0.*check space="
    ):
        combined({"sigma": np.log(small.shards)}, SCALE, small.partition, combiner)


# Posteriors that are far from Gaussian.


def test_a_banana_is_not_taken_for_a_gaussian():
    generator = np.random.default_rng(0)
    partition = vcmc.split({"y": 0.5 + generator.normal(size=100)}, 4)
    model = vcmc.Model(
        space={"a": vcmc.Real(), "b": vcmc.Real()},
        log_prior=lambda params: -0.5 * (params["a"] ** 2 + params["b"] ** 2),
        log_likelihood=lambda params, rows: (
            -0.5 * (rows["y"] - params["a"] - params["b"] ** 2) ** 2
        ),
    )
    power, grid, draws = 1 / 4, np.linspace(-6, 6, 8001), {"a": [], "b": []}
    for shard, members in enumerate(partition.members):
        mean, precision = partition.rows["y"][members].mean(), len(members) + power
        log_density = -0.5 * power * grid**2 - 0.5 * (mean - grid**2) ** 2 / (
            1 / len(members) + 1 / power
        )
        b = draws_on_grid(grid, log_density, shard)
        a = len(members) * (mean - b**2) / precision + generator.normal(size=NUM_DRAWS) / np.sqrt(
            precision
        )
        draws["a"].append(a)
        draws["b"].append(b)
    draws = {name: np.stack(each) for name, each in draws.items()}
    text = assert_not_good(lambda: combined(draws, model, partition, CONSENSUS))
    assert "does not fall off around the combined draws" in text or "move away from them" in text
    # the default learns the bend: given b, a is normal
    rows = partition.rows["y"]
    log_density = -0.5 * grid**2 - 0.5 * (rows.mean() - grid**2) ** 2 / (1 / len(rows) + 1)
    density = np.exp(log_density - log_density.max())
    density /= density.sum()
    shrinkage = len(rows) / (len(rows) + 1)
    given_b = shrinkage * (rows.mean() - grid**2)
    a_mean = density @ given_b
    a_sd = np.sqrt(density @ (given_b - a_mean) ** 2 + 1 / (len(rows) + 1))
    bent = combined(draws, model, partition, DEFAULT)
    assert_good_and_right(bent, "a", a_mean, a_sd)
    assert_good_and_right(bent, "b", 0.0, np.sqrt(density @ grid**2))


@both
def test_combined_draws_outside_a_bounded_support_are_counted(combiner):
    """Rows are uniform up to an end that no shard but one has seen."""
    partition = vcmc.split({"y": 1.5 * np.random.default_rng(1).random(200)}, 4)

    def log_likelihood(params, rows):
        end = jnp.where(params["end"] > 0, params["end"], 1.0)
        return jnp.where(rows["y"] < params["end"], -jnp.log(end), -jnp.inf)

    model = vcmc.Model(
        space={"end": vcmc.Real()},
        log_prior=lambda params: -params["end"],
        log_likelihood=log_likelihood,
    )
    ends = []
    for shard, members in enumerate(partition.members):
        grid = np.linspace(partition.rows["y"][members].max(), 6, 20_001)
        ends.append(draws_on_grid(grid, -grid / 4 - len(members) * np.log(grid), shard))
    assert_not_good(
        lambda: combined({"end": np.stack(ends)}, model, partition, combiner),
        "The full-data log density is not finite at",
        "of 400 combined draws",
    )
