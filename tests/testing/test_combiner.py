"""check_combiner finds planted faults and names the broken law."""

from dataclasses import replace
from typing import ClassVar

import jax.numpy as jnp
import numpy as np
import pytest

from vcmc import combiners
from vcmc.combiners import AbstractCombiner, Combined, Needs
from vcmc.testing import check_combiner


class Averaged(AbstractCombiner):
    """Averages of draws, with noise and faults that are chosen."""

    fault: str = ""
    needs: ClassVar[Needs] = Needs(streams=True)

    def combine(self, shards):
        if self.fault == "holds all":
            kept = list(shards)
            return Combined(jnp.asarray(np.mean(kept, axis=0)))
        if self.fault.startswith("refuses") and len(set(shards.counts)) > 1:
            raise {"refuses": ValueError, "refuses, oddly": KeyError}[self.fault](
                "draws differ in number"
            )
        seed = 0 if self.fault == "fixed" else shards.seed
        merged = combiners.Average().combine(replace(shards, seed=seed)).draws
        sds = np.std(merged, axis=0)
        noise = {"unseeded": None, "fixed": 0}
        if self.fault in noise:
            return Combined(
                merged + 1e-9 * np.random.default_rng(noise[self.fault]).normal(size=merged.shape)
            )
        if self.fault == "wide":
            return Combined(merged.mean(axis=0) + 1.1 * (merged - merged.mean(axis=0)))
        return Combined(merged + (0.1 * sds if self.fault == "biased" else 0.0))


class Overridden(combiners.Average):
    def __call__(self, shards):
        return Combined(combiners.Average.__call__(self, shards).draws[::-1])


@pytest.mark.parametrize(
    ("combiner", "settings", "law"),
    [
        (Overridden(), {}, "a single shard is returned unchanged"),
        (
            Averaged("unseeded"),
            {},
            "the same seed gives the same draws. Expected .* to the last bit",
        ),
        (Averaged("fixed"), {"uses_seed": True}, "another seed gives other draws"),
        (Averaged("biased"), {}, "exact on 6 equal Gaussian shards of dimension 1"),
        (Averaged("wide"), {}, "exact on 6 equal Gaussian shards of dimension 1"),
        (
            Averaged("biased"),
            {"smooths": 0.03},
            "right on average on 6 Gaussian shards of dimension 4",
        ),
        (
            Averaged("refuses, oddly"),
            {},
            "unequal numbers of draws.*Expected draws or a ValueError; got KeyError",
        ),
        (
            Averaged("refuses"),
            {"may_refuse": False},
            "unequal numbers of draws.*Expected draws; got ValueError",
        ),
        (
            Averaged("holds all"),
            {},
            "holds one shard at a time. Expected the draws of two shards in memory at most; "
            "got those of 8",
        ),
    ],
)
def test_faults_of_a_combiner_are_found(combiner, settings, law, broken):
    with broken(law):
        check_combiner(combiner, **settings)


def test_draws_of_unequal_number_may_be_refused():
    check_combiner(Averaged("refuses"))
