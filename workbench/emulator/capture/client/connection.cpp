#include "connection.hpp"

#include <dlfcn.h>
#include <execinfo.h>
#include <pthread.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <mutex>

#include "python.hpp"

namespace workbench::capture {
namespace {

constexpr const char* kSocket = "WORKBENCH_CAPTURE";
constexpr int kMostFrames = 24;

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

// A file may come with the first bytes.
void receive_all(void* data, size_t size) {
  for (auto* next = static_cast<uint8_t*>(data); size > 0;) {
    iovec part{next, size};
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
    next += received;
    size -= static_cast<size_t>(received);
  }
}

}  // namespace

Reply ask(const Request& request) {
  const std::lock_guard<std::recursive_mutex> lock(mutex);
  if (connection < 0) connect_to_emulator();
  const uint64_t header[2] = {static_cast<uint64_t>(request.operation()), request.payload().size()};
  send_all(header, sizeof header);
  send_all(request.payload().data(), request.payload().size());
  uint64_t answer[2];
  receive_all(answer, sizeof answer);
  Reply reply;
  reply.status = static_cast<int>(answer[0]);
  reply.payload.resize(answer[1]);
  receive_all(reply.payload.data(), reply.payload.size());
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
  Dl_info own{};
  dladdr(reinterpret_cast<void*>(&call_site), &own);
  std::string found = python_frames();
  bool begun = interrupted == nullptr;
  for (int i = 0; i < count; i++) {
    begun = begun || frames[i] == interrupted;
    if (!begun) continue;
    // a call stands in front of the address that it returns to
    Dl_info info{};
    auto* address = static_cast<uint8_t*>(frames[i]) - (frames[i] != interrupted);
    if (dladdr(address, &info) == 0 || info.dli_fname == nullptr || info.dli_fbase == own.dli_fbase) continue;
    char offset[32];
    std::snprintf(offset, sizeof offset, "+%#lx\n",
                  static_cast<unsigned long>(address - static_cast<uint8_t*>(info.dli_fbase)));
    found += std::string(info.dli_fname) + offset;
  }
  return found;
}

void report(const char* kind, const std::string& message, const std::string& site) {
  ask(Request(Operation::finding).text(kind).text(message).text(site));
}

}  // namespace workbench::capture
