"""Digests recognise the same rows in any order and split, and no others."""

import numpy as np

from vcmc.data.row_digest import BLOCK_ROWS, RowDigest, row_digest


def example(seed=0, count=300):
    generator = np.random.default_rng(seed)
    return {"x": generator.normal(size=(count, 3)), "y": generator.integers(0, 2, count)}


def test_the_order_of_rows_and_columns_does_not_matter():
    rows = example()
    order = np.random.default_rng(1).permutation(300)
    assert row_digest({name: rows[name][order] for name in ("y", "x")}) == row_digest(rows)


def test_the_digest_of_parts_adds_up():
    rows = example(count=BLOCK_ROWS + 100)
    parts = [{n: a[part] for n, a in rows.items()} for part in (slice(77), slice(77, None))]
    total = RowDigest()
    for part in parts:
        total = total.plus(row_digest(part))
    assert total == row_digest(rows)


def test_types_do_not_matter_and_values_do():
    rows = example()
    assert row_digest({**rows, "y": rows["y"].astype(np.int8)}) == row_digest(rows)
    assert row_digest({**rows, "y": rows["y"].astype(float)}) == row_digest(rows)
    changed = rows["x"].copy()
    changed[17, 2] += 1e-12
    assert row_digest({**rows, "x": changed}) != row_digest(rows)
    swapped = rows["x"][:, ::-1]
    assert row_digest({**rows, "x": swapped}) != row_digest(rows)
    moved = np.roll(rows["y"], 1)
    assert row_digest({**rows, "y": moved}) != row_digest(rows)


def test_labels_of_groups_are_compared_by_their_text():
    labels = np.array(["b", "a", "b"])
    first = row_digest({"g": labels, "y": np.arange(3)}, "g")
    assert first == row_digest({"g": labels.astype(object), "y": np.arange(3)}, "g")
    assert first != row_digest({"g": np.array(["b", "b", "a"]), "y": np.arange(3)}, "g")
