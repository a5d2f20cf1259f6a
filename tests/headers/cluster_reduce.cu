#include "tile/cluster_reduce.cuh"

struct Affine {
  struct Value {
    float a, b;
  };
  static constexpr bool COMMUTES = false;
  static __device__ Value combine(Value first, Value then) {
    return {then.a * first.a, then.a * first.b + then.b};
  }
};

// y[r, t] = the functions of all blocks of the cluster, in the order of their ranks. x: (BLOCKS, 2), y:
// (BLOCKS, 64, 2)
extern "C" __global__ void __cluster_dims__(BLOCKS) reduced(const float* x, float* y) {
  __shared__ ClusterScratch<Affine, BLOCKS> scratch;
  cluster_started();
  const Affine::Value f = cluster_reduce<Affine, BLOCKS>({x[2 * blockIdx.x], x[2 * blockIdx.x + 1]}, scratch);
  float* to = y + (blockIdx.x * 64 + threadIdx.x) * 2;
  to[0] = f.a, to[1] = f.b;
}

// y[r, i, t] = the same of x[i], one after the other. x: (TURNS, BLOCKS, 2), y: (BLOCKS, TURNS, 64, 2)
extern "C" __global__ void __cluster_dims__(BLOCKS) in_turns(const float* x, float* y, int turns) {
  __shared__ ClusterInbox<BLOCKS> inbox;
  ClusterReductions<BLOCKS> cluster(inbox);
  for (int i = 0; i < turns; ++i) {
    const float* of = x + (i * BLOCKS + blockIdx.x) * 2;
    const Affine::Value f = cluster.reduce<Affine>({of[0], of[1]});
    float* to = y + ((blockIdx.x * turns + i) * 64 + threadIdx.x) * 2;
    to[0] = f.a, to[1] = f.b;
    __syncthreads();
  }
}
