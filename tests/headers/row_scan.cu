// HOLDERS threads a block
#include "tile/row_scan.cuh"

// y[t] = {the sum over the lanes up to t, over the threads of the block before t, over all}. x: (HOLDERS), y:
// (HOLDERS, 3)
extern "C" __global__ void scans(const float* x, float* y) {
  __shared__ ScanScratch<HOLDERS> scratch;
  float* to = y + 3 * threadIdx.x;
  to[0] = warp_scan(x[threadIdx.x]);
  to[1] = block_scan_before<HOLDERS>(x[threadIdx.x], to[2], scratch);
}

// y[t] = the inclusive sums of the 8 elements of thread t, after 100. x, y: (threads, 8), last: (threads)
extern "C" __global__ void vectors(const float* x, float* y, float* last) {
  const Vector<float, 4> v[2] = {load_vector<4>(x + threadIdx.x * 8),
                                 load_vector<4>(x + threadIdx.x * 8 + 4)};
  float sums[8];
  last[threadIdx.x] = scan_vectors(v, sums);
#pragma unroll
  for (int i = 0; i < 2; ++i) store_vector(y + threadIdx.x * 8 + i * 4, sums_after<float, 4>(100.f, sums, i));
}
