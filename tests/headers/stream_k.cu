// counts: (tiles, iterations), how often some worker has each k-iteration of a tile; finished: (tiles), how many
// workers complete it; others: (tiles), from how many others they add parts. a worker a thread
#include "ptx/shared.cuh"
#include "scheduler/stream_k.cuh"

extern "C" __global__ void share_out(u32* counts, u32* finished, u32* others, int tiles, int iterations,
                                     int least_gain) {
  const int worker = threadIdx.x, workers = blockDim.x;
  StreamK w;
  for (int number = 0; w.work(number, worker, workers, tiles, iterations, least_gain); ++number) {
    for (int i = w.first; i < w.first + w.iterations; ++i) atomicAdd(&counts[w.tile * iterations + i], 1);
    if (w.others < 0) continue;
    atomicAdd(&finished[w.tile], 1);
    atomicAdd(&others[w.tile], w.others);
  }
}

// zero: (threads)
extern "C" __global__ void clear(u32* zero) { zero[threadIdx.x] = 0; }
