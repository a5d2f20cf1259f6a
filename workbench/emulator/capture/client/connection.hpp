// The connection of a captured process to the emulator, which runs in the process of `workbench capture`.
//
// A request is an operation and a payload, answered by a status (a cudaError_t) and a payload; each is one
// message, with the payload's size behind its first number. Numbers travel as 64 bits, texts and bytes behind
// their length. `Operation` and the order of fields are those of server.py.
#pragma once

#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

namespace workbench::capture {

enum class Operation : uint64_t {
  hello = 1,
  module,
  kernel,
  variable,
  allocate,
  release,
  written,
  copied,
  check_written,
  launch,
  occupancy,
  finding,
  source,
  tensor_map,
};

class Request {
 public:
  explicit Request(Operation operation) { raw(&operation, sizeof operation).raw(&kNothing, sizeof kNothing); }
  Request& number(uint64_t value) { return raw(&value, sizeof value); }
  Request& bytes(const void* data, size_t size) { return number(size).raw(data, size); }
  Request& text(const std::string& value) { return bytes(value.data(), value.size()); }
  // Operation, size of the payload, payload.
  const std::vector<uint8_t>& message() {
    const uint64_t size = message_.size() - 2 * sizeof size;
    std::memcpy(message_.data() + sizeof size, &size, sizeof size);
    return message_;
  }

 private:
  static constexpr uint64_t kNothing = 0;
  Request& raw(const void* data, size_t size) {
    const auto* first = static_cast<const uint8_t*>(data);
    message_.insert(message_.end(), first, first + size);
    return *this;
  }
  std::vector<uint8_t> message_;
};

class Reply {
 public:
  int status = 0;
  std::vector<uint8_t> payload;
  uint64_t number() {
    uint64_t value = 0;
    if (at_ + sizeof value <= payload.size()) std::memcpy(&value, payload.data() + at_, sizeof value);
    at_ += sizeof value;
    return value;
  }
  std::string text() {
    const uint64_t size = number();
    if (at_ + size > payload.size()) return {};
    std::string value(reinterpret_cast<const char*>(payload.data()) + at_, size);
    at_ += size;
    return value;
  }

 private:
  size_t at_ = 0;
};

// Sends a request and waits for its answer. Ends the process where nobody answers. Of all threads one at a
// time.
Reply ask(Request& request);

// The file that holds the device's memory, which the first answer brought; -1 where there was none.
int take_file();

// Addresses in the host's code from which a function of CUDA was called, the innermost first, as
// `file+offset`; in front of them the lines of Python, as `@file:line`. With the address of an instruction
// that a signal has interrupted: that one, and what called it.
std::string call_site(const void* interrupted = nullptr);

// Something that the host did wrong: `kind` is a code such as host_race.
void report(const char* kind, const std::string& message, const std::string& site);

}  // namespace workbench::capture
