"""Updates of results, given their rows."""

import numpy as np
import pytest

import vcmc
from vcmc.inference.tree_update import tree_chains
from vcmc.testing.gaussians import varying_means


def test_chains_of_a_result_are_its_draws(conjugate):
    tree = vcmc.infer(conjugate.model, conjugate.rows, num_shards=3, progress=False)
    chains = tree_chains(tree, conjugate.model)
    np.testing.assert_allclose(
        np.stack([[chain.points for chain in shard] for shard in chains]),
        tree["subposterior"]["beta"].to_numpy(),
    )
    assert "lp" in chains[0][0].stats


def test_results_without_draws_of_shards_are_refused(conjugate):
    tree = vcmc.infer(conjugate.model, conjugate.rows, num_shards=3, progress=False)
    new = {name: array[:50] + 1 for name, array in conjugate.rows.items()}
    with pytest.raises(ValueError, match="the group 'subposterior'"):
        vcmc.update(tree.drop_nodes("subposterior"), conjugate.model, new, rows=conjugate.rows)
    partition = vcmc.split(conjugate.rows, 2)
    with pytest.raises(ValueError, match="into the 3 shards of the result"):
        vcmc.update(tree, conjugate.model, new, rows=partition)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::vcmc.DoubtfulWarning")
def test_new_rows_of_known_groups_go_to_their_shard():
    model, rows = varying_means()
    first = {name: array[:120] for name, array in rows.items()}
    known = np.unique(first["group"])
    second = {name: array[120:] for name, array in rows.items()}
    assert np.isin(second["group"], known).all()
    tree = vcmc.infer(model, first, num_shards=3, progress=False)
    tree = vcmc.update(tree, model, second, rows=first, progress=False)
    whole = vcmc.infer(model, rows, num_shards=3, progress=False)
    assert tree["group_sizes"]["num_rows"].to_numpy().tolist() == (
        whole["group_sizes"]["num_rows"].to_numpy().tolist()
    )
    for name in ("mu", "tau"):
        draws, others = (x["posterior"][name].to_numpy()[0] for x in (tree, whole))
        sd = others.std(axis=0)
        assert np.abs((draws.mean(axis=0) - others.mean(axis=0)) / sd).max() < 0.1, name
        assert np.abs(draws.std(axis=0) / sd - 1).max() < 0.1, name
    more = {name: array[:10] for name, array in rows.items()}
    more["y"] = more["y"] + 0.1
    with pytest.raises(ValueError, match="Use a run directory"):
        vcmc.update(tree, model, more, rows=rows)
