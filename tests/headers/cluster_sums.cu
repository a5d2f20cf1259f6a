// y[r, t, i] = sum over s of x[s, t, r * PART / 2 + i]: block r of a cluster gathers its part of what thread
// t of every block holds. x: (BLOCKS, HOLDERS, COLUMNS / 2), y: (BLOCKS, HOLDERS, PART / 2)
#include "epilogue/cluster_sums.cuh"

constexpr int FIRST = 32;  // the threads before have no sums

extern "C" __global__ void __cluster_dims__(BLOCKS, 1, 1) sums(const float* x, float* y) {
  using Sums = ClusterSums<BLOCKS, COLUMNS, FIRST, HOLDERS>;
  constexpr int HELD = COLUMNS / 2, OWN = Sums::PART / 2;
  __shared__ __align__(16) unsigned char memory[Sums::BYTES];
  if (threadIdx.x < FIRST) return;
  const int thread = threadIdx.x - FIRST, rank = cluster_rank();
  for (int i = thread; i < Sums::BYTES; i += HOLDERS) memory[i] = 255;  // in use until here
  float sum[HELD];
  for (int i = 0; i < HELD; ++i) sum[i] = x[(rank * HOLDERS + thread) * HELD + i];
  Sums::send(sum, rank, memory);
  for (int part = 0; part < BLOCKS; ++part) {
    if (part != rank) continue;
    Sums::gather(&sum[part * OWN], memory);
    for (int i = 0; i < OWN; ++i) y[(rank * HOLDERS + thread) * OWN + i] = sum[part * OWN + i];
  }
}
