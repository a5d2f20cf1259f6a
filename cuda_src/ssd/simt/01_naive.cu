// h_t = exp(log_a_t) h_{t-1} + b_t x_t^T and y_t = h_t^T c_t of every head, see scan.cuh.
//
// naive: the recurrence is computed as it is defined. a block takes a head. a thread has a column of the
// state in registers, and takes one position after the other.
//
// what limits it: each position waits for the one before it, and few threads work. every element of the state
// takes two instructions a position.

#include "../scan.cuh"

extern "C" __global__ void ssd_naive(SSD_PARAMETERS) {
  const Operands g = Operands SSD_OPERANDS.of(blockIdx.y, blockIdx.x);
  const int column = threadIdx.x;
  float state[DSTATE];
#pragma unroll
  for (int n = 0; n < DSTATE; ++n) state[n] = g.h0[n * headdim + column];
  for (int t = 0; t < length; ++t) {
    const float log_a = g.log_a[static_cast<long long>(t) * heads];
    // near 1 a decay has too few bits for thousands of places: then what is lost is taken away
    const bool near_one = log_a > -0.5f;
    const float factor = near_one ? expm1f(log_a) : expf(log_a), kept = near_one ? 1.f : 0.f;
    const float value = to_float(g.x[t * x_place + column]);
    const IN *b_row = g.b + t * bc_place, *c_row = g.c + t * bc_place;
    float sum = 0.f;
#pragma unroll
    for (int n = 0; n < DSTATE; ++n) {
      state[n] = state[n] * factor + (state[n] * kept + to_float(b_row[n]) * value);
      sum += to_float(c_row[n]) * state[n];
    }
    g.y[t * g.y_place() + column] = from_float<IN>(sum);
  }
#pragma unroll
  for (int n = 0; n < DSTATE; ++n) g.h[n * headdim + column] = state[n];
}
