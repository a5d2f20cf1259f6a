// sequences of a batch lie packed one behind the other: offsets, one more than there are sequences, say where
// each begins and ends. which of them rows belong to is found by a search.
#pragma once
#include "tile/warp.cuh"

// where the rows and the keys of a sequence lie
struct Sequence {
  int row_offset, rows, key_offset, keys;

  __device__ __forceinline__ Sequence(const int* offsets_q, const int* offsets_k, int number)
      : row_offset(offsets_q[number]),
        rows(offsets_q[number + 1] - row_offset),
        key_offset(offsets_k[number]),
        keys(offsets_k[number + 1] - key_offset) {}

  // how many keys a row sees: the mask is aligned to the last row and the last key
  __device__ __forceinline__ int seen(int row, bool causal) const {
    return causal ? max(0, min(keys, row + 1 + keys - rows)) : keys;
  }
};

// by a warp, all lanes: the last of `count` numbers that is at most `value`. number(i) never decreases,
// number(0) is at most `value`
template <class Number>
__device__ __forceinline__ int find_last(int count, int value, Number number) {
  int first = 0;
  while (count > 1) {
    const int step = (count + WARP - 1) / WARP, i = static_cast<int>(threadIdx.x) % WARP * step;
    const bool small = i < count && number(first + i) <= value;
    const int found = (__popc(__ballot_sync(ALL_LANES, small)) - 1) * step;
    first += found;
    count = min(step, count - found);
  }
  return first;
}
