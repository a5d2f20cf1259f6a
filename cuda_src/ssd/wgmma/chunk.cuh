// what the stages of this track have in common: chunks as TMA brings them, and wgmma reads them where they lie. a block
// is a warpgroup. sm_90a.
#pragma once
#include "../state.cuh"
#include "ptx/tma_ranks.cuh"
#include "tile/k_tile.cuh"

constexpr int PANEL = KTile<IN>::DEPTH;  // elements of a row in one box
constexpr int PANELS = DSTATE / PANEL, BUFFERS = 2;

static_assert(THREADS == WARPGROUP && CHUNK == WGMMA_M, "a warpgroup has 64 rows");

// 64 rows of 64 elements as TMA brings them: swizzled, from a multiple of the swizzle's atom on
struct alignas(ATOM_BYTES) Box : AsyncTile<IN, CHUNK, PANEL, THREADS> {};

// rows of DSTATE elements
struct Vectors {
  Box panel[PANELS];

  __device__ __forceinline__ IN* chunk(int row, int number) {
    return panel[number / (PANEL / EACH)].chunk(row, number % (PANEL / EACH));
  }
};

// the state before a chunk, rounded: rows of COLUMNS elements
struct alignas(ATOM_BYTES) StateTile : AsyncTile<IN, DSTATE, COLUMNS, THREADS> {};

#define SSD_MAPS \
  const __grid_constant__ TensorMap x_map, const __grid_constant__ TensorMap b_map, const __grid_constant__ TensorMap c_map

// tensor maps of x, b and c as (batch, place, head, element), and which of their boxes a block loads
struct Maps {
  const TensorMap &x, &b, &c;
  int batch, head, group, column;
};

// what the state after a chunk takes
struct StateChunk {
  Vectors b;
  Box x;

  // by one thread: starts to load it from `place` on
  __device__ __forceinline__ void load(const Maps& maps, Barrier& full, int place) {
    tma_load(x.data, maps.x, full, maps.batch, place, maps.head, maps.column);
#pragma unroll
    for (int i = 0; i < PANELS; ++i)
      tma_load(b.panel[i].data, maps.b, full, maps.batch, place, maps.group, i * PANEL);
  }
};

struct Chunk : StateChunk {
  Vectors c;

  __device__ __forceinline__ void load(const Maps& maps, Barrier& full, int place) {
    StateChunk::load(maps, full, place);
#pragma unroll
    for (int i = 0; i < PANELS; ++i)
      tma_load(c.panel[i].data, maps.c, full, maps.batch, place, maps.group, i * PANEL);
  }
};

struct Shared {
  Chunk chunk[BUFFERS];
  StateTile state[BUFFERS];
  float sums[BUFFERS][CHUNK];
  Barrier full[BUFFERS];

  // by all threads of the block
  __device__ __forceinline__ void start() {
    if (threadIdx.x == 0) {
      for (Barrier& barrier : full) mbarrier_init(barrier, 1);
      mbarrier_init_fence();
    }
    __syncthreads();
  }
};

// by thread 0: starts to load chunk `number` of those from place `first` on, or what the state takes of it, unless there
// is none
template <class Loaded>
__device__ __forceinline__ void load_chunk(Shared& shared, const Maps& maps, int number, int first, int end) {
  const int place = first + number * CHUNK;
  if (threadIdx.x > 0 || place >= end) return;
  Barrier& full = shared.full[number % BUFFERS];
  mbarrier_arrive_expect(full, sizeof(Loaded));
  static_cast<Loaded&>(shared.chunk[number % BUFFERS]).load(maps, full, place);
}

// the last warp sums up decays, a chunk ahead of the products; what it sums up next is on its way to its registers
struct Summed {
  float log_a[2] = {};  // of two places, 0 behind the end, where nothing is to change

  __device__ __forceinline__ void load(const Operands& g, int number, int first, int end) {
    const int place = first + number * CHUNK + threadIdx.x % WARP * 2;
#pragma unroll
    for (int i = 0; i < 2; ++i)
      log_a[i] = own() && place + i < end ? g.log_a[static_cast<long long>(place + i) * g.heads] : 0.f;
  }

  // to where the sums of chunk `number` belong
  __device__ __forceinline__ void store(Shared& shared, int number) const {
    if (own()) sum_decays(shared.sums[number % BUFFERS], log_a[0], log_a[1]);
  }

 private:
  static __device__ __forceinline__ bool own() { return threadIdx.x / WARP == WARPS - 1; }
};

// has c b^T of all places of the chunk computed
__device__ __forceinline__ void multiply_places(float (&weight)[CHUNK / 2], Chunk& chunk) {
  const u64 c = swizzled_operand(shared_address(chunk.c.panel), 0, ATOM_BYTES);
  const u64 b = swizzled_operand(shared_address(chunk.b.panel), 0, ATOM_BYTES);
  wgmma_fence();
#pragma unroll
  for (int i = 0; i < PANELS; ++i)
#pragma unroll
    for (int k = 0; k < PANEL / WGMMA_K; ++k) {
      const int along = i * sizeof(Box) + k * WGMMA_K * sizeof(IN);
      wgmma<0>(weight, operand_at(c, along), operand_at(b, along), IN(), i + k > 0);
    }
  wgmma_commit();
}

// has c times the state computed
__device__ __forceinline__ void multiply_state(float (&y)[COLUMNS / 2], Chunk& chunk, StateTile& state) {
  const u64 c = swizzled_operand(shared_address(chunk.c.panel), 0, ATOM_BYTES);
  const u64 rows = swizzled_operand(shared_address(state.data), 0, ATOM_BYTES);
  wgmma_fence();
#pragma unroll
  for (int i = 0; i < PANELS; ++i)
#pragma unroll
    for (int k = 0; k < PANEL / WGMMA_K; ++k)
      wgmma<1>(y, operand_at(c, i * sizeof(Box) + k * WGMMA_K * sizeof(IN)),
               operand_at(rows, (i * PANEL + k * WGMMA_K) * ROW_BYTES), IN(), i + k > 0);
  wgmma_commit();
}

// has left operands of all places of the chunk times x added
__device__ __forceinline__ void add_places(float (&sum)[COLUMNS / 2], const u32 (&a)[CHUNK / WGMMA_K][4],
                                           StateChunk& chunk) {
  const u64 x = swizzled_operand(shared_address(chunk.x.data), 0, ATOM_BYTES);
  wgmma_fence();
#pragma unroll
  for (int k = 0; k < CHUNK / WGMMA_K; ++k) wgmma<1>(sum, a[k], operand_at(x, k * WGMMA_K * ROW_BYTES), IN());
  wgmma_commit();
}

// b^T with its decays: left operands of TILES tiles of the state
template <int TILES>
struct DecayedPart {
  u32 a[TILES][CHUNK / WGMMA_K][4];

  __device__ __forceinline__ void make(StateChunk& chunk, const float (&sums)[CHUNK], float last, int first_tile = 0) {
#pragma unroll
    for (int tile = 0; tile < TILES; ++tile)
#pragma unroll
      for (int k = 0; k < CHUNK / WGMMA_K; ++k)
        decayed_operand(a[tile][k], chunk.b, sums, last, first_tile + tile, k * WGMMA_K);
  }
};
using Decayed = DecayedPart<STATE_TILES>;

// an empty instruction that takes an accumulator, so that it is computed before and not behind the wgmma.fence that
// follows, where the compiler may put it
__device__ __forceinline__ void settle(float& element) { asm volatile("" : "+f"(element)::"memory"); }

// the state without what the chunk adds
template <int TILES>
__device__ __forceinline__ void decay_state(StatePart<TILES>& state, float kept) {
  state.every([&](int, int, float& element) {
    element *= kept;
    settle(element);
  });
}

// has the state after the chunk computed
template <int TILES>
__device__ __forceinline__ void advance(StatePart<TILES>& state, const DecayedPart<TILES>& decayed, StateChunk& chunk) {
#pragma unroll
  for (int tile = 0; tile < TILES; ++tile)
    add_places(reinterpret_cast<float(&)[COLUMNS / 2]>(state.value[tile]), decayed.a[tile], chunk);
}
