// c[n] = sum_k a[k] B[n, k]. a: (K), B: (N, K), rows ldb elements apart, c: (N).
//
// stage 6, unaligned: GROUP lanes share a row, and a short row has one lane. the part of a row that is
// aligned to 16 bytes is loaded in vectors, wherever the row begins. elements of the vector a, and those at
// both ends of the row, are read one by one.
//
// what it gains: rows whose distance is not a multiple of 16 bytes are also loaded in vectors. a warp reads
// several short rows at once, as many as its lanes have loads for.
//
// what limits it: the vector a comes from the L1, with one load per product. no more than one warp reads a
// row.

#include "tile/convert.cuh"
#include "tile/row_reduce.cuh"
#include "tile/vector.cuh"

static_assert(THREADS % WARP == 0 && WARP % GROUP == 0, "a row belongs to lanes of one warp");

extern "C" __global__ void __launch_bounds__(THREADS)
    matvec_unaligned(const IN* a, const IN* B, OUT* c, int N, int K, int ldb) {
  constexpr int WIDTH = VECTOR_BYTES / sizeof(IN);
  const int lane = threadIdx.x % GROUP;
  const int n = blockIdx.x * (THREADS / GROUP) + threadIdx.x / GROUP;
  const IN* b = B + static_cast<long long>(min(n, N - 1)) * ldb;
  // elements before the first multiple of 16 bytes, and vectors from there on
  const int before = -static_cast<int>(reinterpret_cast<size_t>(b) / sizeof(IN)) & (WIDTH - 1);
  const int head = min(before, K), vectors = (K - head) / WIDTH;

  float sum = 0.f;
  for (int k = lane; k < head; k += GROUP) sum += to_float(a[k]) * to_float(b[k]);
#pragma unroll 4
  for (int v = lane; v < vectors; v += GROUP) {
    const int k = head + v * WIDTH;
    const auto x = load_vector<WIDTH>(b + k);
#pragma unroll
    for (int i = 0; i < WIDTH; ++i) sum += to_float(a[k + i]) * to_float(x.x[i]);
  }
  for (int k = head + vectors * WIDTH + lane; k < K; k += GROUP) sum += to_float(a[k]) * to_float(b[k]);

  sum = warp_reduce<Sum, GROUP>(sum);
  if (lane == 0 && n < N) c[n] = from_float<OUT>(sum);
}
