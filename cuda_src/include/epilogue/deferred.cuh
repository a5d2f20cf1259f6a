// deferred epilogue: a finished tile stays in registers, rounded, and is stored in parts while the next one is
// computed. sm_90a.
#pragma once
#include "epilogue/staging.cuh"

// what a warp holds of a wgmma in COLUMNS columns, until it is stored. of 32-bit results there is no room for
// it: they have no PARTS
template <class Out, int COLUMNS>
struct Deferred {
  using Columns = Staging<Out>;
  static constexpr int PARTS = sizeof(Out) == 2 ? COLUMNS / Columns::COLUMNS : 0;

  // initialised, though nothing is read of it before something is kept: without that ptxas 13.0 takes the place
  // of the present tile for that of the one before, where both are computed ahead of the iterations
  u32 pairs[COLUMNS / 4] = {};
  int row = 0, column = 0;  // where they belong
  int part = PARTS;         // that is stored next
  int due = 0;              // with which iteration

  // by a warp: takes the sums of a tile
  __device__ __forceinline__ void keep(const float* sum, int to_row, int to_column) {
    if constexpr (PARTS > 0) {
#pragma unroll
      for (int i = 0; i < COLUMNS / 4; ++i) pairs[i] = pair_from_float<Out>(sum[2 * i], sum[2 * i + 1]);
    }
    row = to_row, column = to_column, part = 0;
  }

  // parts are stored evenly over half of a tile's iterations. in a row they would push more out of the L2 than
  // memory can take meanwhile, and what is loaded would have to wait
  static __device__ __forceinline__ int apart(int iterations) { return max(iterations / (2 * PARTS), 1); }

  // before the first iteration of the next tile
  __device__ __forceinline__ void begin(int iterations) {
    if constexpr (PARTS > 0) due = apart(iterations) - 1;
  }

  // with every iteration of it
  template <int SLOTS>
  __device__ __forceinline__ void step(const Rows<Out>& to, Out (&buffers)[SLOTS][Columns::ELEMENTS],
                                       int iteration, int iterations) {
    if constexpr (PARTS > 0)
      if (part < PARTS && iteration == due) store(to, buffers, part++), due += apart(iterations);
  }

  // what is left, after the last
  template <int SLOTS>
  __device__ __forceinline__ void flush(const Rows<Out>& to, Out (&buffers)[SLOTS][Columns::ELEMENTS]) {
    if constexpr (PARTS > 0)
      while (part < PARTS) store(to, buffers, part++);
  }

 private:
  // one part. registers have no run-time index, so each is written out
  template <int PART = 0, int SLOTS>
  __device__ __forceinline__ void store(const Rows<Out>& to, Out (&buffers)[SLOTS][Columns::ELEMENTS],
                                        int number) const {
    if (number == PART)
      Columns::template store<SLOTS>(to, buffers[PART % SLOTS], &pairs[PART * Columns::PAIRS], row,
                                     column + PART * Columns::COLUMNS);
    else if constexpr (PART + 1 < PARTS)
      store<PART + 1>(to, buffers, number);
  }
};
