"""CUDA files with host code, written as people write them. With FAULT defined, the line marked `// here` is wrong."""

COMMON_H = r"""
#pragma once
#include <stdio.h>
#include <stdlib.h>
#include <vector>
#include <cublas_v2.h>
#include <cublasLt.h>
#define WARP 32

template <class T>
__host__ __device__ T ceil_div(T dividend, T divisor) {
    return (dividend + divisor - 1) / divisor;
}

void cuda_check(cudaError_t error, const char *file, int line) {
    if (error != cudaSuccess) {
        printf("[CUDA ERROR] at file %s:%d:\n%s\n", file, line, cudaGetErrorString(error));
        exit(EXIT_FAILURE);
    }
};
#define cudaCheck(err) (cuda_check(err, __FILE__, __LINE__))

static size_t workspace_size = 32 * 1024 * 1024;
static void *workspace = NULL;
cublasHandle_t cublas_handle;

float* make_random_float(size_t n) {
    float* x = (float*)malloc(n * sizeof(float));
    for (size_t i = 0; i < n; i++) x[i] = ((float)rand() / RAND_MAX) * 2.0 - 1.0;
    return x;
}
__device__ float warp_sum(float v) {
    for (int d = WARP / 2; d > 0; d /= 2) v += __shfl_xor_sync(0xffffffff, v, d);
    return v;
}
"""

ROW_MEANS = r"""
/*
Kernels for the mean of rows: it's compiled with
nvcc -O3 --use_fast_math -lcublas row_means.cu -o row_means
*/
#include <stdio.h>
#include <stdlib.h>
#include <assert.h>
#include <float.h>
#include "common.h"

// CPU code reference
void row_means_cpu(float* means, const float* x, int n, int c) {
    for (int i = 0; i < n; i++) {
        double sum = 0;
        for (int j = 0; j < c; j++) { sum += x[i * c + j]; }
        means[i] = sum / c;
    }
}

// one warp a row
__global__ void row_means_kernel1(float* __restrict__ means, const float* __restrict__ x, int n, int c) {
    int row = blockIdx.x * (blockDim.x / WARP) + threadIdx.x / WARP;
    assert(c > 0);
    if (row >= n) { return; }
    float sum = 0.0f, largest = -FLT_MAX;
    for (int j = threadIdx.x % WARP; j < c; j += WARP) {
        sum += x[row * c + j];
        largest = fmaxf(largest, x[row * c + j]);
    }
    sum = warp_sum(sum);
#ifdef FAULT
    row += ceil_div(n, 2);
#endif
    if (threadIdx.x % WARP == 0) means[row] = largest < INFINITY ? sum / c : NAN;  // here
}

// kernel launcher
void row_means1(float* means, const float* x, int n, int c, const int block_size) {
    const int grid_size = ceil_div(n * 32, block_size);
    row_means_kernel1<<<grid_size, block_size>>>(means, x, n, c);
    cudaCheck(cudaGetLastError());
}

int main(int argc, char **argv) {
    srand(0);
    int n = 8, c = 40;
    float* x = make_random_float(n * c);
    float *d_x, *d_means;
    cudaCheck(cudaMalloc(&d_x, n * c * sizeof(float)));
    int block_sizes[] = {32, 64, 128, 256, 512, 1024};
    for (int j = 0; j < sizeof(block_sizes) / sizeof(int); j++) {
        row_means1(d_means, d_x, n, c, block_sizes[j]);
    }
    return 0;
}
"""

SGEMM = r"""
#include <cstdio>
#include <cstdlib>
#include <cublas_v2.h>
#include <cuda_runtime.h>
#include <iostream>
#include <stdexcept>

#define CEIL_DIV(M, N) (((M) + (N)-1) / (N))
#define CUDA_CHECK(call)                                             \
    do {                                                             \
        cudaError_t err = call;                                      \
        if (err != cudaSuccess) {                                    \
            std::cerr << "error " << cudaGetErrorString(err) << "\n"; \
            std::exit(1);                                            \
        }                                                            \
    } while (0)

template <const int BM, const int BN, const int BK>
__global__ void __launch_bounds__(BM * BN, 1)
    sgemm_tiled(int M, int N, int K, float alpha, const float *A, const float *B, float beta, float *C) {
    static_assert(BM == BN && BK == BM, "square tiles");
    __shared__ float As[BM * BK], Bs[BK * BN];
    const uint cRow = blockIdx.y, cCol = blockIdx.x;
    const int row = threadIdx.x / BN, col = threadIdx.x % BN;
    A += cRow * BM * K;
    B += cCol * BN;
    C += cRow * BM * N + cCol * BN;
    float tmp = 0.0;
    for (int bk = 0; bk < K; bk += BK) {
        As[row * BK + col] = A[row * K + col];
        Bs[row * BN + col] = B[row * N + col];
        __syncthreads();
        for (int k = 0; k < BK; ++k) tmp += As[row * BK + k] * Bs[k * BN + col];  // here
#ifndef FAULT
        __syncthreads();
#endif
        A += BK;
        B += BK * N;
    }
    C[row * N + col] = alpha * tmp + beta * C[row * N + col];
}

void run_sgemm_tiled(int M, int N, int K, float alpha, float *A, float *B, float beta, float *C) {
    dim3 gridDim(CEIL_DIV(N, 16), CEIL_DIV(M, 16));
    sgemm_tiled<16, 16, 16><<<gridDim, 256>>>(M, N, K, alpha, A, B, beta, C);
}

void run_kernel(int kernel_num, int M, int N, int K, float alpha, float *A, float *B, float beta, float *C,
                cublasHandle_t handle) {
    switch (kernel_num) {
    case 0: CUDA_CHECK(cudaDeviceSynchronize()); break;
    case 1: run_sgemm_tiled(M, N, K, alpha, A, B, beta, C); break;
    default: throw std::invalid_argument("Unknown kernel number");
    }
}
"""

EXTENSION = r"""
#include <torch/extension.h>
#include <ATen/cuda/CUDAContext.h>
#include <c10/cuda/CUDAGuard.h>
#include <vector>
#include "ATen/AccumulateType.h"
using namespace torch::indexing;

#define CHECK_CUDA(x) TORCH_CHECK(x.device().is_cuda(), #x " must be a CUDA tensor")
#define CHECK_INPUT(x) CHECK_CUDA(x)

namespace {
template <typename scalar_t>
__device__ __forceinline__ scalar_t sigmoid(scalar_t z) { return 1.0 / (1.0 + exp(-z)); }

template <typename scalar_t>
C10_LAUNCH_BOUNDS_1(128)
__global__ void gate_kernel(
    const torch::PackedTensorAccessor32<scalar_t, 2, torch::RestrictPtrTraits> gates,
    torch::PackedTensorAccessor32<scalar_t, 2, torch::RestrictPtrTraits> out) {
    const int n = blockIdx.y;
    const int c = blockIdx.x * blockDim.x + threadIdx.x;
#ifdef FAULT
    if (c <= gates.size(1)) {
#else
    if (c < gates.size(1)) {
#endif
        out[n][c] = sigmoid(static_cast<at::opmath_type<scalar_t>>(gates[n][c]));  // here
    }
}
}  // namespace

std::vector<torch::Tensor> gate_forward(torch::Tensor gates) {
    CHECK_INPUT(gates);
    const at::cuda::OptionalCUDAGuard device_guard(device_of(gates));
    auto out = torch::zeros_like(gates);
    AT_DISPATCH_FLOATING_TYPES_AND_HALF(gates.scalar_type(), "gate_forward", ([&] {
        gate_kernel<scalar_t><<<dim3(1, gates.size(0)), 128, 0, at::cuda::getCurrentCUDAStream()>>>(
            gates.packed_accessor32<scalar_t, 2, torch::RestrictPtrTraits>(),
            out.packed_accessor32<scalar_t, 2, torch::RestrictPtrTraits>());
    }));
    return {out};
}

PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) {
    m.def("forward", &gate_forward, "gate forward (CUDA)");
}
TORCH_LIBRARY_FRAGMENT(gates, m) { m.def("gate_forward(Tensor gates) -> Tensor[]"); }
"""

GROUPS = r"""
#include <cooperative_groups.h>
#include <chrono>
namespace cg = cooperative_groups;
using namespace std::chrono;

__global__ void sums(const int* x, int* y, int n) {
    cg::thread_block block = cg::this_thread_block();
    auto warp = cg::tiled_partition<32>(block);
    int i = block.group_index().x * block.size() + block.thread_rank();
#ifdef FAULT
    int v = x[i];  // here
#else
    int v = i < n ? x[i] : 0;
#endif
    for (int d = warp.size() / 2; d > 0; d /= 2) v += warp.shfl_down(v, d);
    if (warp.thread_rank() == 0) atomicAdd(y, v);
}

int main() {
    auto begin = high_resolution_clock::now();
    sums<<<2, 64>>>(nullptr, nullptr, 0);
    auto seconds = duration_cast<duration<double>>(high_resolution_clock::now() - begin).count();
    return seconds > 1'000.0;
}
"""

TMA = r"""
#include <cuda.h>
#include <cudaTypedefs.h>
#include <cuda_bf16.h>
#include <cassert>
#include <random>

typedef __nv_bfloat16 bf16;
constexpr int ROWS = 8, COLUMNS = 64;

CUtensorMap *d_map = 0;
int previous_rows = 0;

template <int BlockRows, int BlockColumns>
void create_tensor_map(CUtensorMap *map, bf16 *gmem, int rows, int columns) {
    uint64_t shape[5] = {(uint64_t)columns, (uint64_t)rows, 1, 1, 1};
    uint64_t stride[5] = {sizeof(bf16), sizeof(bf16) * columns, 0, 0, 0};
    uint32_t box[5] = {uint32_t(BlockColumns), uint32_t(BlockRows), 1, 1, 1};
    uint32_t steps[5] = {1, 1, 1, 1, 1};
    CUresult result = cuTensorMapEncodeTiled(
        map, CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, 2, gmem, shape, stride + 1, box, steps, CU_TENSOR_MAP_INTERLEAVE_NONE,
        CU_TENSOR_MAP_SWIZZLE_NONE, CU_TENSOR_MAP_L2_PROMOTION_NONE, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
    assert(result == CUDA_SUCCESS);
}

__device__ static __forceinline__ uint32_t shared_address(const void* p) {
    return static_cast<uint32_t>(__cvta_generic_to_shared(p));
}

__global__ void copy_tile(const __grid_constant__ CUtensorMap map, bf16* out) {
    __shared__ alignas(128) bf16 tile[ROWS * COLUMNS];
    __shared__ alignas(8) uint64_t bar;
    if (threadIdx.x == 0) {
        asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" ::"r"(shared_address(&bar)));
        asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
        asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(shared_address(&bar)),
                     "r"((uint32_t)sizeof(tile)));
        asm volatile(
            "cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes"
            " [%0], [%1, {%3, %4}], [%2];"
            ::"r"(shared_address(tile)), "l"(&map), "r"(shared_address(&bar)), "r"(0), "r"(0)
            : "memory");
    }
    __syncthreads();
#ifndef FAULT
    asm volatile(R"({
        .reg .pred done;
    again:
        mbarrier.try_wait.parity.shared::cta.b64 done, [%0], 0;
        @!done bra again;
    })" ::"r"(shared_address(&bar)) : "memory");
#endif
    for (int i = threadIdx.x; i < ROWS * COLUMNS; i += blockDim.x)
        out[i] = tile[i];  // here
}

static PFN_cuTensorMapEncodeTiled get_encode() {
    void* entry = nullptr;
    cudaDriverEntryPointQueryResult status;
    cudaGetDriverEntryPoint("cuTensorMapEncodeTiled", &entry, cudaEnableDefault, &status);
    return (PFN_cuTensorMapEncodeTiled)entry;
}

void run(bf16* in, bf16* out) {
    CUtensorMap map;
    create_tensor_map<ROWS, COLUMNS>(&map, in, ROWS, COLUMNS);
    copy_tile<<<1, 32>>>(map, out);
}
"""

THRUST = r"""
#include <thrust/device_vector.h>
#include <thrust/transform.h>
#include <thrust/execution_policy.h>
#include <algorithm>
#include <map>
#include <string>

struct saxpy_functor {
    const float a;
    saxpy_functor(float _a) : a(_a) {}
    __host__ __device__ float operator()(const float& x, const float& y) const { return a * x + y; }
};
std::map<std::string, int> registry{{"saxpy", 1}, {"clip", 2}};

__global__ void clip(const float* x, float* y, int n) {
    int i = threadIdx.x;
#ifdef FAULT
    n += 1;
#endif
    if (i < n) y[i] = std::min(std::max(x[i], -1.0f), 1.0f);  // here
}

void saxpy(float a, thrust::device_vector<float>& x, thrust::device_vector<float>& y) {
    thrust::transform(x.begin(), x.end(), y.begin(), y.begin(), saxpy_functor(a));
    std::sort(y.begin(), y.end());
}
"""

DISPATCH = r"""
#include <cuda_fp16.h>
#include <functional>
#include <type_traits>

enum class Activation : int { None, Relu = 1, Gelu };
enum { kDefaultBlock = 64 };

template <typename To, typename From>
__host__ __device__ constexpr auto cast(From value) -> To {
    if constexpr (std::is_same_v<To, __half>) {
        return __float2half(value);
    } else {
        return static_cast<To>(value);
    }
}
constexpr int next_power(int n) { return n <= 1 ? 1 : 2 * next_power((n + 1) / 2); }

template <typename T, Activation A>
struct Act {
    static std::string name() { return A == Activation::Relu ? "relu" : "none"; }
    __device__ static T apply(T v) {
        if constexpr (A == Activation::Relu) return v > T(0) ? v : T(0);
        else return v;
    }
};

template <typename T, Activation A, int Block = kDefaultBlock>
__global__ void activate(const T* x, T* y, int n) {
    __shared__ T buffer[next_power(Block)];
    int i = blockIdx.x * Block + threadIdx.x;
    if (i < n) buffer[threadIdx.x] = Act<T, A>::apply(x[i]);
#ifdef FAULT
    if (i <= n - 2) buffer[threadIdx.x] = buffer[threadIdx.x + 1];  // here
#endif
    if (i < n) y[i] = buffer[threadIdx.x];
}

template <typename T>
void launch_activate(const T* x, T* y, int n, Activation a) {
    auto run = [&](auto kernel) { kernel<<<(n + 63) / 64, 64>>>(x, y, n); };
    std::function<void()> table[] = {[&] { run(activate<T, Activation::None>); }, [&]() -> void {
        run(activate<T, Activation::Relu>);
    }};
    switch (a) {
        case Activation::None: table[0](); break;
        default: table[1]();
    }
}
template void launch_activate<float>(const float*, float*, int, Activation);
template void launch_activate<__half>(const __half*, __half*, int, Activation);
"""

STRUCTS = r"""
#include <memory>
#include <string>
#include <vector>

namespace physics {
struct Config {  // of the host alone
    std::string path;
    std::vector<int> sizes;
    Config() = default;
    explicit Config(std::string p) : path(std::move(p)), sizes{1, 2, 3} {}
};

template <class T>
class Grid {
public:
    Grid(T* data, int w, int h) : data_(data), width_(w), height_{h} { check(); }
    ~Grid() { if (data_) release(); }
    void check() const;
    std::vector<T> host_copy() const {
        std::vector<T> v(width_ * height_);
        return v;
    }
    __host__ __device__ int width() const { return width_; }
    __host__ __device__ T& at(int x, int y) {
#ifdef __CUDA_ARCH__
        return data_[y * width_ + x];
#else
        if (x >= width_) throw std::out_of_range("x");
        return data_[y * width_ + x];
#endif
    }
    Grid& operator=(const Grid&) = delete;

private:
    T* data_;
    int width_, height_;
    static constexpr int kHalo = 1;
};
template <class T>
void Grid<T>::check() const { if (width_ < 0) throw std::runtime_error("width"); }

struct cells {  // which a variable in the kernel is called, too
    std::vector<float> values;
    std::string name;
};

struct Pair { int x, y; };
__device__ auto neighbour(int i) -> Pair { return {i + 1, 0}; }

__global__ void smooth(Grid<float> in, Grid<float> out) {
    int i = threadIdx.x, cells = in.width();
#ifdef FAULT
    out.at(i, 0) = in.at(i + 1, 0);  // here
#else
    out.at(i, 0) = in.at(min(neighbour(i).x, cells - 1), 0);
#endif
}
}  // namespace physics

std::unique_ptr<physics::Config> config = std::make_unique<physics::Config>("x");
"""

ARCHITECTURES = r"""
#if defined(__HIP_PLATFORM_AMD__)
#include <hip/hip_runtime.h>
#else
#include <cuda_runtime.h>
#endif
#include <unistd.h>
#include <sys/time.h>
#if 0
this part isn't compiled: " it's prose
#endif

#ifdef __cplusplus
extern "C" {
#endif

int algorithm(int m,
#ifdef __HIP_PLATFORM_AMD__
              rocblas_gemm_algo algo = rocblas_gemm_algo_standard);
#else
              cublasGemmAlgo_t algo = CUBLAS_GEMM_DEFAULT);
#endif

#if defined(WIDE) && \
    WIDE > 1
__host__ __device__ double scaled(double v, int by) {
#else
__host__ __device__ float scaled(float v, int by) {
#endif
    return v * by;
}

__host__ __device__ inline int rounded(int n) {
#ifdef __CUDA_ARCH__
    return __dadd_rn(n, 0.0);
#else
    struct timeval tv; gettimeofday(&tv, NULL);
    return lround(n);
#endif
}

__global__ void scale(const float* x, float* y, int n)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
#ifdef FAULT
    n++;
#endif
    if (rounded(i) < n) y[i] = scaled(x[i], 3);  // here
}

void scale_wrapper(const float* x, float* y, int n) { scale<<<(n + 31) / 32, 32>>>(x, y, n); }

#ifdef __cplusplus
}
#endif
"""

OVERLOADS = r"""
#include <cstdint>
#include <tuple>
namespace util {
namespace {
__device__ void put(float* y, int i, float v) { y[i] = v; }
__device__ void put(int* y, int i, int v) { y[i] = v; }
static __global__ void fill(float* y, int n) {
    if (threadIdx.x < n) put(y, threadIdx.x, 1.5f);
}
static __global__ void fill(int* y, int n) {
#ifdef FAULT
    n = n + 1;  // a comment with a brace } and a quote "
#endif
    if (threadIdx.x < n) y[threadIdx.x] = INT_MAX - UINT8_MAX;  // here
}
}  // namespace
std::tuple<int, int> shape() { auto [a, b] = std::make_tuple('{', '"'); return {a, b}; }
const char* help = R"(
    usage: fill { n } // no comment
)";
}  // namespace util
extern "C" void fill_float(float* y, int n) { util::fill<<<1, 64>>>(y, n); }
"""

GENERATED = r"""
#include <cstdio>
#include <cuda_runtime.h>
#define N_COEFFICIENTS 4
__constant__ float coefficients[N_COEFFICIENTS];
__device__ int launches;
float host_coefficients[N_COEFFICIENTS] = {1, 2, 3, 4};

#define DEFINE_POLY(name, type)                                        \
    extern "C" __global__ void poly_##name(const type* x, type* y, int n) { \
        int i = threadIdx.x;                                           \
        if (i == 0) atomicAdd(&launches, 1);                           \
        if (i >= n + SLACK) return;                                    \
        type sum = 0;                                                  \
        for (int k = 0; k < N_COEFFICIENTS; ++k) sum = sum * x[i] + coefficients[k] * signs[i % 2]; \
        y[i] = sum;                                                    \
    }
#define TABLE_BEGIN(type, name, size) static const __device__ type name[size] = {
#define TABLE_END() };
TABLE_BEGIN(int, signs, 2)
    1, 1,
TABLE_END()
#define LAUNCHER(name, type) \
    void launch_poly_##name(const type* x, type* y, int n) { poly_##name<<<1, 64>>>(x, y, n); }

void upload() {
#ifdef FAULT
#define SLACK 1
#else
#define SLACK 0
#endif
    cudaMemcpyToSymbol(coefficients, host_coefficients, sizeof(host_coefficients));
}

DEFINE_POLY(f32, float)  // here
DEFINE_POLY(f64, double)
LAUNCHER(f32, float)
LAUNCHER(f64, double)

int main(void) { upload(); launch_poly_f32(0, 0, 0); return 0; }
"""
