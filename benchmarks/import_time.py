"""Time `import vcmc` against importing JAX and NumPyro alone.

Run: .venv/bin/python benchmarks/import_time.py    (about 20 seconds)
"""

import statistics
import subprocess
import sys
import time

STATEMENTS = {"JAX and NumPyro": "import jax, numpyro", "vcmc": "import vcmc"}
REPEATS = 7


def seconds(statement: str) -> float:
    begin = time.perf_counter()
    subprocess.run([sys.executable, "-c", statement], check=True)
    return time.perf_counter() - begin


def main() -> None:
    times: dict[str, list[float]] = {name: [] for name in STATEMENTS}
    for _ in range(1 + REPEATS):  # in turns; the first round fills the disk cache
        for name, statement in STATEMENTS.items():
            times[name].append(seconds(statement))
    medians = {name: statistics.median(values[1:]) for name, values in times.items()}
    for name, value in medians.items():
        sys.stdout.write(f"{name}: {value:.2f} s\n")
    sys.stdout.write(f"vcmc adds {medians['vcmc'] - medians['JAX and NumPyro']:.2f} s\n")


if __name__ == "__main__":
    main()
