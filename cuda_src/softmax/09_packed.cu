// y[r, c] = e^(x[r, c] - max_r) / sum_j e^(x[r, j] - max_r). x, y: (rows, columns), rows without gaps.
//
// stage 9, packed: a block takes several short rows that follow each other. their number is such that the
// rows of each block together begin at a multiple of 16 bytes. copies of 16 bytes bring them into shared
// memory. there GROUP lanes share a row, and take it element by element. the results go back to shared
// memory, and from there to global memory in vectors of 16 bytes.
//
// what it gains: each load and each store moves 16 bytes, for rows of any length, wherever they begin.
//
// what limits it: device memory. if there are few rows, the way through shared memory, which is taken twice.
#include "ptx/cp_async.cuh"
#include "tile/softmax_row.cuh"

constexpr int ROWS = THREADS / GROUP, LOADED = VECTOR_BYTES / sizeof(IN), STORED = VECTOR_BYTES / sizeof(OUT);
static_assert(GROUP <= WARP, "a row belongs to lanes of one warp");
static_assert(ROWS % LOADED == 0, "the rows of a block begin at a multiple of 16 bytes");

extern "C" __global__ void __launch_bounds__(THREADS)
    softmax_packed(const IN* __restrict__ x, OUT* __restrict__ y, int rows, int columns) {
  extern __shared__ __align__(VECTOR_BYTES) unsigned char memory[];
  IN* const logits = reinterpret_cast<IN*>(memory);
  // in place, if types allow it: a lane writes where it alone has read
  OUT* const results =
      reinterpret_cast<OUT*>(memory + (sizeof(IN) == sizeof(OUT) ? 0 : ROWS * columns * sizeof(IN)));
  const long long first = static_cast<long long>(blockIdx.x) * ROWS;
  const int held = static_cast<int>(min(static_cast<long long>(ROWS), rows - first)), count = held * columns;
  x += first * columns, y += first * columns;

  for (int at = threadIdx.x * LOADED; at < count; at += THREADS * LOADED)
    cp_async<VECTOR_BYTES>(logits + at, x + at,
                           min(VECTOR_BYTES, (count - at) * static_cast<int>(sizeof(IN))));
  cp_async_commit();
  cp_async_wait<0>();
  __syncthreads();

  const int row = threadIdx.x / GROUP, member = threadIdx.x % GROUP, base = row * columns;
  const int length = row < held ? columns : 0;  // all lanes have to take part in shuffles
  Vector<IN, 1> v[ELEMENTS];
#pragma unroll
  for (int i = 0; i < ELEMENTS; ++i) {
    const int c = member + i * GROUP;
    v[i].x[0] = c < length ? logits[base + c] : from_float<IN>(-infinity());
  }
  const HeldExps<ELEMENTS, 1> own(v);
  const float scale = own.scale(warp_reduce<ExpSum, GROUP>(own.state));
#pragma unroll
  for (int i = 0; i < ELEMENTS; ++i) {
    const int c = member + i * GROUP;
    if (c < length) results[base + c] = own.probabilities<OUT>(i, scale).x[0];
  }
  __syncthreads();
  for (int at = threadIdx.x * STORED; at < count; at += THREADS * STORED)
    store_tail(y + at, load_vector<STORED>(results + at), count - at, true);
}
