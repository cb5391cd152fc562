"""What holds for every test: strict shapes, checked annotations, quick compilation, compiled code kept between runs.

Tests that need 64 bits say `with jax.enable_x64():`; it is the only name in JAX 0.10 and later.
"""

import os

# Before JAX is imported, and for processes that tests start: the tests' programs are tiny, compiling them is what takes
# time, and optimising them makes it three times as long.
os.environ.setdefault("JAX_DISABLE_MOST_OPTIMIZATIONS", "1")

import jax
import pytest
from jaxtyping import install_import_hook

# Before the first import of s2pg: its annotations, shapes included, are then checked at every call.
install_import_hook("s2pg", "beartype.beartype")

from s2pg.configure import compilation_cache  # noqa: E402

compilation_cache()
# Everything is kept: what one worker has compiled another need not compile again.
jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)
jax.config.update("jax_numpy_rank_promotion", "raise")


@pytest.fixture(scope="module", autouse=True)
def forgotten_programs():
    """Frees what a file has compiled: a worker that keeps the programs of all files grows to 5 GB, and one crashed."""
    yield
    jax.clear_caches()
