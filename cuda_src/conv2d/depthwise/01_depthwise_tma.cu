// y[n, p, q, c] = act(bias[c] + sum_rs x[n, i, j, c] f[c, r, s]), i = p stride_y - pad_y + r and j = q
// stride_x - pad_x + s; elements of x outside of the image count as zero. x: (images, height, width,
// channels); f: (channels, taps_y, taps_x); y: (images, rows, columns, channels). bf16, fp16 and fp32.
//
// stage 4, TMA for depthwise: a block has STRIPS * COLUMNS columns of CHANNELS channels, and walks down the
// image. TMA brings PERIOD rows of the input at a time into a circular buffer, and writes zeros outside of
// the image. a thread has COLUMNS columns, and 4 bytes of channels of each. it keeps all taps in registers.
// it also keeps the sums of all rows of the output that depend on the present row of the input. so a row is
// read from shared memory and converted only once. this happens while the row before it is multiplied.
//
// what it gains: with 7 x 7 taps and two columns, an input takes part in 24 products for each conversion and
// each load. with a strip of one row, it takes part in 3. some rows are loaded while others are multiplied.
//
// what limits it: with 3 x 3 taps, device memory. with 7 x 7 taps, the fp32 units.

#include "../convolution.cuh"
#include "pipeline/circular_buffer.cuh"
#include "ptx/bulk.cuh"
#include "ptx/tma_ranks.cuh"
#include "tile/vector.cuh"

constexpr int LANES = 32, TAPS = TAPS_Y * TAPS_X;
constexpr int WORD = 4 / sizeof(IN), WORDS = CHANNELS / WORD;  // channels of a thread; threads side by side
constexpr int WARPS = (STRIPS * WORDS + LANES - 1) / LANES, THREADS = WARPS * LANES;
static_assert(CHANNELS * sizeof(IN) % VECTOR_BYTES == 0, "TMA copies pieces of 16 bytes of a pixel");

// of an input row: pixels that a thread sees, and those of a block
constexpr int SEEN = (COLUMNS - 1) * STRIDE_X + TAPS_X;
constexpr int BOX = (STRIPS * COLUMNS - 1) * STRIDE_X + TAPS_X;
static_assert(BOX <= 256, "a box has at most 256 pixels: fewer STRIPS or COLUMNS");

// rows of the output that see one row of the input; after how many rows of the input all repeats
constexpr int OPEN = (TAPS_Y + STRIDE_Y - 1) / STRIDE_Y, PERIOD = OPEN * STRIDE_Y;

static_assert(STAGES >= 3, "rows are asked for when all warps are through with those before the last");

using Ring = Pipeline<STAGES, WARPS>;

struct alignas(128) Rows {
  unsigned word[PERIOD][BOX * WORDS];
};

struct Memory {
  Rows rows[STAGES];
  alignas(VECTOR_BYTES) unsigned filters[WORDS * TAPS];  // as they lie in f: those of a thread side by side
  Ring ring;
  Barrier weighted;
};

// what one thread asks for: rows from `next` to `end`, counted in periods from `top`
struct Asked {
  int image, top, left, channel, next, end;
  Ring::place to = {};

  __device__ __forceinline__ void ask(const TensorMap& map, Memory& memory) {
    memory.ring.acquire(to);
    Barrier& full = memory.ring.commit(to.stage, PERIOD * BOX * CHANNELS * sizeof(IN));
    tma_load(&memory.rows[to.stage], map, full, image, top + next * PERIOD, left, channel);
    ++next;
    to.advance();
  }
};

extern "C" __global__ void __launch_bounds__(THREADS, BLOCKS)
    conv2d_depthwise_tma(const __grid_constant__ TensorMap x, const IN* __restrict__ f,
                         const IN* __restrict__ bias, IN* __restrict__ y,
                         const __grid_constant__ Convolution c, int band) {
  extern __shared__ __align__(128) unsigned char bytes[];
  Memory& memory = *reinterpret_cast<Memory*>(bytes);

  // slices of channels of the same pixels follow each other: they lie side by side in memory
  const int slices = (c.channels + CHANNELS - 1) / CHANNELS;
  const int across = (c.columns + STRIPS * COLUMNS - 1) / (STRIPS * COLUMNS),
            down = (c.rows + band - 1) / band;
  const int first_channel = blockIdx.x % slices * CHANNELS, place = blockIdx.x / slices;
  const int first_column = place % across * STRIPS * COLUMNS, first_row = place / across % down * band;
  const int image = place / across / down;
  const int rows = min(band, c.rows - first_row), top = first_row * c.stride_y - c.pad_y;
  const int steps = (rows - 1) * STRIDE_Y + TAPS_Y;  // rows of the input, with those outside of the image

  Asked asked{image, top, first_column * STRIDE_X - c.pad_x, first_channel, 0, (steps + PERIOD - 1) / PERIOD};
  if (threadIdx.x == 0) {
    memory.ring.init();
    mbarrier_init(memory.weighted, 1);
    mbarrier_init_fence();
    const int weights = min(CHANNELS, c.channels - first_channel) * TAPS * static_cast<int>(sizeof(IN));
    mbarrier_arrive_expect(memory.weighted, weights);
    bulk_load(memory.filters, f + static_cast<long long>(first_channel) * TAPS, weights, memory.weighted);
    while (asked.next < min(asked.end, STAGES)) asked.ask(x, memory);
  }
  __syncthreads();

  // threads behind the last strip have nothing to store
  const int strip = min(static_cast<int>(threadIdx.x) / WORDS, STRIPS - 1), word = threadIdx.x % WORDS;
  const int channel = first_channel + word * WORD, column = first_column + strip * COLUMNS;
  const bool owner = threadIdx.x < STRIPS * WORDS && channel < c.channels;

  float weight[TAPS_Y][TAPS_X][WORD] = {}, added[WORD] = {};
  mbarrier_wait(memory.weighted, 0);
  if (owner) {
#pragma unroll
    for (int i = 0; i < TAPS; ++i) {
      float found[WORD];
      unpack<IN>(memory.filters[word * TAPS + i], found);
#pragma unroll
      for (int e = 0; e < WORD; ++e) {
        const int at = i * WORD + e;
        weight[at % TAPS / TAPS_X][at % TAPS_X][at / TAPS] = found[e];
      }
    }
    if (bias)
#pragma unroll
      for (int e = 0; e < WORD; ++e) added[e] = to_float(bias[channel + e]);
  }

  IN* to =
      y + ((static_cast<long long>(image) * c.rows + first_row) * c.columns + column) * c.channels + channel;
  const long long row_elements = static_cast<long long>(c.columns) * c.channels;
  const int stored = owner ? min(COLUMNS, c.columns - column) : 0;
  float sum[OPEN][COLUMNS][WORD] = {};
  Ring::place from;
  unsigned ahead[SEEN];
  const auto load = [&](int row) {
    const unsigned* const first =
        memory.rows[from.stage].word[row] + strip * COLUMNS * STRIDE_X * WORDS + word;
#pragma unroll
    for (int j = 0; j < SEEN; ++j) ahead[j] = first[j * WORDS];
  };
  memory.ring.wait(from);
  load(0);
  for (int base = 0;; base += PERIOD)
#pragma unroll
    for (int k = 0; k < PERIOD; ++k) {
      const int i = base + k;
      if (i >= steps) return;
      unsigned seen[SEEN];
#pragma unroll
      for (int j = 0; j < SEEN; ++j) seen[j] = ahead[j];
      if (k + 1 < PERIOD) {
        load(k + 1);
      } else if (i + 1 < steps) {
        memory.ring.release(from.stage);
        // those that take the place of the rows before these
        if (threadIdx.x == 0 && base > 0 && asked.next < asked.end) asked.ask(x, memory);
        from.advance();
        memory.ring.wait(from);
        load(0);
      }
      if (static_cast<unsigned>(top + i) < static_cast<unsigned>(c.height)) {
#pragma unroll
        for (int j = 0; j < SEEN; ++j) {
          float v[WORD];
          unpack<IN>(seen[j], v);
#pragma unroll
          for (int r = 0; r < TAPS_Y; ++r) {
            if ((k - r + PERIOD) % STRIDE_Y) continue;  // no row of the output begins r rows back
            const int open = (k - r + PERIOD) / STRIDE_Y % OPEN;
#pragma unroll
            for (int q = 0; q < COLUMNS; ++q)
              if (const int s = j - q * STRIDE_X; s >= 0 && s < TAPS_X)
#pragma unroll
                for (int e = 0; e < WORD; ++e) sum[open][q][e] += v[e] * weight[r][s][e];
          }
        }
      }
      if ((k + 1 - TAPS_Y + PERIOD) % STRIDE_Y == 0) {  // the last row that a row of the output sees
        const int open = (k + 1 - TAPS_Y + PERIOD) / STRIDE_Y % OPEN;
        if (i >= TAPS_Y - 1) {
#pragma unroll
          for (int q = 0; q < COLUMNS; ++q) {
            float v[WORD];
#pragma unroll
            for (int e = 0; e < WORD; ++e) v[e] = activate<ACTIVATION>(sum[open][q][e] + added[e]);
            if (q < stored)
              *reinterpret_cast<unsigned*>(to + static_cast<long long>(q) * c.channels) = packed<IN>(v);
          }
          to += row_elements;
        }
#pragma unroll
        for (int q = 0; q < COLUMNS; ++q)
#pragma unroll
          for (int e = 0; e < WORD; ++e) sum[open][q][e] = 0.f;
      }
    }
}
