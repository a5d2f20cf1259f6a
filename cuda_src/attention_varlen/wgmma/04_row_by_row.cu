// o = softmax(scale q k^T) v of packed sequences, and lse, the logarithm of the sum of a row's exponentials.
// q, o: (rows, heads, dim), k, v: (keys, heads / group, dim); offsets_q, offsets_k: (batch + 1) int32, where
// sequences begin and end; lse: (heads, rows). q, k, v and o come as tensor maps, so their rows and heads are
// multiples of 16 bytes apart. dim up to DIM. bf16 and fp16, sm_90a.
//
// row by row, as attention's stage of that name: the weights of one row of a thread hide behind the products
// of the values before, those of the other row hide rescaling and rounding. averages go through shared
// memory, where the queries were, and TMA stores them from there; but a warp whose rows are not all of its
// sequence stores them itself.
//
// what it gains: nothing is left to do between the last weight and the next products, and nobody waits for
// stores.
//
// what limits it: tiles with few rows. a sequence that decodes fills only one row of 128.

#include "row_by_row.cuh"

extern "C" __global__ void __launch_bounds__(RANKED* WARP)
    attention_varlen_rank(const int* offsets_q, const int* offsets_k, int* order, int* starts, int* ticket,
                          int batch) {
  rank_sequences(offsets_q, offsets_k, order, starts, batch);
  if (blockIdx.x == 0 && threadIdx.x == 0) *ticket = 0;
}

struct RowConsumer : Consumer {
  __device__ __forceinline__ void consume(const PackedTile& tile) {
    const int consumer = uniform(roles::consumer());
    const float factor = g.scale * LOG2_E;
    Averages averages(tile, tile, consumer);
    if (tile.tiles > 0) multiply(tile, averages, consumer, factor);
    const long long lse = static_cast<long long>(tile.head) * g.rows + tile.row_offset;
    const int first = Outputs::first_row(consumer);
    if (tile.tiles > 0) Outputs::gather(consumer);
    if (tile.tiles > 0 && tile.first + first + Outputs::ROWS <= tile.rows) {
      Outputs::finish(g, averages, g.lse + lse, tile.rows);
      outputs.store(shared, averages, 0, tile.head, tile.query_row() + first, consumer, queries);
    } else {
      averages.store(g, tile.rows, tile.row_offset * g.o_row + tile.head * g.o_head, lse);
    }
    if (tile.tiles > 0) outputs.leave(shared, queries);
  }
};

extern "C" __global__ void __launch_bounds__(roles::THREADS, 1)
    attention_varlen_row_by_row(const __grid_constant__ TensorMap q, const __grid_constant__ TensorMap k,
                                const __grid_constant__ TensorMap v, const int* offsets_q,
                                const int* offsets_k, const int* order, const int* starts, int* ticket,
                                const __grid_constant__ TensorMap stored, IN* o, float* lse, long long o_row,
                                long long o_head, int batch, int heads, int group, int rows, int dim,
                                float scale) {
  extern __shared__ __align__(ATOM_BYTES) unsigned char bytes[];
  Memory& memory = *reinterpret_cast<Memory*>(bytes);
  const Operands g{q, k, v, o, lse, 0, o_head, o_row, heads, group, rows, 0, dim, scale};
  memory.start();
  if (roles::producing()) {
    roles::produce();
    if (threadIdx.x < WARP) produce(g, memory, Ranked{offsets_q, offsets_k, order, starts, batch}, ticket);
  } else {
    roles::consume();
    consume_drawn(RowConsumer{{g, memory.shared, {stored}}}, memory);
  }
}
