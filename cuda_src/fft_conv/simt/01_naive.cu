// y_t = sum_j k_j u_{t-j} of every sequence, with places modulo length, or, causal, those from 0 to t. u, y:
// (batch, channels, length), k: (channels, length).
//
// naive: the definition. a thread computes one element of y.
//
// what limits it: each element takes `length` products, with two loads for each. there is no transform.

#include "tile/convert.cuh"

extern "C" __global__ void __launch_bounds__(THREADS)
    fft_conv_naive(const IN* u, const float* k, IN* y, int batch, int channels, int length, int causal) {
  const int tiles = (length + THREADS - 1) / THREADS;
  const int t = blockIdx.x % tiles * THREADS + threadIdx.x, channel = blockIdx.x / tiles;
  if (t >= length) return;
  const long long first = (static_cast<long long>(blockIdx.y) * channels + channel) * length;
  u += first;
  k += static_cast<long long>(channel) * length;
  float sum = 0.f;
  for (int j = 0; j <= t; ++j) sum += k[j] * to_float(u[t - j]);
  if (!causal)
    for (int j = t + 1; j < length; ++j) sum += k[j] * to_float(u[t - j + length]);
  y[first + t] = from_float<IN>(sum);
}
