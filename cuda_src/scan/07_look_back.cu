// y[r, c] = sum_{j <= c} x[r, j]. x, y: (rows, columns), rows ldx and ldy elements apart. parts: (rows parts
// + rows groups), the sum of each part of a row, and the sum of what lies before each group of parts;
// counters: (2). both are scratch that is zero before and after.
//
// stage 7, look back (Merrill and Garland, Single-pass parallel prefix scan with decoupled look-back): a
// block holds a part of a row in its registers, and posts the sum of that part. TOGETHER parts are a group.
// the last block of a group also posts the sum of all parts up to the end of the group. a block waits for the
// sums of the earlier parts of its group, and for the sum that the last block of the previous group posts.
// together they are what lies before its part. blocks take parts by a ticket, in the order in which they
// begin. so a block waits only for blocks that already run. all sums are added in a fixed order, so two runs
// give the same bits. the last block clears what was posted.
//
// what it gains: rows of any length are read once and written once, in one launch.
//
// what limits it: device memory, while the groups pass on their sums faster than their parts are loaded.
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

extern "C" __global__ void __launch_bounds__(THREADS, ROW_RESIDENT<THREADS, VECTORS, EVEN, 32 / WIDTH>)
    scan_look_back(const IN* __restrict__ x, OUT* __restrict__ y, Posted* posted, unsigned* counters,
                   int rows, int columns, long long ldx, long long ldy, int parts, int groups) {
  __shared__ RoundsScratch<VECTORS, THREADS, THREADS> scratch;
  __shared__ int ticket;
  __shared__ float before_part;
  if (threadIdx.x == 0) ticket = take_ticket(&counters[0], gridDim.x);
  __syncthreads();
  const int row = ticket / parts, index = ticket % parts;
  const IN* from = x + row * ldx;
  OUT* to = y + row * ldy;
  const RowPart<WIDTH, EVEN> mine(from, columns, index, THREADS * VECTORS);

  Vector<IN, WIDTH> v[VECTORS];
  mine.load(v, from, mine.first + threadIdx.x, THREADS, from_float<IN>(0.f));
  float before[VECTORS];
#pragma unroll
  for (int i = 0; i < VECTORS; ++i) before[i] = sum_vector(v[i]);
  const float total = scan_rounds<THREADS, THREADS>(before, scratch);
  Posted* const of_groups = posted + static_cast<long long>(rows) * parts;
  if (threadIdx.x < WARP) {
    const float found = look_back(posted + static_cast<long long>(row) * parts,
                                  of_groups + static_cast<long long>(row) * groups, index, parts, total);
    if (threadIdx.x == 0) before_part = found;
  }
  __syncthreads();
  bool last = false;
  if (threadIdx.x == 0) last = count_to_last(&counters[1], gridDim.x);  // after stores it would wait for them
#pragma unroll
  for (int i = 0; i < VECTORS; ++i)
    mine.store(to, mine.column(mine.first + threadIdx.x + i * THREADS),
               summed<OUT>(v[i], before_part + before[i]));

  if (threadIdx.x >= WARP || !__any_sync(ALL_LANES, last)) return;
  for (int i = threadIdx.x; i < rows * (parts + groups); i += WARP) posted[i] = 0;
}
