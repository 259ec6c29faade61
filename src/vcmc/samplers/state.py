"""The state of a sampler as plain arrays, which a file can hold and nobody has to trust.

A state is a tree (of tuples, dictionaries, modules) with arrays, numbers and NumPy's generators as
its leaves. The leaves are stored; the tree around them is that of a new state of the same sampler.
Its structure must be the stored one, and so a state of another sampler is refused.
"""

import re
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from numpy.random import MT19937, PCG64, PCG64DXSM, SFC64, Generator, Philox

NUMBER_KINDS = "biufc"  # NumPy's codes of the types of arrays that are stored
MAX_WEAK_SIZE = 1000  # of weakly typed arrays, which are restored number by number
BIT_GENERATORS = {kind.__name__: kind for kind in (MT19937, PCG64, PCG64DXSM, Philox, SFC64)}


class NotPlain(TypeError):
    """A state has a part that cannot be stored as plain data; the message says which."""


class StateMismatch(ValueError):
    """A stored state is not one of this sampler; the message says why."""


class PackedState(NamedTuple):
    """A state as plain data.

    Attributes:
        arrays: arrays of numbers, by name.
        description: the structure of the state and the kind of each leaf, as JSON.
    """

    arrays: dict[str, np.ndarray]
    description: dict[str, Any]

    def restore(self, new_state: Any) -> Any:
        """Return the state; `new_state` is a state of the same sampler, e.g. from `init`."""
        paths, treedef = _structure(new_state)
        expected = {"paths": paths, "tree": _tree_text(treedef)}
        for name, value in expected.items():
            if self.description.get(name) != value:
                raise StateMismatch(
                    f"the stored state has the {name} {self.description.get(name)}, and a state "
                    f"of this sampler has {value}"
                )
        try:
            leaves = [
                RESTORE[leaf["kind"]](leaf, self.arrays.get(str(number)))
                for number, leaf in enumerate(self.description["leaves"])
            ]
            return jax.tree.unflatten(treedef, leaves)
        except (LookupError, TypeError, ValueError) as error:
            raise StateMismatch(
                f"the stored state cannot be read ({type(error).__name__}: {error})"
            ) from error


def pack_state(state: Any) -> PackedState:
    """Return a state as plain data; raise `NotPlain` if it has parts that are not.

    >>> pack_state({"step": 3, "point": np.zeros(2)}).description["paths"]
    ["['point']", "['step']"]
    """
    paths, treedef = _structure(state)
    leaves = jax.tree.leaves(state)
    mutable = [id(leaf) for leaf in leaves if isinstance(leaf, np.ndarray | Generator)]
    if len(set(mutable)) < len(mutable):
        raise NotPlain("the state holds one array or generator twice")
    packed = [_pack_leaf(path, leaf) for path, leaf in zip(paths, leaves, strict=True)]
    arrays = {str(number): array for number, (_, array) in enumerate(packed) if array is not None}
    description = {
        "paths": paths,
        "tree": _tree_text(treedef),
        "leaves": [leaf for leaf, _ in packed],
    }
    return PackedState(arrays, description)


def _structure(state: Any) -> tuple[list[str], Any]:
    """Return the paths of the leaves, and the tree without them."""
    with_paths, treedef = jax.tree_util.tree_flatten_with_path(state)
    return [jax.tree_util.keystr(path) for path, _ in with_paths], treedef


def _tree_text(treedef: Any) -> str:
    """Return a text of a tree and its static fields, without the addresses of objects."""
    return re.sub(r"0x[0-9a-fA-F]+", "0x", str(treedef))


def _pack_leaf(path: str, leaf: Any) -> tuple[dict[str, Any], np.ndarray | None]:
    if isinstance(leaf, jax.Array) and jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key):
        data = np.asarray(jax.random.key_data(leaf))
        return {"kind": "key", "impl": str(jax.random.key_impl(leaf))}, data
    if isinstance(leaf, jax.Array | np.ndarray | np.generic):
        array = np.asarray(leaf)
        if array.dtype.kind not in NUMBER_KINDS:
            raise NotPlain(f"state{path} is an array of type {array.dtype}")
        if isinstance(leaf, jax.Array):
            is_weak = bool(leaf.weak_type)
            if is_weak and not 0 < array.size <= MAX_WEAK_SIZE:
                raise NotPlain(f"state{path} is a weakly typed array of shape {array.shape}")
            return {"kind": "jax", "is_weak": is_weak}, array
        return {"kind": "numpy" if isinstance(leaf, np.ndarray) else "number"}, array
    if isinstance(leaf, Generator) and type(leaf.bit_generator).__name__ in BIT_GENERATORS:
        return {"kind": "generator", "state": _to_plain(leaf.bit_generator.state)}, None
    if type(leaf) in (bool, int, float, str):
        return {"kind": "value", "value": leaf}, None
    raise NotPlain(f"state{path} is a {type(leaf).__name__}")


def _restore_jax(leaf: Mapping[str, Any], array: Any) -> jax.Array:
    if not leaf["is_weak"]:
        return jnp.asarray(array)
    # Programs are compiled for weak types, and may round otherwise. Python's numbers have them.
    numbers = [jnp.asarray(number) for number in array.ravel().tolist()]
    return jnp.stack(numbers).reshape(array.shape)


def _restore_generator(leaf: Mapping[str, Any], array: Any) -> Generator:
    del array
    state = _from_plain(leaf["state"])
    bit_generator = BIT_GENERATORS[state["bit_generator"]]()
    bit_generator.state = state
    return Generator(bit_generator)


RESTORE: dict[str, Callable[[Mapping[str, Any], Any], Any]] = {
    "jax": _restore_jax,
    "key": lambda leaf, array: jax.random.wrap_key_data(jnp.asarray(array), impl=leaf["impl"]),
    "numpy": lambda _, array: array,
    "number": lambda _, array: array[()],
    "value": lambda leaf, _: leaf["value"],
    "generator": _restore_generator,
}


def _to_plain(value: Any) -> Any:
    """Return the state of a bit generator as JSON."""
    if isinstance(value, Mapping):
        return {name: _to_plain(part) for name, part in value.items()}
    if isinstance(value, np.ndarray):
        return {"dtype": value.dtype.name, "values": value.tolist()}
    return value.item() if isinstance(value, np.generic) else value


def _from_plain(value: Any) -> Any:
    if not isinstance(value, Mapping):
        return value
    if set(value) == {"dtype", "values"}:
        return np.array(value["values"], value["dtype"])
    return {name: _from_plain(part) for name, part in value.items()}
