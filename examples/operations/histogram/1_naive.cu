// counts[b] = how many i have x[i] = b. x: (n,), counts: (bins,); numbers that are no bin are left out.
//
// stage 1, naive: a kernel clears the bins; then one thread adds one to the bin of one number.
//
// what limits it: every number is an atomic addition in the L2, and those to one bin wait for each other.

extern "C" __global__ void __launch_bounds__(THREADS) histogram_clear(int* counts, int bins) {
  const int b = blockIdx.x * THREADS + threadIdx.x;
  if (b < bins) counts[b] = 0;
}

extern "C" __global__ void __launch_bounds__(THREADS)
    histogram_count(const int* x, int* counts, long long n, int bins) {
  const long long i = static_cast<long long>(blockIdx.x) * THREADS + threadIdx.x;
  if (i >= n) return;
  const int b = x[i];
  if (b >= 0 && b < bins) atomicAdd(&counts[b], 1);
}
