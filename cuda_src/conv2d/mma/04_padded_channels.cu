// y[n, p, q, k] = act(bias[k] + sum_rsc x[n, i, j, c] f[k, r, s, c]), i = p stride_y - pad_y + r dilation_y
// and j = q stride_x - pad_x + s dilation_x; elements of x outside of the image count as zero. x: (images,
// height, width, channels); f: (filters, taps_y, taps_x, channels of a group), of which there may be any
// number; y: (images, rows, columns, filters). bf16 and fp16.
//
// stage 4 of mma, padded channels: this stage is for problems whose number of channels is no multiple of 8. a
// first kernel copies images and filters to arrays with more channels, a multiple of 8. the added channels
// are zeros. then narrow_copies computes the convolution with copies of 16 bytes.
//
// what it gains: an element of the input is part of as many windows as a filter has taps. without the
// padding, odd channels take an address for each element of each window. with it, they take one address for 8
// elements.
//
// what limits it: the launch of the first kernel. the zeros make k longer, which matters if there are few
// channels.

#include "../pad_channels.cuh"
#include "03_narrow_copies.cu"

extern "C" __global__ void __launch_bounds__(PAD_THREADS)
    conv2d_pad_channels(const IN* __restrict__ x, const IN* __restrict__ f, IN* __restrict__ padded_x,
                        IN* __restrict__ padded_f, long long pixels, long long taps, int blocks, int channels,
                        int padded) {
  pad_channels({x, padded_x, pixels}, {f, padded_f, taps}, blocks, channels, padded);
}
