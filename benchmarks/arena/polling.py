"""Run chains as one compiled program each, and read their draws while they run.

A program makes the start, the warm-up and the draws. After every block of steps it calls back with
its points, so that the time of each draw is known, and so that the chains can be stopped. Threads
run one program each on the same rows; XLA lets them compute at the same time.
"""

import queue
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import jax
import numpy as np
from answer import Answer, Draws
from jax.experimental import io_callback


class Length(NamedTuple):
    """Number of warm-up steps, of steps after it, and of steps in a block."""

    num_warmup: int
    num_steps: int
    block: int


class Program(NamedTuple):
    """Chains that are ready to be compiled.

    Attributes:
        start: from a key and rows to a state, and to a function from a state to the state a block
            later and the points (step, …) in between.
        rows: all rows.
        params: from points (draw, …) to named parameters.
        num_threads: how many of these programs run at the same time.
        num_chains: number of chains in a program; with more than one, points are (step, chain, …).
    """

    start: Callable[[Any, Any], tuple[Any, Callable[[Any], tuple[Any, Any]]]]
    rows: Any
    params: Callable[[Any], Draws]
    num_threads: int = 2
    num_chains: int = 1


def polled(program: Program, length: Length, begin: float, remark: str) -> Iterator[Answer]:
    """Yield all draws so far whenever every chain has made another block after its warm-up.

    Draws are interleaved: the first of every chain, the second of every chain, and so on.
    """
    blocks: list[Draws] = []
    ready: list[np.ndarray] = []
    num_together = program.num_threads * program.num_chains
    last = 0.0
    for number, (now, seconds_compile, points) in enumerate(_blocks(program, length, begin)):
        if number * length.block >= length.num_warmup:
            blocks.append(program.params(points))
            times = last + (now - last) * np.arange(1, length.block + 1) / length.block
            ready.append(np.repeat(times, num_together))
            draws = {name: np.concatenate([block[name] for block in blocks]) for name in blocks[0]}
            yield Answer(
                draws,
                now,
                seconds_compile,
                ready=np.concatenate(ready),
                num_chains=num_together,
                remark=remark,
            )
        last = now


def _blocks(
    program: Program, length: Length, begin: float
) -> Iterator[tuple[float, float, dict[str, np.ndarray]]]:
    """Yield each block's time, the seconds of compilation, and the points of all chains."""
    results: list[queue.Queue[Any]] = [queue.Queue() for _ in range(program.num_threads)]
    num_blocks = -(-(length.num_warmup + length.num_steps) // length.block)
    stopping = threading.Event()

    def receive(index: Any, points: Any) -> np.ndarray:
        arrays = jax.tree.map(np.asarray, points)
        results[int(index)].put((time.perf_counter() - begin, arrays))
        return np.asarray(not stopping.is_set())

    def whole(index: Any, key: Any, rows: Any) -> Any:
        state, advance = program.start(key, rows)

        def block(carry: Any) -> Any:
            number, state, _ = carry
            state, points = advance(state)
            goes_on = io_callback(receive, jax.ShapeDtypeStruct((), bool), index, points)
            return number + 1, state, goes_on

        def goes_on(carry: Any) -> Any:
            return (carry[0] < num_blocks) & carry[2]

        return jax.lax.while_loop(goes_on, block, (0, state, True))[0]

    keys = jax.random.split(jax.random.key(0), program.num_threads)
    compile_begin = time.perf_counter()
    compiled = jax.jit(whole).lower(0, keys[0], program.rows).compile()
    seconds_compile = time.perf_counter() - compile_begin

    def run(index: int) -> None:
        try:
            jax.block_until_ready(compiled(index, keys[index], program.rows))
        except Exception as error:  # told to the reader, in the main thread
            results[index].put(error)

    threads = [threading.Thread(target=run, args=(i,)) for i in range(program.num_threads)]
    for thread in threads:
        thread.start()
    try:
        for _ in range(num_blocks):
            outcomes = [each.get() for each in results]
            for outcome in outcomes:
                if isinstance(outcome, Exception):
                    raise outcome
            yield max(now for now, _ in outcomes), seconds_compile, _interleaved(outcomes, program)
    finally:
        stopping.set()
        for thread in threads:
            thread.join()


def _interleaved(outcomes: list[Any], program: Program) -> Any:
    """Flatten the points (step, chain, …) of every thread into (draw, …)."""

    def merge(*arrays: np.ndarray) -> np.ndarray:
        steps = len(arrays[0])
        inner = arrays[0].shape[2:] if program.num_chains > 1 else arrays[0].shape[1:]
        return np.stack(arrays, axis=1).reshape(
            steps * program.num_threads * program.num_chains, *inner
        )

    return jax.tree.map(merge, *(points for _, points in outcomes))
