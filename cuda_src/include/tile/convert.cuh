// Element <-> float. Products are accumulated in float and rounded to the output type once, to nearest even.
#pragma once
#include <cuda_bf16.h>
#include <cuda_fp16.h>

__device__ __forceinline__ float to_float(float x) { return x; }
__device__ __forceinline__ float to_float(__half x) { return __half2float(x); }
__device__ __forceinline__ float to_float(__nv_bfloat16 x) { return __bfloat162float(x); }

template <class Element>
__device__ __forceinline__ Element from_float(float x);
template <>
__device__ __forceinline__ float from_float<float>(float x) {
  return x;
}
template <>
__device__ __forceinline__ __half from_float<__half>(float x) {
  return __float2half_rn(x);
}
template <>
__device__ __forceinline__ __nv_bfloat16 from_float<__nv_bfloat16>(float x) {
  return __float2bfloat16_rn(x);
}

// two of 16 bits in one register, as tensor cores and stmatrix take them: the first in the lower half
template <class Element>
__device__ __forceinline__ unsigned pair_from_float(float first, float second);
template <>
__device__ __forceinline__ unsigned pair_from_float<__half>(float first, float second) {
  const __half2 pair = __floats2half2_rn(first, second);
  return *reinterpret_cast<const unsigned*>(&pair);
}
template <>
__device__ __forceinline__ unsigned pair_from_float<__nv_bfloat16>(float first, float second) {
  const __nv_bfloat162 pair = __floats2bfloat162_rn(first, second);
  return *reinterpret_cast<const unsigned*>(&pair);
}

// the elements of 4 bytes as numbers, and back
template <class Element>
__device__ __forceinline__ void unpack(unsigned word, float (&x)[4 / sizeof(Element)]);
template <>
__device__ __forceinline__ void unpack<float>(unsigned word, float (&x)[1]) {
  x[0] = __uint_as_float(word);
}
template <>
__device__ __forceinline__ void unpack<__half>(unsigned word, float (&x)[2]) {
  const float2 both = __half22float2(reinterpret_cast<const __half2&>(word));
  x[0] = both.x, x[1] = both.y;
}
template <>
__device__ __forceinline__ void unpack<__nv_bfloat16>(unsigned word, float (&x)[2]) {
  x[0] = __uint_as_float(word << 16), x[1] = __uint_as_float(word & 0xffff0000u);
}

template <class Element>
__device__ __forceinline__ unsigned packed(const float (&x)[4 / sizeof(Element)]) {
  return pair_from_float<Element>(x[0], x[1]);
}
template <>
__device__ __forceinline__ unsigned packed<float>(const float (&x)[1]) {
  return __float_as_uint(x[0]);
}
