// epilogue of sums in tensor memory: each warp reads its 32 lanes, which are rows of the tile, and collects them in
// shared memory, so that it stores neighbouring bytes. sm_100a.
#pragma once
#include "epilogue/staging.cuh"
#include "ptx/tcgen05.cuh"

// BUFFERS times 32 rows of 128 bytes, swizzled as a tensor map's, whose boxes have 16 rows. while TMA stores one
// buffer, the warp writes the next
struct AsTheyAre {
  __device__ __forceinline__ void operator()(float (&)[32], int) const {}
};

template <class Out, int BUFFERS_>
struct LaneStaging {
  using Half = Staging<Out>;
  static constexpr int LANES = 32, BUFFERS = BUFFERS_, COLUMNS = Half::COLUMNS, CHUNK = Half::CHUNK;
  alignas(1024) Out staged[BUFFERS][2][Half::ELEMENTS];

  // by a warp: COUNT columns from `sums` on, which names its first lane, to C from (row, column) on. `change` is called
  // with 32 sums of a lane, and the column of the first of them in C
  template <int COUNT, class Change = AsTheyAre>
  __device__ __forceinline__ void store(const Rows<Out>& to, u32 sums, int row, int column,
                                        const Change& change = {}) {
    static_assert(COUNT % COLUMNS == 0, "columns are stored 128 bytes at a time: take a multiple of them");
#pragma unroll 1
    for (int n = 0; n < COUNT; n += COLUMNS) {
      auto& buffer = staged[n / COLUMNS % BUFFERS];
      tma_store_wait_read<BUFFERS - 1>();
      __syncwarp();
      put(buffer, sums + n, column + n, change);
      async_fence();
      __syncwarp();
#pragma unroll
      for (int half = 0; half < 2; ++half) send(to, buffer[half], row + half * Half::ROWS, column + n);
      tma_store_commit();
    }
  }

 private:
  template <class Change>
  static __device__ __forceinline__ void put(Out (&buffer)[2][Half::ELEMENTS], u32 sums, int column,
                                             const Change& change) {
    const int lane = threadIdx.x % LANES;
    Out* const half = buffer[lane / Half::ROWS];
#pragma unroll
    for (int n = 0; n < COLUMNS; n += LANES) {
      float x[LANES];
      tensor_load(x, sums + n);
      change(x, column + n);
#pragma unroll
      for (int i = 0; i < LANES; i += CHUNK) {
        Vector<Out, CHUNK> v;
#pragma unroll
        for (int e = 0; e < CHUNK; ++e) v.x[e] = from_float<Out>(x[i + e]);
        store_vector(Half::chunk(half, lane % Half::ROWS, (n + i) / CHUNK), v);
      }
    }
  }

  static __device__ __forceinline__ void send(const Rows<Out>& to, Out* half, int row, int column) {
    if (!to.mapped())
      Half::template by_threads<false>(to, half, row, column);
    else if (threadIdx.x % LANES == 0)
      tma_store(to.boxes, half, row, column);
  }
};
