"""MuJoCo Warp, the simulator in CUDA that MJX carries: one control step of all environments at once."""

from __future__ import annotations

import functools
import importlib.util
import threading
from types import ModuleType
from typing import Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, PyTree

from s2pg.envs.mujoco.definition import Physics
from s2pg.envs.mujoco.mjx import MjxSimulator, Motion, Start, begin, look, mjx
from s2pg.envs.mujoco.options import CommonOptions
from s2pg.envs.mujoco.robots import ROBOTS
from s2pg.errors import UserError

INSTALL = "pip install 's2pg[warp]'"
_PATCHING = threading.Lock()


class WarpSimulator(eqx.Module):
    """Steps robots in MuJoCo Warp: on a CUDA device, or slowly, for tests, on the CPU.

    Contacts of all environments share one buffer and each environment has its own rows of constraints. Both are as
    large as they can ever get, unless options say less; what finds no room is told by `Motion.overflowed`.
    """

    overflows: ClassVar[bool] = True
    divides: ClassVar[bool] = False  # XLA cannot cut a call that takes all of them

    name: str = eqx.field(static=True)
    sizes: tuple[int, int] = eqx.field(static=True)  # contacts and constraints of one environment
    file: Any = eqx.field(static=True)  # C MuJoCo's model
    model: Any
    blank: Any  # data of one environment
    start: MjxSimulator  # how a robot lies before it moves is asked of MJX itself

    def __init__(self, name: str, model: Any, options: CommonOptions):
        package = _package()
        self.name, self.file = name, model
        self.start = MjxSimulator(name, model, options)
        with package.ScopedDevice("cpu"):
            try:
                put = mjx().put_model(model, impl="warp")
            except (NotImplementedError, ValueError) as error:
                raise UserError(f"MuJoCo Warp cannot run {name} ({error}): take backend=gymnasium") from error
        # It would print to stdout, from inside a kernel, what is counted here.
        self.model = put.tree_replace({"opt._impl.warn_overflow": 0})
        most = self.start.blank._impl
        self.sizes = options.contacts or int(most.ncon), options.constraints or int(most.nefc)
        self.blank = mjx().make_data(model, impl="warp", naconmax=self.sizes[0], njmax=self.sizes[1])
        frames_as_in_c()

    def prepare(self) -> None:
        """Compiles the kernels, which Warp does when they are first asked for, by one step of one robot."""
        still = jnp.zeros(self.model.nv)
        start = Start(jnp.asarray(self.model.qpos0), still, still, jnp.zeros(self.model.nu))
        jax.block_until_ready(jax.jit(lambda start: self.move({}, start))(start))

    def rest(self, weights: dict[str, Array], qpos: Array, qvel: Array) -> Physics:
        """Looks at a robot that is put into this state, with nothing left of what was before."""
        return self.start.rest(weights, qpos, qvel)

    def move(self, weights: dict[str, Array], start: Start) -> Motion:
        """Makes a control step; whatever maps this over environments and seeds gets one batch of all of them."""
        alone = jax.tree.map(lambda leaf: leaf[None], (weights, start))
        return jax.tree.map(lambda leaf: leaf[0], _as_one_batch(self._move)((self.model, self.blank), *alone))

    def _move(self, given: tuple[Any, Any], weights: dict[str, Array], start: Start) -> Motion:
        """Makes a control step of environments [N, ...]."""
        robot, (contacts, constraints), (model, template) = ROBOTS[self.name], self.sizes, given
        worlds = len(start.qpos)
        with jax.ensure_compile_time_eval():
            sized = mjx().make_data(self.file, impl="warp", naconmax=worlds * contacts, njmax=constraints)
        blank = _resized(template, sized)
        # Forces on bodies are worked out in the last step alone, where someone asks for them.
        last = model.tree_replace({"opt._impl.run_rne_postconstraint": bool(robot.contact)})
        step = mjx().step

        def one(weights: dict[str, Array], start: Start) -> Motion:
            data = begin(blank, start)
            data, _ = jax.lax.scan(
                lambda data, _: (step(model.replace(**weights), data), None), data, length=robot.frame_skip - 1
            )
            weighed = last.replace(**weights)
            data = step(weighed, data)
            lost = data._impl.overflow & _no_room()
            return Motion(look(robot, weighed, data), data.qacc_warmstart, lost != 0)

        return jax.vmap(one)(weights, start)


def _resized(template: Any, sized: Any) -> Any:
    """The data of one environment with a buffer of contacts for many, all rows as the first.

    `sized` tells shapes alone: its numbers would be constants of a program, of some hundred megabytes.
    """
    leaves, tree = jax.tree.flatten(sized)
    pairs = zip(jax.tree.leaves(template), leaves, strict=True)
    return jax.tree.unflatten(
        tree, [old if old.shape == new.shape else jnp.broadcast_to(old[:1], new.shape) for old, new in pairs]
    )


def _as_one_batch(batch: Any) -> Any:
    """Takes every further mapped axis into the one that `batch` has: nothing becomes a loop."""

    @jax.custom_batching.custom_vmap
    def call(shared: PyTree, weights: PyTree, start: PyTree) -> Any:
        return batch(shared, weights, start)

    @call.def_vmap
    def rule(size: int, mapped: list, shared: PyTree, *given: PyTree) -> tuple[Any, Any]:
        assert not any(jax.tree.leaves(mapped[0])), "environments of one batch have one model"

        def flat(leaf: Array, is_mapped: bool) -> Array:
            leaf = leaf if is_mapped else jnp.broadcast_to(leaf, (size, *leaf.shape))
            return leaf.reshape(size * leaf.shape[1], *leaf.shape[2:])

        found = call(shared, *(jax.tree.map(flat, each, has) for each, has in zip(given, mapped[1:], strict=True)))
        found = jax.tree.map(lambda leaf: leaf.reshape(size, len(leaf) // size, *leaf.shape[1:]), found)
        return found, jax.tree.map(lambda _: True, found)

    return call


def available() -> bool:
    """Whether robots would run in Warp here: the package is installed, and JAX has a CUDA device."""
    try:
        return on_cuda() and installed() and _package().is_cuda_available()
    except Exception:  # a warp-lang that is broken, or too old for MJX, has errors of all kinds
        return False


def installed() -> bool:
    """Whether the package is there."""
    return importlib.util.find_spec("warp") is not None


def on_cuda() -> bool:
    """Whether JAX computes on a CUDA device."""
    return jax.default_backend() == "gpu" and "cuda" in jax.devices()[0].client.platform_version.lower()


def require() -> None:
    """Refuses in one line what cannot run here, and says what to install."""
    if not installed():
        raise UserError(f"backend=warp needs warp-lang: {INSTALL}, or take backend=mjx or gymnasium")
    if not on_cuda():
        remedy = "pip install 'jax[cuda13]' where there is one, or take backend=gymnasium"
        raise UserError(f"backend=warp needs a CUDA device, and JAX finds none: {remedy}")
    if not available():
        raise UserError(
            "backend=warp finds no CUDA driver that warp-lang 1.19 can use: update either, or take backend=mjx"
        )


def _package() -> ModuleType:
    """Imports Warp."""
    mjx()
    import warp  # pyright: ignore[reportMissingImports]

    # It would tell of its devices and kernels on stdout.
    warp.config.log_level = warp.LOG_WARNING
    return warp


@functools.cache
def _no_room() -> int:
    """The bits of Warp's word on a step that say that something did not fit."""
    from mujoco.mjx.third_party.mujoco_warp._src.types import OverflowType as Bits

    solved = Bits.ITERATIONS | Bits.LS_ITERATIONS  # those say that the solver used all of the iterations it has
    return int(Bits.ALL & ~solved)


def frames_as_in_c() -> None:
    """Gives contacts of capsules on planes the frames of C MuJoCo, as `contacts` does in MJX.

    Warp compiles its kernels once for a process: from then on all of its simulations here have these frames.
    """
    with _PATCHING:
        from s2pg.envs.mujoco import warp_contacts

        warp_contacts.install()
