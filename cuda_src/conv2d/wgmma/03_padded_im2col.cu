// y[n, p, q, k] = act(bias[k] + sum_rsc x[n, i, j, c] f[k, r, s, c]), i = p stride_y - pad_y + r dilation_y
// and j = q stride_x - pad_x + s dilation_x; elements of x outside of the image count as zero. x: (images,
// height, width, channels); f: (filters, taps_y, taps_x, channels of a group), of which there may be any
// number; y: (images, rows, columns, filters). bf16 and fp16, sm_90a.
//
// stage 3 of wgmma, padded im2col: where channels are no multiple of 64, a kernel first copies images and
// filters to arrays where they are, with zeros in those that are added. those have im2col maps, and what
// follows is ping_pong.
//
// what it gains: TMA and wgmma for any number of channels. the channels of a k-tile fill a box and lie in one
// line of 128 bytes: a box that channels end in takes two to four times as long, one that lies in two lines
// nearly twice.
//
// what limits it: images are read once more and written. k-tiles are still those of a tap: with few channels
// they are mostly zeros.

#include "../pad_channels.cuh"
#include "02_ping_pong.cu"

extern "C" __global__ void __launch_bounds__(PAD_THREADS)
    conv2d_pad_channels(const IN* __restrict__ x, const IN* __restrict__ f, IN* __restrict__ padded_x,
                        IN* __restrict__ padded_f, long long pixels, long long taps, int blocks, int channels,
                        int padded) {
  pad_channels({x, padded_x, pixels}, {f, padded_f, taps}, blocks, channels, padded);
}
