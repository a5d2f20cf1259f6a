// ITEMS and STEPS are given
#include "pipeline/lcsf.cuh"

constexpr int ROWS = 16, COLUMNS = 64, ELEMENTS = ROWS * COLUMNS;  // of a box of x
constexpr int THREADS = 2 * WARPGROUP;                             // that consume

struct SumOfBoxes {
  static constexpr int CONSUMERS = 2, IN_FLIGHT = 0, RING_DEPTH = 3, BLOCKS_PER_SM = 2;

  struct globals {
    const TensorMap& x;
    float* y;
  };
  struct input_block {
    float x[ELEMENTS];
  };
  struct finish_block {
    float sum[ELEMENTS];
  };
  struct common_state {
    int steps, item;
  };
  struct producer_state {
    int row;  // that is loaded next
  };
  struct consumer_state {
    float sum[ELEMENTS / THREADS];
  };

  static __device__ __forceinline__ bool common_setup(const globals&, common_state& common, int item) {
    common.item = blockIdx.x + item * gridDim.x;
    common.steps = common.item % STEPS + 1;
    return common.item < ITEMS;
  }

  struct producer {
    static __device__ __forceinline__ void setup(const globals&, const common_state& common,
                                                 producer_state& state) {
      state.row = common.item * STEPS * ROWS;
    }
    static __device__ __forceinline__ void load(const globals& g, const common_state&, producer_state& state,
                                                input_block& input, Barrier& full, int) {
      tma_load(input.x, g.x, full, state.row, 0);
      state.row += ROWS;
    }
  };

  struct consumer {
    static __device__ __forceinline__ int thread() { return threadIdx.x - WARPGROUP; }

    static __device__ __forceinline__ void setup(const common_state&, consumer_state& state) {
      for (float& x : state.sum) x = 0.f;
    }
    static __device__ __forceinline__ void compute(const common_state&, consumer_state& state,
                                                   const input_block& input) {
#pragma unroll
      for (int i = 0; i < ELEMENTS / THREADS; ++i) state.sum[i] += input.x[thread() + i * THREADS];
    }
    static __device__ __forceinline__ void finish(const globals& g, const common_state& common,
                                                  consumer_state& state, finish_block&, input_block*) {
#pragma unroll
      for (int i = 0; i < ELEMENTS / THREADS; ++i)
        g.y[common.item * ELEMENTS + thread() + i * THREADS] = state.sum[i];
    }
  };
};

using Template = Lcsf<SumOfBoxes>;
static_assert(Template::DEPTH == 3 && Template::SHARED_BYTES == 113 * 1024, "half of a multiprocessor");

// y[item] = the sum of the first item % STEPS + 1 of the item's STEPS boxes. x: (ITEMS * STEPS * 16, 64), y:
// (ITEMS * 16, 64)
extern "C" __global__ void __launch_bounds__(Template::THREADS, Template::BLOCKS_PER_SM)
    sum_of_boxes(const __grid_constant__ TensorMap x, float* y) {
  extern __shared__ __align__(Template::ALIGNMENT) unsigned char memory[];
  Template::run({x, y}, memory);
}
