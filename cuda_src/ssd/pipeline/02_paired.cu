// h_t = exp(log_a_t) h_{t-1} + b_t x_t^T and y_t = h_t^T c_t of every head, see ../scan.cuh. dstate up to
// DSTATE. x, b, c and y come as tensor maps, too, so their heads and places are multiples of 16 bytes apart.
// states: (batch, heads, segments, dstate, headdim), decays: (batch, heads, segments), fp32; states are h0
// where there is one segment. sm_90a.
//
// pairs: two neighbouring blocks form a cluster. they have two heads that lie side by side in memory, or both
// halves of one head with more than 64 elements. neither block loads the next chunk to a place before both
// have released the chunk there.
//
// what it gains: the blocks stay in step. so they load 256 consecutive bytes of x and y, and of b and c of
// neighbouring heads, at about the same time. memory does this faster than 128 bytes.
//
// what limits it: device memory. clusters of four would load longer runs, but not enough of them fit on the
// device.

#define CLUSTER 2

#include "01_specialised.cu"
