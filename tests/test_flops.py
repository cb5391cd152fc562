"""Arithmetic counted in traced programs, against counts by hand."""

import jax
import jax.numpy as jnp

from s2pg.bench.flops import matrix_flops
from s2pg.bench.offpolicy import width_with

ONE = 2 * 3 * 4 * 4  # a product of a [3, 4] and a [4, 4] matrix
X, W = jnp.ones((3, 4)), jnp.ones((4, 4))


def five(x, w):
    return jax.lax.scan(lambda x, _: (jax.nn.relu(x @ w), None), x, None, length=5)[0].sum()


def test_products_in_a_loop_count_as_often_as_it_runs():
    assert matrix_flops(five, X, W) == 5 * ONE


def test_a_gradient_takes_two_more_products_for_each():
    assert matrix_flops(jax.grad(five, 1), X, W) == 3 * 5 * ONE


def test_what_nobody_needs_does_not_count():
    def work(x, w):
        _ = x @ w @ w
        return jax.jit(jnp.matmul)(x, w)

    assert matrix_flops(work, X, W) == ONE


def test_products_under_vmap_count_for_every_example():
    assert matrix_flops(jax.vmap(jnp.matmul, (0, None)), jnp.ones((7, 3, 4)), W) == 7 * ONE


def test_the_width_with_the_nearest_number_of_parameters_is_found():
    assert width_with(lambda width: width**2, 17**2, unit=8) == 16
    assert width_with(lambda width: width**2, 21**2, unit=8) == 24
