// y[n, p, q, k] = act(bias[k] + sum_rsc x[n, i, j, c] f[k, r, s, c]), i = p stride_y - pad_y + r dilation_y
// and j = q stride_x - pad_x + s dilation_x; elements of x outside of the image count as zero. x: (images,
// height, width, channels); f: (filters, taps_y, taps_x, channels), of which there may be any number; y:
// (images, rows, columns, filters). one group. bf16 and fp16, sm_90a.
//
// stage 7 of wgmma, padded taps: a first kernel copies images and filters to arrays with more channels, a
// multiple of 8, 16 or 32. the added channels are zeros. several_taps computes the convolution of them.
//
// what it gains: odd channels have im2col maps, and 30 channels are boxes of 32, not a k-tile of 64. 24 channels
// are one box for each tap, not three.
//
// what limits it: images are read and written once more.

#include "../pad_channels.cuh"
#include "06_several_taps.cu"

extern "C" __global__ void __launch_bounds__(PAD_THREADS)
    conv2d_pad_channels(const IN* __restrict__ x, const IN* __restrict__ f, IN* __restrict__ padded_x,
                        IN* __restrict__ padded_f, long long pixels, long long taps, int blocks, int channels,
                        int padded) {
  pad_channels({x, padded_x, pixels}, {f, padded_f, taps}, blocks, channels, padded);
}
