"""A program of CuPy: five ways to a kernel, each of which gives NumPy's answer."""

import cupy
import numpy
from cupyx import jit

rng = numpy.random.default_rng(0)
a = rng.integers(-9, 9, (37, 53)).astype(numpy.float32)
b = rng.integers(1, 9, (37, 53)).astype(numpy.float32)
x, y = cupy.asarray(a), cupy.asarray(b)
grid, block, n = (8,), (256,), numpy.int32(x.size)

module = cupy.RawModule(
    code=r"""
    template <class T> __global__ void add(const T* x, const T* y, T* z, int n) {
        int i = blockIdx.x * blockDim.x + threadIdx.x;
        if (i < n) z[i] = x[i] + y[i];
    }
    __constant__ float factors[4];
    extern "C" __global__ void scale(float* z, int n) {
        int i = blockIdx.x * blockDim.x + threadIdx.x;
        if (i < n) z[i] *= factors[i % 4];
    }
    """,
    name_expressions=["add<float>"],
)
z = cupy.empty_like(x)
module.get_function("add<float>")(grid, block, (x, y, z, n))
assert (cupy.asnumpy(z) == a + b).all()
cupy.ndarray((4,), numpy.float32, module.get_global("factors"))[...] = cupy.arange(4, dtype=numpy.float32)
module.get_function("scale")(grid, block, (z, n))
assert (cupy.asnumpy(z).ravel() == (a + b).ravel() * (numpy.arange(a.size) % 4)).all()

squared = cupy.ElementwiseKernel("T x, T y", "T z", "z = (x - y) * (x - y)", "squared")
assert (cupy.asnumpy(squared(x, y)) == (a - b) ** 2).all()

squares = cupy.ReductionKernel("T x", "T y", "x * x", "a + b", "y = a", "0", "squares")
assert (cupy.asnumpy(squares(x, axis=1)) == (a * a).sum(axis=1)).all()

assert numpy.allclose(cupy.asnumpy(cupy.sin(x) + 3 * cupy.exp(y)), numpy.sin(a) + 3 * numpy.exp(b), rtol=1e-6)
assert cupy.asnumpy(x.max()) == a.max() and (cupy.asnumpy(x.T[:, ::2].copy()) == a.T[:, ::2]).all()


@jit.rawkernel()
def twice(source, target, size):
    """One element a thread."""
    i = jit.blockIdx.x * jit.blockDim.x + jit.threadIdx.x
    if i < size:
        target[i] = source[i] * 2


stream = cupy.cuda.Stream(non_blocking=True)
with stream:
    twice[8, 256](x.ravel(), z.ravel(), x.size)
stream.synchronize()
assert (cupy.asnumpy(z) == 2 * a).all()
