"""Keep compiled programs in the user's cache folder, so that a second run compiles nothing.

JAX does the work (its persistent compilation cache). This module chooses the folder, makes sure
that only its owner can write to it (whoever can, can run code here), and limits its size. A cache
that the user has given JAX is left alone.
"""

import os
import sys
import time
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import jax
from jax.experimental.compilation_cache import compilation_cache

VARIABLE = "VCMC_COMPILE_CACHE"
"""The environment variable: 0 switches the cache off, a path chooses its folder."""
OFF = frozenset({"0", "off", "false", "no"})
ON = frozenset({"", "1", "on", "true", "yes"})

MAX_BYTES = 2**28  # of all entries; a model has some 1 MB of them
TRIM_SECONDS = 24 * 3600.0  # between two looks at the size of the cache
MARKER = "last-trim"  # the file whose age tells when the size was looked at

# As JAX recommends for programs that are all worth keeping; most of vcmc's compile within 0.1 s.
SETTINGS = {
    "jax_persistent_cache_min_compile_time_secs": 0.0,
    "jax_persistent_cache_min_entry_size_bytes": 0,
}


def enable_compile_cache() -> Path | None:
    """Make JAX keep compiled programs; return their folder, or None if vcmc has set none.

    A folder that cannot be used is not an error: programs are compiled then.
    """
    setting = os.environ.get(VARIABLE, "").strip()
    is_set = _setting("jax_compilation_cache_dir") is not None
    if is_set or not _setting("jax_enable_compilation_cache") or setting.lower() in OFF:
        return None
    is_default = setting.lower() in ON
    folder = default_folder() if is_default else Path(setting).expanduser()
    try:
        folder = _usable(folder / f"jax-{jax.__version__}", must_be_own=is_default)
    except (OSError, RuntimeError) as error:
        if not is_default:
            warnings.warn(
                f"compiled programs are not kept: {VARIABLE}={setting} cannot be used ({error}).",
                stacklevel=2,
            )
        return None
    # an entry that cannot be read or written is compiled, as if there were no cache
    warnings.filterwarnings("ignore", "Error (reading|writing) persistent compilation cache")
    for name, value in SETTINGS.items():
        jax.config.update(name, value)
    jax.config.update("jax_compilation_cache_dir", str(folder))
    with suppress(OSError):
        trim(folder.parent)
    return folder


def _setting(name: str) -> Any:
    """Return a setting of JAX."""
    return getattr(jax.config, name)


def default_folder() -> Path:
    """Return the folder for vcmc in the user's cache folder, by the platform's convention."""
    if os.environ.get("XDG_CACHE_HOME"):
        return Path(os.environ["XDG_CACHE_HOME"]) / "vcmc"
    if sys.platform == "win32":
        local = os.environ.get("LOCALAPPDATA")
        return (Path(local) if local else Path.home() / "AppData" / "Local") / "vcmc" / "Cache"
    if sys.platform == "darwin":
        return Path.home() / "Library" / "Caches" / "vcmc"
    return Path.home() / ".cache" / "vcmc"


def _usable(folder: Path, must_be_own: bool) -> Path:
    """Return the absolute folder, made for its owner alone; raise an error if it is unsafe."""
    folder = folder.absolute()
    folder.parent.parent.mkdir(parents=True, exist_ok=True)
    for path in (folder.parent, folder):
        path.mkdir(mode=0o700, exist_ok=True)
        status = path.stat()
        is_own = not hasattr(os, "getuid") or (
            status.st_uid == os.getuid() and not status.st_mode & 0o022
        )
        if must_be_own and not is_own:
            raise RuntimeError(f"others can write to {path}")
    return folder


def trim(folder: Path, max_bytes: int = MAX_BYTES) -> None:
    """Delete the entries that were not used for longest, of all versions of JAX, once a day.

    JAX's own limit would need another package, and a lock for every entry.
    """
    marker = folder / MARKER
    if marker.exists() and 0 <= time.time() - marker.stat().st_mtime < TRIM_SECONDS:
        return
    marker.touch()
    entries = []
    for path in folder.glob("jax-*/*-cache"):
        with suppress(OSError):  # another process has deleted it
            status = path.stat()
            entries.append((max(status.st_atime, status.st_mtime), status.st_size, path))
    total = sum(size for _, size, _ in entries)
    for _, size, path in sorted(entries):
        # a process that was killed while it wrote leaves an empty file
        if total > max_bytes or size == 0:
            with suppress(OSError):
                path.unlink()
            total -= size


@contextmanager
def use_compile_cache(is_used: bool = True) -> Iterator[None]:
    """Compile without the cache of compiled programs within the block, if it is not to be used.

    It concerns all threads of this process, and no other process.
    """
    was_used = _setting("jax_enable_compilation_cache")
    if is_used or not was_used:
        yield
        return
    jax.config.update("jax_enable_compilation_cache", False)
    compilation_cache.reset_cache()  # JAX looks at the setting only once
    try:
        yield
    finally:
        jax.config.update("jax_enable_compilation_cache", True)
        compilation_cache.reset_cache()
