__constant__ float factor;

extern "C" __global__ void scale(float* x, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) x[i] *= factor;
}

extern "C" __global__ void reverse(float* x, int n) {
    __shared__ float part[64];
    part[threadIdx.x] = x[threadIdx.x];
    if (n > 64) __syncthreads();
    x[threadIdx.x] = part[63 - threadIdx.x];
}

extern "C" __global__ void rotate(float* x, int) { x[threadIdx.x] = x[(threadIdx.x + 1) % 64]; }

extern "C" __global__ void count(int* x) { atomicAdd_system(x, 1); }

extern "C" __global__ void fill(float* x, int n) {
    if (threadIdx.x < n) x[threadIdx.x] = 1;
}

extern "C" __global__ void first(float* x, int) {
    cudaTriggerProgrammaticLaunchCompletion();
    x[threadIdx.x] = 1;
}

extern "C" __global__ void second(float* x, int n) {
    if (n > 0) cudaGridDependencySynchronize();
    x[63 - threadIdx.x] += 1;
}

extern "C" __global__ void sample(float* y, cudaTextureObject_t image) {
    int i = threadIdx.x;
    y[63 - i] = tex2D<float>(image, i % 8 + 0.5f, i / 8 + 0.5f);
}

struct alignas(64) Map {
    unsigned long long words[16];
};

// 16 floats from a tensor map: with `pixels` an im2col one of three dimensions, else a tiled one of two.
extern "C" __global__ void load(float* y, const __grid_constant__ Map map, int pixels) {
    __shared__ alignas(128) float tile[16];
    __shared__ alignas(8) unsigned long long bar;
    const unsigned to = (unsigned)__cvta_generic_to_shared(tile), at = (unsigned)__cvta_generic_to_shared(&bar);
    if (threadIdx.x == 0) {
        asm volatile("mbarrier.init.shared.b64 [%0], 1; fence.mbarrier_init.release.cluster;" ::"r"(at) : "memory");
        asm volatile("mbarrier.arrive.expect_tx.shared.b64 _, [%0], 64;" ::"r"(at) : "memory");
        if (pixels)
            asm volatile(
                "cp.async.bulk.tensor.3d.shared::cluster.global.im2col.mbarrier::complete_tx::bytes [%0], "
                "[%1, {%3, %3, 0}], [%2], {0};" ::"r"(to),
                "l"(&map), "r"(at), "r"(pixels)
                : "memory");
        else
            asm volatile(
                "cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], "
                "[%1, {%3, %3}], [%2];" ::"r"(to),
                "l"(&map), "r"(at), "r"(4)
                : "memory");
    }
    __syncthreads();
    asm volatile("{ .reg .pred p; W: mbarrier.try_wait.parity.shared.b64 p, [%0], 0; @!p bra W; }" ::"r"(at) : "memory");
    if (threadIdx.x < 16) y[threadIdx.x] = tile[threadIdx.x];
}
