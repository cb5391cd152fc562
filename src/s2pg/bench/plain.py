"""A robot of Gymnasium's own, made in whatever process asks: run as a file, so that none of them has to import JAX."""

from typing import Any


def make(id: str, **options: Any) -> Any:
    """The environment, without MuJoCo's warnings."""
    import importlib
    import importlib.util
    import sys
    import types

    import gymnasium

    mujoco: Any = importlib.import_module("mujoco")  # its stubs do not know of warnings
    # Gymnasium's robots import it at once, though only films need it.
    if "imageio" not in sys.modules and importlib.util.find_spec("imageio") is None:
        sys.modules["imageio"] = types.ModuleType("imageio")
    before = mujoco.get_mju_user_warning()
    # That a model is outdated MuJoCo would write into a file where the user works.
    mujoco.set_mju_user_warning(lambda text: None)
    try:
        return gymnasium.make(id, **options)
    finally:
        mujoco.set_mju_user_warning(before)
