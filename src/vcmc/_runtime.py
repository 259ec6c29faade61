"""Process-wide settings of JAX, XLA and BLAS, pools of threads, and the memory of programs.

Importing this module applies the settings. XLA and NumPy release Python's lock, so threads use all
cores without copies of the rows.
"""

import os

# XLA's linear algebra on CPUs waits for tasks on the threads that it runs on, and hangs when
# all of them wait: seen with jaxlib 0.10 on two cores, in a program with three batched
# triangular solves. NPROC is the number of threads that XLA starts. It is read at JAX's first
# computation; a process that computed something before importing vcmc keeps its threads.
os.environ.setdefault("NPROC", str(max(32, 4 * (os.cpu_count() or 1))))

import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_EXCEPTION, Future, ThreadPoolExecutor, wait
from functools import cache
from importlib.metadata import version
from typing import Any, TypeVar

import jax
import scipy.linalg  # noqa: F401
from threadpoolctl import ThreadpoolController

from ._compile_cache import enable_compile_cache

jax.config.update("jax_enable_x64", True)
enable_compile_cache()

# XLA's factorizations are SciPy's. With BLAS threads inside XLA threads, the eigenvalues of 200
# matrices of 100 x 100 took 16 s in place of 0.1 s on two cores. NumPy has its own BLAS.
for _library in ThreadpoolController().lib_controllers:
    if "scipy.libs" in _library.filepath:
        _library.set_num_threads(1)

# Options of programs that run briefly: less optimisation, and the older of XLA's two emitters of
# fused operations, which jaxlib 0.11 no longer has. NUTS on Student's t compiles in 1.1 s of CPU
# time in place of 2.3, a log density and its score in 0.26 in place of 0.55. Programs on rows in
# cache then run 0 to 23 % longer (robust regression, Wishart, mixture).
_has_two_emitters = tuple(map(int, version("jaxlib").split(".")[:2])) < (0, 11)
FAST_COMPILATION: dict[str, bool | int] = {"xla_backend_optimization_level": 1}
if _has_two_emitters:
    FAST_COMPILATION["xla_cpu_use_fusion_emitters"] = False

POLL_SECONDS = 1.0  # between two looks at whether those that are waited for are alive

# whose programs are kept, some 35 MB each: a script that infers in a loop makes many models
MAX_MODELS = 8

Item = TypeVar("Item")
Result = TypeVar("Result")
Function = TypeVar("Function", bound=Callable[..., Any])

_thread = threading.local()  # `_thread.is_pooled`: whether the thread belongs to a pool of vcmc


def num_cores() -> int:
    """Return the number of cores that this thread may run on, or of all if that is unknown."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def new_pool(num_threads: int, name: str = "vcmc") -> ThreadPoolExecutor:
    """Return a pool of threads in which `thread_map` may be called.

    A thread of such a pool never waits for the shared pool: `thread_map` gives it a pool of its
    own. `name` is only a label for debuggers.
    """
    return ThreadPoolExecutor(num_threads, thread_name_prefix=name, initializer=_mark_pooled)


def _mark_pooled() -> None:
    _thread.is_pooled = True


def thread_map(
    function: Callable[[Item], Result], items: Sequence[Item], num_threads: int | None = None
) -> Iterator[Result]:
    """Yield the function's results in the order of the items; raise the first item's exception.

    >>> list(thread_map(lambda item: item**2, [1, 2, 3]))
    [1, 4, 9]
    """
    count = max(1, min(num_threads or num_cores(), len(items)))
    is_nested = getattr(_thread, "is_pooled", False)
    # all threads of the shared pool may be waiting for the maps that are nested in them
    pool = new_pool(count) if is_nested else _shared_pool(count)
    futures = [pool.submit(function, item) for item in items]
    try:
        for future in futures:
            yield future.result()
    finally:
        for future in futures:
            future.cancel()
        if is_nested:
            pool.shutdown(wait=False)


def wait_for_all(futures: Sequence[Future[Any]], check: Callable[[], None]) -> None:
    """Wait for futures; raise the first exception of one, or of `check`, called while they run."""
    pending = set(futures)
    while pending:
        done, pending = wait(pending, timeout=POLL_SECONDS, return_when=FIRST_EXCEPTION)
        for future in done:
            future.result(timeout=0)
        if pending:
            check()


@cache
def _shared_pool(num_threads: int) -> ThreadPoolExecutor:
    # Starting a thread takes two milliseconds while others hold Python's lock, and an optimizer
    # maps many times.
    return new_pool(num_threads)


_compiled_per_model: list[Any] = []
_models: dict[Any, None] = {}  # those that were used since programs were last dropped
_models_lock = threading.Lock()


def compiled_per_model(function: Function) -> Function:
    """Register a jitted function that is compiled anew for every model."""
    _compiled_per_model.append(function)
    return function


def limit_programs(model: Any) -> None:
    """Note that a model is used. Drop all models' programs if there are too many models.

    JAX keeps a program as long as the function that it was compiled from, and with it the model.
    """
    with _models_lock:
        if model not in _models and len(_models) == MAX_MODELS:
            _models.clear()
            for function in _compiled_per_model:
                getattr(function, "_cached", function).clear_cache()  # Equinox wraps JAX's
        _models[model] = None
