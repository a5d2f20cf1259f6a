// the maximum of numbers and the sum of their exponentials relative to it, in one pass: what softmax and
// log-sum-exp need of a row.
//
// -inf is a number that is masked: it adds nothing. a row of nothing else has the sum 0. a row with NaN or
// +inf has no sum: it becomes NaN, by reciprocal_sum() and log_sum().
#pragma once
#include "tile/row_reduce.cuh"

constexpr float LOG2_E = 1.44269504f, LN_2 = 0.693147181f;

// e^x by 2^x, which is an instruction
__device__ __forceinline__ float exp_of(float x) { return exp2f(x * LOG2_E); }

struct ExpSum {
  struct Value {
    float max, sum;
  };
  static constexpr bool COMMUTES = false;

  static __device__ __forceinline__ Value identity() { return {-infinity(), 0.f}; }

  // what the exponents are relative to: where all is masked any finite number, since -inf - -inf is NaN
  static __device__ __forceinline__ float base(float max) { return max == -infinity() ? 0.f : max; }

  static __device__ __forceinline__ Value combine(Value a, Value b) {
    const float max = fmaxf(a.max, b.max), relative_to = base(max);
    return {max, a.sum * exp_of(a.max - relative_to) + b.sum * exp_of(b.max - relative_to)};
  }

  // one number more. most of the time the maximum stays, and there is one exponential
  static __device__ __forceinline__ void add(Value& value, float x) {
    if (x > value.max) {
      value.sum = value.sum * exp_of(value.max - x) + 1.f;
      value.max = x;
    } else {
      value.sum += exp_of(x - base(value.max));
    }
  }
};

// the maximum of all lanes first, so that a lane rescales its sum once, and not twice for every pair
template <int LANES>
struct WarpReduction<ExpSum, LANES> {
  static __device__ __forceinline__ ExpSum::Value of(ExpSum::Value value) {
    const float max = warp_reduce<Max, LANES>(value.max);
    return {max, warp_reduce<Sum, LANES>(value.sum * exp_of(value.max - ExpSum::base(max)))};
  }
};

// what exponentials relative to base(max) have to be multiplied with so that they sum up to 1; 0 where all is
// masked
__device__ __forceinline__ float reciprocal_sum(ExpSum::Value value) {
  if (value.max == infinity()) return not_a_number();
  return value.sum == 0.f ? 0.f : 1.f / value.sum;
}

// the logarithm of the sum of the exponentials themselves; -inf where all is masked
__device__ __forceinline__ float log_sum(ExpSum::Value value) {
  if (value.max == infinity()) return not_a_number();
  return value.max + logf(value.sum);
}
