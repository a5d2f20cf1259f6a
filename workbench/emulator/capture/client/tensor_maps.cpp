// Tensor maps, which the other process checks and encodes: its bytes are those that its engine reads.
#include "connection.hpp"
#include "runtime.hpp"

using namespace workbench::capture;

namespace {

enum { kTiled = 0, kPixels = 1, kWide = 2 };  // how a map is made
constexpr size_t kMapBytes = 128;
constexpr uint32_t kMostDimensions = 5;

// What all maps have. Counts of numbers follow from the rank.
struct Tensor {
  int type;
  uint32_t rank;
  void* address;
  const uint64_t *sizes, *strides;
  const uint32_t* steps;
  int interleave, swizzle, fill;
};

template <class T>
void add(Request& request, const T* values, uint32_t count) {
  for (uint32_t i = 0; i < count; i++) request.number(static_cast<uint64_t>(values[i]));
}

template <class Box>
Error encode(void* map, const Tensor& tensor, int how, Box add_box) {
  if (map == nullptr || tensor.rank < 1 || tensor.rank > kMostDimensions) return kInvalidValue;
  Request request(Operation::tensor_map);
  for (const int number : {how, tensor.type, tensor.interleave, tensor.swizzle, tensor.fill})
    request.number(static_cast<uint64_t>(number));
  request.number(tensor.rank).number(address_of(tensor.address));
  add(request, tensor.sizes, tensor.rank);
  add(request, tensor.strides, tensor.rank - 1);
  add(request, tensor.steps, tensor.rank);
  add_box(request);
  Reply reply = ask(request);
  if (reply.status == 0) return std::memcpy(map, reply.text().data(), kMapBytes), kSuccess;
  if (reply.status == kNotSupported) return refuse("a tensor map of this kind");
  reply.number();
  reply.text();
  report("tensor_map", reply.text(), call_site());
  return reply.status;
}

}  // namespace

CUDA_API Error cuTensorMapEncodeTiled(void* map, int type, uint32_t rank, void* address,
                                      const uint64_t* sizes, const uint64_t* strides, const uint32_t* box,
                                      const uint32_t* steps, int interleave, int swizzle, int, int fill) {
  return encode(map, {type, rank, address, sizes, strides, steps, interleave, swizzle, fill}, kTiled,
                [&](Request& request) { add(request, box, rank); });
}

CUDA_API Error cuTensorMapEncodeIm2col(void* map, int type, uint32_t rank, void* address,
                                       const uint64_t* sizes, const uint64_t* strides, const int* lower,
                                       const int* upper, uint32_t channels, uint32_t pixels,
                                       const uint32_t* steps, int interleave, int swizzle, int, int fill) {
  return encode(map, {type, rank, address, sizes, strides, steps, interleave, swizzle, fill}, kPixels,
                [&](Request& request) {
                  request.number(channels).number(pixels).number(rank < 2 ? 0 : rank - 2);
                  if (rank < 3) return;
                  add(request, lower, rank - 2);
                  add(request, upper, rank - 2);
                });
}

CUDA_API Error cuTensorMapEncodeIm2colWide(void* map, int type, uint32_t rank, void* address,
                                           const uint64_t* sizes, const uint64_t* strides, int lower,
                                           int upper, uint32_t channels, uint32_t pixels,
                                           const uint32_t* steps, int interleave, int, int swizzle, int,
                                           int fill) {
  return encode(map, {type, rank, address, sizes, strides, steps, interleave, swizzle, fill}, kWide,
                [&](Request& request) {
                  request.number(channels).number(pixels).number(1);
                  add(request, &lower, 1);
                  add(request, &upper, 1);
                });
}
