// y[n, p, q, k] = act(bias[k] + sum_rsc x[n, i, j, c] f[k, r, s, c]), i = p stride_y - pad_y + r dilation_y
// and j = q stride_x - pad_x + s dilation_x; elements of x outside of the image count as zero. x: (images,
// height, width, channels); f: (filters, taps_y, taps_x, channels of a group), of which there may be any
// number; y: (images, rows, columns, filters). bf16 and fp16, sm_90a.
//
// stage 3 of wgmma, padded im2col: this stage is for problems whose number of channels is no multiple of 64.
// a first kernel copies images and filters to arrays with more channels, a multiple of 64. the added channels
// are zeros. these arrays have im2col maps, and ping_pong computes the convolution of them.
//
// what it gains: TMA and wgmma work for any number of channels. the channels of a k-tile fill a box of TMA,
// and lie in one line of 128 bytes. a box in which the channels end takes two to four times as long. a box
// that lies in two lines takes nearly twice as long.
//
// what limits it: images are read and written once more. each tap still has k-tiles of its own, so with few
// channels they are mostly zeros.

#include "../pad_channels.cuh"
#include "02_ping_pong.cu"

extern "C" __global__ void __launch_bounds__(PAD_THREADS)
    conv2d_pad_channels(const IN* __restrict__ x, const IN* __restrict__ f, IN* __restrict__ padded_x,
                        IN* __restrict__ padded_f, long long pixels, long long taps, int blocks, int channels,
                        int padded) {
  pad_channels({x, padded_x, pixels}, {f, padded_f, taps}, blocks, channels, padded);
}
