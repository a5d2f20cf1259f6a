// h_t = exp(log_a_t) h_{t-1} + b_t x_t^T and y_t = h_t^T c_t of every head, see ../scan.cuh. dstate up to
// DSTATE. x, b, c and y come as tensor maps, too, so their heads and places are multiples of 16 bytes apart.
// states: (batch, heads, segments, dstate, headdim), decays: (batch, heads, segments), fp32; states are h0
// where there is one segment. sm_90a.
//
// pairs: two neighbouring blocks form a cluster. they have two heads, or both halves of one with more than 64
// elements, which lie side by side in memory. both release a chunk before either loads the next one there.
//
// what it gains: the blocks stay in step. so 256 consecutive bytes of x and y, and of b and c of neighbouring
// heads, are wanted at about the same time, which memory does faster than 128.
//
// what limits it: memory. clusters of four would have more neighbours, but not enough of them fit on the
// device.

#define CLUSTER 2

#include "02_specialised.cu"
