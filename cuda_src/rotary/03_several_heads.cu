// rotary position embedding: a pair (u, v) of a row becomes (u cos - v sin, u sin + v cos), by the angles of
// the row's position. x, y: rows of 2 half elements for each of (batch, heads, seq), any distance between
// them; cos, sin: (seq, half). a pair is (2 i, 2 i + 1) if INTERLEAVED, else (i, i + half).
//
// stage 3, several heads: one thread takes the same pairs of HEADS heads, which have the same angles.
//
// what it gains: angles are loaded and converted once for HEADS heads, and 2 HEADS loads of x are in flight
// before the first is used.
//
// what limits it: device memory.
#include "tile/rotate.cuh"

constexpr int WIDTH = ROW_WIDTH<IN>;

extern "C" __global__ void __launch_bounds__(THREADS, 1)
    rotary_several_heads(const IN* __restrict__ x, const IN* __restrict__ cos, const IN* __restrict__ sin,
                         IN* __restrict__ y, int batch, int heads, int seq, int half, long long x_batch,
                         long long x_head, long long x_seq, long long y_batch, long long y_head,
                         long long y_seq) {
  const int vectors = (half + WIDTH - 1) / WIDTH, groups = (heads + HEADS - 1) / HEADS;
  const long long index = static_cast<long long>(blockIdx.x) * THREADS + threadIdx.x;
  const int pair = index % vectors * WIDTH, position = index / vectors % seq;
  const int first = index / vectors / seq % groups * HEADS, b = index / vectors / seq / groups;
  if (b >= batch) return;
  const long long angles = static_cast<long long>(position) * half;
  const bool aligned = row_head<WIDTH>(cos + angles) == 0;
  const IN zero = from_float<IN>(0.f);
  const IN* from = x + b * x_batch + position * x_seq;
  IN* to = y + b * y_batch + position * y_seq;

  Pairs<WIDTH, IN> p[HEADS];
#pragma unroll
  for (int h = 0; h < HEADS; ++h)  // the last head again, where there are no more
    p[h] = load_pairs<INTERLEAVED, WIDTH, EVEN>(from + min(first + h, heads - 1) * x_head, pair, half);
  const auto c = load_row<WIDTH, EVEN>(cos + angles, pair, half, aligned, zero);
  const auto s = load_row<WIDTH, EVEN>(sin + angles, pair, half, aligned, zero);
#pragma unroll
  for (int h = 0; h < HEADS; ++h)
    if (first + h < heads)
      store_pairs<INTERLEAVED, EVEN>(to + (first + h) * y_head, pair, half, rotated<INTERLEAVED>(p[h], c, s));
}
