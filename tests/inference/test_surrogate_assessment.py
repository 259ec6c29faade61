"""What an update without the old rows knows and says of the old result."""

import numpy as np
import pytest

import vcmc
from vcmc.data.params import to_points
from vcmc.inference.surrogate_assessment import OLD_RESULT, old_doubts, old_posterior
from vcmc.results.tree import add_groups, draws_by_parameter

MODEL = vcmc.Model({"a": vcmc.Real()}, lambda params: 0.0, lambda params, rows: rows["y"])


@pytest.fixture(scope="module")
def tree():
    draws = {"a": np.random.default_rng(0).normal(size=(2, 500))}
    return vcmc.combine(draws, num_draws=2000, progress=False)


def test_the_verdict_of_the_old_result_is_passed_on(tree):
    assert "not known" in old_doubts(tree)[0]
    good = add_groups(tree, {}, {"verdict": "good"})
    assert old_doubts(good) == []
    numbers = dict.fromkeys(("pareto_k", "ksd", "ksd_p_value", "not_linear"), 0.0)
    stored = {"verdict": "poor", "verdict_reasons": ["It is off."], "can_be_refined": 0, **numbers}
    poor = add_groups(tree, {}, stored)
    assert old_doubts(poor) == [f"{OLD_RESULT} poor: It is off."]
    twice = add_groups(
        poor, {}, {"verdict_reasons": ["Another.", f"{OLD_RESULT} poor: It is off."]}
    )
    assert old_doubts(twice) == [f"{OLD_RESULT} poor: It is off."]


def with_errors(tree, exact, **attributes):
    numbers = dict.fromkeys(("pareto_k", "ksd", "ksd_p_value", "not_linear"), 0.0)
    parts = [
        f"{kind}_error{suffix}" for kind in ("mean", "sd", "q05", "q95") for suffix in ("", "_se")
    ]
    groups = {part: {"a": np.asarray(0.1 if part.endswith("se") else 0.0)} for part in parts}
    stored = {"verdict": "good", "can_be_refined": 0, "exact": exact, **numbers, **attributes}
    return add_groups(tree, groups, stored)


def test_errors_of_exact_draws_are_those_of_the_draws_unless_of_a_surrogate(tree):
    points = np.asarray(to_points(MODEL.space, draws_by_parameter(tree)))[None]

    def shifts(result):
        return len(old_posterior(result, MODEL, points, seed=0).shifts)

    assert shifts(tree) == 0
    assert shifts(with_errors(tree, "")) > 0
    assert shifts(with_errors(tree, "Chains on all rows.")) == 0
    assert shifts(with_errors(tree, "Chains on all rows.", surrogate_maps=0)) > 0


def test_shared_draws_of_shards_limit_the_effective_draws(tree):
    points = np.asarray(to_points(MODEL.space, draws_by_parameter(tree)))[None]
    # the mean of two shards of 500 draws has the error of 500 of the posterior
    assert 400 < old_posterior(tree, MODEL, points, seed=0).num_effective < 600
