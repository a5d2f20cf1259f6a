// sums[c] = sum of x[r][c] over the rows r. x: (rows, 64). two warps bring a row into shared memory, two
// others add it up; `ready` and `taken` count rows. flags are volatile, so each side needs its fences, and
// its warps to agree.

constexpr int WIDTH = 64;

// a barrier of one side's two warps
template <int SIDE>
__device__ __forceinline__ void side_barrier() {
  asm volatile("bar.sync %0, %1;" ::"n"(SIDE), "n"(WIDTH) : "memory");
}

extern "C" __global__ void handoff(const float* x, float* sums, int rows) {
  __shared__ float row[WIDTH];
  __shared__ int counters[2];
  volatile int *ready = &counters[0], *taken = &counters[1];
  if (threadIdx.x < 2) counters[threadIdx.x] = 0;
  __syncthreads();

  if (threadIdx.x < WIDTH) {
    const int c = threadIdx.x;
    for (int r = 0; r < rows; ++r) {
      while (*taken < r) {
      }  // the row before has been added
      __threadfence_block();
      row[c] = x[r * WIDTH + c];
      __threadfence_block();  // the element before the flag
      side_barrier<1>();
      if (c == 0) *ready = r + 1;
    }
  } else {
    const int c = threadIdx.x - WIDTH;
    float sum = 0;
    for (int r = 0; r < rows; ++r) {
      while (*ready <= r) {
      }                       // the row has come
      __threadfence_block();  // the flag before the element
      sum += row[c];
      __threadfence_block();
      side_barrier<2>();
      if (c == 0) *taken = r + 1;
    }
    sums[c] = sum;
  }
}
