// o = softmax(scale q k^T) v and lse, the logarithm of the sum of a row's exponentials. q, o: (batch, heads,
// rows, dim), k, v: (batch, heads / group, keys, dim), with any strides; lse: (batch, heads, rows). dim up to
// DIM. bf16 and fp16.
//
// tensor cores: a block takes WARPS x 16 rows of a head. a warp takes 16 of them with all keys, a tile of
// BLOCK_N keys at a time. mma.sync computes both products: queries by keys, and weights by values. the
// weights stay in registers: the accumulators of the first product, once rounded, are the left operand of the
// second. two tiles of keys and values are in shared memory, swizzled. cp.async fills one while the other is
// multiplied.
//
// what it gains: the products take a fraction of the time, and all rows of a block share what is loaded.
//
// what limits it: a warp either multiplies or computes exponentials. every operand passes through registers,
// and mma.sync cannot reach the full rate of the tensor cores of Hopper.

#include "rows.cuh"

extern "C" __global__ void __launch_bounds__(THREADS)
    attention_tensor_core(const IN* q, const IN* k, const IN* v, IN* o, float* lse, long long q_batch,
                          long long q_head, long long q_row, long long k_batch, long long k_head,
                          long long k_row, long long o_batch, long long o_head, long long o_row, int heads,
                          int group, int rows, int keys, int dim, int causal, float scale, int aligned) {
  extern __shared__ __align__(alignof(Shared)) unsigned char memory[];
  const int head = blockIdx.y % heads, batch = blockIdx.y / heads;
  const long long first = batch * k_batch + head / group * k_head;
  const Head g{
      q + batch * q_batch + head * q_head, k + first, v + first, q_row, k_row, rows, keys, dim, aligned != 0};
  const auto results = [&]() -> HeadResults {
    return {o + batch * o_batch + head * o_head, lse + static_cast<long long>(blockIdx.y) * rows, o_row,
            o_row % CHUNK == 0 && o_head % CHUNK == 0};
  };
  // the longest first
  const int row = (gridDim.x - 1 - blockIdx.x) * BLOCK_M;
  attend_rows(*reinterpret_cast<Shared*>(memory), g, row, causal, scale, results);
}
