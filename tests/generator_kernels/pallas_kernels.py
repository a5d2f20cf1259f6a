"""Kernels for JAX Pallas' Triton backend, with what they are to compute; the last two have a fault at ``# here``."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental import pallas as pl
from jax.experimental.pallas import triton as plt

X, Y = np.random.default_rng(1).standard_normal((2, 64, 64)).astype(np.float32)
ROWS = 16
_BY_ROWS = pl.BlockSpec((ROWS, 64), lambda i: (i, 0))
_OF_ROWS = pl.BlockSpec((ROWS,), lambda i: (i,))


def of_rows(kernel, out=_BY_ROWS, shape=X.shape, dtype=np.float32, grid=(64 // ROWS,), **more):
    """A kernel whose programs get 16 rows of both matrices each."""

    @functools.wraps(kernel)
    def call(x, y):
        given = {"out_specs": out, "in_specs": [_BY_ROWS] * 2, "compiler_params": plt.CompilerParams(), **more}
        return pl.pallas_call(kernel, out_shape=jax.ShapeDtypeStruct(shape, dtype), grid=grid, **given)(x, y)

    return call


to_rows = functools.partial(of_rows, out=_OF_ROWS, shape=(64,))


@of_rows
def add(x, y, out):
    out[...] = x[...] + y[...]


@of_rows
def activated(x, y, out):
    out[...] = jax.nn.silu(x[...]) * y[...]


@of_rows
def chosen(x, y, out):
    out[...] = jnp.where(x[...] > y[...], x[...], -y[...])


@of_rows
def clipped(x, y, out):
    out[...] = jnp.clip(x[...], -1, 1) + jnp.maximum(y[...], 0)


@of_rows
def rounded(x, y, out):
    out[...] = (x[...].astype(jnp.bfloat16) * y[...].astype(jnp.bfloat16)).astype(jnp.float32)


@of_rows
def integral(x, y, out):
    out[...] = jnp.floor(x[...]) - y[...].astype(jnp.int32)


@of_rows
def trigonometric(x, y, out):
    out[...] = jnp.sin(x[...]) * jnp.cos(y[...]) + jnp.tanh(x[...])


@of_rows
def softmax(x, y, out):
    powers = jnp.exp(x[...] - x[...].max(axis=1, keepdims=True))
    out[...] = powers / powers.sum(axis=1, keepdims=True)


@of_rows
def normalised(x, y, out):
    centred = x[...] - x[...].mean(axis=1, keepdims=True)
    out[...] = centred * jax.lax.rsqrt((centred * centred).mean(axis=1, keepdims=True) + 1e-5) * y[...]


@of_rows
def gelu(x, y, out):
    out[...] = jax.nn.gelu(x[...]) + y[...]


@of_rows
def looped(x, y, out):
    out[...] = jax.lax.fori_loop(0, 5, lambda _, sums: sums * 0.5 + x[...], y[...])


@of_rows
def branched(x, y, out):
    out[...] = x[...]

    @pl.when(pl.program_id(0) % 2 == 0)
    def _():
        out[...] = y[...]


@functools.partial(of_rows, out=pl.BlockSpec((64, ROWS), lambda i: (0, i)))
def transposed(x, y, out):
    out[...] = x[...].T


@to_rows
def row_sums(x, y, out):
    out[...] = (x[...] * y[...]).sum(axis=1)


@to_rows
def largest(x, y, out):
    out[...] = jnp.max(x[...], axis=1)


@functools.partial(to_rows, dtype=np.int32)
def where_largest(x, y, out):
    out[...] = jnp.argmax(x[...], axis=1)


@functools.partial(of_rows, in_specs=[_BY_ROWS, pl.BlockSpec((64, 64), lambda i: (0, 0))])
def product(x, y, out):
    out[...] = pl.dot(x[...], y[...], trans_b=True, precision=jax.lax.Precision.HIGHEST)


@functools.partial(of_rows, input_output_aliases={1: 0})
def in_place(x, y, out):
    out[...] += x[...]


@functools.partial(
    of_rows,
    in_specs=[pl.BlockSpec((16, 32), lambda i, j: (i, j))] * 2,
    grid=(4, 2),
    out=pl.BlockSpec((16, 32), lambda i, j: (i, j)),
)
def tiled(x, y, out):
    rows = pl.program_id(0) * 16 + jnp.arange(16)
    out[...] = jnp.where(rows[:, None] < 40, x[...] - y[...], 0)


@functools.partial(of_rows, in_specs=[pl.no_block_spec] * 2, out=pl.no_block_spec)
def masked(x, y, out):
    rows = pl.ds(pl.program_id(0) * ROWS, ROWS)
    mask = (jnp.arange(ROWS) + pl.program_id(0) * ROWS)[:, None] < 60
    found = plt.load(x.at[rows, :], mask=jnp.broadcast_to(mask, (ROWS, 64)), other=7.0)
    plt.store(out.at[rows, :], found, mask=jnp.full((ROWS, 64), True))


@functools.partial(of_rows, in_specs=[pl.no_block_spec] * 2, out=pl.no_block_spec)
def beyond(x, y, out):
    rows = pl.ds(pl.program_id(0) * ROWS + 1, ROWS)
    out[pl.ds(pl.program_id(0) * ROWS, ROWS), :] = x[rows, :]  # here


@functools.partial(of_rows, out=pl.BlockSpec((ROWS, 64), lambda i: (0, 0)))
def overwritten(x, y, out):
    out[...] = x[...]  # here


KERNELS = {
    add: lambda x, y: x + y,
    activated: lambda x, y: jax.nn.silu(x) * y,
    chosen: lambda x, y: np.where(x > y, x, -y),
    clipped: lambda x, y: np.clip(x, -1, 1) + np.maximum(y, 0),
    rounded: lambda x, y: (jnp.bfloat16(x) * jnp.bfloat16(y)).astype(np.float32),
    integral: lambda x, y: np.floor(x) - y.astype(np.int32),
    trigonometric: lambda x, y: np.sin(x) * np.cos(y) + np.tanh(x),
    softmax: lambda x, y: jax.nn.softmax(x, axis=1),
    normalised: lambda x, y: jax.nn.standardize(x, axis=1) * y,
    gelu: lambda x, y: jax.nn.gelu(x) + y,
    looped: lambda x, y: y / 32 + x * 1.9375,
    branched: lambda x, y: np.where((np.arange(64) // ROWS % 2 == 0)[:, None], y, x),
    transposed: lambda x, y: x.T,
    row_sums: lambda x, y: (x * y).sum(axis=1),
    largest: lambda x, y: x.max(axis=1),
    where_largest: lambda x, y: x.argmax(axis=1),
    product: lambda x, y: x @ y.T,
    in_place: lambda x, y: x + y,
    tiled: lambda x, y: np.where(np.arange(64)[:, None] < 40, x - y, 0),
    masked: lambda x, y: np.where(np.arange(64)[:, None] < 60, x, 7),
}
FAULTS = {beyond: "out_of_bounds", overwritten: "race"}
