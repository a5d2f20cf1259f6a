// ITEMS and STEPS are given
#include "pipeline/lcsf.cuh"

constexpr int ROWS = 16, COLUMNS = 64, ELEMENTS = ROWS * COLUMNS;  // of a box of x and of w
constexpr int THREADS = 2 * WARPGROUP, OWN = ELEMENTS / THREADS;   // that consume; elements of each
constexpr int PARTS = 3;  // in which an item leaves: some items have fewer steps, and one element is over

struct WeightedSum {
  static constexpr int CONSUMERS = 2, RING_DEPTH = 3, BURST = 2, LATER = PARTS, BLOCKS_PER_SM = 2;

  struct globals {
    const TensorMap &x, &w;
    float* y;
  };
  struct input_block {
    float w[ELEMENTS];
  };
  struct far_block {
    float x[ELEMENTS];
  };
  struct finish_block {
    float unused[ELEMENTS];
  };
  struct common_state {
    int steps, item;
  };
  struct consumer_state {
    float sum[OWN];
  };
  struct result_state {
    float sum[OWN];
    int item;
  };

  static __device__ __forceinline__ bool common_setup(const globals&, common_state& common, int item) {
    common.item = blockIdx.x + item * gridDim.x;
    common.steps = common.item % STEPS + 1;
    return common.item < ITEMS;
  }

  struct producer {
    static __device__ __forceinline__ int row(const common_state& common, int step) {
      return (common.item * STEPS + step) * ROWS;
    }
    static __device__ __forceinline__ void load(const globals& g, const common_state& common,
                                                input_block& input, Barrier& full, int step) {
      tma_load(input.w, g.w, full, row(common, step), 0);
    }
    static __device__ __forceinline__ void load_far(const globals& g, const common_state& common,
                                                    far_block& far, Barrier& full, int step) {
      tma_load(far.x, g.x, full, row(common, step), 0);
    }
  };

  struct consumer {
    static __device__ __forceinline__ int thread() { return threadIdx.x - WARPGROUP; }

    static __device__ __forceinline__ void setup(const common_state&, consumer_state& state) {
      for (float& x : state.sum) x = 0.f;
    }
    static __device__ __forceinline__ void compute(const common_state&, consumer_state& state,
                                                   const input_block& input, const far_block& far) {
#pragma unroll
      for (int i = 0; i < OWN; ++i)
        state.sum[i] += input.w[thread() + i * THREADS] * far.x[thread() + i * THREADS];
    }
    static __device__ __forceinline__ void drain() {}
    static __device__ __forceinline__ bool keep(const globals&, const common_state& common,
                                                const consumer_state& state, result_state& result) {
      for (int i = 0; i < OWN; ++i) result.sum[i] = state.sum[i];
      result.item = common.item;
      return common.item % 4 != 2;
    }
    template <int PART>
    static __device__ __forceinline__ void leave(const globals& g, const result_state& result,
                                                 finish_block&) {
#pragma unroll
      for (int i = PART; i < OWN; i += PARTS)
        g.y[result.item * ELEMENTS + thread() + i * THREADS] = result.sum[i];
    }
  };
};

using Template = Lcsf<WeightedSum>;
static_assert(Template::DEPTH == 3 && Template::FAR_DEPTH > 2 * WeightedSum::BURST, "its ring has the rest");

// y[item] = the sum of the first item % STEPS + 1 of the item's STEPS boxes of x, each times that of w; items
// 2, 6, 10, ... leave nothing. x, w: (ITEMS * STEPS * 16, 64), y: (ITEMS * 16, 64)
extern "C" __global__ void __launch_bounds__(Template::THREADS, Template::BLOCKS_PER_SM)
    weighted_sum(const __grid_constant__ TensorMap x, const __grid_constant__ TensorMap w, float* y) {
  extern __shared__ __align__(Template::ALIGNMENT) unsigned char memory[];
  Template::run({x, w, y}, memory);
}
