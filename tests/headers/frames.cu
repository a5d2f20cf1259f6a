// FRAME (0: load / compute / epilogue, 1: ping-pong, 2: load / compute / store), ITEMS and STEPS are given
#include "pipeline/load_compute_epilogue.cuh"
#include "pipeline/load_compute_store.cuh"
#include "pipeline/ping_pong.cuh"

constexpr int ROWS = 16, COLUMNS = 64, ELEMENTS = ROWS * COLUMNS;  // of a box of x

struct SumOfBoxes {
  using roles = Roles<2, 40, 2>;  // two blocks on a multiprocessor
  using ring = Pipeline<3, FRAME == 1 ? roles::WARPS : roles::CONSUMER_WARPS>;
  static_assert(roles::SHARED_BYTES == 113 * 1024, "half of a multiprocessor");

  struct globals {
    const TensorMap &x, &running;
    float* y;
  };
  struct input_block {
    float x[ELEMENTS];
  };
  struct output_block {
    float x[ELEMENTS];
  };
  struct shared_block {};
  struct work_tile {
    int iterations, item;
  };
  // with ping-pong a consumer has the item to itself
  static constexpr int THREADS = FRAME == 1 ? WARPGROUP : roles::CONSUMER_THREADS;
  struct accumulators {
    float sum[ELEMENTS / THREADS];
  };

  static __device__ __forceinline__ bool schedule(const globals&, work_tile& tile, int number) {
    tile.item = blockIdx.x + number * gridDim.x;
    tile.iterations = tile.item % STEPS + 1;
    return tile.item < ITEMS;
  }

  static __device__ __forceinline__ void load(const globals& g, const work_tile& tile, input_block& input,
                                              Barrier& full, int iteration) {
    tma_load(input.x, g.x, full, (tile.item * STEPS + iteration) * ROWS, 0);
  }

  static __device__ __forceinline__ void store(const globals& g, const work_tile& tile,
                                               const output_block& output, int iteration) {
    tma_store(g.running, output.x, (tile.item * STEPS + iteration) * ROWS, 0);
  }

  struct consumer {
    const globals& g;
    shared_block& shared;
    input_block* blocks;

    static __device__ __forceinline__ int thread() { return (threadIdx.x - WARPGROUP) % THREADS; }

    __device__ __forceinline__ void begin(const work_tile&, accumulators& sums) {
      for (float& x : sums.sum) x = 0.f;
    }
    __device__ __forceinline__ void add(accumulators& sums, const input_block& input) {
#pragma unroll
      for (int i = 0; i < ELEMENTS / THREADS; ++i) sums.sum[i] += input.x[thread() + i * THREADS];
    }
    template <class Consumed>
    __device__ __forceinline__ void compute(const work_tile&, accumulators& sums, const input_block& input,
                                            Consumed& consumed, int) {
      add(sums, input);
      consumed.release();
    }
    __device__ __forceinline__ void compute(const work_tile&, accumulators& sums, const input_block& input,
                                            output_block& output, int) {
      add(sums, input);
#pragma unroll
      for (int i = 0; i < ELEMENTS / THREADS; ++i) output.x[thread() + i * THREADS] = sums.sum[i];
    }
    __device__ __forceinline__ void epilogue(const work_tile& tile, accumulators& sums) {
#pragma unroll
      for (int i = 0; i < ELEMENTS / THREADS; ++i)
        g.y[tile.item * ELEMENTS + thread() + i * THREADS] = sums.sum[i];
    }
    __device__ __forceinline__ void epilogue(const work_tile& tile, accumulators& sums, Consumed<ring>&) {
      epilogue(tile, sums);
    }
    __device__ __forceinline__ void epilogue(const work_tile& tile, accumulators& sums, Turn<ring>& consumed) {
      consumed.pass();
      epilogue(tile, sums);
    }
    __device__ __forceinline__ void finish() {}
  };
};

#if FRAME == 0
using Frame = LoadComputeEpilogue<SumOfBoxes>;
#elif FRAME == 1
using Frame = PingPongFrame<SumOfBoxes>;
#else
using Frame = LoadComputeStore<SumOfBoxes>;
#endif

// y[item] = the sum of the first item % STEPS + 1 of the item's STEPS boxes. with FRAME 2 `running` gets the sum of
// every box and those before. x, running: (ITEMS * STEPS * 16, 64), y: (ITEMS * 16, 64)
extern "C" __global__ void __launch_bounds__(SumOfBoxes::roles::THREADS, SumOfBoxes::roles::BLOCKS_PER_SM)
    sum_of_boxes(const __grid_constant__ TensorMap x, const __grid_constant__ TensorMap running, float* y) {
  extern __shared__ __align__(1024) unsigned char memory[];
  Frame::run({x, running, y}, memory);
}
