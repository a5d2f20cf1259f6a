// y[t] = sum_i a[offset + i] b[offset + i], i < length, in every lane: the parts of all warps together, of
// which each takes its turn. y: (threads)
#include "tile/dot.cuh"

extern "C" __global__ void dot(const TYPE* a, const TYPE* b, float* y, int length, int offset) {
  __shared__ float parts[TURNS];
  const int lane = threadIdx.x % WARP, turn = threadIdx.x / WARP;
  parts[turn] =
      warp_dot<IN_FLIGHT, READ_ONCE>(a + offset, b + offset, length, offset == 0, lane, turn, TURNS);
  __syncthreads();
  float sum = 0.f;
  for (float part : parts) sum += part;
  y[threadIdx.x] = sum;
}

// y[t] = t + sum_i a[t, i] b[t, i], of 16 bytes of each. a, b: (threads, N), y: (threads)
extern "C" __global__ void chunks(const TYPE* a, const TYPE* b, float* y) {
  constexpr int N = VECTOR_BYTES / sizeof(TYPE);
  float sum = threadIdx.x;
  add_products(sum, load_vector<N>(a + threadIdx.x * N), load_vector<N>(b + threadIdx.x * N));
  y[threadIdx.x] = sum;
}
