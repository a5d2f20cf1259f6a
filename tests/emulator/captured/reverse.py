"""A program of CuPy, whose kernel has a race and whose host code reads too early, unless it is told to be right."""

import sys

import cupy
import numpy

right = "right" in sys.argv
kernel = cupy.RawKernel(
    r"""
    extern "C" __global__ void reverse(float* x) {
        __shared__ float part[64];
        part[threadIdx.x] = x[threadIdx.x];
        if (RIGHT) __syncthreads();
        x[threadIdx.x] = part[63 - threadIdx.x];
    }
    """,
    "reverse",
    options=(f"-DRIGHT={int(right)}",),
)
x = cupy.arange(64, dtype=cupy.float32)
kernel((1,), (64,), (x,))

pinned = numpy.frombuffer(cupy.cuda.alloc_pinned_memory(x.nbytes), numpy.float32, x.size)
stream = cupy.cuda.Stream(non_blocking=True)
cupy.cuda.get_current_stream().synchronize()
x.data.copy_to_host_async(pinned.ctypes.data, x.nbytes, stream)
if right:
    stream.synchronize()
assert pinned[0] == 63
