// OUT, BUFFERS, PANELS and WARPS are given
#include "epilogue/deferred.cuh"

using Panel = Staging<OUT>;
constexpr int WIDTH = PANELS * Panel::COLUMNS;

// what a warp holds of a panel
__device__ __forceinline__ void load(float (&sum)[Panel::COLUMNS / 2], const float* sums, int m, int n) {
  const int lane = threadIdx.x % 32;
  for (int i = 0; i < Panel::COLUMNS / 2; ++i) {
    const int row = lane / 4 + i / 2 % 2 * 8, column = i / 4 * 8 + lane % 4 * 2 + i % 2;
    sum[i] = sums[(m + row) * WIDTH + n + column];
  }
}

// C, or what C_boxes describes, = the first M rows and N columns of sums, which each of WARPS warps holds as
// one of a wgmma does, 16 rows of a panel at a time. sums: (16 WARPS, WIDTH), C: (M, N)
extern "C" __global__ void stored(const float* sums, const __grid_constant__ TensorMap C_boxes, OUT* C, int M,
                                  int N, int ldc) {
  __shared__ alignas(1024) OUT staged[WARPS][BUFFERS][Panel::ELEMENTS];
  const Rows<OUT> to = {C_boxes, C, M, N, ldc};
  const int warp = threadIdx.x / 32, m = warp * Panel::ROWS;
  for (int panel = 0; panel < PANELS; ++panel) {
    const int n = panel * Panel::COLUMNS;
    float sum[Panel::COLUMNS / 2];
    load(sum, sums, m, n);
    Panel::store<BUFFERS>(to, staged[warp][panel % BUFFERS], sum, m, n);
  }
  tma_store_wait_read<0>();
}

// the same, of sums that are kept before they are stored, with the iterations of a next tile and after them
extern "C" __global__ void kept(const float* sums, const __grid_constant__ TensorMap C_boxes, OUT* C, int M,
                                int N, int ldc, int iterations) {
  __shared__ alignas(1024) OUT staged[WARPS][BUFFERS][Panel::ELEMENTS];
  const Rows<OUT> to = {C_boxes, C, M, N, ldc};
  const int warp = threadIdx.x / 32, m = warp * Panel::ROWS;
  float sum[WIDTH / 2];
  for (int panel = 0; panel < PANELS; ++panel)
    load(reinterpret_cast<float (&)[Panel::COLUMNS / 2]>(sum[panel * Panel::COLUMNS / 2]), sums, m,
         panel * Panel::COLUMNS);
  using Tile = Deferred<OUT, WIDTH>;
  static_assert(sizeof(OUT) == 4 ? Tile::PARTS == 0 : Tile::PARTS == PANELS, "a part is a panel");
  Tile tile;
  tile.begin(iterations);
  tile.flush(to, staged[warp]);  // nothing was kept yet
  tile.keep(sum, m, 0);
  tile.begin(iterations);
  for (int i = 0; i < iterations; ++i) tile.step(to, staged[warp], i, iterations);
  tile.flush(to, staged[warp]);
  tma_store_wait_read<0>();
}
