import jax.numpy as jnp
import numpy as np
import pytest

import vcmc
import vcmc.target
from vcmc.data.shard_list import BatchShard, batches_partition
from vcmc.density import evaluate
from vcmc.target import Minibatch, Target


@pytest.fixture(scope="module", params=[3, 40])
def target(request, conjugate):
    """A target of few shards, and one of many small ones, which are evaluated joined."""
    partition = vcmc.split(conjugate.rows, request.param)
    return Target(
        conjugate.model, [partition.load(k) for k in range(request.param)], vcmc.executors.Local()
    )


def uneven_target(conjugate, executor, weights=None):
    """A target of shards of two batches, whose lengths differ."""
    rows = dict(conjugate.rows)
    if weights is not None:
        rows["w"] = weights
    count = len(next(iter(rows.values())))
    parts = [{n: a[chosen] for n, a in rows.items()} for chosen in (slice(99), slice(99, count))]
    shards = [
        BatchShard(vcmc.split(part, number), k)
        for part, number in zip(parts, (5, 2), strict=True)
        for k in range(number)
    ]
    partition = batches_partition(shards, None if weights is None else "w")
    return Target(conjugate.model, partition, executor)


POINTS = jnp.asarray(np.random.default_rng(0).normal(size=(4, 3)))


def test_it_is_the_sum_over_shards(target):
    parts = [evaluate(target.shard_cache.density(k), POINTS) for k in range(target.num_shards)]
    log_densities, scores = target(POINTS)
    np.testing.assert_allclose(log_densities, sum(part[0] for part in parts), rtol=1e-10)
    np.testing.assert_allclose(scores, sum(part[1] for part in parts), rtol=1e-9)


def test_it_is_the_full_log_density(target, conjugate):
    mean, covariance = conjugate.posterior()
    off = np.asarray(POINTS) - mean
    expected = -0.5 * np.einsum("ni,ij,nj->n", off, np.linalg.inv(covariance), off)
    log_densities, scores = target(POINTS)
    gaps = np.asarray(log_densities) - expected
    np.testing.assert_allclose(gaps, gaps[0], rtol=1e-8)
    np.testing.assert_allclose(scores, -off @ np.linalg.inv(covariance), rtol=1e-8)


def test_the_pilot_may_be_any_shard(target):
    chosen = Target(target.model, target.shard_cache, target.executor, pilot_shard=2)
    for pilot, shard in ((target.pilot, 0), (chosen.pilot, 2)):
        expected = evaluate(target.shard_cache.density(shard), POINTS)[0]
        np.testing.assert_array_equal(evaluate(pilot, POINTS)[0], expected)


def test_some_shards_stand_for_all(target):
    some = [target(POINTS, [shard]) for shard in range(target.num_shards)]
    np.testing.assert_allclose(
        np.mean([part[0] for part in some], axis=0), target(POINTS)[0], rtol=1e-10
    )
    np.testing.assert_allclose(
        np.mean([part[1] for part in some], axis=0), target(POINTS)[1], rtol=1e-8
    )


def test_minibatches_are_unbiased_and_exact_at_their_anchor(target):
    anchor = jnp.ones(3)
    minibatch = Minibatch(target, anchor, num_shards=2, seed=0)
    np.testing.assert_allclose(minibatch(anchor[None])[0], target(anchor[None])[0], rtol=1e-10)
    np.testing.assert_allclose(minibatch(anchor[None])[1], target(anchor[None])[1], rtol=1e-8)
    several = [minibatch(POINTS) for _ in range(300)]
    for part, expected in zip(zip(*several, strict=True), target(POINTS), strict=True):
        error = np.std(part, axis=0, ddof=1) / np.sqrt(300)
        assert (np.abs(np.mean(part, axis=0) - expected) < 4.5 * error + 1e-9).all()


def test_the_curvature_is_computed_in_parts_of_one_program(monkeypatch, conjugate):
    """Three coordinates by two directions at a time: the last part is padded."""
    target = Target(conjugate.model, vcmc.split(conjugate.rows, 3), vcmc.executors.Local())
    expected = np.linalg.inv(conjugate.posterior()[1])
    np.testing.assert_allclose(target.curvature(np.ones(3)), expected, rtol=1e-8)
    monkeypatch.setattr(vcmc.target, "MAX_DIRECTIONS", 2)
    monkeypatch.setattr(vcmc.target, "MAX_PRODUCTS", 1)
    np.testing.assert_allclose(target.curvature(np.ones(3)), expected, rtol=1e-8)


def test_a_frame_is_kept_for_points_near_it(conjugate):
    class Counting(Target):
        num_products = 0

        def hessian_products(self, point, directions):
            self.num_products += len(directions)
            return super().hessian_products(point, directions)

    target = Counting(conjugate.model, vcmc.split(conjugate.rows, 3), vcmc.executors.Local())
    mean, covariance = conjugate.posterior()
    frame = target.frame_near(mean)
    root = frame.root.values
    np.testing.assert_allclose(root @ root.T, covariance, rtol=1e-7)
    sds = np.sqrt(np.diag(covariance))
    assert target.frame_near(mean + 0.1 * sds) is frame
    assert target.num_products == 3
    assert target.frame_near(mean + 5 * sds) is not frame
    assert target.num_products > 3


def test_uneven_shards_are_evaluated_in_pieces_of_one_shape(conjugate, monkeypatch):
    target = uneven_target(conjugate, vcmc.executors.Local())
    parts = [evaluate(target.shard_cache.density(k), POINTS) for k in range(target.num_shards)]
    lengths = set()
    joined = vcmc.data.cache.joined_piece

    def counted(*arguments):
        shard = joined(*arguments)
        lengths.add(len(shard.weights))
        return shard

    monkeypatch.setattr("vcmc.data.cache.joined_piece", counted)
    log_densities, scores = target(POINTS)
    assert len(lengths) == 1
    np.testing.assert_allclose(log_densities, sum(part[0] for part in parts), rtol=1e-10)
    np.testing.assert_allclose(scores, sum(part[1] for part in parts), rtol=1e-9)
    products = target.hessian_products(POINTS[0], jnp.eye(3))
    _, covariance = conjugate.posterior()
    np.testing.assert_allclose(products, -np.linalg.inv(covariance), rtol=1e-4, atol=1e-3)


def test_pieces_have_the_weights_of_rows(conjugate):
    count = len(next(iter(conjugate.rows.values())))
    weights = np.random.default_rng(1).integers(0, 3, count).astype(float)
    target = uneven_target(conjugate, vcmc.executors.Local(), weights)
    parts = [evaluate(target.shard_cache.density(k), POINTS) for k in range(target.num_shards)]
    assert target._tasks[0][0].piece is not None
    np.testing.assert_allclose(target(POINTS)[0], sum(part[0] for part in parts), rtol=1e-10)


def test_pieces_do_not_depend_on_the_executor(conjugate):
    with vcmc.executors.Processes(1) as executor:
        elsewhere = uneven_target(conjugate, executor)(POINTS)
    here = uneven_target(conjugate, vcmc.executors.Local())(POINTS)
    for part, expected in zip(elsewhere, here, strict=True):
        np.testing.assert_array_equal(part, expected)
