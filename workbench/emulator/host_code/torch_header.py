"""What kernels of PyTorch extensions use of PyTorch's headers: half types, packed accessors, a few macros."""

_HALF = r"""#pragma once
#include "workbench/cuda.h"
#include <cstdint>
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <limits>
#include <type_traits>
#define WORKBENCH_ARITHMETIC(Type, op) \
    __device__ inline Type operator op(Type a, Type b) { return Type(float(a) op float(b)); } \
    __device__ inline Type operator op(Type a, int b) { return Type(float(a) op float(b)); } \
    __device__ inline Type operator op(int a, Type b) { return Type(float(a) op float(b)); } \
    __device__ inline float operator op(Type a, float b) { return float(a) op b; } \
    __device__ inline float operator op(float a, Type b) { return a op float(b); } \
    __device__ inline double operator op(Type a, double b) { return float(a) op b; } \
    __device__ inline double operator op(double a, Type b) { return a op float(b); } \
    template <class T> __device__ inline Type& operator op##=(Type& a, T b) { \
        return a = Type(float(a) op float(b)); \
    }
#define WORKBENCH_COMPARISON(Type, op) \
    __device__ inline bool operator op(Type a, Type b) { return float(a) op float(b); } \
    template <class T> __device__ inline bool operator op(Type a, T b) { return float(a) op float(b); } \
    template <class T> __device__ inline bool operator op(T a, Type b) { return float(a) op float(b); }
// a number of 16 bits as PyTorch has it: computed with in fp32, converted from and to CUDA's own
#define WORKBENCH_HALF(Type, Native, from_float, to_float) \
    struct alignas(2) Type { \
        unsigned short x; \
        Type() = default; \
        __device__ Type(float value) : Type(from_float(value)) {} \
        __device__ Type(Native value) { memcpy(&x, &value, 2); } \
        __device__ operator float() const { return to_float(static_cast<Native>(*this)); } \
        __device__ operator Native() const { Native value; memcpy(&value, &x, 2); return value; } \
    }; \
    WORKBENCH_ARITHMETIC(Type, +) WORKBENCH_ARITHMETIC(Type, -) WORKBENCH_ARITHMETIC(Type, *) \
    WORKBENCH_ARITHMETIC(Type, /) WORKBENCH_COMPARISON(Type, <) WORKBENCH_COMPARISON(Type, >) \
    WORKBENCH_COMPARISON(Type, <=) WORKBENCH_COMPARISON(Type, >=) WORKBENCH_COMPARISON(Type, ==) \
    WORKBENCH_COMPARISON(Type, !=) \
    __device__ inline Type operator-(Type a) { return Type(-float(a)); }
namespace c10 {
WORKBENCH_HALF(Half, __half, __float2half, __half2float)
WORKBENCH_HALF(BFloat16, __nv_bfloat16, __float2bfloat16, __bfloat162float)
}
"""
_ACCESSORS = r"""
namespace at {
using c10::BFloat16;
using c10::Half;
template <class T> struct DefaultPtrTraits { using PtrType = T*; };
template <class T> struct RestrictPtrTraits { using PtrType = T* __restrict__; };
template <class T> struct OpMathType { using type = T; };
template <> struct OpMathType<Half> { using type = float; };
template <> struct OpMathType<BFloat16> { using type = float; };
template <class T> using opmath_type = typename OpMathType<T>::type;
template <class T, bool> using acc_type = typename OpMathType<T>::type;
template <class T> __device__ constexpr T ceil_div(T a, T b) { return (a + b - 1) / b; }
namespace cuda { template <class T> __device__ constexpr T ATenCeilDiv(T a, T b) { return ceil_div(a, b); } }
template <class T> struct numeric_limits {  // of ATen/NumericLimits.cuh
    static __device__ T lowest() { return std::numeric_limits<T>::lowest(); }
    static __device__ T max() { return std::numeric_limits<T>::max(); }
    static __device__ T lower_bound() {
        return std::numeric_limits<T>::has_infinity ? -std::numeric_limits<T>::infinity() : lowest();
    }
    static __device__ T upper_bound() {
        return std::numeric_limits<T>::has_infinity ? std::numeric_limits<T>::infinity() : max();
    }
};
// what is left of an accessor when all but its last dimensions have an index
template <class T, int N, template <class> class P = DefaultPtrTraits, class I = int64_t>
struct TensorAccessor {
    using PtrType = typename P<T>::PtrType;
    PtrType data_;
    const I* sizes_;
    const I* strides_;
    __device__ TensorAccessor(PtrType data, const I* sizes, const I* strides)
        : data_(data), sizes_(sizes), strides_(strides) {}
    __device__ decltype(auto) operator[](I i) const {
        if constexpr (N == 1) return static_cast<T&>(data_[strides_[0] * i]);
        else return TensorAccessor<T, N - 1, P, I>(data_ + strides_[0] * i, sizes_ + 1, strides_ + 1);
    }
    __device__ I size(I i) const { return sizes_[i]; }
    __device__ I stride(I i) const { return strides_[i]; }
    __device__ PtrType data() const { return data_; }
};
// as PyTorch passes it: a pointer, then sizes and strides, in elements
template <class T, int N, template <class> class P = DefaultPtrTraits, class I = int64_t>
struct GenericPackedTensorAccessor {
    using PtrType = typename P<T>::PtrType;
    PtrType data_;
    I sizes_[N];
    I strides_[N];
    __device__ decltype(auto) operator[](I i) const { return TensorAccessor<T, N, P, I>(data_, sizes_, strides_)[i]; }
    __device__ I size(I i) const { return sizes_[i]; }
    __device__ I stride(I i) const { return strides_[i]; }
    __device__ PtrType data() const { return data_; }
};
template <class T, int N, template <class> class P = DefaultPtrTraits>
using PackedTensorAccessor32 = GenericPackedTensorAccessor<T, N, P, int32_t>;
template <class T, int N, template <class> class P = DefaultPtrTraits>
using PackedTensorAccessor64 = GenericPackedTensorAccessor<T, N, P, int64_t>;
template <class T, int N, template <class> class P = DefaultPtrTraits, class I = int64_t>
using PackedTensorAccessor = GenericPackedTensorAccessor<T, N, P, I>;
}
namespace torch { using namespace at; }
"""
_INFOS = r"""
namespace at { namespace cuda { namespace detail {
constexpr int MAX_DIMS = 25;
// a tensor of any rank, as PyTorch passes it: a pointer, sizes and strides in elements, the rank
template <class T, class I>
struct TensorInfo {
    T* data;
    I sizes[MAX_DIMS];
    I strides[MAX_DIMS];
    int dims;
};
// where the element lies that has this number in C order; a rank that is not positive stands for that of the tensor
template <class T, class I, int Dims>
struct IndexToOffset {
    static __device__ I get(I number, const TensorInfo<T, I>& info) {
        I offset = 0;
        for (int i = (Dims > 0 ? Dims : info.dims) - 1; i > 0; --i) {
            offset += number % info.sizes[i] * info.strides[i];
            number /= info.sizes[i];
        }
        return offset + number * info.strides[0];
    }
};
} } }
"""
_MACROS = r"""
#define C10_HOST_DEVICE __host__ __device__
#define C10_DEVICE __device__
#define C10_HOST
#define C10_ALWAYS_INLINE inline __attribute__((always_inline))
#define C10_RESTRICT __restrict__
#define C10_WARP_SIZE 32
#define C10_LAUNCH_BOUNDS_0
#define C10_LAUNCH_BOUNDS_1(threads) __launch_bounds__(threads)
#define C10_LAUNCH_BOUNDS_2(threads, blocks) __launch_bounds__(threads, blocks)
#define GPU_LAMBDA __device__
#define CUDA_KERNEL_ASSERT(condition) assert(condition)
#define CUDA_KERNEL_LOOP_TYPE(i, n, type) \
    for (type i = blockIdx.x * blockDim.x + threadIdx.x; i < (n); i += blockDim.x * gridDim.x)
#define CUDA_KERNEL_LOOP(i, n) CUDA_KERNEL_LOOP_TYPE(i, n, int)
"""

_SHUFFLES = r"""
// of ATen/cuda/DeviceUtils.cuh; halves go as their bits
#define WORKBENCH_SHUFFLE(name, function, Place) \
    template <class T> \
    __device__ __forceinline__ T name(T value, Place place, int width = warpSize, unsigned mask = 0xffffffff) { \
        if constexpr (std::is_same_v<T, c10::Half> || std::is_same_v<T, c10::BFloat16>) { \
            value.x = static_cast<unsigned short>(function(mask, int(value.x), place, width)); \
            return value; \
        } else { \
            return function(mask, value, place, width); \
        } \
    }
WORKBENCH_SHUFFLE(WARP_SHFL, __shfl_sync, int)
WORKBENCH_SHUFFLE(WARP_SHFL_XOR, __shfl_xor_sync, int)
WORKBENCH_SHUFFLE(WARP_SHFL_UP, __shfl_up_sync, unsigned)
WORKBENCH_SHUFFLE(WARP_SHFL_DOWN, __shfl_down_sync, unsigned)
__device__ __forceinline__ unsigned WARP_BALLOT(int predicate, unsigned mask = 0xffffffff) {
    return __ballot_sync(mask, predicate);
}
__device__ __forceinline__ unsigned ACTIVE_MASK() { return __activemask(); }
__device__ __forceinline__ void WARP_SYNC(unsigned mask = 0xffffffff) { __syncwarp(mask); }
"""

PHILOX = r"""#pragma once
#include <tuple>
namespace at {
// the state of a generator, as PyTorch passes it: numbers, or pointers to them while a graph is captured
struct PhiloxCudaState {
    union Payload { uint64_t val; int64_t* ptr; };
    Payload seed_, offset_;
    uint64_t offset_intragraph_;
    bool captured_;
};
namespace cuda { namespace philox {
__device__ __forceinline__ std::tuple<uint64_t, uint64_t> unpack(at::PhiloxCudaState state) {
    if (!state.captured_) return std::make_tuple(state.seed_.val, state.offset_.val);
    const uint64_t offset = static_cast<uint64_t>(*state.offset_.ptr) + state.offset_intragraph_;
    return std::make_tuple(static_cast<uint64_t>(*state.seed_.ptr), offset);
}
} } }
"""
"""The state of PyTorch's generators, in place of the headers that declare it."""

TORCH = _HALF + _ACCESSORS + _INFOS + _MACROS + _SHUFFLES
"""The text of a header in place of all of PyTorch's."""
