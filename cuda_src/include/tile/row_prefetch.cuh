// long rows that come to shared memory by bulk copies ahead of their use: a block, or the RANKS blocks of a
// cluster, takes row after row, and while it works on one the copies of the next DEPTH are on their way.
// each of MEMBERS threads holds COUNT vectors of a row.
// sm_90. rows begin at multiples of 16 bytes and consist of whole vectors of 16 bytes.
#pragma once
#include "ptx/bulk.cuh"
#include "ptx/cluster.cuh"
#include "tile/row.cuh"

template <class Element, int WIDTH, int COUNT, int MEMBERS, int RANKS, int DEPTH>
class RowPrefetch {
 public:
  static constexpr int PART = COUNT * MEMBERS * WIDTH;  // elements of a row that a block holds, at most
  int row;                                              // at work, in all threads of the cluster

  // by all threads, which meet at a barrier. `memory`: DEPTH parts, at a multiple of 16 bytes
  __device__ __forceinline__ RowPrefetch(unsigned char* memory, Barrier (&full)[DEPTH],
                                         const Element* __restrict__ x, int rows, int columns, long long ldx)
      : row(blockIdx.x / RANKS),
        parts(reinterpret_cast<Element*>(memory)),
        full(full),
        x(x),
        ldx(ldx),
        rows(rows),
        step(gridDim.x / RANKS),
        first(blockIdx.x % RANKS * PART),
        held(max(0, min(PART, columns - first))) {
    if (threadIdx.x == 0) {
      for (int s = 0; s < DEPTH; ++s) mbarrier_init(full[s], 1);
      mbarrier_init_fence();
      for (int s = 0; s < DEPTH; ++s) load(s, row + static_cast<long long>(s) * step);
    }
    __syncthreads();
  }

  __device__ __forceinline__ bool more() const { return row < rows; }

  // the column of a vector of this thread; at work on a row only those below `columns` are
  __device__ __forceinline__ int column(int vector) const {
    return first + (threadIdx.x + vector * MEMBERS) * WIDTH;
  }
  __device__ __forceinline__ bool in_row(int vector) const { return column(vector) < first + held; }

  // waits for the row; `other` in vectors outside of it
  __device__ __forceinline__ void read(Vector<Element, WIDTH> (&v)[COUNT], Element other) {
    mbarrier_wait(full[stage], parity);
#pragma unroll
    for (int i = 0; i < COUNT; ++i) {
      v[i] = load_if<WIDTH>(in_row(i), parts + stage * PART + (column(i) - first), other);
    }
  }

  // behind a barrier of the block after `read`: the next row but DEPTH - 1 may come where this one was
  __device__ __forceinline__ void refill() {
    if (threadIdx.x == 0) load(stage, row + static_cast<long long>(DEPTH) * step);
  }

  __device__ __forceinline__ void next() {
    row += step;
    if (++stage == DEPTH) stage = 0, parity ^= 1;
  }

 private:
  Element* parts;
  Barrier (&full)[DEPTH];
  const Element* x;
  long long ldx;
  int rows, step, first, held, stage = 0, parity = 0;

  __device__ __forceinline__ void load(int to, long long from) {
    if (from >= rows) return;
    const int bytes = held * static_cast<int>(sizeof(Element));
    mbarrier_arrive_expect(full[to], bytes);
    if (bytes) bulk_load(parts + to * PART, x + from * ldx + first, bytes, full[to]);
  }
};
