"""Chains of one shard are not taken for shards."""

import numpy as np
import pytest

import vcmc
from vcmc.results.draw_origins import cmdstan_data_file

generator = np.random.default_rng(0)


def npz(path):
    path.parent.mkdir(exist_ok=True)
    np.savez(path, beta=generator.normal(size=100))
    return path


def cmdstan(path, data="", chain=1):
    """Write a file with the header of CmdStan 2.36."""
    header = f"""# stan_version_major = 2
# model = regression_model
# method = sample (Default)
#   sample
#     num_samples = 100
#     save_warmup = false (Default)
# id = {chain}
# data
#   file = {data}{"" if data else " (Default)"}
# init = 2 (Default)
# random
#   seed = 3254316
# output
#   file = {path.name}
lp__,beta
"""
    path.parent.mkdir(exist_ok=True)
    path.write_text(header + "".join(f"0,{value}\n" for value in generator.normal(size=100)))
    return path


def sizes(*shards):
    return {
        name: vcmc.read_draws(*shards)["subposterior"].sizes[name] for name in ("shard", "chain")
    }


@pytest.mark.parametrize(
    "pattern",
    ["shard{0}_{1}", "shard-{0}-{1}", "shard{0}chain{1}", "shard{0}.chain-{1}", "s{0}_chain_{1}"],
)
def test_files_whose_names_are_those_of_chains_are_refused(pattern, tmp_path):
    files = [
        npz(tmp_path / f"{pattern.format(shard, chain)}.npz")
        for shard in range(8)
        for chain in (1, 2)
    ]
    with pytest.raises(ValueError, match="every file must be a shard of its own; got") as raised:
        vcmc.read_draws(*files)
    message = str(raised.value)
    assert f"{files[0]},{files[1]}" in message
    assert "--one-file-per-shard" in message
    pairs = [files[index : index + 2] for index in range(0, 16, 2)]
    assert sizes(*pairs) == {"shard": 8, "chain": 2}
    assert sizes(*[[file] for file in files]) == {"shard": 16, "chain": 1}  # if said so


def test_files_of_one_data_file_are_chains(tmp_path):
    files = [
        cmdstan(tmp_path / f"fit{shard}{chain}.csv", f"/data/shard{shard}.json", chain)
        for shard in "ab"
        for chain in (1, 2)
    ]
    with pytest.raises(
        ValueError, match=r"fita1.csv and .*fita2.csv, which were sampled from the "
    ):
        vcmc.read_draws(*files)
    assert sizes(files[:2], files[2:]) == {"shard": 2, "chain": 2}
    with pytest.raises(ValueError, match=r"all chains of shard 0 .* got .*fita1.csv from /data/"):
        vcmc.read_draws(files[::2], files[1::2])


def test_files_of_different_data_are_shards_whatever_their_names(tmp_path):
    files = [
        cmdstan(tmp_path / f"run{shard // 2}_{shard % 2}.csv", f"shard{shard}.json")
        for shard in range(4)
    ]
    assert sizes(*files) == {"shard": 4, "chain": 1}


def test_a_relative_data_file_belongs_to_its_folder(tmp_path):
    files = [cmdstan(tmp_path / f"shard{shard}" / "output.csv", "data.json") for shard in range(3)]
    assert sizes(*files) == {"shard": 3, "chain": 1}


def test_chains_that_cmdstan_has_stamped_are_one_run(tmp_path):
    files = [cmdstan(tmp_path / f"normal-20240101120000_{chain}.csv") for chain in (1, 2)]
    with pytest.raises(ValueError, match="every file must be a shard of its own"):
        vcmc.read_draws(*files)
    runs = [cmdstan(tmp_path / f"normal-2024010112000{shard}_1.csv") for shard in range(3)]
    assert sizes(*runs) == {"shard": 3, "chain": 1}


def test_one_series_of_files_is_one_of_shards(tmp_path):
    files = [npz(tmp_path / f"shard-{shard}.npz") for shard in range(12)]
    assert sizes(*files) == {"shard": 12, "chain": 1}


def test_a_folder_is_a_shard(tmp_path):
    for shard in range(3):
        for chain in range(2):
            npz(tmp_path / f"shard{shard}" / f"chain{chain}.npz")
    (tmp_path / "shard0" / "notes.txt").write_text("")
    npz(tmp_path / "shard0" / ".hidden.npz")
    folders = [tmp_path / f"shard{shard}" for shard in range(3)]
    assert sizes(*folders) == {"shard": 3, "chain": 2}
    (tmp_path / "empty").mkdir()
    with pytest.raises(ValueError, match=r"must hold the chains of one shard .* which has none"):
        vcmc.read_draws(folders[0], tmp_path / "empty")


def test_the_header_names_the_data_and_not_the_output(tmp_path):
    assert cmdstan_data_file(cmdstan(tmp_path / "a.csv", "x.json")) == "x.json"
    assert cmdstan_data_file(cmdstan(tmp_path / "b.csv")) == ""
    assert cmdstan_data_file(tmp_path / "missing.csv") == ""
