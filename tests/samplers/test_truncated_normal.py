import jax.numpy as jnp
import numpy as np
import pytest
from scipy.stats import kstest, truncnorm

from vcmc.samplers.truncated_normal import positive_normal, positive_normal_jax

MEANS = [-1000.0, -40.0, -30.0, -25.5, -24.5, -10.0, -3.0, 0.0, 2.0, 10.0, 30.0]
NUM_DRAWS = 200_000


def draw(mean, seed=0):
    uniform = np.random.default_rng(seed).random(NUM_DRAWS)
    out = np.empty(NUM_DRAWS)
    positive_normal(np.full(NUM_DRAWS, mean), uniform.copy(), out)
    return out, uniform


@pytest.mark.parametrize("mean", MEANS)
def test_moments_are_scipys(mean):
    draws, _ = draw(mean)
    assert np.isfinite(draws).all()
    assert (draws >= 0).all()
    if mean > -50:  # SciPy itself loses digits further out
        expected = truncnorm(-mean, np.inf, loc=mean)
        assert abs(draws.mean() - expected.mean()) < 4 * expected.std() / np.sqrt(NUM_DRAWS)
        kurtosis = expected.stats("k") + 2
        assert abs(draws.std() / expected.std() - 1) < 4 * np.sqrt(kurtosis / 4 / NUM_DRAWS)
        assert kstest(draws[:20_000], expected.cdf).pvalue > 1e-3
    else:  # the excess is exponential with rate |mean|, to a part in mean²
        assert abs(draws.mean() * abs(mean) - 1) < 4 / np.sqrt(NUM_DRAWS) + mean**-2


@pytest.mark.parametrize("mean", MEANS)
def test_compiled_and_plain_code_agree(mean):
    draws, uniform = draw(mean)
    compiled = positive_normal_jax(jnp.full(NUM_DRAWS, mean), jnp.asarray(uniform))
    np.testing.assert_allclose(compiled, draws, rtol=1e-9, atol=1e-11)


@pytest.mark.slow
@pytest.mark.parametrize("mean", MEANS)
def test_single_precision_stays_close(mean):
    draws, uniform = draw(mean)
    single = positive_normal_jax(
        jnp.full(NUM_DRAWS, mean, jnp.float32), jnp.asarray(uniform, jnp.float32)
    )
    assert np.isfinite(single).all()
    assert (single >= 0).all()
    assert abs(np.mean(single, dtype=float) / draws.mean() - 1) < 1e-4


@pytest.mark.parametrize("uniform", [0.0, 2.0**-53, 0.5, 1 - 2.0**-53])
def test_extreme_uniforms_are_safe(uniform):
    means = np.linspace(-45.0, 45.0, 181)
    out = np.empty(181)
    positive_normal(means, np.full(181, uniform), out)
    assert np.isfinite(out).all()
    assert (out >= 0).all()
    compiled = positive_normal_jax(jnp.asarray(means), jnp.full(181, uniform))
    assert np.isfinite(compiled).all()
