// Buffers that many launches need and that are too large for the heap to keep: a thread keeps a few of them,
// so that their pages are not given back and asked for again with every launch. What they hold at first is
// unspecified.
#pragma once

#include <cstddef>
#include <new>
#include <utility>
#include <vector>

#include "isa.hpp"

namespace workbench::emulator::WORKBENCH_ISA {

class Spares {
 public:
  static Spares& of_this_thread() {
    thread_local Spares spares;
    return spares;
  }
  Spares() = default;
  Spares(const Spares&) = delete;
  Spares& operator=(const Spares&) = delete;
  ~Spares() {
    for (const Buffer& buffer : buffers_) ::operator delete(buffer.start, kAlignment);
  }

  void* take(size_t bytes) {
    for (Buffer& buffer : buffers_)
      if (buffer.bytes == bytes) {
        void* start = buffer.start;
        buffer = buffers_.back();
        buffers_.pop_back();
        kept_ -= bytes;
        return start;
      }
    return ::operator new(bytes, kAlignment);
  }
  void give_back(void* start, size_t bytes) noexcept {
    if (kept_ + bytes > kMostKept || buffers_.size() == buffers_.capacity())
      return ::operator delete(start, kAlignment);
    buffers_.push_back({start, bytes});
    kept_ += bytes;
  }

 private:
  static constexpr size_t kMostKept = 16u << 20, kMostBuffers = 64;
  static constexpr std::align_val_t kAlignment{128};

  struct Buffer {
    void* start;
    size_t bytes;
  };
  std::vector<Buffer> buffers_ = [] {
    std::vector<Buffer> empty;
    empty.reserve(kMostBuffers);
    return empty;
  }();
  size_t kept_ = 0;
};

template <class T>
struct RecyclingAllocator {
  using value_type = T;
  RecyclingAllocator() = default;
  template <class U>
  RecyclingAllocator(const RecyclingAllocator<U>&) {}
  T* allocate(size_t count) { return static_cast<T*>(Spares::of_this_thread().take(count * sizeof(T))); }
  void deallocate(T* start, size_t count) noexcept {
    Spares::of_this_thread().give_back(start, count * sizeof(T));
  }
  template <class U>
  void construct(U* place) noexcept {
    ::new (static_cast<void*>(place)) U;  // resize() fills nothing
  }
  template <class U, class... Arguments>
  void construct(U* place, Arguments&&... arguments) {
    ::new (static_cast<void*>(place)) U(std::forward<Arguments>(arguments)...);
  }
  template <class U>
  bool operator==(const RecyclingAllocator<U>&) const {
    return true;
  }
  template <class U>
  bool operator!=(const RecyclingAllocator<U>&) const {
    return false;
  }
};

template <class T>
using RecycledVector = std::vector<T, RecyclingAllocator<T>>;

}  // namespace workbench::emulator::WORKBENCH_ISA
