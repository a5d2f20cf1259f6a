// y = ifft(fft(u) spectrum) of every sequence over PERIOD places, see ../sequence.cuh. u, y: (batch,
// channels, length); spectrum: (channels, PERIOD, 2), of the filters and divided by PERIOD; roots: exp(-2 pi
// i j / PERIOD).
//
// shared: there is one kernel, and a block for each sequence. radix-2 butterflies transform the sequence in
// place in shared memory. the transform leaves it in bit-reversed order. the spectrum is read in that order,
// and the inverse transform begins with it.
//
// what it gains: n log n operations instead of n^2, and memory is read and written once.
//
// what limits it: shared memory, which every butterfly reads and writes. there are 2 log2 n steps, and each
// needs a barrier.

#include "in_place.cuh"

extern "C" __global__ void __launch_bounds__(THREADS)
    fft_conv_shared(const IN* u, const float2* spectrum, const float2* roots, IN* y, int batch, int channels,
                    int length, int extended) {
  extern __shared__ __align__(16) unsigned char memory[];
  float2* const data = reinterpret_cast<float2*>(memory);
  const int t = threadIdx.x, own = blockIdx.y;
  const long long first = (static_cast<long long>(own) * channels + blockIdx.x) * length;
  const Sequence sequence{own < batch ? u + first : nullptr, length, extended};

  for (int i = t; i < PERIOD; i += THREADS) data[i] = {sequence.at(i), 0.f};
  __syncthreads();
  convolve(data, spectrum + static_cast<long long>(blockIdx.x) * PERIOD, roots);
  __syncthreads();
  for (int i = t; i < length; i += THREADS) y[first + i] = from_float<IN>(data[i].x);
}
