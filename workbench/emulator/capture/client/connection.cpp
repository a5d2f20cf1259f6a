#include "connection.hpp"

#include <dlfcn.h>
#include <execinfo.h>
#include <link.h>
#include <pthread.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <mutex>
#include <unordered_map>

#include "python.hpp"

namespace workbench::capture {
namespace {

constexpr const char* kSocket = "WORKBENCH_CAPTURE";
constexpr int kMostFrames = 24;
constexpr size_t kMostPlaces = 1 << 16;
constexpr size_t kHeader = 2 * sizeof(uint64_t), kFirst = 32;

std::recursive_mutex mutex;
int connection = -1, file = -1;

[[noreturn]] void give_up(const char* what) {
  std::fprintf(stderr, "workbench capture: %s (%s)\n", what, std::strerror(errno));
  _exit(1);
}

void connect_to_emulator() {
  const char* path = std::getenv(kSocket);
  if (path == nullptr) {
    std::fputs("workbench capture: this library stands in for CUDA under `workbench capture` alone\n",
               stderr);
    _exit(1);
  }
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  std::snprintf(address.sun_path, sizeof address.sun_path, "%s", path);
  connection = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (connection < 0 || connect(connection, reinterpret_cast<sockaddr*>(&address), sizeof address) != 0)
    give_up("the emulator is gone");
}

void send_all(const void* data, size_t size) {
  for (const auto* next = static_cast<const uint8_t*>(data); size > 0;) {
    const ssize_t sent = send(connection, next, size, MSG_NOSIGNAL);
    if (sent < 0 && errno == EINTR) continue;
    if (sent <= 0) give_up("the emulator is gone");
    next += sent;
    size -= static_cast<size_t>(sent);
  }
}

template <size_t count>
uint8_t* bytes_of(uint64_t (&numbers)[count]) {
  return reinterpret_cast<uint8_t*>(numbers);
}

// A file may come with the first bytes.
size_t receive(void* data, size_t size) {
  for (;;) {
    iovec part{data, size};
    alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))];
    msghdr message{};
    message.msg_iov = &part;
    message.msg_iovlen = 1;
    message.msg_control = control;
    message.msg_controllen = sizeof control;
    const ssize_t received = recvmsg(connection, &message, MSG_CMSG_CLOEXEC);
    if (received < 0 && errno == EINTR) continue;
    if (received <= 0) give_up("the emulator is gone");
    if (const cmsghdr* header = CMSG_FIRSTHDR(&message); header != nullptr && header->cmsg_type == SCM_RIGHTS)
      std::memcpy(&file, CMSG_DATA(header), sizeof file);
    return static_cast<size_t>(received);
  }
}

// `file+offset` of an address, or nothing where that is in this library.
std::string place_of(const void* address) {
  static const void* const own = [] {
    Dl_info info{};
    dladdr(reinterpret_cast<void*>(&call_site), &info);
    return info.dli_fbase;
  }();
  Dl_info info{};
  if (dladdr(address, &info) == 0 || info.dli_fname == nullptr || info.dli_fbase == own) return {};
  char offset[32];
  std::snprintf(offset, sizeof offset, "+%#lx\n",
                static_cast<unsigned long>(static_cast<const uint8_t*>(address) -
                                           static_cast<uint8_t*>(info.dli_fbase)));
  return info.dli_fname + std::string(offset);
}

// How many libraries have been unloaded: others may lie there now.
uint64_t unloaded() {
  uint64_t count = 0;
  dl_iterate_phdr(
      [](dl_phdr_info* info, size_t, void* into) {
        *static_cast<uint64_t*>(into) = info->dlpi_subs;
        return 1;
      },
      &count);
  return count;
}

// Of the calls that return to these addresses. `dladdr` looks through all symbols of a library.
std::string places(void* const* frames, long count) {
  static auto* known = new std::unordered_map<const void*, std::string>;
  static uint64_t known_at = 0;
  static std::mutex guard;
  const std::lock_guard<std::mutex> lock(guard);
  if (const uint64_t now = unloaded(); now != known_at || known->size() > kMostPlaces) {
    known->clear();
    known_at = now;
  }
  std::string found;
  for (long i = 0; i < count; i++) {
    const auto place = known->try_emplace(frames[i]);
    // a call stands in front of the address that it returns to
    if (place.second) place.first->second = place_of(static_cast<const uint8_t*>(frames[i]) - 1);
    found += place.first->second;
  }
  return found;
}

}  // namespace

Reply ask(Request& request) {
  const std::lock_guard<std::recursive_mutex> lock(mutex);
  if (connection < 0) connect_to_emulator();
  send_all(request.message().data(), request.message().size());
  uint64_t first[kFirst];  // most answers are no longer
  uint64_t& size = first[1];
  size_t received = 0;
  while (received < kHeader) received += receive(bytes_of(first) + received, sizeof first - received);
  Reply reply;
  reply.status = static_cast<int>(first[0]);
  reply.payload.assign(bytes_of(first) + kHeader, bytes_of(first) + received);
  reply.payload.resize(size);
  for (size_t have = received - kHeader; have < size;)
    have += receive(reply.payload.data() + have, size - have);
  return reply;
}

int take_file() {
  const int taken = file;
  file = -1;
  return taken;
}

std::string call_site(const void* interrupted) {
  void* frames[kMostFrames];
  const int count = backtrace(frames, kMostFrames);
  std::string found = python_frames();
  if (interrupted == nullptr) return found + places(frames, count);
  void** const begun = std::find(frames, frames + count, interrupted);
  if (begun < frames + count) found += place_of(*begun) + places(begun + 1, frames + count - begun - 1);
  return found;
}

void report(const char* kind, const std::string& message, const std::string& site) {
  ask(Request(Operation::finding).text(kind).text(message).text(site));
}

}  // namespace workbench::capture
