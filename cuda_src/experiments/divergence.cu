// y[i] = factor x[i], as a sum of `terms` (which is factor) equal ones. x, y: (n), float.
//
// swept: PATHS, over how many paths the lanes of a warp spread. all paths do the same work, and a thread
// takes one of them only; but a warp executes each that one of its lanes takes, with the other lanes switched
// off.

extern "C" __global__ void __launch_bounds__(THREADS)
    divergence(const float* __restrict__ x, float* __restrict__ y, long long n, int terms) {
  const long long i = static_cast<long long>(blockIdx.x) * THREADS + threadIdx.x;
  const int mine = threadIdx.x % PATHS;
  const float term = i < n ? x[i] : 0.f;
  float sum = 0.f;
#pragma unroll 1
  for (int path = 0; path < PATHS; ++path)
    if (path == mine)
      for (int k = 0; k < terms; ++k) sum += term;
  if (i < n) y[i] = sum;
}
