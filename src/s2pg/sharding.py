"""How one program is spread over several devices: by where its arrays lie, and XLA cuts the computation to match.

`within` says while a function is traced which devices there are; outside of it nothing here does anything, so that a
program for one device is the same as if this file were not there.
"""

from __future__ import annotations

from typing import Any, TypeVar

import jax
from jax.sharding import Mesh, PartitionSpec

LANES = "lanes"  # the name of the only axis: environments lie along it, and so do the samples they are learned from

Tree = TypeVar("Tree")


def within(mesh: Mesh) -> Any:
    """Traces what is inside for these devices; JAX counts that in when it looks for what it has traced before."""
    return jax.sharding.use_abstract_mesh(mesh.abstract_mesh)


def spread(tree: Tree) -> Tree:
    """The same with the first axis of every array cut into pieces, one for each device."""
    return _laid(tree, PartitionSpec(LANES))


def whole(tree: Tree) -> Tree:
    """The same with every array whole on each device."""
    return _laid(tree, PartitionSpec())


def _laid(tree: Tree, how: PartitionSpec) -> Tree:
    if LANES not in jax.sharding.get_abstract_mesh().axis_names:
        return tree
    return jax.tree.map(lambda leaf: jax.lax.with_sharding_constraint(leaf, how), tree)
