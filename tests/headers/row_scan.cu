// HOLDERS threads a block, of which OF_A_ROW hold a row in three rounds
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

// y[t] = what lies before each of the three elements of thread t in its row, and the sum of the row. x: rows
// of (3, OF_A_ROW), y: (HOLDERS, 4)
extern "C" __global__ void rounds(const float* x, float* y) {
  __shared__ RoundsScratch<3, OF_A_ROW, HOLDERS> scratch;
  const int row = threadIdx.x / OF_A_ROW, member = threadIdx.x % OF_A_ROW;
  float sums[3], *to = y + 4 * threadIdx.x;
#pragma unroll
  for (int i = 0; i < 3; ++i) sums[i] = x[(row * 3 + i) * OF_A_ROW + member];
  to[3] = scan_rounds<OF_A_ROW, HOLDERS>(sums, scratch);
#pragma unroll
  for (int i = 0; i < 3; ++i) to[i] = sums[i];
}

// y[t] = the inclusive sums of the 4 elements of thread t, after 100. x, y: (threads, 4), all: (threads)
extern "C" __global__ void held(const float* x, float* y, float* all) {
  const Vector<float, 4> v = load_vector<4>(x + threadIdx.x * 4);
  all[threadIdx.x] = sum_vector(v);
  store_vector(y + threadIdx.x * 4, summed<float>(v, 100.f));
}
