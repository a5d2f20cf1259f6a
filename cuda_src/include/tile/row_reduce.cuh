// reductions over the threads that share a row: some lanes of a warp, a block, or the blocks of a cluster.
// every thread of the group gets the result, which is the same in all of them and at every run.
//
// an operation is a struct with a type Value, made of 32-bit words, an identity() and an associative
// combine(a, b) (see the operations below). where combine(b, a) may round to something else, COMMUTES is
// false. over a cluster values have at most as many bytes as tile/cluster_reduce.cuh says.
#pragma once
#include "tile/warp.cuh"

__device__ __forceinline__ float infinity() { return __int_as_float(0x7f800000); }
__device__ __forceinline__ float not_a_number() { return __int_as_float(0x7fffffff); }

struct Sum {
  using Value = float;
  static constexpr bool COMMUTES = true;
  static __device__ __forceinline__ float identity() { return 0.f; }
  static __device__ __forceinline__ float combine(float a, float b) { return a + b; }
};

// two sums at once
struct TwoSums {
  struct Value {
    float first, second;
  };
  static constexpr bool COMMUTES = true;
  static __device__ __forceinline__ Value identity() { return {0.f, 0.f}; }
  static __device__ __forceinline__ Value combine(Value a, Value b) {
    return {a.first + b.first, a.second + b.second};
  }
};

// the larger one; NaN only where both are
struct Max {
  using Value = float;
  static constexpr bool COMMUTES = true;
  static __device__ __forceinline__ float identity() { return -infinity(); }
  static __device__ __forceinline__ float combine(float a, float b) { return fmaxf(a, b); }
};

// the reduction of elements that one thread meets one by one, RUN at a time: a sum in order of many nearly
// equal terms is off in proportion to their number, since each of its roundings has the same sign
template <class Op>
struct Running {
  static constexpr int RUN = 64;
  typename Op::Value whole = Op::identity(), run = Op::identity();
  int count = 0;

  __device__ __forceinline__ void add(typename Op::Value x) {
    run = Op::combine(run, x);
    if (++count % RUN == 0) whole = Op::combine(whole, run), run = Op::identity();
  }
  __device__ __forceinline__ typename Op::Value value() const { return Op::combine(whole, run); }
};

// __shfl_xor_sync of all words of a value
template <class Value>
__device__ __forceinline__ Value shuffle_xor(Value value, int distance) {
  static_assert(sizeof(Value) % sizeof(unsigned) == 0, "a value has to consist of 32-bit words");
  unsigned* word = reinterpret_cast<unsigned*>(&value);
#pragma unroll
  for (int i = 0; i < sizeof(Value) / sizeof(unsigned); ++i)
    word[i] = __shfl_xor_sync(ALL_LANES, word[i], distance);
  return value;
}

// how lanes combine their values: pair by pair. an operation that has a shorter way specialises it
template <class Op, int LANES>
struct WarpReduction {
  static __device__ __forceinline__ typename Op::Value of(typename Op::Value value) {
#pragma unroll
    for (int distance = 1; distance < LANES; distance *= 2) {  // neighbours first: in order
      const typename Op::Value other = shuffle_xor(value, distance);
      if (Op::COMMUTES || !(threadIdx.x & distance))
        value = Op::combine(value, other);
      else
        value = Op::combine(other, value);
    }
    return value;
  }
};

// over each LANES neighbouring lanes. all lanes of the warp have to call
template <class Op, int LANES = WARP>
__device__ __forceinline__ typename Op::Value warp_reduce(typename Op::Value value) {
  static_assert(LANES <= WARP && (LANES & (LANES - 1)) == 0, "LANES has to be a power of two, at most 32");
  return WarpReduction<Op, LANES>::of(value);
}

// where the warps of a block put their values; in shared memory. a reduction
// needs one that no other one before it has used since the last barrier of all its threads
template <class Op, int BLOCK>
struct RowScratch {
  typename Op::Value warps[BLOCK > WARP ? BLOCK / WARP : 1];
};

// over each MEMBERS neighbouring threads of a block: a power of two of lanes, or else all BLOCK of the block,
// which all have to call
template <class Op, int MEMBERS, int BLOCK>
__device__ __forceinline__ typename Op::Value row_reduce(typename Op::Value value,
                                                         RowScratch<Op, BLOCK>& scratch) {
  static_assert(MEMBERS <= WARP || MEMBERS == BLOCK, "a group is a part of a warp, a warp, or a block");
  if constexpr (MEMBERS <= WARP) {
    return warp_reduce<Op, MEMBERS>(value);
  } else {
    constexpr int WARPS = BLOCK / WARP;
    static_assert(BLOCK % WARP == 0 && (WARPS & (WARPS - 1)) == 0,
                  "warps of a block have to be a power of two");
    value = warp_reduce<Op>(value);
    if (threadIdx.x % WARP == 0) scratch.warps[threadIdx.x / WARP] = value;
    __syncthreads();
    return warp_reduce<Op, WARPS>(scratch.warps[threadIdx.x % WARPS]);
  }
}

// what `parts` blocks have of one column for each lane, added up: in the first warp. by all BLOCK threads,
// whose warps share the parts
template <class Op, int BLOCK>
__device__ __forceinline__ typename Op::Value add_up_parts(const typename Op::Value* partial, int column,
                                                           int columns, int parts,
                                                           typename Op::Value (&scratch)[BLOCK]) {
  typename Op::Value sum = Op::identity();
  if (column < columns)
#pragma unroll 8
    for (int part = threadIdx.x / WARP; part < parts; part += BLOCK / WARP)
      sum = Op::combine(sum, partial[static_cast<long long>(part) * columns + column]);
  scratch[threadIdx.x] = sum;
  __syncthreads();
  if (threadIdx.x < WARP)
#pragma unroll
    for (int i = threadIdx.x + WARP; i < BLOCK; i += WARP) sum = Op::combine(sum, scratch[i]);
  return sum;
}
