// The bookkeeping of a piece of memory: a cell for each so many bytes of it.
//
// Kernels choose addresses, and a launch goes on behind the finding that one of them lies outside. So cells
// are reached through a view that knows how many there are: those outside are not read, not changed, and no
// fault.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>

#include "recycled.hpp"

namespace workbench::emulator::WORKBENCH_ISA {

template <class T>
class Cells {
 public:
  Cells() = default;
  Cells(T* first, uint64_t count) : first_(first), count_(first ? count : 0) {}

  explicit operator bool() const { return first_ != nullptr; }
  uint64_t count() const { return count_; }
  bool holds(uint64_t at, uint64_t count = 1) const { return at <= count_ && count <= count_ - at; }
  T* find(uint64_t at) const { return at < count_ ? first_ + at : nullptr; }  // null: outside
  T get(uint64_t at, T outside = T{}) const { return at < count_ ? first_[at] : outside; }
  void put(uint64_t at, T value) const {
    if (at < count_) first_[at] = value;
  }
  // The part of a run that lies inside.
  Cells part(uint64_t at, uint64_t count) const {
    return at < count_ ? Cells(first_ + at, std::min(count, count_ - at)) : Cells();
  }
  void fill(uint64_t at, uint64_t count, T value) const {
    for (T& cell : part(at, count)) cell = value;
  }
  T* begin() const { return first_; }
  T* end() const { return first_ + count_; }

 private:
  T* first_ = nullptr;
  uint64_t count_ = 0;
};

// Owns cells; they are unspecified until they are assigned.
template <class T>
class StoredCells {
 public:
  void resize(size_t count) { cells_.resize(count); }
  void assign(size_t count, T value) { cells_.assign(count, value); }
  void assign(T value) { std::fill(cells_.begin(), cells_.end(), value); }
  Cells<T> view() { return {cells_.data(), cells_.size()}; }
  Cells<const T> view() const { return {cells_.data(), cells_.size()}; }
  size_t count() const { return cells_.size(); }

 private:
  RecycledVector<T> cells_;
};

// What the shadow byte of a byte of memory says. Memory that holds undefined values is shared or local.
enum Written : uint8_t { kNeverWritten = 0, kWritten = 1, kHoldsUndefined = 2 };

// Of each byte whether it has been written; those outside have.
class WrittenBytes {
 public:
  WrittenBytes() = default;
  explicit WrittenBytes(Cells<uint8_t> cells) : cells_(cells) {}
  WrittenBytes(uint8_t* first, uint64_t count) : cells_(first, count) {}

  explicit operator bool() const { return static_cast<bool>(cells_); }
  uint8_t at(uint64_t offset) const { return cells_.get(offset, kWritten); }
  void put(uint64_t offset, Written value) const { cells_.put(offset, value); }
  bool holds(uint64_t offset) const { return cells_.holds(offset, 1); }
  WrittenBytes part(uint64_t offset, uint64_t bytes) const {
    return WrittenBytes(cells_.part(offset, bytes));
  }
  bool all(uint64_t offset, uint64_t bytes) const;
  void mark(uint64_t offset, uint64_t bytes) const {
    const Cells<uint8_t> run = cells_.part(offset, bytes);
    if (run) std::memset(run.begin(), kWritten, run.count());
  }
  // The same of a size known when compiled: one or two comparisons.
  template <uint32_t Bytes>
  bool all_of(uint64_t offset) const {
    if (!cells_.holds(offset, Bytes)) return all(offset, Bytes);
    const uint8_t* shadow = cells_.begin() + offset;
    uint64_t word = kEightWritten, second = kEightWritten;
    std::memcpy(&word, shadow, Bytes < 8 ? Bytes : 8);
    for (uint32_t k = 8; k < Bytes; k += 8) {
      uint64_t next;
      std::memcpy(&next, shadow + k, 8);
      second &= next;
    }
    return (word & second) == kEightWritten;
  }
  template <uint32_t Bytes>
  void mark_all_of(uint64_t offset) const {
    if (!cells_.holds(offset, Bytes)) return mark(offset, Bytes);
    std::memset(cells_.begin() + offset, kWritten, Bytes);
  }

 private:
  static constexpr uint64_t kEightWritten = 0x0101010101010101u;
  Cells<uint8_t> cells_;
};

inline bool WrittenBytes::all(uint64_t offset, uint64_t bytes) const {
  const Cells<uint8_t> run = cells_.part(offset, bytes);
  const uint8_t* shadow = run.begin();
  uint64_t left = run.count();
  for (; left >= 16; left -= 16, shadow += 16) {
    uint64_t words[2];
    std::memcpy(words, shadow, 16);
    if ((words[0] & words[1]) != kEightWritten) return false;
  }
  for (; left; --left, ++shadow)
    if (*shadow != kWritten) return false;
  return true;
}

}  // namespace workbench::emulator::WORKBENCH_ISA
