"""The laws of combiners are those of vcmc.testing; every combiner keeps them, and copes with a
thousand shards."""

import jax.numpy as jnp
import numpy as np
import pytest

from vcmc import combiners
from vcmc.aggregators import VectorFamily
from vcmc.combiners import Subposteriors
from vcmc.testing import check_combiner
from vcmc.testing.combiner import right_on_average

COMBINERS = {
    "Average": combiners.Average(),
    "Barycenter": combiners.Barycenter(),
    "Barycenter, marginals": combiners.Barycenter(marginals=True),
    "Consensus": combiners.Consensus(),
    "Consensus, diagonal": combiners.Consensus(diagonal=True),
    "ImportanceResample": combiners.ImportanceResample(),
    "Median": combiners.Median(),
    "Modes": combiners.Modes(),
    "Nonparametric": combiners.Nonparametric(),
    "Parametric": combiners.Parametric(),
    "PartitionTree": combiners.PartitionTree(),
    "Semiparametric": combiners.Semiparametric(),
    "Swiss": combiners.Swiss(),
    "Variational": combiners.Variational(),
    "Variational, diagonal": combiners.Variational(family=VectorFamily(full=False)),
    "Weierstrass": combiners.Weierstrass(),
}
CASES = pytest.mark.parametrize("combiner", COMBINERS.values(), ids=COMBINERS.keys())


def test_every_combiner_is_here(members):
    classes = members(combiners, combiners.AbstractCombiner)
    assert classes == {type(combiner) for combiner in COMBINERS.values()}


# These estimate the shards' densities: how far a run is off depends on how well n draws show a
# density, not on n alone.
OF_DENSITIES = ("Nonparametric", "PartitionTree", "Semiparametric", "Weierstrass")
SMOOTHING = 0.03


@pytest.mark.parametrize("name", COMBINERS)
def test_it_keeps_the_laws(name):
    combiner = COMBINERS[name]
    check_combiner(
        combiner,
        smooths=SMOOTHING if name in OF_DENSITIES else 0.0,
        may_refuse=False,
        uses_seed=True,
    )


@pytest.mark.slow
@pytest.mark.parametrize("name", OF_DENSITIES)
def test_products_of_estimated_densities_are_right_on_average(name, gaussian_shards):
    """Of shards that differ, too."""
    right_on_average(COMBINERS[name], gaussian_shards(4, 2), SMOOTHING)


@pytest.mark.slow
@CASES
def test_a_thousand_shards(combiner, gaussian_shards):
    one = gaussian_shards(1, 2)
    many = one.repeated(1000)
    draws = jnp.asarray(
        np.random.default_rng(0).multivariate_normal(
            one.means[0], one.covariances[0], size=(1000, 60)
        )
    )
    target = many.target() if combiner.needs.target else None
    space = one.target().model.space
    found = np.asarray(combiner(Subposteriors(draws, space, target)).draws)
    assert found.shape == (60, 2)
    assert np.isfinite(found).all()
    # within the spread of a shard, whose mean is theirs
    assert (np.abs(found.mean(axis=0) - one.means[0]) < np.sqrt(np.diag(one.covariances[0]))).all()
