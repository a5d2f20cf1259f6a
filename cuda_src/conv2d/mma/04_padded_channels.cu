// y[n, p, q, k] = act(bias[k] + sum_rsc x[n, i, j, c] f[k, r, s, c]), i = p stride_y - pad_y + r dilation_y
// and j = q stride_x - pad_x + s dilation_x; elements of x outside of the image count as zero. x: (images,
// height, width, channels); f: (filters, taps_y, taps_x, channels of a group), of which there may be any
// number; y: (images, rows, columns, filters). bf16 and fp16.
//
// stage 4 of mma, padded channels: where channels are no multiple of 8, a kernel first copies images and
// filters to arrays where they are, with zeros in those that are added. narrow_copies takes those 16 bytes at
// a time.
//
// what it gains: a window has an element as often as a filter has taps, and its address is computed each
// time: once an element instead of once every 8 of them, where channels are odd.
//
// what limits it: the launch before; k is longer by the zeros, which counts for a few channels.

#include "../pad_channels.cuh"
#include "03_narrow_copies.cu"

extern "C" __global__ void __launch_bounds__(PAD_THREADS)
    conv2d_pad_channels(const IN* __restrict__ x, const IN* __restrict__ f, IN* __restrict__ padded_x,
                        IN* __restrict__ padded_f, long long pixels, long long taps, int blocks, int channels,
                        int padded) {
  pad_channels({x, padded_x, pixels}, {f, padded_f, taps}, blocks, channels, padded);
}
