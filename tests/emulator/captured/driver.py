"""A program of cuda-python, on the driver's interface: a product of a module, streams, a graph, and what is refused."""

import numpy
from cuda.bindings import driver, nvrtc, runtime


def call(function, *arguments):
    """What a function gives besides its error, which there must not be."""
    error, *values = function(*arguments)
    assert int(error) == 0, error
    return values[0] if len(values) == 1 else values


SOURCE = b"""
extern "C" __global__ void saxpy(float a, const float* x, float* y, size_t n) {
    size_t i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] += a * x[i];
}
"""
call(driver.cuInit, 0)
device = call(driver.cuDeviceGet, 0)
context = call(driver.cuCtxCreate, None, 0, device)
program = call(nvrtc.nvrtcCreateProgram, SOURCE, b"saxpy.cu", 0, [], [])
call(nvrtc.nvrtcCompileProgram, program, 1, [b"--gpu-architecture=sm_90"])
image = bytes(call(nvrtc.nvrtcGetCUBINSize, program))
call(nvrtc.nvrtcGetCUBIN, program, image)
kernel = call(driver.cuModuleGetFunction, call(driver.cuModuleLoadData, image), b"saxpy")
assert call(driver.cuFuncGetAttribute, driver.CUfunction_attribute.CU_FUNC_ATTRIBUTE_PTX_VERSION, kernel) == 90
older = b".version 6.4\n.target sm_75\n.address_size 64\n.visible .entry nothing() { ret; }\0"  # what CUB chooses by
nothing = call(driver.cuModuleGetFunction, call(driver.cuModuleLoadData, older), b"nothing")
assert call(driver.cuFuncGetAttribute, driver.CUfunction_attribute.CU_FUNC_ATTRIBUTE_PTX_VERSION, nothing) == 75
assert call(driver.cuFuncGetAttribute, driver.CUfunction_attribute.CU_FUNC_ATTRIBUTE_BINARY_VERSION, nothing) == 90

n = 1000
x, y, answer = (numpy.arange(n, dtype=numpy.float32) for _ in range(3))
stream = call(driver.cuStreamCreate, 0)
on_device = [call(driver.cuMemAlloc, array.nbytes) for array in (x, y)]
for address, array in zip(on_device, (x, y), strict=True):
    call(driver.cuMemcpyHtoDAsync, address, array.ctypes.data, array.nbytes, stream)
values = [numpy.float32([2]), *(numpy.uint64([int(address)]) for address in on_device), numpy.uint64([n])]
pointers = numpy.array([value.ctypes.data for value in values], numpy.uint64)
call(driver.cuStreamBeginCapture, stream, driver.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_GLOBAL)
call(driver.cuLaunchKernel, kernel, 4, 1, 1, 256, 1, 1, 0, stream, pointers.ctypes.data, 0)
graph = call(driver.cuGraphInstantiate, call(driver.cuStreamEndCapture, stream), 0)
for _ in range(3):
    call(driver.cuGraphLaunch, graph, stream)
call(driver.cuMemcpyDtoHAsync, answer.ctypes.data, on_device[1], answer.nbytes, stream)
call(driver.cuStreamSynchronize, stream)
assert (answer == 7 * x).all()
call(driver.cuMemsetD32, on_device[0], 5, n)
call(driver.cuMemcpyDtoH, answer.ctypes.data, on_device[0], answer.nbytes)
assert (answer.view(numpy.uint32) == 5).all()

(error, name) = driver.cuGetErrorName(driver.CUresult.CUDA_ERROR_INVALID_VALUE)
assert name == b"CUDA_ERROR_INVALID_VALUE"
assert int(driver.cuTexRefCreate()[0]) == 801
assert int(runtime.cudaGetDeviceCount()[0]) == 801
