"""Sample a Stan program; `chains.py` runs this script in the environment that has PyStan.

    python stan_child.py PROGRAM ROWS.npz DRAWS.npz NUM_WARMUP NUM_DRAWS

It writes the draws, and beside them their seconds as JSON.
"""

import json
import sys
import time
from importlib.metadata import version
from pathlib import Path

import numpy as np
import stan


def main() -> None:
    program, rows_file, draws_file, num_warmup, num_draws = sys.argv[1:]
    with np.load(rows_file) as rows:
        data = {name: rows[name] for name in rows.files}
    sizes = {"N": len(next(iter(data.values())))}
    sizes |= {"D": data["x"].shape[1]} if "x" in data else {}
    begin = time.perf_counter()
    built = stan.build(
        program, data={name: array.tolist() for name, array in data.items()} | sizes, random_seed=1
    )
    compiled = time.perf_counter() - begin
    fit = built.sample(num_chains=2, num_warmup=int(num_warmup), num_samples=int(num_draws))
    seconds = time.perf_counter() - begin
    # the last axis of PyStan's arrays is the interleaved draws of all chains
    draws = {name: np.moveaxis(fit[name], -1, 0) for name in fit.param_names}
    np.savez(draws_file, **draws)
    Path(draws_file).with_suffix(".json").write_text(
        json.dumps({"seconds": seconds, "compile": compiled, "version": version("pystan")})
    )


main()
