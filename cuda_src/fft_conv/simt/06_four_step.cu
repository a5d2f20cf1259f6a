// y = ifft(fft(u) spectrum) of every sequence over PERIOD = FIRST x SECOND places, see ../sequence.cuh. u, y:
// (batch, channels, length); spectrum: (channels, PERIOD, 2), of the filters and divided by PERIOD; roots:
// exp(-2 pi i j / PERIOD). a launch takes the pairs of sequences from `begin` on, counted from channel to
// channel, and `between` holds them: (pairs, FIRST, SECOND, 2).
//
// four_step: place n = SECOND n1 + n2 is element [n1][n2] of a matrix, frequency k = k1 + FIRST k2 element
// [k1][k2]. its columns are transformed, multiplied by exp(-2 pi i k1 n2 / PERIOD), and its rows are
// transformed. the inverse goes the other way. so there are three kernels: columns; rows, the product with
// the spectrum and rows back; columns back. a block has LINES columns or rows of a pair. Source: Bailey, FFTs
// in external or hierarchical memory, 1990.
//
// what it gains: a pair of 65,536 places is 32 blocks in each kernel, where it was one. so multiprocessors
// share it, and none has more than four small transforms to compute, one after the other.
//
// what limits it: for few pairs three launches, and the latency of memory in each. for many the operations in
// fp32, and the results between kernels, which are fp32, too, and move four times through the L2.

#include "lines.cuh"

using Columns = Lines<FIRST>;
using Rows = Lines<SECOND>;

// the two sequences of a pair: where they begin, or for none, where the first one does
struct Pair {
  long long first, second;
  bool whole;  // there is a second one

  __device__ __forceinline__ Pair(int number, int batch, int channels, int length) {
    const int each = (batch + 1) / 2, channel = number / each, own = number % each * 2;
    whole = own + 1 < batch;
    first = (static_cast<long long>(own) * channels + channel) * length;
    second = whole ? first + static_cast<long long>(channels) * length : first;
  }
};

// exp(-2 pi i k1 n2 / PERIOD) of the places k1 of a thread
struct Turns {
  float2 first, step;

  __device__ __forceinline__ Turns(const float2* roots, int t, int n2)
      : first(roots[t * n2]), step(roots[Columns::THREADS * n2]) {}

  __device__ __forceinline__ void apply(float2 (&v)[HELD]) const {
#pragma unroll
    for (int q = 0; q < HELD; ++q) v[q] = v[q] * first;
    turn_by_powers(v, step);
  }
};

extern "C" __global__ void __launch_bounds__(Columns::THREADS* LINES)
    fft_conv_columns(const IN* u, const float2* roots, float2* between, int batch, int channels, int length,
                     int extended, int begin) {
  __shared__ Columns::Memory memory;
  const Columns columns(memory, roots);
  const int n2 = blockIdx.x * LINES + columns.line;
  const Turns turns(roots, columns.t, n2);
  const Pair pair(begin + blockIdx.y, batch, channels, length);
  const IN *const first = u + pair.first, *const second = u + pair.second;
  const int before = extended ? PERIOD - length : PERIOD;  // the place before those before the first one

  int source[HELD];
  IN real[HELD], imaginary[HELD];
  // as in Sequence, but without branches: so all loads are in flight together
#pragma unroll
  for (int q = 0; q < HELD; ++q) {
    const int i = columns.place(q) * SECOND + n2;
    source[q] = i < length ? i : i > before ? i - before : -1;
    real[q] = first[max(source[q], 0)];
    imaginary[q] = second[max(source[q], 0)];
  }
  float2 v[HELD];
#pragma unroll
  for (int q = 0; q < HELD; ++q) {
    const float part = pair.whole ? to_float(imaginary[q]) : 0.f;
    v[q] = {source[q] < 0 ? 0.f : to_float(real[q]), source[q] < 0 ? 0.f : part};
  }
  columns.transform(v);
  turns.apply(v);
  between += static_cast<long long>(blockIdx.y) * PERIOD + n2;
#pragma unroll
  for (int q = 0; q < HELD; ++q) between[columns.place(q) * SECOND] = v[q];
}

// leaves real and imaginary parts exchanged: so a transform is its inverse
extern "C" __global__ void __launch_bounds__(Rows::THREADS* LINES)
    fft_conv_rows(const float2* spectrum, const float2* roots, float2* between, int batch, int begin) {
  __shared__ Rows::Memory memory;
  const Rows rows(memory, roots);
  const int k1 = blockIdx.x * LINES + rows.line, channel = (begin + blockIdx.y) / ((batch + 1) / 2);
  spectrum += static_cast<long long>(channel) * PERIOD + k1;
  between += static_cast<long long>(blockIdx.y) * PERIOD + k1 * SECOND;

  float2 v[HELD], factor[HELD];
#pragma unroll
  for (int q = 0; q < HELD; ++q) v[q] = between[rows.place(q)];
#pragma unroll
  for (int q = 0; q < HELD; ++q) factor[q] = spectrum[rows.place(q) * FIRST];
  rows.transform(v);
#pragma unroll
  for (int q = 0; q < HELD; ++q) {
    const float2 product = v[q] * factor[q];
    v[q] = {product.y, product.x};
  }
  __syncthreads();  // everyone is done with the numbers of the first exchange
  rows.transform(v);
#pragma unroll
  for (int q = 0; q < HELD; ++q) between[rows.place(q)] = v[q];
}

extern "C" __global__ void __launch_bounds__(Columns::THREADS* LINES)
    fft_conv_columns_back(const float2* between, const float2* roots, IN* y, int batch, int channels,
                          int length, int begin) {
  __shared__ Columns::Memory memory;
  const Columns columns(memory, roots);
  const int n2 = blockIdx.x * LINES + columns.line;
  const Turns turns(roots, columns.t, n2);
  const Pair pair(begin + blockIdx.y, batch, channels, length);
  IN *const first = y + pair.first, *const second = y + pair.second;
  between += static_cast<long long>(blockIdx.y) * PERIOD + n2;

  float2 v[HELD];
#pragma unroll
  for (int q = 0; q < HELD; ++q) v[q] = between[columns.place(q) * SECOND];
  turns.apply(v);
  columns.transform(v);
#pragma unroll
  for (int q = 0; q < HELD; ++q) {
    const int place = columns.place(q) * SECOND + n2;
    if (place >= length) continue;
    first[place] = from_float<IN>(v[q].y);
    if (pair.whole) second[place] = from_float<IN>(v[q].x);
  }
}
