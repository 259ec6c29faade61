"""Files of CmdStan, ArviZ and NumPy are read back as the arrays that were written."""

import numpy as np
import pytest

import vcmc

NUM_SHARDS, NUM_CHAINS, NUM_DRAWS = 3, 2, 40


@pytest.fixture(scope="module")
def draws():
    """Draws (shard, chain, draw, …) of parameters of several shapes."""
    generator = np.random.default_rng(0)
    batch = (NUM_SHARDS, NUM_CHAINS, NUM_DRAWS)
    return {
        "alpha": generator.normal(size=batch),
        "beta": generator.normal(size=(*batch, 3)),
        "Sigma": generator.normal(size=(*batch, 2, 2)),
        "cube": generator.normal(size=(*batch, 2, 1, 3)),
    }


def cmdstan(path, params, warmup=0, broken=False):
    """Write a file like CmdStan 2.36: settings in comments, arrays in column-major order."""
    names, columns = [], []
    for name, array in params.items():
        for place in np.ndindex(*reversed(array.shape[1:])):
            indices = tuple(reversed(place))
            names.append(".".join([name, *(str(index + 1) for index in indices)]))
            columns.append(array[(slice(None), *indices)])
    count = len(columns[0])
    stats = {
        "lp__": -np.arange(count),
        "accept_stat__": np.full(count, 0.9),
        "stepsize__": np.full(count, 0.5),
        "treedepth__": np.full(count, 3),
        "n_leapfrog__": np.full(count, 7),
        "divergent__": np.arange(count) == 5,
        "energy__": np.arange(count),
    }
    table = np.column_stack([*stats.values(), *columns])
    lines = [",".join(repr(float(value)) for value in row) for row in table]
    if broken:
        lines[-1] = lines[-1][: len(lines[-1]) // 2]
    head = [
        "# stan_version_major = 2",
        "# stan_version_minor = 36",
        "# method = sample (Default)",
        "#   sample",
        f"#     num_samples = {count - warmup}",
        f"#     num_warmup = {warmup or 1000}",
        f"#     save_warmup = {'true' if warmup else 'false (Default)'}",
        "#     thin = 1 (Default)",
        ",".join([*stats, *names]),
    ]
    adapted = [
        "# Adaptation terminated",
        "# Step size = 0.5",
        "# Diagonal elements of inverse mass matrix:",
        "# 1, 1",
    ]
    end = [
        "# ",
        "#  Elapsed Time: 0.01 seconds (Warm-up)",
        "#                0.01 seconds (Sampling)",
        "# ",
    ]
    path.write_text("\n".join([*head, *lines[:warmup], *adapted, *lines[warmup:], *end]) + "\n")
    return path


def of(draws, shard, chain):
    return {name: array[shard, chain] for name, array in draws.items()}


def assert_same(tree, draws):
    assert list(tree["subposterior"].data_vars) == list(draws)
    for name, array in draws.items():
        np.testing.assert_array_equal(tree["subposterior"][name], array)


def test_cmdstan_files(draws, tmp_path):
    files = [
        [
            cmdstan(tmp_path / f"{shard}-{chain}.csv", of(draws, shard, chain))
            for chain in range(NUM_CHAINS)
        ]
        for shard in range(NUM_SHARDS)
    ]
    for given in ((files,), tuple(files)):
        tree = vcmc.read_draws(*given)
        assert_same(tree, draws)
    assert tree["sample_stats"]["diverging"].dtype == bool
    assert int(tree["sample_stats"]["diverging"].sum()) == NUM_SHARDS * NUM_CHAINS
    assert set(tree["sample_stats"].data_vars) >= {"lp", "tree_depth", "energy"}


def test_warmup_draws_are_left_out(draws, tmp_path):
    files = [
        cmdstan(tmp_path / f"{shard}.csv", of(draws, shard, 0), warmup=10)
        for shard in range(NUM_SHARDS)
    ]
    tree = vcmc.read_draws(*files)
    assert_same(tree, {name: array[:, :1, 10:] for name, array in draws.items()})


def test_arviz_and_numpy_files(draws, tmp_path):
    from arviz_base import from_dict

    trees, files, arrays = [], [], []
    for shard in range(NUM_SHARDS):
        trees.append(
            from_dict({"posterior": {name: array[shard] for name, array in draws.items()}})
        )
        files.append(tmp_path / f"{shard}.nc")
        trees[-1].to_netcdf(files[-1], engine="h5netcdf")
        arrays.append(tmp_path / f"{shard}.npz")
        np.savez(arrays[-1], **of(draws, shard, 0))
    assert_same(vcmc.read_draws(*trees), draws)
    assert_same(vcmc.read_draws(*files), draws)
    assert_same(vcmc.read_draws(*arrays), {name: array[:, :1] for name, array in draws.items()})


class Fit(dict):
    """A fit like those of PyStan 3: arrays (…, draw), chains side by side, scalars with an axis."""

    num_chains = NUM_CHAINS
    param_names = ("alpha", "beta", "Sigma", "cube")
    dims = ([], [3], [2, 2], [2, 1, 3])


def test_fits_of_pystan(draws):
    fits = []
    for shard in range(NUM_SHARDS):
        fit = Fit()
        for name, array in draws.items():
            flat = np.moveaxis(array[shard], 0, 1).reshape(-1, *array.shape[3:])
            fit[name] = np.moveaxis(flat, 0, -1) if array.ndim > 3 else flat[None]
        fit["lp__"] = np.zeros((1, NUM_CHAINS * NUM_DRAWS))
        fits.append(fit)
    tree = vcmc.read_draws(*fits)
    assert_same(tree, draws)
    assert tree["sample_stats"]["lp"].shape == (NUM_SHARDS, NUM_CHAINS, NUM_DRAWS)


@pytest.mark.filterwarnings("ignore::vcmc.DoubtfulWarning")  # 40 draws are few
def test_files_combine_to_what_arrays_combine_to(draws, tmp_path):
    files = [cmdstan(tmp_path / f"{shard}.csv", of(draws, shard, 0)) for shard in range(NUM_SHARDS)]
    read = vcmc.combine(vcmc.read_draws(*files))
    given = vcmc.combine({name: array[:, 0] for name, array in draws.items()})
    for name in draws:
        np.testing.assert_array_equal(read["posterior"][name], given["posterior"][name])


@pytest.mark.filterwarnings("ignore::vcmc.DoubtfulWarning")  # 40 draws are few
def test_shards_of_unequal_length(draws, tmp_path):
    files = [
        cmdstan(
            tmp_path / f"{shard}.csv",
            {name: array[: 20 + shard] for name, array in of(draws, shard, 0).items()},
        )
        for shard in range(NUM_SHARDS)
    ]
    found = vcmc.read_draws(*files)
    assert [len(shard["beta"]) for shard in found] == [20, 21, 22]
    assert vcmc.combine(found, num_draws=23)["posterior"].sizes["draw"] == 23


def test_bad_files_are_refused(draws, tmp_path):
    good = cmdstan(tmp_path / "good.csv", of(draws, 0, 0))
    broken = cmdstan(tmp_path / "broken.csv", of(draws, 0, 0), broken=True)
    other = cmdstan(tmp_path / "other.csv", {"alpha": draws["alpha"][0, 0]})
    plain = tmp_path / "plain.csv"
    plain.write_text("a,b\n1,2\n")
    text = tmp_path / "draws.txt"
    text.write_text("1 2 3")
    hole = tmp_path / "hole.csv"
    hole.write_text("lp__,beta.1,beta.3\n0,1,2\n")
    for files, error, message in [
        ((), ValueError, "needs a file or a fit for every shard; got none"),
        (("nowhere.csv",), FileNotFoundError, r"there is no file nowhere.csv"),
        ((good, broken), ValueError, r"broken.csv must have 21 numbers in every line"),
        ((good, other), ValueError, "all shards must have the same parameters"),
        ((plain,), ValueError, "must be a CmdStan CSV file, with a column lp__"),
        ((text,), ValueError, r"draws are read from CmdStan CSV files .* got .*draws.txt"),
        ((hole,), ValueError, "beta has 2 of the 3 elements"),
        ((3, 4), TypeError, "shard 0 must be a file, .* got int"),
    ]:
        with pytest.raises(error, match=message):
            vcmc.read_draws(*files)


def test_numpy_files_with_chains_are_not_read_as_draws(draws, tmp_path):
    chains = {name: array for name, array in draws.items() if name != "Sigma"}
    files = [tmp_path / f"{shard}.npz" for shard in range(NUM_SHARDS)]
    for shard, file in enumerate(files):
        np.savez(file, **{name: array[shard] for name, array in chains.items()})
    with pytest.raises(ValueError, match=r"draws of .*0.npz must have axes .* Pass chains=True"):
        vcmc.read_draws(*files)
    assert_same(vcmc.read_draws(*files, chains=True), chains)


def test_arviz_files_keep_their_dims_and_coords(tmp_path):
    from arviz_base import from_dict

    coords = {"feature": ["age", "income"]}
    files = []
    for shard in range(NUM_SHARDS):
        beta = np.random.default_rng(shard).normal(size=(2, 200, 2))
        tree = from_dict({"posterior": {"beta": beta}}, coords=coords, dims={"beta": ["feature"]})
        files.append(tmp_path / f"{shard}.nc")
        tree.to_netcdf(files[-1], engine="h5netcdf")
    found = vcmc.combine(vcmc.read_draws(*files))["posterior"]["beta"]
    assert found.dims == ("chain", "draw", "feature")
    assert found["feature"].values.tolist() == ["age", "income"]
