// a tile whose k is split over several blocks: each leaves the sums of its threads in memory, in the order of
// their registers, and the last one adds up what it finds there. sm_90a.
#pragma once
#include "ptx/flag.cuh"
#include "ptx/named_barrier.cuh"
#include "ptx/wgmma.cuh"
#include "tile/vector.cuh"

// by THREADS consumers, behind a warpgroup that produces. `part`: which of `parts` blocks this is. true in
// the last of them, with all sums added up, always in the same order. of the tile are partial, as many sums
// for each part, and counter, zero before and after. `last` is in shared memory
template <int THREADS, int BANDS, int SUMS>
__device__ __forceinline__ bool add_parts(float (&sum)[BANDS][SUMS], int part, int parts, float* partial,
                                          unsigned* counter, bool& last) {
  constexpr int FOURS = BANDS * SUMS / 4, NAME = 1;
  constexpr int STEP = THREADS * 4, WHOLE = FOURS * STEP;  // threads side by side store four sums each
  const int thread = threadIdx.x - WARPGROUP;
  float (&mine)[FOURS][4] = reinterpret_cast<float (&)[FOURS][4]>(sum);
  float* const first = partial + thread * 4;
  float* const own = first + static_cast<long long>(part) * WHOLE;
#pragma unroll
  for (int i = 0; i < FOURS; ++i)
    store_vector(own + i * STEP, Vector<float, 4>{mine[i][0], mine[i][1], mine[i][2], mine[i][3]});
  named_sync<THREADS>(NAME);  // all have stored before one counts for them
  if (thread == 0) last = count_to_last(counter, parts);
  named_sync<THREADS>(NAME);
  if (!last) return false;
#pragma unroll
  for (int i = 0; i < FOURS; ++i)
#pragma unroll
    for (int e = 0; e < 4; ++e) mine[i][e] = 0.f;
  for (int other = 0; other < parts; ++other)
#pragma unroll
    for (int i = 0; i < FOURS; ++i) {
      const auto found = load_vector<4>(first + static_cast<long long>(other) * WHOLE + i * STEP);
#pragma unroll
      for (int e = 0; e < 4; ++e) mine[i][e] += found.x[e];
    }
  return true;
}
