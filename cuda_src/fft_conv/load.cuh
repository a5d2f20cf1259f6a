// a sequence on its way to shared memory.
#pragma once
#include "ptx/cp_async.cuh"
#include "sequence.cuh"
#include "tile/vector.cuh"

constexpr int EACH = VECTOR_BYTES / sizeof(IN);  // elements that move together

// by THREADS neighbouring threads: starts to load a sequence; place i and the next, EACH of them, go to
// `to(i)`
template <int THREADS, class To>
__device__ __forceinline__ void load_sequence(const Sequence& sequence, const To& to) {
  if (sequence.length % EACH == 0 && !sequence.extended) {
    const int length = sequence.first ? sequence.length : 0;
#pragma unroll 4
    for (int place = threadIdx.x % THREADS * EACH; place < PERIOD; place += THREADS * EACH)
      if (place < length)
        cp_async_16(to(place), sequence.first + place);
      else
        store_vector(to(place), Vector<IN, EACH>{});
    return;
  }
#pragma unroll 1
  for (int place = threadIdx.x % THREADS * EACH; place < PERIOD; place += THREADS * EACH) {
    Vector<IN, EACH> v;
#pragma unroll
    for (int j = 0; j < EACH; ++j) v.x[j] = from_float<IN>(sequence.at(place + j));
    store_vector(to(place), v);
  }
}
