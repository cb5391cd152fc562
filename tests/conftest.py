"""What holds for every test: strict shapes, checked annotations, compiled code kept between runs.

Tests that need 64 bits say `with jax.enable_x64():`; it is the only name in JAX 0.10 and later.
"""

import jax
from jaxtyping import install_import_hook

# Before the first import of s2pg: its annotations, shapes included, are then checked at every call.
install_import_hook("s2pg", "beartype.beartype")

from s2pg.configure import compilation_cache  # noqa: E402

compilation_cache()
jax.config.update("jax_numpy_rank_promotion", "raise")
