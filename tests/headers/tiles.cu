// OUT, BUFFERS, PANELS and WARPS are given
#include "tiles.cuh"

using Panel = Staged<OUT>;
constexpr int WIDTH = PANELS * Panel::COLUMNS;

struct Globals {
  const TensorMap& C_boxes;
  OUT* C;
  int M, N, ldc;
};

// C, or what C_boxes describes, = the first M rows and N columns of sums, which each of WARPS warps holds as
// one of a wgmma does, 16 rows of a panel at a time. sums: (16 WARPS, WIDTH), C: (M, N)
extern "C" __global__ void stored(const float* sums, const __grid_constant__ TensorMap C_boxes, OUT* C, int M,
                                  int N, int ldc) {
  __shared__ alignas(1024) OUT staged[WARPS][BUFFERS][Panel::ELEMENTS];
  const Globals g = {C_boxes, C, M, N, ldc};
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, m = warp * Panel::ROWS;
  for (int panel = 0; panel < PANELS; ++panel) {
    const int n = panel * Panel::COLUMNS;
    float sum[Panel::COLUMNS / 2];
    for (int i = 0; i < Panel::COLUMNS / 2; ++i) {
      const int row = lane / 4 + i / 2 % 2 * 8, column = i / 4 * 8 + lane % 4 * 2 + i % 2;
      sum[i] = sums[(m + row) * WIDTH + n + column];
    }
    Panel::store<BUFFERS>(g, staged[warp][panel % BUFFERS], sum, m, n);
  }
  tma_store_wait_read<0>();
}
