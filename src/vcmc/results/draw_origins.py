"""Tell chains of one shard from shards, by the names of files and by CmdStan's headers.

Files that are chains of one shard, counted as shards, give a posterior that is too narrow: two
chains in each of 8 shards, taken for 16 shards, make its sds too small by a factor of √2. So files
that look like chains are refused unless the user has said what they are.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

DRAW_SUFFIXES = (".csv", ".npz", ".nc", ".h5", ".netcdf")
MAX_NAMED_FILES = 2  # in a message

# A name that ends in the number of a chain: shard0_1, shard0-chain2, model-20240101120000_1.
CHAIN_NAME = re.compile(r"(?P<base>.*?)[-_.]*(?:chain)?[-_.]*(?P<number>\d+)", re.IGNORECASE)
TIMESTAMPED = re.compile(r".*-\d{14}")  # CmdStanPy's name of one run of several chains


def files_of_folder(folder: Path) -> list[Path]:
    """Return the files of draws in a folder, which are the chains of one shard."""
    files = sorted(
        path
        for path in folder.iterdir()
        if path.suffix in DRAW_SUFFIXES and not path.name.startswith(".")
    )
    if not files:
        raise ValueError(
            f"a folder must hold the chains of one shard as files {', '.join(DRAW_SUFFIXES)}; got "
            f"{folder}, which has none."
        )
    return files


def check_one_per_shard(files: Sequence[Path]) -> None:
    """Raise an error if files that are given as one shard each look like chains of a shard."""
    data = {file: cmdstan_data_file(file) for file in files}
    if all(data.values()):
        chains = _repeated({file: _data_key(file, name) for file, name in data.items()})
        evidence = (
            f"which were sampled from the same data file, {data[chains[0]]}" if chains else ""
        )
    else:
        chains = _chains_by_name(files)
        evidence = "whose names differ in the last number alone, as those of chains do"
    if not chains:
        return
    named = [str(file) for file in chains]
    more = " …" if len(named) > MAX_NAMED_FILES else ""
    first, second = named[:MAX_NAMED_FILES]
    raise ValueError(
        f"every file must be a shard of its own; got {first} and {second}{more}, {evidence}. If "
        f"they are chains of one shard, group them: vcmc combine {first},{second} … with a comma, "
        f"a folder per shard, or read_draws([{first!r}, {second!r}], …). If they are shards, say "
        f"so: vcmc combine --one-file-per-shard, or read_draws([{first!r}], [{second!r}], …)."
    )


def check_same_data(number: int, files: Sequence[Path]) -> None:
    """Raise an error if files that are given as chains of one shard have different data."""
    data = [cmdstan_data_file(file) for file in files]
    for file, name in zip(files, data, strict=True):
        if name and data[0] and name != data[0]:
            raise ValueError(
                f"all chains of shard {number} must be sampled from the same data; got {files[0]} "
                f"from {data[0]} and {file} from {name}. Give files of different shards separately."
            )


def cmdstan_data_file(path: Path) -> str:
    """Return the data file that the header of a CmdStan file names; empty if there is none."""
    if path.suffix != ".csv" or not path.is_file():
        return ""
    section = ""
    with path.open(encoding="utf-8", errors="replace") as lines:
        for line in lines:
            if not line.startswith("#"):
                break
            if match := re.match(r"#(\s*)(\w+)\s*(?:=\s*(.*))?$", line.rstrip()):
                indent, name, value = match.groups()
                if len(indent) <= 1:
                    section = name
                elif section == "data" and name == "file":
                    return (value or "").removesuffix("(Default)").strip()
    return ""


def _data_key(file: Path, data: str) -> tuple[str, str]:
    """Identify a data file: a relative path belongs to the folder of its draws."""
    return ("" if Path(data).is_absolute() else str(file.absolute().parent), data)


def _repeated(keys: Mapping[Path, tuple[str, str]]) -> list[Path]:
    """Return the files of the first key that several files have."""
    for key in keys.values():
        if len(files := [file for file, other in keys.items() if other == key]) > 1:
            return files
    return []


def _chains_by_name(files: Iterable[Path]) -> list[Path]:
    """Return files that are chains of one shard, by their names.

    A single series, e.g. shard-0.csv, shard-1.csv, …, may be shards, unless CmdStan has stamped it
    as one run. Several series, e.g. a_1.csv, a_2.csv, b_1.csv, b_2.csv, are not.
    """
    series: dict[Path, list[Path]] = {}
    for file in files:
        match = CHAIN_NAME.fullmatch(file.stem)
        base = match["base"] if match else file.stem
        series.setdefault(file.parent / base, []).append(file)
    repeated = {base: members for base, members in series.items() if len(members) > 1}
    stamped = [base for base in repeated if TIMESTAMPED.fullmatch(base.name)]
    if stamped:
        return repeated[stamped[0]]
    return next(iter(repeated.values())) if repeated and len(series) > 1 else []
