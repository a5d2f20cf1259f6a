// y[j, i] = x[i, j]. x: (m, n), y: (n, m), float.
//
// swept: PITCH, the words from one row of the tile in shared memory to the next. the tile is written by rows
// and read by columns: a warp reads words that are PITCH apart, out of 32 banks. lanes whose words lie in one
// bank are served one after the other.

constexpr int TILE = 32, BANKS = 32;
static_assert(PITCH >= TILE, "rows of the tile would overlap");
static_assert(PITCH <= 2 * BANKS, "beyond twice the banks there is only more of the same");

extern "C" __global__ void __launch_bounds__(TILE* ROWS)
    bank_conflicts(const float* __restrict__ x, float* __restrict__ y, int m, int n) {
  __shared__ float tile[TILE][PITCH];
  const int i0 = blockIdx.y * TILE, j0 = blockIdx.x * TILE;
  for (int row = threadIdx.y; row < TILE; row += ROWS)
    if (i0 + row < m && j0 + threadIdx.x < n)
      tile[row][threadIdx.x] = x[static_cast<long long>(i0 + row) * n + j0 + threadIdx.x];
  __syncthreads();
  for (int row = threadIdx.y; row < TILE; row += ROWS)
    if (j0 + row < n && i0 + threadIdx.x < m)
      y[static_cast<long long>(j0 + row) * m + i0 + threadIdx.x] = tile[threadIdx.x][row];
}
