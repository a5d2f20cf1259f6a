// o = softmax(scale q k^T) v and lse, the logarithm of the sum of a row's exponentials. q, o: (batch, heads,
// rows, dim), k, v: (batch, heads / group, keys, dim), lse: (batch, heads, rows). q, k and v come as tensor
// maps, so their rows, heads and batches are multiples of 16 bytes apart. dim up to DIM, which is 64 or 128. bf16 and
// fp16, sm_100a.
//
// two tiles: a block takes two tiles of 128 rows of a head, each with a warpgroup that computes its weights. a thread
// of one more warp loads tiles of keys and values ahead into a circular buffer, and a thread of another starts all
// products. weights have columns of their own, so the next logits of a tile are computed while its last weights are
// still read.
//
// what it gains: the tensor cores compute the products of one tile while the other computes exponentials. keys and
// values are loaded once for 256 rows.
//
// what limits it: tensor memory has room for tiles of 64 keys only where dim is 128. a maximum that grows costs a
// warp a walk through its sums.

#include "lanes.cuh"
#include "pipeline/circular_buffer.cuh"

constexpr int TILES = 2, LOADS = 8, MULTIPLIES = 9, THREADS = 10 * WARP;  // of rows; the warps behind those of tiles
constexpr int LOGITS = 0, WEIGHTS = TILES * BLOCK_N, SUMS = WEIGHTS + TILES * BLOCK_N / 2;  // columns
static_assert(SUMS + TILES * DIM <= TENSOR_COLUMNS, "two tiles do not fit into tensor memory: lower BLOCK_N");

struct Shared {
  Queries q[TILES];
  Keys blocks[STAGES];  // of keys and of values, in turns
  Pipeline<STAGES, 1> ring;
  Barrier q_full, logits_full[TILES], weights_full[TILES], sums_full[TILES];
  u32 columns;
};

// both tiles of rows, and the tiles of keys that any of their rows sees
struct Both {
  WorkTile tile[TILES];
  int steps;

  __device__ __forceinline__ Both(const Operands& g, int number) {
    const int each = (g.row_tiles() + TILES - 1) / TILES, pair = each - 1 - number % each;  // the longest first
    steps = 0;
    for (int t = 0; t < TILES; ++t) {
      tile[t] = WorkTile(g, number / each, pair * TILES + t);
      steps = max(steps, tile[t].tiles);
    }
  }
};

__device__ __forceinline__ void load(Shared& shared, const Operands& g, const Both& both) {
  if (both.steps == 0) return;
  const WorkTile& tile = both.tile[0];
  mbarrier_arrive_expect(shared.q_full, TILES * sizeof(Queries));
  for (int t = 0; t < TILES; ++t)
    shared.q[t].load(g.q, shared.q_full, tile.batch, tile.head, both.tile[t].first);
  Place<STAGES> at;
  const auto ask = [&](const TensorMap& map, int number) {
    shared.ring.acquire(at);
    Barrier& full = shared.ring.commit(at.stage, sizeof(Keys));
    shared.blocks[at.stage].load(map, full, tile.batch, tile.head / g.group, number * BLOCK_N);
    at.advance();
  };
  ask(g.k, 0);
  for (int i = 0; i < both.steps; ++i) {
    if (i + 1 < both.steps) ask(g.k, i + 1);
    ask(g.v, i);
  }
}

// the logits of the next step are started before the sums of this one
__device__ __forceinline__ void multiply(Shared& shared, int steps) {
  if (steps == 0) return;
  const u32 columns = shared.columns;
  Place<STAGES> at;
  const auto logits = [&](int t, const Keys& keys) {
    multiply_keys(columns + LOGITS + t * BLOCK_N, shared.q[t], keys);
    tensor_commit(shared.logits_full[t]);
  };
  mbarrier_wait(shared.q_full, 0);
  shared.ring.wait(at);
  for (int t = 0; t < TILES; ++t) logits(t, shared.blocks[at.stage]);
  tensor_commit(shared.ring.empty[at.stage]);
  at.advance();
  for (int i = 0; i < steps; ++i) {
    const bool more = i + 1 < steps;
    Place<STAGES> keys = at;
    if (more) shared.ring.wait(keys), at.advance();
    shared.ring.wait(at);
    for (int t = 0; t < TILES; ++t) {
      mbarrier_wait(shared.weights_full[t], i % 2);
      tensor_take_over();
      if (more) logits(t, shared.blocks[keys.stage]);
      if (more && t == TILES - 1) tensor_commit(shared.ring.empty[keys.stage]);
      add_values(columns + SUMS + t * DIM, columns + WEIGHTS + t * BLOCK_N / 2, shared.blocks[at.stage], i == 0);
      tensor_commit(shared.sums_full[t]);
    }
    tensor_commit(shared.ring.empty[at.stage]);
    at.advance();
  }
}

// by a warpgroup, of its tile
__device__ __forceinline__ void weigh(Shared& shared, const Operands& g, WorkTile tile, int t, int steps) {
  const int lane = threadIdx.x % TENSOR_LANES;
  const u32 own = shared.columns + (lane / WARP * WARP << 16), sums = own + SUMS + t * DIM;
  LaneAverage average(g, tile, lane);
  for (int i = 0; i < steps; ++i) {
    float x[BLOCK_N];
    mbarrier_wait(shared.logits_full[t], i % 2);
    tensor_take_over();
    load_logits(x, own + LOGITS + t * BLOCK_N);
    const float rescale = average.weigh(g, x, i);
    if (i > 0) {
      mbarrier_wait(shared.sums_full[t], (i - 1) % 2);  // the last weights have been read, too
      tensor_take_over();
      rescale_sums(sums, rescale);
    }
    store_weights(own + WEIGHTS + t * BLOCK_N / 2, x);
    tensor_hand_over();
    mbarrier_arrive(shared.weights_full[t]);
  }
  if (steps > 0) {
    mbarrier_wait(shared.sums_full[t], (steps - 1) % 2);
    tensor_take_over();
  }
  tile.tiles = steps;  // what the other tile sees has been added, too, with weights of 0
  average.store(g, tile, sums);
}

extern "C" __global__ void __launch_bounds__(THREADS)
    attention_two_tiles(const __grid_constant__ TensorMap q, const __grid_constant__ TensorMap k,
                        const __grid_constant__ TensorMap v, IN* o, float* lse, long long o_batch, long long o_head,
                        long long o_row, int heads, int group, int rows, int keys, int dim, float scale) {
  extern __shared__ __align__(ATOM_BYTES) unsigned char memory[];
  Shared& shared = *reinterpret_cast<Shared*>(memory);
  const Operands g{q, k, v, o, lse, o_batch, o_head, o_row, heads, group, rows, keys, dim, scale};
  const Both both(g, blockIdx.x);
  const int warp = threadIdx.x / WARP;
  const bool first_lane = threadIdx.x % WARP == 0;

  if (warp == MULTIPLIES) tensor_allocate<TENSOR_COLUMNS, 1>(shared.columns);
  if (threadIdx.x == 0) {
    shared.ring.init();
    mbarrier_init(shared.q_full, 1);
    for (int t = 0; t < TILES; ++t) {
      mbarrier_init(shared.logits_full[t], 1);
      mbarrier_init(shared.weights_full[t], TENSOR_LANES);
      mbarrier_init(shared.sums_full[t], 1);
    }
    mbarrier_init_fence();
  }
  tensor_hand_over();
  __syncthreads();
  tensor_take_over();

  if (warp == LOADS && first_lane)
    load(shared, g, both);
  else if (warp == MULTIPLIES && first_lane)
    multiply(shared, both.steps);
  else if (warp < LOADS)
    weigh(shared, g, both.tile[warp / 4], warp / 4, both.steps);
  __syncwarp();
  tensor_hand_over();
  __syncthreads();
  tensor_take_over();
  if (warp == MULTIPLIES) tensor_free<TENSOR_COLUMNS, 1>(shared.columns);
}
