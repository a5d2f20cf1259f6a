#include "ptx/cluster.cuh"
#include "ptx/tcgen05.cuh"

// y = 2 a b: two k-tiles of 64, the same ones, so that a product also adds. a: (128, 64), b: (Y_COLUMNS, 64), or
// (64, Y_COLUMNS) with ALONG_N, y: (128, Y_COLUMNS)
extern "C" __global__ void twice(const __grid_constant__ TensorMap a, const __grid_constant__ TensorMap b, float* y) {
  extern __shared__ __align__(1024) unsigned char memory[];
  __shared__ Barrier full, done;
  __shared__ u32 place;
  TYPE* const rows = reinterpret_cast<TYPE*>(memory);
  TYPE* const columns = rows + 128 * 64;
  const int warp = threadIdx.x / 32;
  if (warp == 0) tensor_allocate<Y_COLUMNS, 1>(place);
  if (threadIdx.x == 0) {
    mbarrier_init(full, 1);
    mbarrier_init(done, 1);
    mbarrier_init_fence();
  }
  tensor_hand_over();
  __syncthreads();
  tensor_take_over();
  const u32 sums = place;
  if (threadIdx.x == 0) {
    mbarrier_arrive_expect(full, (128 + Y_COLUMNS) * 128);
    tma_load(rows, a, full, 0, 0);
    for (int i = 0; i < Y_COLUMNS; i += ALONG_N ? 64 : Y_COLUMNS)
      tma_load(columns + i * 64, b, full, ALONG_N ? 0 : i, ALONG_N ? i : 0);
    mbarrier_wait(full, 0);
    const u64 left = tensor_operand(rows, 0, 1024), right = tensor_operand(columns, ALONG_N ? 64 * 128 : 0, 1024);
    for (int i = 0; i < 8; ++i)
      tensor_multiply<1>(sums, left + i % 4 * 2, right + i % 4 * (ALONG_N ? 128 : 2),
                         tensor_form<TYPE, 128, Y_COLUMNS, ALONG_N>(), i > 0);
    tensor_commit(done);
  }
  mbarrier_wait(done, 0);
  tensor_take_over();
  for (int n = 0; n < Y_COLUMNS; n += 32) {
    float x[32];
    tensor_load(x, sums + (warp * 32 << 16) + n);
    for (int i = 0; i < 32; ++i) y[threadIdx.x * Y_COLUMNS + n + i] = x[i];
  }
  tensor_hand_over();
  __syncthreads();
  tensor_take_over();
  if (warp == 0) tensor_free<Y_COLUMNS, 1>(sums);
}

// y = a b with a from tensor memory, where each thread stores its row, two elements of 16 bits in a column. rows:
// (128, 32) of 32 bits, b: (64, 64) bf16, y: (128, 64)
extern "C" __global__ void from_rows(const u32* rows, const __grid_constant__ TensorMap b, float* y) {
  __shared__ __align__(1024) __nv_bfloat16 columns[64 * 64];
  __shared__ Barrier full, done;
  __shared__ u32 place;
  const int warp = threadIdx.x / 32;
  if (warp == 0) tensor_allocate<128, 1>(place);
  if (threadIdx.x == 0) {
    mbarrier_init(full, 1);
    mbarrier_init(done, 1);
    mbarrier_init_fence();
    mbarrier_arrive_expect(full, sizeof(columns));
    tma_load(columns, b, full, 0, 0);
    mbarrier_wait(full, 0);
  }
  tensor_hand_over();
  __syncthreads();
  tensor_take_over();
  const u32 sums = place, own = warp * 32 << 16;
  u32 row[32];
  for (int i = 0; i < 32; ++i) row[i] = rows[threadIdx.x * 32 + i];
  tensor_store(sums + 64 + own, row);
  tensor_hand_over();
  __syncthreads();
  tensor_take_over();
  if (threadIdx.x == 0) {
    const u64 right = tensor_operand(columns, 0, 1024);
    for (int i = 0; i < 4; ++i)
      tensor_multiply_from(sums, sums + 64 + i * 8, right + i * 128,
                           tensor_form<__nv_bfloat16, 128, 64, true>(), i > 0);
    tensor_commit(done);
  }
  mbarrier_wait(done, 0);
  tensor_take_over();
  for (int n = 0; n < 64; n += 32) {
    float x[32];
    tensor_load(x, sums + own + n);
    for (int i = 0; i < 32; ++i) y[threadIdx.x * 64 + n + i] = x[i];
  }
  tensor_hand_over();
  __syncthreads();
  tensor_take_over();
  if (warp == 0) tensor_free<128, 1>(sums);
}

// y = a b by a pair of blocks, each with 128 rows of a and 64 columns of b. a: (256, 64), b: (128, 64) bf16, y: (256, 128)
extern "C" __global__ void __cluster_dims__(2, 1, 1)
    pair(const __grid_constant__ TensorMap a, const __grid_constant__ TensorMap b, float* y) {
  extern __shared__ __align__(1024) unsigned char memory[];
  __shared__ Barrier full, done;
  __shared__ u32 place;
  const int warp = threadIdx.x / 32, rank = cluster_rank();
  if (warp == 0) tensor_allocate<128, 2>(place);
  if (threadIdx.x == 0) {
    mbarrier_init(full, 1);
    mbarrier_init(done, 1);
    mbarrier_init_fence();
  }
  tensor_hand_over();
  cluster_sync();
  tensor_take_over();
  const u32 sums = place;
  unsigned char* const columns = memory + 128 * 128;
  if (threadIdx.x == 0) {
    if (rank == 0) mbarrier_arrive_expect(full, 2 * (128 + 64) * 128);
    tma_load_pair(memory, a, full, 0, rank * 128, 0);
    tma_load_pair(columns, b, full, 0, rank * 64, 0);
    if (rank == 0) {
      mbarrier_wait(full, 0);
      const u64 left = tensor_operand(memory, 0, 1024), right = tensor_operand(columns, 0, 1024);
      for (int i = 0; i < 4; ++i)
        tensor_multiply<2>(sums, left + i * 2, right + i * 2, tensor_form<__nv_bfloat16, 256, 128, false>(), i > 0);
      tensor_commit<2>(done);
    }
  }
  mbarrier_wait(done, 0);
  tensor_take_over();
  for (int n = 0; n < 128; n += 32) {
    float x[32];
    tensor_load(x, sums + (warp * 32 << 16) + n);
    for (int i = 0; i < 32; ++i) y[(rank * 128 + threadIdx.x) * 128 + n + i] = x[i];
  }
  tensor_hand_over();
  cluster_sync();
  tensor_take_over();
  if (warp == 0) tensor_free<128, 2>(sums);
  cluster_started();
}
