// what the stages have in common: of every head h_t = exp(log_a_t) h_{t-1} + b_t x_t^T and y_t = h_t^T c_t. where a
// head begins, and decays.
#pragma once
#include "tile/convert.cuh"

constexpr float LOG2_E = 1.44269504f;

// what a kernel is given. x, y: (batch, length, heads, headdim), b, c: (batch, length, heads / group, dstate), rows
// of any distance; log_a: (batch, length, heads); h0, h: (batch, heads, dstate, headdim)
struct Operands {
  const IN* x;
  const float* log_a;
  const IN *b, *c;
  const float* h0;
  IN* y;
  float* h;
  long long x_batch, x_place, bc_batch, bc_place;  // elements to the next
  int heads, group, length, headdim, dstate;

  __device__ __forceinline__ long long y_place() const { return static_cast<long long>(heads) * headdim; }

  // the same of one head
  __device__ __forceinline__ Operands of(int batch, int head) const {
    Operands own = *this;
    const long long number = static_cast<long long>(batch) * heads + head;
    const long long bc = batch * bc_batch + head / group * dstate;
    own.x += batch * x_batch + head * headdim;
    own.log_a += static_cast<long long>(batch) * length * heads + head;
    own.b += bc;
    own.c += bc;
    own.h0 += number * dstate * headdim;
    own.y += batch * length * y_place() + head * headdim;
    own.h += number * dstate * headdim;
    return own;
  }
};

#define SSD_PARAMETERS                                                                                      \
  const IN *x, const float *log_a, const IN *b, const IN *c, const float *h0, IN *y, float *h,             \
      long long x_batch, long long x_place, long long bc_batch, long long bc_place, int heads, int group,  \
      int length, int headdim, int dstate
#define SSD_OPERANDS \
  { x, log_a, b, c, h0, y, h, x_batch, x_place, bc_batch, bc_place, heads, group, length, headdim, dstate }

// the logarithm of a decay to the base 2. where the decay is 0 in fp32, and for -inf, a number that makes it so: sums
// of those of a chunk stay exact enough for what comes behind it
__device__ __forceinline__ float log2_decay(float log_a) { return log_a < -104.f ? -150.f : log_a * LOG2_E; }
