// y[n, p, q, k] = act(bias[k] + sum_rsc x[n, i, j, c] f[k, r, s, c]), i = p stride_y - pad_y + r dilation_y
// and j = q stride_x - pad_x + s dilation_x; elements of x outside of the image count as zero. x: (images,
// height, width, channels); f: (filters, taps_y, taps_x, channels of a group); y: (images, rows, columns,
// filters); any strides. bf16, fp16 and fp32.
//
// stage 1, naive: one thread computes one output, tap by tap. neighbouring threads have neighbouring filters.
//
// what limits it: every product needs two loads, and threads share what they load only through the
// caches.

#include "../convolution.cuh"
#include "strides.cuh"

extern "C" __global__ void __launch_bounds__(THREADS)
    conv2d_naive(const IN* __restrict__ x, const IN* __restrict__ f, const IN* __restrict__ bias,
                 IN* __restrict__ y, const __grid_constant__ Convolution c,
                 const __grid_constant__ Strides at) {
  const long long number = static_cast<long long>(blockIdx.x) * THREADS + threadIdx.x;
  if (number >= static_cast<long long>(c.pixels) * c.filters) return;
  const int pixel = number / c.filters, filter = number % c.filters;
  const auto window = c.window(pixel);
  const IN* image =
      x + window.image * at.x_image + filter / c.group_filters * c.group_channels * at.x_channel;
  const IN* weights = f + filter * at.f_filter;

  float sum = 0.f;
  for (int r = 0; r < c.taps_y; ++r)
    for (int s = 0; s < c.taps_x; ++s) {
      const int i = window.top + r * c.dilation_y, j = window.left + s * c.dilation_x;
      if (!c.inside(i, j)) continue;
      const IN* from = image + i * at.x_row + j * at.x_column;
      const IN* weight = weights + r * at.f_row + s * at.f_column;
      for (int n = 0; n < c.group_channels; ++n)
        sum += to_float(from[n * at.x_channel]) * to_float(weight[n * at.f_channel]);
    }
  const int row = pixel / c.columns % c.rows, column = pixel % c.columns;
  y[window.image * at.y_image + row * at.y_row + column * at.y_column + filter * at.y_channel] =
      from_float<IN>(completed(sum, bias, filter));
}
