// y[r, c] = sum_{j <= c} x[r, j]. x, y: (rows, columns), rows ldx and ldy elements apart.
// parts: (rows parts + rows groups), what each part of a row has in all, and what lies before each group of
// parts; counters: (2). scratch that is zero before and after.
//
// stage 7, look back (Merrill and Garland, Single-pass parallel prefix scan with decoupled look-back): a
// block holds a part of a row in its registers, posts its sum, and waits for what lies before it: the sums of
// the parts of its group, TOGETHER of them, and the sum before the group, which the block with the last part
// of the group before posts. blocks stay and take parts by a ticket: they only wait for parts with a lower
// one, which some block works on already. while a block waits and stores, copies bring its next part to
// shared memory. all sums are added in a fixed order: two runs give the same bits. the last block clears what
// was posted.
//
// what it gains: one read and one write of rows of any length, and one launch.
//
// what limits it: device memory, while the groups pass on their sums faster than their parts are loaded. rows
// that are no whole vectors are not copied ahead.
#include "ptx/cp_async.cuh"
#include "ptx/flag.cuh"
#include "tile/row_reduce.cuh"
#include "tile/row_scan.cuh"

constexpr int WIDTH = ROW_WIDTH<IN, OUT>, TOGETHER = WARP * EACH;

// by a warp: what lies before part `index` of a row, which has `total`. `of_parts` and `of_groups` are those
// of the row
__device__ __forceinline__ float look_back(Posted* of_parts, Posted* of_groups, int index, int parts,
                                           float total) {
  const int lane = threadIdx.x % WARP, group = index / TOGETHER, first = group * TOGETHER;
  if (lane == 0) post(&of_parts[index], total);
  const Posted* from[EACH];
#pragma unroll
  for (int u = 0; u < EACH; ++u) {
    const int part = first + lane * EACH + u;
    from[u] = part < index ? &of_parts[part] : nullptr;
  }
  // no part of a group waits for its last one
  if (lane == WARP - 1 && group > 0) from[EACH - 1] = &of_groups[group];
  float values[EACH], before = 0.f;
  await_posted(values, from);
#pragma unroll
  for (int u = 0; u < EACH; ++u) before += values[u];
  before = warp_reduce<Sum>(before);
  if (index == first + TOGETHER - 1 && index + 1 < parts && lane == 0)
    post(&of_groups[group + 1], before + total);
  return before;
}

// the parts of all rows. this thread has one vector of a part in each of VECTORS rounds
struct Parts {
  const IN* x;
  long long ldx;
  int columns, parts;

  __device__ __forceinline__ RowPart<WIDTH, EVEN> part(int ticket) const {
    return RowPart<WIDTH, EVEN>(x + ticket / parts * ldx, columns, ticket % parts, THREADS * VECTORS);
  }

  // begins to copy this thread's vectors of a part to shared memory, to places that it alone reads; zeros
  // outside of the row
  __device__ __forceinline__ void fetch(int ticket, Vector<IN, WIDTH>* places) const {
    const auto mine = part(ticket);
    const IN* const row = x + ticket / parts * ldx;
#pragma unroll
    for (int i = 0; i < VECTORS; ++i) {
      const int column = mine.column(mine.first + threadIdx.x + i * THREADS);
      constexpr int BYTES_OF_IT = sizeof(Vector<IN, WIDTH>);
      cp_async_past_l1<BYTES_OF_IT>(&places[i * THREADS + threadIdx.x], row + column,
                                    column < mine.limit ? BYTES_OF_IT : 0);
    }
    cp_async_commit();
  }

  __device__ __forceinline__ void load(Vector<IN, WIDTH> (&v)[VECTORS], int ticket,
                                       const Vector<IN, WIDTH>* places) const {
    if constexpr (EVEN) {
      cp_async_wait<0>();
#pragma unroll
      for (int i = 0; i < VECTORS; ++i) v[i] = places[i * THREADS + threadIdx.x];
    } else {
      const auto mine = part(ticket);
      mine.load(v, x + ticket / parts * ldx, mine.first + threadIdx.x, THREADS, from_float<IN>(0.f));
    }
  }
};

extern "C" __global__ void __launch_bounds__(THREADS, RESIDENT)
    scan_look_back(const IN* __restrict__ x, OUT* __restrict__ y, Posted* posted, unsigned* counters,
                   int rows, int columns, long long ldx, long long ldy, int parts, int groups) {
  extern __shared__ __align__(VECTOR_BYTES) unsigned char memory[];
  auto* const places = reinterpret_cast<Vector<IN, WIDTH>*>(memory);
  __shared__ RoundsScratch<VECTORS, THREADS, THREADS> scratch;
  __shared__ int tickets[2];
  __shared__ float before_part;
  const int all = rows * parts,
            most = all + gridDim.x;  // a block takes tickets until it has one behind the last
  if (threadIdx.x == 0) {
    tickets[0] = take_ticket(&counters[0], most);
    tickets[1] = tickets[0] < all ? take_ticket(&counters[0], most) : all;
  }
  __syncthreads();
  int ticket = tickets[0], next = tickets[1];
  const Parts rows_in{x, ldx, columns, parts};
  if (EVEN && ticket < all) rows_in.fetch(ticket, places);

  while (ticket < all) {
    Vector<IN, WIDTH> v[VECTORS];
    rows_in.load(v, ticket, places);
    float before[VECTORS];
#pragma unroll
    for (int i = 0; i < VECTORS; ++i) before[i] = sum_vector(v[i]);
    const float total = scan_rounds<THREADS, THREADS>(before, scratch);
    if (EVEN && next < all) rows_in.fetch(next, places);
    const int row = ticket / parts;
    if (threadIdx.x < WARP) {
      int after = 0;
      if (threadIdx.x == 0 && next < all) after = take_ticket(&counters[0], most);
      const float found =
          look_back(posted + static_cast<long long>(row) * parts,
                    posted + static_cast<long long>(rows) * parts + static_cast<long long>(row) * groups,
                    ticket % parts, parts, total);
      if (threadIdx.x == 0) before_part = found, tickets[0] = after;
    }
    __syncthreads();
    const auto mine = rows_in.part(ticket);
    OUT* const to = y + row * ldy;
#pragma unroll
    for (int i = 0; i < VECTORS; ++i)
      mine.store(to, mine.column(mine.first + threadIdx.x + i * THREADS),
                 summed<OUT>(v[i], before_part + before[i]));
    ticket = next, next = next < all ? tickets[0] : next;
  }

  if (threadIdx.x >= WARP) return;
  bool last = false;
  if (threadIdx.x == 0) last = count_to_last(&counters[1], gridDim.x);
  if (!__any_sync(ALL_LANES, last)) return;
  for (int i = threadIdx.x; i < rows * (parts + groups); i += WARP) posted[i] = 0;
}
