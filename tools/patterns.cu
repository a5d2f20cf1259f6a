// One warp, one access, at places that the host chooses: how many requests, sectors and wavefronts it costs.
//
// places: byte offsets of the 32 lanes, negative: the lane takes no part. global: 32 KiB. dynamic shared
// memory: 32 KiB. what is read goes nowhere, but the compiler does not know that.

using u32 = unsigned;
extern __shared__ __align__(1024) unsigned char shared[];

__device__ u32 shared_place(int place) {
  return static_cast<u32>(__cvta_generic_to_shared(shared)) + static_cast<u32>(place);
}

__device__ void use(u32 value, unsigned char* global) {
  if (value == 0x12345679u) global[0] = 1;
}

#define PATTERN(NAME) extern "C" __global__ void NAME(const int* places, unsigned char* global)

#define LOAD(NAME, SPACE, ADDRESS, LETTER)                                                      \
  PATTERN(NAME##_4) {                                                                           \
    const int place = places[threadIdx.x];                                                      \
    u32 a = 0;                                                                                  \
    if (place >= 0) asm volatile("ld." SPACE ".b32 %0, [%1];" : "=r"(a) : LETTER(ADDRESS));     \
    use(a, global);                                                                             \
  }                                                                                             \
  PATTERN(NAME##_8) {                                                                           \
    const int place = places[threadIdx.x];                                                      \
    u32 a = 0, b = 0;                                                                           \
    if (place >= 0)                                                                             \
      asm volatile("ld." SPACE ".v2.b32 {%0, %1}, [%2];" : "=r"(a), "=r"(b) : LETTER(ADDRESS)); \
    use(a ^ b, global);                                                                         \
  }                                                                                             \
  PATTERN(NAME##_16) {                                                                          \
    const int place = places[threadIdx.x];                                                      \
    u32 a = 0, b = 0, c = 0, d = 0;                                                             \
    if (place >= 0)                                                                             \
      asm volatile("ld." SPACE ".v4.b32 {%0, %1, %2, %3}, [%4];"                                \
                   : "=r"(a), "=r"(b), "=r"(c), "=r"(d)                                         \
                   : LETTER(ADDRESS));                                                          \
    use(a ^ b ^ c ^ d, global);                                                                 \
  }

#define STORE(NAME, SPACE, ADDRESS, LETTER)                                                            \
  PATTERN(NAME##_4) {                                                                                  \
    const int place = places[threadIdx.x];                                                             \
    if (place >= 0) asm volatile("st." SPACE ".b32 [%0], %1;" ::LETTER(ADDRESS), "r"(place));          \
  }                                                                                                    \
  PATTERN(NAME##_8) {                                                                                  \
    const int place = places[threadIdx.x];                                                             \
    if (place >= 0) asm volatile("st." SPACE ".v2.b32 [%0], {%1, %1};" ::LETTER(ADDRESS), "r"(place)); \
  }                                                                                                    \
  PATTERN(NAME##_16) {                                                                                 \
    const int place = places[threadIdx.x];                                                             \
    if (place >= 0)                                                                                    \
      asm volatile("st." SPACE ".v4.b32 [%0], {%1, %1, %1, %1};" ::LETTER(ADDRESS), "r"(place));       \
  }

LOAD(shared_load, "shared", shared_place(place), "r")
STORE(shared_store, "shared", shared_place(place), "r")
LOAD(global_load, "global", global + place, "l")
STORE(global_store, "global", global + place, "l")

PATTERN(shared_atomic_4) {
  const int place = places[threadIdx.x];
  u32 a = 0;
  if (place >= 0)
    asm volatile("atom.shared.add.u32 %0, [%1], %2;" : "=r"(a) : "r"(shared_place(place)), "r"(place));
  use(a, global);
}

PATTERN(global_atomic_4) {
  const int place = places[threadIdx.x];
  u32 a = 0;
  if (place >= 0)
    asm volatile("atom.global.add.u32 %0, [%1], %2;" : "=r"(a) : "l"(global + place), "r"(place));
  use(a, global);
}

PATTERN(global_reduction_4) {
  const int place = places[threadIdx.x];
  if (place >= 0) asm volatile("red.global.add.u32 [%0], %1;" ::"l"(global + place), "r"(place));
}

// rows of 16 bytes: lanes 0 to 7 name those of the first tile, and so on
PATTERN(matrix_load_1) {
  u32 a;
  asm volatile("ldmatrix.sync.aligned.m8n8.x1.shared.b16 {%0}, [%1];"
               : "=r"(a)
               : "r"(shared_place(places[threadIdx.x])));
  use(a, global);
}

PATTERN(matrix_load_4) {
  u32 a, b, c, d;
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(a), "=r"(b), "=r"(c), "=r"(d)
               : "r"(shared_place(places[threadIdx.x])));
  use(a ^ b ^ c ^ d, global);
}

PATTERN(matrix_store_4) {
  const int place = places[threadIdx.x];
  asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1, %1, %1, %1};" ::"r"(shared_place(place)),
               "r"(place));
}

// from the start of global memory on, 16 bytes a lane, to the places in shared memory
PATTERN(copy_16) {
  const int place = places[threadIdx.x];
  if (place >= 0)
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(shared_place(place)),
                 "l"(global + threadIdx.x * 16));
  asm volatile("cp.async.wait_all;");
}

PATTERN(copy_4) {
  const int place = places[threadIdx.x];
  if (place >= 0)
    asm volatile("cp.async.ca.shared.global [%0], [%1], 4;" ::"r"(shared_place(place)),
                 "l"(global + threadIdx.x * 4));
  asm volatile("cp.async.wait_all;");
}
