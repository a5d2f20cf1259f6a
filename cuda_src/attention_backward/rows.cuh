// what every row of queries needs before its gradients: the logarithm of its sum, and rowsum(do o). rows of a head are
// padded to whole tiles, `padded` in all. weights are 2^(x - lse2): a row that sees nothing, or is none, has infinity
// there, and all its weights are 0.
#pragma once
#include "ptx/ex2.cuh"
#include "tile/convert.cuh"
#include "tile/online_softmax.cuh"
#include "tile/vector.cuh"

constexpr int ROWS_THREADS = 256;

// lse2, delta: (batch heads, padded); sums: (batch heads, padded, DIM), which becomes 0. as many lanes a row as it has
// vectors of 16 bytes
extern "C" __global__ void __launch_bounds__(ROWS_THREADS)
    attention_backward_rows(const IN* o, const IN* d_o, const float* lse, float* lse2, float* delta, float* sums,
                            long long o_batch, long long o_head, long long o_row, int heads, int rows, int dim,
                            int all_heads, int padded) {
  constexpr int CHUNK = VECTOR_BYTES / sizeof(IN), LANES = DIM / CHUNK;
  const int number = blockIdx.x * (ROWS_THREADS / LANES) + threadIdx.x / LANES;  // of all rows
  const int column = threadIdx.x % LANES * CHUNK, head = number / padded, row = number % padded;
  const bool inside = head < all_heads && row < rows;
  float products = 0.f;
  if (inside && column < dim) {
    const bool aligned = dim % CHUNK == 0;  // there are no gaps
    const long long from = head / heads * o_batch + head % heads * o_head + row * o_row + column;
    const auto x = load_tail<CHUNK>(o + from, dim - column, aligned);
    const auto y = load_tail<CHUNK>(d_o + from, dim - column, aligned);
#pragma unroll
    for (int i = 0; i < CHUNK; ++i) products += to_float(x.x[i]) * to_float(y.x[i]);
  }
  products = warp_reduce<Sum, LANES>(products);
  if (head >= all_heads) return;
  if (column == 0) {
    const float log_sum = inside ? lse[static_cast<long long>(head) * rows + row] : -infinity();
    lse2[number] = log_sum == -infinity() ? infinity() : log_sum * LOG2_E;
    delta[number] = products;
  }
  float* const to = sums + static_cast<long long>(number) * DIM;
#pragma unroll
  for (int i = 0; i < DIM / LANES; i += 4)
    store_vector(to + (i / 4 * LANES + threadIdx.x % LANES) * 4, Vector<float, 4>{});
}
