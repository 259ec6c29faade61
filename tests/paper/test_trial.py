"""Steps and folders of a trial."""

from vcmc.paper import Job, probit_300
from vcmc.paper.problem import Size
from vcmc.paper.trial import Trial, shards_name, thinning

SIZE = Size(200, 3, shards=(2, 4), num_reference=2, num_floor=1, refined=(4,))


def trial(tmp_path, size=SIZE):
    return Trial("tiny", probit_300.problem, size, Job("small", tmp_path))


def test_steps_are_chains_shards_methods_and_refinements(tmp_path):
    names = [step.name for step in trial(tmp_path).steps()]
    assert [name for name in names if name.startswith("serial")] == [
        "serial-0",
        "serial-1",
        "serial-2",
    ]
    for num_shards in (2, 4):
        assert names.index(shards_name(num_shards, False)) < names.index(f"default-{num_shards}")
    assert "refined-4" in names
    assert "refined-2" not in names
    assert len(set(names)) == len(names)


def test_more_shards_share_the_folder_of_draws(tmp_path):
    larger = Size(200, 3, shards=(2, 4, 8), num_reference=2, num_floor=1, refined=(4,))
    assert trial(tmp_path).folder.path == trial(tmp_path, larger).folder.path
    other = Size(300, 3, shards=(2, 4), num_reference=2, num_floor=1, refined=(4,))
    assert trial(tmp_path).folder.path != trial(tmp_path, other).folder.path


def test_only_gibbs_samplers_are_thinned(tmp_path):
    import vcmc

    assert thinning(vcmc.samplers.ProbitGibbs(), SIZE) == SIZE.thin
    assert thinning(vcmc.samplers.NUTS(), SIZE) == 1
