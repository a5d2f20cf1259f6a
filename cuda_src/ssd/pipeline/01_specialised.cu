// h_t = exp(log_a_t) h_{t-1} + b_t x_t^T and y_t = h_t^T c_t of every head, see ../scan.cuh. dstate up to
// DSTATE. x, b, c and y come as tensor maps, too, so their heads and places are multiples of 16 bytes apart.
// states: (batch, heads, segments, dstate, headdim), decays: (batch, heads, segments), fp32; states are h0
// where there is one segment. sm_90a.
//
// warp specialisation: one thread of the first warpgroup loads chunks ahead of time, and a warp of it sums up
// their decays. other warpgroups keep the state, 64 rows each. before each chunk they round the state and
// hand it to the warpgroups that compute outputs. then they add the chunk to the state. OUTPUT_GROUPS more
// warpgroups take chunks in turn and compute their outputs. they multiply c by b and by the state, and apply
// the weights. TMA stores y.
//
// what it gains: of a chunk, only the state waits for the chunk before, and it no longer waits for outputs.
// several chunks are being loaded at any time. y is stored while the next chunk is computed.
//
// what limits it: device memory. where heads share b and c and dstate is 128: shared memory and the products.

#include "../segments.cuh"
#include "../wgmma/chunk.cuh"
#include "epilogue/staging.cuh"
#include "pipeline/circular_buffer.cuh"
#include "pipeline/roles.cuh"

// blocks that release chunks together. clusters of one block are started in another order than blocks
#ifdef CLUSTER
#define IN_CLUSTERS __cluster_dims__(CLUSTER, 1, 1)
#else
#define CLUSTER 1
#define IN_CLUSTERS
#endif

constexpr int OUTPUT_GROUPS = RESIDENT > 1 ? 1 : 2;  // warpgroups that compute outputs, in turns
constexpr int STATES = 2, Y_SLOTS = 2;               // buffers of states, and of y of each warp
using roles = Roles<STATE_TILES + OUTPUT_GROUPS, (RESIDENT > 1 ? 32 : 40), RESIDENT>;
using Leaving = Staging<IN>;
using Outgoing = IN[OUTPUT_GROUPS * WARPS][Y_SLOTS][Leaving::ELEMENTS];
using state_ring = Pipeline<STATES, WARPS>;

// what is loaded of chunks, and sums of their decays
template <class Loaded_, class Ring>
struct Chunks {
  using Loaded = Loaded_;
  using ring = Ring;
  Loaded chunk[ring::PIPELINE_STAGES];
  float sums[ring::PIPELINE_STAGES][CHUNK];
  float log_a[AHEAD][CHUNK];
  ring barriers;

  // by one thread
  __device__ __forceinline__ void init() {
    barriers.init(2);  // of the thread that loads, and of the warp that sums up decays
  }

  // one thread
  __device__ __forceinline__ void load(const Maps& maps, const Segment& own) {
    typename ring::place to;
    for (int place = own.first; place < own.end; place += CHUNK, to.advance()) {
      barriers.acquire(to);
      chunk[to.stage].load(maps, barriers.commit(to.stage, sizeof(Loaded)), place);
    }
    barriers.drain(to);
  }

  // a warp: sums of the logarithms of decays. these are copied AHEAD chunks before: that takes longer than a
  // chunk
  __device__ __forceinline__ void sum_up(const Operands& g, const Segment& own) {
    const int at = threadIdx.x % WARP * 2;
    const auto copy = [&](int number) {  // a lane's two; 0 behind the end, where nothing is to change
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        const int place = own.first + number * CHUNK + at + i;
        const bool inside = place < own.end;
        cp_async<4>(&log_a[number % AHEAD][at + i],
                    g.log_a + static_cast<long long>(inside ? place : own.first) * g.heads, inside ? 4 : 0);
      }
      cp_async_commit();
    };
    for (int number = 0; number < AHEAD; ++number) copy(number);
    typename ring::place to;
    for (int number = 0; own.first + number * CHUNK < own.end; ++number, to.advance()) {
      cp_async_wait<AHEAD - 1>();
      const float first = log_a[number % AHEAD][at], second = log_a[number % AHEAD][at + 1];
      copy(number + AHEAD);
      barriers.acquire(to);
      sum_decays(sums[to.stage], first, second);
      barriers.commit_written(to.stage);
    }
    cp_async_wait<0>();
  }
};

// a warpgroup, one for each tile of the state, which becomes that after the segment. hand_over() is called
// before each chunk. while a product is computed, left operands of the next one are made, in other registers.
// returns the logarithm of the decay of the segment
template <class Buffer, class HandOver>
__device__ __forceinline__ float keep_state(Buffer& buffer, StatePart<1>& state, const Segment& own, int tile,
                                            const HandOver& hand_over) {
  Consumed<typename Buffer::ring> chunks{buffer.barriers};
  float decay = 0.f;
  const auto add_chunk = [&](DecayedPart<1>& decayed) {
    chunks.wait();
    auto& chunk = buffer.chunk[chunks.stage()];
    const float (&sums)[CHUNK] = buffer.sums[chunks.stage()];
    const float last = sums[CHUNK - 1];
    decayed.make(chunk, sums, last, tile);
    wgmma_wait<0>();
    chunks.release_previous();
    hand_over();
    decay_state(state, ex2(last));
    advance(state, decayed, chunk);
    chunks.advance();
    decay += last;
  };
  DecayedPart<1> decayed[2];
  for (int place = own.first; place < own.end; place += 2 * CHUNK) {
    add_chunk(decayed[0]);
    if (place + CHUNK >= own.end) break;
    add_chunk(decayed[1]);
  }
  wgmma_wait<0>();
  chunks.release_last();
  return decay;
}

// chunks in flight: as many as fit, no more than are of use
template <class Loaded>
__host__ __device__ constexpr int in_flight(int other) {
  const int fitting = stages_that_fit(roles::SHARED_BYTES, sizeof(Loaded) + CHUNK * sizeof(float),
                                      other + AHEAD * CHUNK * sizeof(float));
  return fitting < MOST_CHUNKS ? fitting : MOST_CHUNKS;
}

// of a block that computes outputs
struct Block {
  static constexpr int IN_FLIGHT =
      in_flight<Chunk>(STATES * sizeof(StateTile) + sizeof(Outgoing) + sizeof(state_ring));
  using Buffer = Chunks<Chunk, Pipeline<IN_FLIGHT, (STATE_TILES + 1) * WARPS, CLUSTER>>;

  StateTile state[STATES];  // before a chunk
  Outgoing y;
  Buffer chunks;
  state_ring states;

  // by all threads of the block
  __device__ __forceinline__ void start() {
    if (threadIdx.x == 0) {
      chunks.init();
      states.init(STATE_TILES * WARPS);
      mbarrier_init_fence();
    }
    __syncthreads();
    if constexpr (CLUSTER > 1) cluster_started();
  }

  // a warpgroup that keeps the state: hands a tile of it, rounded, to those of outputs
  __device__ __forceinline__ void hand_over(const StatePart<1>& part, int tile, const state_ring::place& to) {
    states.acquire(to);
    Leaving::put(state[to.stage].data + (tile * CHUNK + roles::warp() * Leaving::ROWS) * COLUMNS,
                 &part.value[0][0][0]);
    async_fence();
    states.commit_written(to.stage);
  }
};
static_assert(sizeof(Block) <= roles::SHARED_BYTES,
              "the buffers do not fit into shared memory: lower RESIDENT");

// has y of a warp stored, from `place` on
__device__ __forceinline__ void leave(IN* slot, const TensorMap& map, const Maps& maps,
                                      const float (&y)[COLUMNS / 2], int place) {
  tma_store_wait_read<Y_SLOTS - 1>();
  __syncwarp();
  Leaving::put(slot, y);
  async_fence();
  __syncwarp();
  if (threadIdx.x % WARP > 0) return;
  tma_store(map, slot, maps.batch, place, maps.head, maps.column);
  tma_store_commit();
}

// a warpgroup, number `turn` of OUTPUT_GROUPS: y of every chunk whose turn it is
__device__ __forceinline__ void compute_outputs(Block& block, const TensorMap& y_map, const Maps& maps,
                                                const Segment& own, int turn) {
  const int warp = uniform(roles::warp());
  const int row = warp * Leaving::ROWS + threadIdx.x % WARP / 4;
  IN(&slots)[Y_SLOTS][Leaving::ELEMENTS] = block.y[turn * WARPS + warp];
  Consumed<Block::Buffer::ring> chunks{block.chunks.barriers};
  Consumed<state_ring> states{block.states};
  chunks.skip(turn);
  states.skip(turn);
  int slot = 0;
  for (int place = own.first + turn * CHUNK; place < own.end; place += OUTPUT_GROUPS * CHUNK) {
    float y[COLUMNS / 2] = {}, weight[CHUNK / 2] = {};
    chunks.wait();
    Chunk& chunk = block.chunks.chunk[chunks.stage()];
    const float (&sums)[CHUNK] = block.chunks.sums[chunks.stage()];
    multiply_places(weight, chunk);
    states.wait();
    multiply_state(y, chunk, block.state[states.stage()]);
    wgmma_wait<1>();
    weigh(weight, sums, row);
    u32 weights[CHUNK / WGMMA_K][4];
    to_left_operand<IN>(weights, weight);
    wgmma_wait<0>();
    states.release();
    decay_rows(y, sums, row);
    for (float& element : y) settle(element);
    add_places(y, weights, chunk);
    wgmma_wait<0>();
    chunks.release();
    chunks.skip(OUTPUT_GROUPS);
    states.skip(OUTPUT_GROUPS);
    leave(slots[slot], y_map, maps, y, place + warp * Leaving::ROWS);
    slot = (slot + 1) % Y_SLOTS;
  }
  tma_store_wait_read<0>();
}

// a segment of 64 columns of a head. `before` is the state before it, and `whole` says that it is the only
// one
__device__ __forceinline__ void solve(Block& block, const Operands& g, const Columns& columns,
                                      const Maps& maps, const TensorMap& y_map, const Segment& own,
                                      const float* before, bool whole) {
  block.start();
  if (roles::producing()) {
    roles::produce();
    const int warp = roles::warp();
    if (threadIdx.x == 0) block.chunks.load(maps, own);
    if (warp == 1) block.chunks.sum_up(g, own);
  } else {
    roles::consume();
    const int tile = uniform(roles::consumer());
    if (tile >= STATE_TILES) return compute_outputs(block, y_map, maps, own, tile - STATE_TILES);
    StatePart<1> state(tile);
    state.load(before, g, columns);
    state_ring::place to;
    keep_state(block.chunks, state, own, tile, [&] {
      block.hand_over(state, tile, to);
      to.advance();
    });
    if (whole) state.store(g.h, g, columns);
  }
}

// of a block that computes the state that a segment alone leaves
using StateBuffer = Chunks<StateChunk, Pipeline<MOST_CHUNKS, STATE_TILES * WARPS>>;

extern "C" __global__ void __launch_bounds__((1 + STATE_TILES) * WARPGROUP)
    ssd_specialised_states(SSD_MAPS, SSD_PARAMETERS, float* states, float* decays, int segments, int each) {
  extern __shared__ __align__(ATOM_BYTES) unsigned char memory[];
  StateBuffer& chunks = *reinterpret_cast<StateBuffer*>(memory);
  const int tiles = (headdim + COLUMNS - 1) / COLUMNS, head = blockIdx.x / tiles;
  const Operands g = Operands SSD_OPERANDS.of(blockIdx.y, head);
  const Columns columns(g, blockIdx.x % tiles, 0);
  const Segment own(g, blockIdx.y, head, blockIdx.z, segments, each);
  const Maps maps{x_map, b_map, c_map, static_cast<int>(blockIdx.y), head, head / group, columns.first};
  if (threadIdx.x == 0) {
    chunks.init();
    mbarrier_init_fence();
  }
  __syncthreads();
  if (roles::producing()) {
    if (threadIdx.x == 0) chunks.load(maps, own);
    if (roles::warp() == 1) chunks.sum_up(g, own);
    return;
  }
  const int tile = uniform(roles::consumer());
  StatePart<1> state(tile);
  const float decay = keep_state(chunks, state, own, tile, [] {});
  state.store(states + own.number * dstate * headdim, g, columns);
  if (threadIdx.x == WARPGROUP && columns.first == 0) decays[own.number] = decay;
}

extern "C" __global__ void IN_CLUSTERS __launch_bounds__(roles::THREADS, RESIDENT)
    ssd_specialised(SSD_MAPS, const __grid_constant__ TensorMap y_map, SSD_PARAMETERS, const float* states,
                    int segments, int each) {
  extern __shared__ __align__(ATOM_BYTES) unsigned char memory[];
  Block& block = *reinterpret_cast<Block*>(memory);
  const int tiles = (headdim + COLUMNS - 1) / COLUMNS, head = blockIdx.x / tiles;
  const Operands g = Operands SSD_OPERANDS.of(blockIdx.y, head);
  const Columns columns(g, blockIdx.x % tiles, 0);
  const Segment own(g, blockIdx.y, head, blockIdx.z, segments, each);
  const Maps maps{x_map, b_map, c_map, static_cast<int>(blockIdx.y), head, head / group, columns.first};
  solve(block, g, columns, maps, y_map, own, states + own.number * dstate * headdim, segments == 1);
}
