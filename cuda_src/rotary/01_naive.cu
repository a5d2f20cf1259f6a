// rotary position embedding: a pair (u, v) of a row becomes (u cos - v sin, u sin + v cos), by the angles of
// the row's position. x, y: rows of 2 half elements for each of (batch, heads, seq), any distance between
// them; cos, sin: (seq, half). a pair is (2 i, 2 i + 1) if INTERLEAVED, else (i, i + half).
//
// stage 1, naive: one thread takes one pair.
//
// what limits it: each load and store moves one element. a thread makes up to three divisions to find the
// place of its pair.
#include "tile/convert.cuh"

extern "C" __global__ void __launch_bounds__(THREADS)
    rotary_naive(const IN* __restrict__ x, const IN* __restrict__ cos, const IN* __restrict__ sin,
                 IN* __restrict__ y, int batch, int heads, int seq, int half, long long x_batch,
                 long long x_head, long long x_seq, long long y_batch, long long y_head, long long y_seq) {
  const long long index = static_cast<long long>(blockIdx.x) * THREADS + threadIdx.x;
  const int pair = index % half, position = index / half % seq;
  const int head = index / half / seq % heads, b = index / half / seq / heads;
  if (b >= batch) return;
  const IN* from = x + b * x_batch + head * x_head + position * x_seq;
  IN* to = y + b * y_batch + head * y_head + position * y_seq;

  const int first = INTERLEAVED ? 2 * pair : pair, second = INTERLEAVED ? first + 1 : first + half;
  const float u = to_float(from[first]), v = to_float(from[second]);
  const long long angle = static_cast<long long>(position) * half + pair;
  const float c = to_float(cos[angle]), s = to_float(sin[angle]);
  to[first] = from_float<IN>(u * c - v * s);
  to[second] = from_float<IN>(u * s + v * c);
}
