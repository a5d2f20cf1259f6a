// y[n, p, q, c] = act(bias[c] + sum_rs x[n, i, j, c] f[c, r, s]), i = p stride_y - pad_y + r dilation_y and
// j = q stride_x - pad_x + s dilation_x; elements of x outside of the image count as zero. x: (images,
// height, width, channels); f: (channels, taps_y, taps_x); y: (images, rows, columns, channels). bf16, fp16
// and fp32.
//
// stage 3, depthwise: each group has one channel and one filter. so there is no product of matrices, and an
// element takes part in few products. a thread computes STRIP neighbouring outputs of VECTOR channels, which
// are loaded and stored together. if TAPS_X is known when the kernel is compiled, the thread reads an input
// row once, and multiplies each input for all outputs of the strip that depend on it. the filters of the
// block's channels lie in shared memory, tap by tap.
//
// what it gains: an input is loaded and converted once for a row of taps, not once for each tap.
//
// what limits it: with few taps, device memory. with 7 x 7 taps an element has 49 products, and the fp32
// units need about as long for them as memory needs for the element.

#include "../convolution.cuh"
#include "tile/vector.cuh"

using Channels = Vector<IN, VECTOR>;

static_assert(CHANNELS % VECTOR == 0 && THREADS % CHANNELS == 0,
              "a block takes CHANNELS channels, whole vectors, whose filters it loads side by side");
constexpr int ACROSS = CHANNELS / VECTOR, STRIPS = THREADS / ACROSS;  // of a block

struct Numbers {
  float x[VECTOR];

  __device__ __forceinline__ void add_products(const Numbers& a, const Numbers& b) {
#pragma unroll
    for (int e = 0; e < VECTOR; ++e) x[e] += a.x[e] * b.x[e];
  }
};

__device__ __forceinline__ Numbers numbers(const Channels& v) {
  Numbers found;
#pragma unroll
  for (int e = 0; e < VECTOR; ++e) found.x[e] = to_float(v.x[e]);
  return found;
}

// the filters of a block's channels in shared memory, tap by tap. of a vector four lie together, and beside
// them those of the next vector: neighbouring threads read other banks
struct Filters {
  static constexpr int FOUR = VECTOR < 4 ? VECTOR : 4, PARTS = VECTOR / FOUR;
  float* data;

  __device__ __forceinline__ float* at(int tap, int part, int vector) const {
    return data + ((tap * PARTS + part) * ACROSS + vector) * FOUR;
  }
  __device__ __forceinline__ Numbers of(int tap, int vector) const {
    Numbers found;
#pragma unroll
    for (int part = 0; part < PARTS; ++part) {
      const auto four = load_vector<FOUR>(at(tap, part, vector));
#pragma unroll
      for (int e = 0; e < FOUR; ++e) found.x[part * FOUR + e] = four.x[e];
    }
    return found;
  }
  __device__ __forceinline__ void put(int tap, int channel, float weight) const {
    at(tap, channel % VECTOR / FOUR, channel / VECTOR)[channel % FOUR] = weight;
  }
};

extern "C" __global__ void __launch_bounds__(THREADS)
    conv2d_depthwise(const IN* __restrict__ x, const IN* __restrict__ f, const IN* __restrict__ bias,
                     IN* __restrict__ y, const __grid_constant__ Convolution c) {
  extern __shared__ __align__(VECTOR_BYTES) unsigned char memory[];
  const Filters filters{reinterpret_cast<float*>(memory)};
  const int parts = (c.channels + CHANNELS - 1) / CHANNELS, first = blockIdx.x % parts * CHANNELS;
  const int taps = c.taps_y * c.taps_x;
  if (const int own = threadIdx.x % CHANNELS; first + own < c.channels) {
    const IN* from = f + static_cast<long long>(first + own) * taps;
    for (int tap = threadIdx.x / CHANNELS; tap < taps; tap += THREADS / CHANNELS)
      filters.put(tap, own, to_float(from[tap]));
  }
  __syncthreads();

  const int of_row = (c.columns + STRIP - 1) / STRIP;
  const long long strip = static_cast<long long>(blockIdx.x / parts) * STRIPS + threadIdx.x / ACROSS;
  const int vector = threadIdx.x % ACROSS, channel = first + vector * VECTOR;
  if (channel >= c.channels || strip >= static_cast<long long>(c.pixels / c.columns) * of_row) return;
  const int line = strip / of_row, column = strip % of_row * STRIP;  // a line is a row of an image
  const int image = line / c.rows, top = line % c.rows * c.stride_y - c.pad_y;
  const int left = column * c.stride_x - c.pad_x;

  Numbers sum[STRIP] = {};
  for (int r = 0; r < c.taps_y; ++r) {
    const int down = top + r * c.dilation_y;
    if (static_cast<unsigned>(down) >= static_cast<unsigned>(c.height)) continue;
    const IN* row = x + (static_cast<long long>(image) * c.height + down) * c.width * c.channels + channel;
    // zeros outside of the image; without a branch, so that all loads of a row are in flight together
    const auto load = [&](int at) {
      Channels v = {};
      if (static_cast<unsigned>(at) < static_cast<unsigned>(c.width))
        v = load_vector<VECTOR>(row + static_cast<long long>(at) * c.channels);
      return v;
    };
    const int first_tap = r * c.taps_x;
    if constexpr (TAPS_X > 0) {
      // of the row, by all outputs of the strip. what is not compiled has to be right, too
      constexpr int KNOWN = TAPS_X > 0 ? TAPS_X : 1, SEEN = (STRIP - 1) * STRIDE_X + KNOWN;
      Channels seen[SEEN];
#pragma unroll
      for (int j = 0; j < SEEN; ++j) seen[j] = load(left + j);
      Numbers w[KNOWN];
#pragma unroll
      for (int s = 0; s < KNOWN; ++s) w[s] = filters.of(first_tap + s, vector);
#pragma unroll
      for (int j = 0; j < SEEN; ++j) {
        const Numbers v = numbers(seen[j]);
#pragma unroll
        for (int i = 0; i < STRIP; ++i)
          if (const int s = j - i * STRIDE_X; s >= 0 && s < KNOWN) sum[i].add_products(v, w[s]);
      }
    } else {
      for (int s = 0; s < c.taps_x; ++s) {
        const Numbers w = filters.of(first_tap + s, vector);
#pragma unroll
        for (int i = 0; i < STRIP; ++i)
          sum[i].add_products(numbers(load(left + i * c.stride_x + s * c.dilation_x)), w);
      }
    }
  }

  IN* to = y + (static_cast<long long>(line) * c.columns + column) * c.channels + channel;
#pragma unroll
  for (int i = 0; i < STRIP; ++i) {
    if (column + i >= c.columns) break;
    Channels v;
#pragma unroll
    for (int e = 0; e < VECTOR; ++e) v.x[e] = from_float<IN>(completed(sum[i].x[e], bias, channel + e));
    store_vector(to + static_cast<long long>(i) * c.channels, v);
  }
}
