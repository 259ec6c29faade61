"""R-hat and effective number of draws are ArviZ's, whatever the draws are like."""

import numpy as np
import pytest
from arviz_stats.base import array_stats

from vcmc.diagnostics import convergence
from vcmc.diagnostics.convergence import ess, rhat

SHAPES = [
    (3, 1, 1000, 2),
    (3, 1, 203, 2),  # halves and quarters that leave draws out
    (3, 2, 101, 2),
    (2, 4, 64, 3),
    (2, 5, 30, 2, 2),  # parameters that are matrices; ten halves
    (4, 3, 40),  # a parameter that is a number
]


def normal(generator, shape):
    return generator.normal(size=shape)


def single(generator, shape):
    return generator.normal(size=shape).astype(np.float32)


def walk(generator, shape):
    return generator.normal(size=shape).cumsum(axis=2)


def sticky(generator, shape):
    """Chains that often stay where they are, as Metropolis' do."""
    draws = generator.normal(size=shape)
    for draw in range(1, shape[2]):
        draws[:, :, draw] = np.where(
            generator.random(draws[:, :, 0].shape) < 0.6, draws[:, :, draw - 1], draws[:, :, draw]
        )
    return draws


def antithetic(generator, shape):
    return generator.normal(size=shape) + 3 * (-1.0) ** np.arange(shape[2]).reshape(
        -1, *[1] * len(shape[3:])
    )


def apart(generator, shape):
    return generator.normal(size=shape) + 4 * generator.normal(size=(*shape[:2], 1, *shape[3:]))


def integers(generator, shape):
    return generator.integers(0, 4, size=shape)


def yes_or_no(generator, shape):
    return generator.random(shape) < 0.5


def constant(generator, shape):
    return np.broadcast_to(generator.normal(size=(shape[0], 1, 1, *shape[3:])), shape)


def constant_chains(generator, shape):
    return np.broadcast_to(generator.normal(size=(*shape[:2], 1, *shape[3:])), shape)


def one_stuck_chain(generator, shape):
    draws = generator.normal(size=shape)
    draws[:, 0] = draws[:, 0, :1]
    return draws


def some_missing(generator, shape):
    return np.where(generator.random(shape) < 0.5 / shape[2], np.nan, generator.normal(size=shape))


def middle_missing(generator, shape):
    """The one draw that belongs to neither half, if there is one."""
    draws = generator.normal(size=shape)
    draws[:, :, shape[2] // 2] = np.nan
    return draws


def infinite(generator, shape):
    ends = generator.choice([-np.inf, np.inf], size=shape)
    return np.where(generator.random(shape) < 0.4, ends, generator.normal(size=shape))


def mostly_infinite(generator, shape):
    return np.where(generator.random(shape) < 0.7, np.inf, generator.normal(size=shape))


KINDS = [
    normal,
    single,
    walk,
    sticky,
    antithetic,
    apart,
    integers,
    yes_or_no,
    constant,
    constant_chains,
]
KINDS += [one_stuck_chain, some_missing, middle_missing, infinite, mostly_infinite]

QUIET = pytest.mark.filterwarnings(
    "ignore::RuntimeWarning"
)  # ArviZ divides by the variance of constants


def arviz_rhat(draws):
    """ArviZ's, of a lone chain's two halves: ArviZ itself gives NaN to a lone chain."""
    if draws.shape[1] == 1:
        half = draws.shape[2] // 2
        draws = np.concatenate([draws[:, :, :half], draws[:, :, -half:]], axis=1)
    return array_stats.rhat(draws, chain_axis=1, draw_axis=2)


def arviz_ess(draws):
    return array_stats.ess(draws, chain_axis=1, draw_axis=2)


def assert_same(draws):
    # of draws in single precision, ArviZ 1.x rounds some intermediate results to it
    rtol = 4 * np.finfo(np.float32).eps if draws.dtype == np.float32 else 1e-8
    np.testing.assert_allclose(rhat(draws), arviz_rhat(draws), rtol=rtol, err_msg=f"{draws.shape}")
    np.testing.assert_allclose(ess(draws), arviz_ess(draws), rtol=rtol, err_msg=f"{draws.shape}")


@QUIET
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_both_are_arviz_s(kind, shape):
    assert_same(kind(np.random.default_rng(0), shape))


@pytest.mark.slow
@QUIET
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("num_chains", [1, 2, 3])
def test_both_are_arviz_s_for_short_chains(kind, num_chains):
    for num_draws in range(2, 14):
        assert_same(kind(np.random.default_rng(num_draws), (3, num_chains, num_draws, 2)))


@pytest.mark.parametrize("block", [1, 100, 1000, 3000])
def test_blocks_do_not_matter(block, monkeypatch):
    draws = walk(
        np.random.default_rng(1), (7, 2, 50, 5)
    )  # blocks of shards' parts, and of some shards
    whole = rhat(draws), ess(draws)
    monkeypatch.setattr(convergence, "BLOCK_DRAWS", block)
    np.testing.assert_allclose(rhat(draws), whole[0], rtol=1e-12)
    np.testing.assert_allclose(ess(draws), whole[1], rtol=1e-12)


def test_draws_may_lie_in_memory_in_any_order():
    draws = normal(np.random.default_rng(2), (3, 2, 20, 4))
    turned = np.asfortranarray(draws)
    np.testing.assert_array_equal(rhat(turned), rhat(draws))
    np.testing.assert_array_equal(ess(turned), ess(draws))


@pytest.mark.parametrize("num_draws", [0, 1])
@pytest.mark.parametrize("num_chains", [1, 2])
def test_hardly_any_draws_have_neither(num_chains, num_draws):
    draws = np.zeros((2, num_chains, num_draws, 3))
    assert np.isnan(rhat(draws)).all()
    assert np.isnan(ess(draws)).all()


def test_a_parameter_without_entries_has_no_numbers():
    assert rhat(np.zeros((2, 1, 10, 0))).shape == (2, 0)
    assert ess(np.zeros((2, 1, 10, 3, 0))).shape == (2, 3, 0)


@pytest.mark.filterwarnings("error")
def test_constants_need_no_warning():
    draws = np.ones((2, 2, 10, 1))
    assert np.isnan(rhat(draws)).all()
    assert (ess(draws) == 20).all()
