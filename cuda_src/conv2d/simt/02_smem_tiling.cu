// y[n, p, q, k] = act(bias[k] + sum_rsc x[n, i, j, c] f[k, r, s, c]), i = p stride_y - pad_y + r dilation_y
// and j = q stride_x - pad_x + s dilation_x; elements of x outside of the image count as zero. x: (images,
// height, width, channels); f: (filters, taps_y, taps_x, channels of a group); y: (images, rows, columns,
// filters); any strides. bf16, fp16 and fp32.
//
// stage 2, shared memory tiling: the convolution becomes a product of matrices. a row of the left matrix is a
// window, a row of the right one is a filter, and k runs through taps and channels. the left matrix is never
// stored: a block gathers BLOCK_M x BLOCK_K elements of it into shared memory, beside the same k of BLOCK_N
// filters. a thread computes THREAD_M x THREAD_N outputs from there.
//
// what it gains: an element is loaded from global memory once for a tile of outputs, and from shared memory
// once for THREAD_M or THREAD_N products.
//
// what limits it: fp32 units multiply one product a cycle and lane, and a block waits for each k-tile.

#include "../convolution.cuh"
#include "strides.cuh"
#include "tile/vector.cuh"

constexpr int THREAD_M = 8, THREAD_N = 8;
constexpr int THREADS = (BLOCK_M / THREAD_M) * (BLOCK_N / THREAD_N);
constexpr int PAD = 4;   // spreads the transposing stores over the banks
constexpr int FOUR = 4;  // elements that are read at once

static_assert(THREADS % BLOCK_K == 0,
              "a thread copies one column of a k-tile: BLOCK_K has to divide the threads");
constexpr int ROW_STEP = THREADS / BLOCK_K;
static_assert(BLOCK_M % ROW_STEP == 0 && BLOCK_N % ROW_STEP == 0,
              "threads have to copy whole columns of a k-tile");

extern "C" __global__ void __launch_bounds__(THREADS)
    conv2d_smem_tiling(const IN* __restrict__ x, const IN* __restrict__ f, const IN* __restrict__ bias,
                       IN* __restrict__ y, const __grid_constant__ Convolution c,
                       const __grid_constant__ Strides at) {
  __shared__ __align__(VECTOR_BYTES) float a_tile[BLOCK_K][BLOCK_M + PAD];
  __shared__ __align__(VECTOR_BYTES) float b_tile[BLOCK_K][BLOCK_N + PAD];
  const OutputTile tile = OutputTile::numbered(c, blockIdx.x, BLOCK_M, BLOCK_N);
  const int filters = c.group_filters - tile.filter;  // from the first one of the tile on
  const int first_filter = tile.group * c.group_filters + tile.filter;
  x += static_cast<long long>(tile.group) * c.group_channels * at.x_channel;
  f += first_filter * at.f_filter;

  const int copied = threadIdx.x % BLOCK_K, first_row = threadIdx.x / BLOCK_K;
  Convolution::Window windows[BLOCK_M / ROW_STEP];
#pragma unroll
  for (int i = 0; i < BLOCK_M / ROW_STEP; ++i)
    windows[i] = c.window_or_nowhere(tile.pixel + first_row + i * ROW_STEP);

  const int depth = c.taps_y * c.taps_x * c.group_channels;
  constexpr int ACROSS =
      BLOCK_N / THREAD_N;  // threads. each has pieces of four columns, side by side with theirs
  const int row = threadIdx.x / ACROSS * THREAD_M, column = threadIdx.x % ACROSS * FOUR;
  const auto place = [&](int j) { return column + j / FOUR * ACROSS * FOUR + j % FOUR; };
  float sum[THREAD_M][THREAD_N] = {};
  for (int k0 = 0; k0 < depth; k0 += BLOCK_K) {
    const int k = k0 + copied, tap = k / c.group_channels, channel = k % c.group_channels;
    const int r = tap / c.taps_x, s = tap % c.taps_x;
    float a[BLOCK_M / ROW_STEP], b[BLOCK_N / ROW_STEP];
#pragma unroll
    for (int i = 0; i < BLOCK_M / ROW_STEP; ++i) {
      const int down = windows[i].top + r * c.dilation_y, right = windows[i].left + s * c.dilation_x;
      const bool valid = k < depth && c.inside(down, right);
      a[i] = valid ? to_float(x[windows[i].image * at.x_image + down * at.x_row + right * at.x_column +
                                channel * at.x_channel])
                   : 0.f;
    }
#pragma unroll
    for (int i = 0; i < BLOCK_N / ROW_STEP; ++i) {
      const int filter = first_row + i * ROW_STEP;
      const bool valid = k < depth && filter < filters;
      b[i] = valid
                 ? to_float(f[filter * at.f_filter + r * at.f_row + s * at.f_column + channel * at.f_channel])
                 : 0.f;
    }
    __syncthreads();  // everyone has read the k-tile before
#pragma unroll
    for (int i = 0; i < BLOCK_M / ROW_STEP; ++i) a_tile[copied][first_row + i * ROW_STEP] = a[i];
#pragma unroll
    for (int i = 0; i < BLOCK_N / ROW_STEP; ++i) b_tile[copied][first_row + i * ROW_STEP] = b[i];
    __syncthreads();

#pragma unroll
    for (int k = 0; k < BLOCK_K; ++k) {
      Vector<float, FOUR> window[THREAD_M / FOUR], filter[THREAD_N / FOUR];
#pragma unroll
      for (int i = 0; i < THREAD_M; i += FOUR) window[i / FOUR] = load_vector<FOUR>(&a_tile[k][row + i]);
#pragma unroll
      for (int j = 0; j < THREAD_N; j += FOUR) filter[j / FOUR] = load_vector<FOUR>(&b_tile[k][place(j)]);
#pragma unroll
      for (int i = 0; i < THREAD_M; ++i)
#pragma unroll
        for (int j = 0; j < THREAD_N; ++j)
          sum[i][j] += window[i / FOUR].x[i % FOUR] * filter[j / FOUR].x[j % FOUR];
    }
  }

#pragma unroll
  for (int i = 0; i < THREAD_M; ++i) {
    const int pixel = tile.pixel + row + i;
    if (pixel >= c.pixels) break;
    const int line = pixel / c.columns;  // a row of an image
    IN* to = y + line / c.rows * at.y_image + line % c.rows * at.y_row + pixel % c.columns * at.y_column;
#pragma unroll
    for (int j = 0; j < THREAD_N; ++j) {
      const int filter = place(j);
      if (filter < filters)
        to[(first_filter + filter) * at.y_channel] =
            from_float<IN>(completed(sum[i][j], bias, first_filter + filter));
    }
  }
}
