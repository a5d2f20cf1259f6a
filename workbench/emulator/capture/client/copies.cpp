#include "copies.hpp"

#include <cstring>

#include "connection.hpp"

namespace workbench::capture {
namespace {

constexpr int kInvalidValue = 1, kInvalidDirection = 21;

uint64_t extent(const Box& box) { return box.rows == 0 ? 0 : (box.rows - 1) * box.pitch + box.width; }

// Whether it lies in one allocation, or in memory of the host alone.
bool inside(const Box& box, const char* function, const char* does) {
  if (!is_device_address(box.address)) return true;
  const Allocation* found = find(box.address);
  if (found != nullptr && box.address + extent(box) <= found->address + found->bytes) return true;
  const std::string what = found == nullptr
                               ? "an address at which nothing is allocated"
                               : std::to_string(extent(box)) + " bytes where only " +
                                     std::to_string(found->address + found->bytes - box.address) +
                                     " are left in the allocation";
  report("out_of_bounds", std::string(function) + " " + does + " " + what, call_site());
  return false;
}

uint8_t* bytes_at(uint64_t address) {
  return is_device_address(address) ? alias(address) : reinterpret_cast<uint8_t*>(address);
}

bool is_host(uint64_t address) {
  const Allocation* found = is_device_address(address) ? find(address) : nullptr;
  return !is_device_address(address) || (found != nullptr && found->on_host());
}

bool is_device(uint64_t address) { return is_device_address(address); }

bool fits(const Copy& copy) {
  switch (copy.direction) {
    case Direction::host_to_host:
      return is_host(copy.to.address) && is_host(copy.from.address);
    case Direction::host_to_device:
      return is_device(copy.to.address) && is_host(copy.from.address);
    case Direction::device_to_host:
      return is_host(copy.to.address) && is_device(copy.from.address);
    case Direction::device_to_device:
      return is_device(copy.to.address) && is_device(copy.from.address);
    default:
      return true;
  }
}

void carry_out(const Copy& copy, const std::string& site, const Moment& moment) {
  for (uint64_t row = 0; row < copy.to.rows; row++)
    std::memmove(bytes_at(copy.to.address + row * copy.to.pitch),
                 bytes_at(copy.from.address + row * copy.from.pitch), copy.to.width);
  const Operated by{copy.function, site, moment};
  const bool to_device = is_device_address(copy.to.address),
             from_device = is_device_address(copy.from.address);
  if (to_device && from_device)
    copied(copy.to, copy.from, by);
  else if (to_device)
    stored(copy.to, by);
  else if (from_device)
    if (const uint64_t bytes = unwritten(copy.from, by); bytes > 0)
      report("unwritten_copy",
             std::string(copy.function) + " copies " + std::to_string(bytes) +
                 " bytes to the host that nothing has stored",
             site);
  if (copy.waits) return;
  const std::string what = std::string("a ") + copy.function;
  guard(copy.to.address, extent(copy.to), false, what, moment.stream, moment.number);
  guard(copy.from.address, extent(copy.from), true, what, moment.stream, moment.number);
}

}  // namespace

int copy(Stream& stream, const Copy& wanted) {
  if (wanted.to.width == 0 || wanted.to.rows == 0) return 0;
  if (static_cast<int>(wanted.direction) < 0 || wanted.direction > Direction::by_address)
    return kInvalidDirection;
  if (!inside(wanted.to, wanted.function, "stores") || !inside(wanted.from, wanted.function, "reads"))
    return kInvalidValue;
  if (!fits(wanted)) {
    report("wrong_direction",
           std::string(wanted.function) +
               " is told a direction that its pointers do not have: the destination is memory of the " +
               (is_device(wanted.to.address) ? "device" : "host") + ", the source memory of the " +
               (is_device(wanted.from.address) ? "device" : "host"),
           call_site());
    return kInvalidValue;
  }
  const std::string site = call_site();
  submit(stream, NodeType::copy, [wanted, site](const Moment& moment) { carry_out(wanted, site, moment); });
  if (wanted.waits && stream.capturing == nullptr) synchronize(stream);
  return 0;
}

int fill(Stream& stream, const Box& to, uint32_t value, unsigned element_bytes, const char* function) {
  if (to.width == 0 || to.rows == 0) return 0;
  if (!is_device_address(to.address)) {
    report("out_of_bounds", std::string(function) + " is given a pointer to memory of the host", call_site());
    return kInvalidValue;
  }
  if (!inside(to, function, "stores")) return kInvalidValue;
  const std::string site = call_site();
  submit(stream, NodeType::fill, [to, value, element_bytes, function, site](const Moment& moment) {
    for (uint64_t row = 0; row < to.rows; row++) {
      uint8_t* first = alias(to.address + row * to.pitch);
      if (element_bytes == 1) {
        std::memset(first, static_cast<int>(value), to.width);
      } else {
        for (uint64_t at = 0; at < to.width; at += element_bytes)
          std::memcpy(first + at, &value, element_bytes);
      }
    }
    stored(to, {function, site, moment});
  });
  return 0;
}

}  // namespace workbench::capture
