"""The history that a result has."""

import numpy as np

from vcmc.inference.update_groups import history_of, now, update_groups
from vcmc.results.tree import make_tree


def entry(**changes):
    return {"num_rows": 5, "num_shards": 3, "time": now(), "verdict": "good", "name": "x"} | changes


def test_estimates_of_every_update_are_kept(conjugate):
    generator = np.random.default_rng(0)
    draws = [{"beta": number + generator.normal(size=(2, 50, 3))} for number in range(3)]
    tree = make_tree(
        {"posterior": draws[0]}, {"num_shards": 2, "shard_sizes": [4, 3], "verdict": "poor"}
    )
    for number in (1, 2):
        name = "a longer name" if number == 2 else "b"
        own = update_groups(tree, draws[number], conjugate.model, entry(name=name), [0, 0, number])
        tree = make_tree({"posterior": draws[number], **own}, {})
    history = history_of(tree, conjugate.model)
    assert history["updates"]["name"].tolist() == ["0", "b", "a longer name"]
    assert history["updates"]["num_rows"].tolist() == [7, 5, 5]
    assert history["updates"]["verdict"].tolist() == ["poor", "good", "good"]
    expected = [part["beta"].mean(axis=(0, 1)) for part in draws]
    np.testing.assert_allclose(history["update_mean"]["beta"], expected)
    assert tree["update_sd"]["beta"].dims[0] == "update"
    assert tree["shard_batches"]["batch"].to_numpy().tolist() == [0, 0, 2]


def test_a_history_begins_anew_without_a_result_before(conjugate):
    own = update_groups(None, {"beta": np.zeros((1, 4, 3))}, conjugate.model, entry(), [0])
    assert own["updates"]["num_rows"].tolist() == [5]
    assert own["update_mean"]["beta"].shape == (1, 3)
