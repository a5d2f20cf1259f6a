"""The float64 NumPy definition of every operation."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]


def gemm(a: Array, b: Array, *, trans_b: bool = False) -> Array:
    """Matrix product. a: (..., m, k); b: (..., k, n), or (..., n, k) with `trans_b`; returns (..., m, n) float64."""
    b64 = b.astype(np.float64)
    return a.astype(np.float64) @ (b64.swapaxes(-1, -2) if trans_b else b64)


def epilogue(sums: Array, added: Array | None, *, alpha: float, beta: float, activation: str) -> Array:
    """activation(alpha sums + beta added), float64: `none`, `relu`, `gelu` or `silu`. sums: any shape, added: one that
    is broadcast to it, or None."""
    with np.errstate(over="ignore", invalid="ignore"):
        z: Array = alpha * sums.astype(np.float64)
        if added is not None and beta:
            z = z + beta * added.astype(np.float64)
        if activation == "silu":
            z /= 1 + np.exp(-z)
        return gelu(z) if activation == "gelu" else np.maximum(z, 0) if activation == "relu" else z


def ordered_product(a: Array, b: Array, *, backwards: bool = False) -> Array:
    """a @ b in the type of its arguments, every sum from its first term to its last, or `backwards`: for models of
    kernels, whose threads add up like that. a: (..., m, k); b: (..., k, n); returns (..., m, n)."""
    terms = a.shape[-1]
    total = np.zeros(np.broadcast_shapes((*a.shape[:-1], 1), (*b.shape[:-2], 1, b.shape[-1])), a.dtype)
    for i in reversed(range(terms)) if backwards else range(terms):
        total += a[..., i, None] * b[..., None, i, :]
    return total


def scaled_gemm(a: Array, b: Array, a_scale: Array, b_scale: Array) -> Array:
    """Matrix product A B^T with a factor for each row of both. a: (m, k); b: (n, k); a_scale: (m,); b_scale: (n,);
    returns (m, n) float64."""
    return a_scale.astype(np.float64)[:, None] * gemm(a, b, trans_b=True) * b_scale.astype(np.float64)


def block_scaled_gemm(a: Array, b: Array, a_scale: Array, b_scale: Array, block: int) -> Array:
    """Matrix product A B^T with a factor for each block of a row of both: `block` elements, fewer at its end.
    a: (m, k); b: (n, k); a_scale: (m, blocks of a row); b_scale: (n, blocks of a row); returns (m, n) float64."""

    def scaled(x: Array, scale: Array) -> Array:
        return x.astype(np.float64) * np.repeat(scale.astype(np.float64), block, axis=1)[:, : x.shape[1]]

    return gemm(scaled(a, a_scale), scaled(b, b_scale), trans_b=True)


def matvec(a: Array, b: Array) -> Array:
    """Matrix-vector product. a: (k,); b: (n, k); returns (n,) float64."""
    return b.astype(np.float64) @ a.astype(np.float64)


def vector_add(a: Array, b: Array) -> Array:
    """Elementwise sum. a, b: (n,); returns (n,) float64."""
    return a.astype(np.float64) + b.astype(np.float64)


def scale(x: Array, factor: float) -> Array:
    """Elementwise product with a number. Any shape; returns the same, float64."""
    return factor * x.astype(np.float64)


def transpose(x: Array) -> Array:
    """Rows become columns. x: (m, n); returns (n, m) float64."""
    return x.astype(np.float64).T


def softmax(x: Array) -> Array:
    """Probabilities of each row. x: (rows, columns) logits, -inf where masked; returns the same shape, float64. A row
    that is wholly masked has probabilities 0."""
    x64 = x.astype(np.float64)
    top = x64.max(axis=1, keepdims=True)
    e = np.exp(x64 - np.where(top == -np.inf, 0.0, top))
    total = e.sum(axis=1, keepdims=True)
    return e / np.where(total == 0.0, 1.0, total)


def rms_norm(x: Array, w: Array, eps: float) -> Array:
    """Rows over their root mean square. x: (rows, columns); w: (columns,); returns (rows, columns) float64."""
    x64 = x.astype(np.float64)
    y: Array = x64 * w.astype(np.float64) / np.sqrt(np.mean(x64 * x64, axis=1, keepdims=True) + eps)
    return y


def layer_norm(x: Array, w: Array, b: Array, eps: float) -> Array:
    """Rows of mean 0 and variance 1, times w, plus b. x: (rows, columns); w, b: (columns,); returns (rows, columns)
    float64."""
    x64 = x.astype(np.float64)
    centred = x64 - x64.mean(axis=1, keepdims=True)
    variance = np.mean(centred * centred, axis=1, keepdims=True)
    y: Array = centred * w.astype(np.float64) / np.sqrt(variance + eps) + b.astype(np.float64)
    return y


def log_sum_exp(x: Array) -> Array:
    """Logarithm of the sum of the exponentials of each row. x: (rows, columns) logits, -inf where masked; returns
    (rows,) float64, -inf for a row that is wholly masked."""
    x64 = x.astype(np.float64)
    top = x64.max(axis=1)
    base = np.where(top == -np.inf, 0.0, top)
    with np.errstate(divide="ignore"):
        result: Array = base + np.log(np.exp(x64 - base[:, None]).sum(axis=1))
    return result


def cross_entropy(x: Array, labels: Array) -> Array:
    """Negative logarithm of the probability of a row's label, 0 where the label is negative: such rows are left out.
    x: (rows, columns) logits; labels: (rows,) integers below columns; returns (rows,) float64, +inf where the label is
    masked."""
    logit = x[np.arange(len(labels)), np.maximum(labels, 0)].astype(np.float64)
    with np.errstate(invalid="ignore"):
        loss = np.where(logit == -np.inf, np.inf, log_sum_exp(x) - logit)
    result: Array = np.where(labels < 0, 0.0, loss)
    return result


def attention(q: Array, k: Array, v: Array, mask: Array, scale: float) -> tuple[Array, Array]:
    """Averages of values, weighted by the softmax of scale q k^T over the keys that a row sees, and the logarithm of
    the sum of the exponentials. q: (rows, dim); k: (keys, dim); v: (keys, dim); mask: (rows, keys) bool, true where a
    row sees a key; returns (rows, dim) and (rows,) float64. A row that sees none has the average 0 and -inf."""
    logits = np.where(mask, q.astype(np.float64) @ k.astype(np.float64).T * scale, -np.inf)
    return softmax(logits) @ v.astype(np.float64), log_sum_exp(logits)


def attention_backward(
    q: Array, k: Array, v: Array, o: Array, lse: Array, do: Array, mask: Array, scale: float
) -> tuple[Array, Array, Array]:
    """Gradients of `attention` for q, k and v, of its results o and lse and the gradient do of o. q, o, do: (rows,
    dim); k, v: (keys, dim); lse: (rows,); mask: (rows, keys) bool; returns dq like q, dk and dv like k, float64. A row
    whose lse is -inf sees no key and adds nothing. Source: Dao et al., FlashAttention, 2022, appendix B.2."""
    q64, k64, v64, o64, do64 = (x.astype(np.float64) for x in (q, k, v, o, do))
    sees = np.isfinite(lse)[:, None]
    log_sum = np.where(sees, lse.astype(np.float64)[:, None], 0.0)
    p = np.exp(np.where(mask & sees, q64 @ k64.T * scale - log_sum, -np.inf))
    ds = p * (do64 @ v64.T - (do64 * o64).sum(axis=1, keepdims=True))
    return scale * (ds @ k64), scale * (ds.T @ q64), p.T @ do64


def rotary(x: Array, cos: Array, sin: Array, *, interleaved: bool = False) -> Array:
    """Rotary position embedding: pairs (u, v) become (u cos - v sin, u sin + v cos). x: (..., seq, dim); cos, sin:
    (seq, dim / 2); returns the shape of x, float64. A pair is (2i, 2i + 1), `interleaved`, or (i, i + dim / 2)."""
    x64, c, s = (v.astype(np.float64) for v in (x, cos, sin))
    half = x.shape[-1] // 2
    u, v = (x64[..., 0::2], x64[..., 1::2]) if interleaved else (x64[..., :half], x64[..., half:])
    rotated = (u * c - v * s, u * s + v * c)
    return np.stack(rotated, axis=-1).reshape(x.shape) if interleaved else np.concatenate(rotated, axis=-1)


def reduce(x: Array, *, op: str = "sum", over: str = "columns") -> Array:
    """Sum or maximum (`sum`, `max`) of a matrix along its `columns`, its `rows`, or of `all`. x: (rows, columns);
    returns (rows,), (columns,) or (1,) float64."""
    found = x.astype(np.float64)
    axis = {"columns": 1, "rows": 0, "all": None}[over]
    result: Array = np.atleast_1d(found.sum(axis=axis) if op == "sum" else found.max(axis=axis))
    return result


def scan(x: Array) -> Array:
    """Inclusive sums along each row: y[r, c] = sum_{j <= c} x[r, j]. x: (rows, columns); returns the same, float64."""
    result: Array = np.cumsum(x.astype(np.float64), axis=1)
    return result


def ssd(x: Array, log_a: Array, b: Array, c: Array, h0: Array) -> tuple[Array, Array]:
    """State-space model with a scalar decay: h_t = exp(log_a_t) h_{t-1} + b_t x_t^T, y_t = h_t^T c_t.

    x: (..., length, headdim); log_a: (..., length); b, c: (..., length, dstate); h0: (..., dstate, headdim), the state
    before the first place; returns y like x, and the state after the last place like h0, float64. Source: Dao and Gu,
    Transformers are SSMs, 2024."""
    x64, b64, c64 = (v.astype(np.float64) for v in (x, b, c))
    a, h, y = np.exp(log_a.astype(np.float64)), h0.astype(np.float64), np.empty_like(x64)
    for t in range(x.shape[-2]):
        h = a[..., t, None, None] * h + b64[..., t, :, None] * x64[..., t, None, :]
        y[..., t, :] = (c64[..., t, None, :] @ h)[..., 0, :]
    return y, h


def fft_conv(u: Array, k: Array, *, causal: bool = False) -> Array:
    """Convolution by the discrete Fourier transform: y_t = sum_j k_j u_{t-j}, with places of u modulo length, or,
    `causal`, those before the first 0. u: (..., length); k: of a shape that broadcasts; returns (..., length)
    float64."""
    length = u.shape[-1]
    period = 2 * length if causal else length
    product = np.fft.rfft(u.astype(np.float64), period) * np.fft.rfft(k.astype(np.float64), period)
    result: Array = np.fft.irfft(product, period)[..., :length]
    return result


def softmax_backward(y: Array, dy: Array) -> Array:
    """Gradient of softmax for its result y and the gradient dy of that. Both (rows, columns), as is the result."""
    y64, dy64 = y.astype(np.float64), dy.astype(np.float64)
    dx: Array = y64 * (dy64 - (y64 * dy64).sum(axis=1, keepdims=True))
    return dx


def rms_norm_backward(x: Array, w: Array, dy: Array, eps: float) -> tuple[Array, Array]:
    """Gradients of `rms_norm` for x and w. x, dy: (rows, columns); w: (columns,); returns dx and dw like x and w."""
    x64, dy64 = x.astype(np.float64), dy.astype(np.float64)
    scale = 1 / np.sqrt(np.mean(x64 * x64, axis=1, keepdims=True) + eps)
    n, g = x64 * scale, w.astype(np.float64) * dy64
    return scale * (g - n * np.mean(g * n, axis=1, keepdims=True)), (dy64 * n).sum(axis=0)


def layer_norm_backward(x: Array, w: Array, dy: Array, eps: float) -> tuple[Array, Array, Array]:
    """Gradients of `layer_norm` for x, w and b. x, dy: (rows, columns); w: (columns,); returns dx like x, dw and db
    like w."""
    x64, dy64 = x.astype(np.float64), dy.astype(np.float64)
    centred = x64 - x64.mean(axis=1, keepdims=True)
    scale = 1 / np.sqrt(np.mean(centred * centred, axis=1, keepdims=True) + eps)
    n, g = centred * scale, w.astype(np.float64) * dy64
    dx = scale * (g - g.mean(axis=1, keepdims=True) - n * np.mean(g * n, axis=1, keepdims=True))
    return dx, (dy64 * n).sum(axis=0), dy64.sum(axis=0)


def gelu(x: Array) -> Array:
    """x times the distribution function of the normal distribution, x / 2 (1 + erf(x / sqrt 2)), not the approximation
    by tanh. Any shape and float type; returns the same. Source: Hendrycks and Gimpel, Gaussian Error Linear Units, 2016
    """
    erf = np.vectorize(math.erf, otypes=[np.float64])(np.asarray(x, np.float64) / math.sqrt(2.0)).astype(x.dtype)
    y: Array = x / 2 * (1 + erf)
    return y


def conv2d(
    x: Array,
    f: Array,
    bias: Array | None = None,
    *,
    stride: tuple[int, int] = (1, 1),
    pad: tuple[int, int] = (0, 0),
    dilation: tuple[int, int] = (1, 1),
    activation: str = "none",
) -> Array:
    """Convolution as neural networks have it (no flipped filter): the sum of products of each window of x and a filter,
    plus the filter's bias, through `none`, `relu` or `gelu`. x: (images, height, width, groups, channels); f: (groups,
    filters, taps_y, taps_x, channels); bias: (groups, filters); returns (images, rows, columns, groups, filters)
    float64. Numbers are of y and x: `stride` pixels from one window to the next, `pad` zeros on every side of an image,
    taps `dilation` pixels apart."""
    x64, f64 = x.astype(np.float64), f.astype(np.float64)
    groups, filters, *taps, channels = f.shape
    size = [
        (n + 2 * p - d * (t - 1) - 1) // s + 1
        for n, p, d, t, s in zip(x.shape[1:3], pad, dilation, taps, stride, strict=True)
    ]
    padded = np.pad(x64, ((0, 0), *((p, p) for p in pad), (0, 0), (0, 0)))
    z = np.zeros((x.shape[0], *size, groups, filters), x64.dtype, like=x64)
    for tap in np.ndindex(*taps):
        first = [t * d for t, d in zip(tap, dilation, strict=True)]
        down, right = (slice(a, a + (n - 1) * s + 1, s) for a, n, s in zip(first, size, stride, strict=True))
        seen, weights = padded[:, down, right], f64[:, :, *tap]
        if channels * filters == 1:  # products of matrices would be of one element each
            z += seen * weights[:, 0, :]
        else:
            for group in range(groups):
                windows = seen[..., group, :].reshape(-1, channels)  # as one matrix, which is multiplied faster
                z.reshape(-1, groups, filters)[:, group] += windows @ weights[group].T
    if bias is not None:
        z += bias.astype(np.float64)
    if activation == "gelu":
        return gelu(z)
    return np.maximum(z, 0) if activation == "relu" else z
