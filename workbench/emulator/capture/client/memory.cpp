#include "memory.hpp"

#include <signal.h>
#include <sys/mman.h>
#include <ucontext.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <mutex>

#include "connection.hpp"
#include "python.hpp"
#include "streams.hpp"

namespace workbench::capture {
namespace {

struct Guard {
  uint64_t address, bytes;
  bool only_read;
  std::string what;
  uint64_t stream, moment;
};

std::recursive_mutex mutex;
DeviceFacts facts;
uint64_t base = 0, arena_bytes = 0;
uint8_t* mapped = nullptr;  // the second time
std::map<uint64_t, Allocation>& known() {
  // never destroyed: destructors of the program free memory
  static auto* found = new std::map<uint64_t, Allocation>;
  return *found;
}
std::vector<Guard>& guards() {
  static auto* found = new std::vector<Guard>;
  return *found;
}
struct sigaction before;

const uint64_t kPage = static_cast<uint64_t>(sysconf(_SC_PAGESIZE));

void protect(uint64_t address, uint64_t bytes, int how) {
  const uint64_t first = address / kPage * kPage, end = (address + bytes + kPage - 1) / kPage * kPage;
  mprotect(reinterpret_cast<void*>(first), end - first, how);
}

// What several guards leave of the pages of one of them.
void protect_as_guarded(uint64_t address, uint64_t bytes) {
  protect(address, bytes, PROT_READ | PROT_WRITE);
  for (const bool only_read : {true, false})
    for (const Guard& one : guards())
      if (one.only_read == only_read && one.address < address + bytes && address < one.address + one.bytes)
        protect(one.address, one.bytes, only_read ? PROT_READ : PROT_NONE);
}

bool is_write(const void* context) {
#if defined(__x86_64__)
  return static_cast<const ucontext_t*>(context)->uc_mcontext.gregs[REG_ERR] & 2;
#else
  (void)context;
  return false;
#endif
}

const void* interrupted(const void* context) {
#if defined(__x86_64__)
  return reinterpret_cast<const void*>(static_cast<const ucontext_t*>(context)->uc_mcontext.gregs[REG_RIP]);
#else
  return reinterpret_cast<const void*>(static_cast<const ucontext_t*>(context)->uc_mcontext.pc);
#endif
}

void on_fault(int signal, siginfo_t* info, void* context) {
  const auto address = reinterpret_cast<uint64_t>(info->si_addr);
  if (is_device_address(address)) {
    const std::string site = call_site(interrupted(context));
    const std::lock_guard<std::recursive_mutex> lock(mutex);
    const char* does = is_write(context) ? "writes" : "reads";
    for (size_t i = 0; i < guards().size(); i++) {
      const Guard one = guards()[i];
      if (address < one.address / kPage * kPage || address >= one.address + one.bytes) continue;
      guards().erase(guards().begin() + static_cast<ptrdiff_t>(i));
      report("host_race",
             std::string("host code ") + does + " memory that " + one.what +
                 (one.only_read ? " reads" : " writes") +
                 ", and nothing has waited for it: call cudaStreamSynchronize or cudaEventSynchronize "
                 "before",
             site);
      protect_as_guarded(one.address, one.bytes);
      return;
    }
    const Allocation* found = find(address);
    if (found == nullptr || !found->on_host()) {
      report("host_access",
             std::string("host code ") + does +
                 (found ? " memory of the device through its pointer: copy it with cudaMemcpy, or use "
                          "cudaMallocManaged"
                        : " an address of the device at which nothing is allocated"),
             site);
    }
  }
  // as without this handler: the instruction faults again
  sigaction(signal, &before, nullptr);
}

void catch_faults() {
  struct sigaction action{};
  action.sa_sigaction = on_fault;
  action.sa_flags = SA_SIGINFO | SA_ONSTACK | SA_NODEFER;
  sigaction(SIGSEGV, &action, &before);
}

void open() {
  if (base != 0) return;
  char program[4096];
  const ssize_t length = readlink("/proc/self/exe", program, sizeof program - 1);
  program[std::max<ssize_t>(length, 0)] = 0;
  Reply reply = ask(Request(Operation::hello).text(program).number(is_python()));
  base = reply.number();
  arena_bytes = reply.number();
  facts.name = reply.text();
  facts.total_memory = reply.number();
  for (uint64_t left = reply.number(); left > 0; left--) {
    const int attribute = static_cast<int>(reply.number());
    facts.attributes[attribute] = static_cast<int>(reply.number());
  }
  const int file = take_file();
  void* there = mmap(reinterpret_cast<void*>(base), arena_bytes, PROT_NONE,
                     MAP_SHARED | MAP_FIXED_NOREPLACE | MAP_NORESERVE, file, 0);
  void* beside = mmap(nullptr, arena_bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, file, 0);
  if (file < 0 || there != reinterpret_cast<void*>(base) || beside == MAP_FAILED) {
    std::fputs("workbench capture: the device's memory cannot be mapped into this process\n", stderr);
    _exit(1);
  }
  close(file);
  mapped = static_cast<uint8_t*>(beside);
  catch_faults();
}

void add(const Allocation& allocation) {
  known()[allocation.address] = allocation;
  if (allocation.on_host()) protect(allocation.address, allocation.bytes, PROT_READ | PROT_WRITE);
}

}  // namespace

const DeviceFacts& device() {
  const std::lock_guard<std::recursive_mutex> lock(mutex);
  open();
  return facts;
}

uint64_t allocate(uint64_t bytes, Space space, const std::string& site) {
  const std::lock_guard<std::recursive_mutex> lock(mutex);
  open();
  Reply reply =
      ask(Request(Operation::allocate).number(bytes).number(static_cast<uint64_t>(space)).text(site));
  if (reply.status != 0) return 0;
  const uint64_t address = reply.number();
  add({address, bytes, space, site});
  return address;
}

bool release(uint64_t address) {
  const std::lock_guard<std::recursive_mutex> lock(mutex);
  const auto found = known().find(address);
  if (found == known().end() || found->second.space == Space::variable) return false;
  if (found->second.on_host()) protect(address, found->second.bytes, PROT_NONE);
  auto& all = guards();
  all.erase(std::remove_if(all.begin(), all.end(),
                           [&](const Guard& one) {
                             return one.address >= address && one.address < address + found->second.bytes;
                           }),
            all.end());
  known().erase(found);
  ask(Request(Operation::release).number(address));
  return true;
}

const Allocation* find(uint64_t address, bool end) {
  const std::lock_guard<std::recursive_mutex> lock(mutex);
  auto next = known().upper_bound(address);
  if (next == known().begin()) return nullptr;
  const Allocation& found = std::prev(next)->second;
  return address < found.address + found.bytes + end ? &found : nullptr;
}

void adopt(uint64_t address, uint64_t bytes, bool on_host) {
  const std::lock_guard<std::recursive_mutex> lock(mutex);
  known()[address] = {address, bytes, Space::variable, {}};
  if (on_host) protect(address, bytes, PROT_READ | PROT_WRITE);
}

std::vector<Allocation> allocations() {
  const std::lock_guard<std::recursive_mutex> lock(mutex);
  std::vector<Allocation> found;
  for (const auto& entry : known()) found.push_back(entry.second);
  return found;
}

bool is_device_address(uint64_t address) {
  return base != 0 && address >= base && address < base + arena_bytes;
}

uint8_t* alias(uint64_t address) { return mapped + (address - base); }

namespace {
Request& add_box(Request& request, const Box& box) {
  return request.number(box.address).number(box.pitch).number(box.width).number(box.rows);
}
}  // namespace

void stored(const Box& to, const Operated& by) {
  Request request(Operation::written);
  ask(add_moment(add_box(request, to).text(by.function).text(by.site), by.moment));
}

void copied(const Box& to, const Box& from, const Operated& by) {
  Request request(Operation::copied);
  ask(add_moment(add_box(add_box(request, to), from).text(by.function).text(by.site), by.moment));
}

uint64_t unwritten(const Box& from, const Operated& by) {
  Request request(Operation::check_written);
  return ask(add_moment(add_box(request, from).text(by.function).text(by.site), by.moment)).number();
}

void guard(uint64_t address, uint64_t bytes, bool only_read, const std::string& what, uint64_t stream,
           uint64_t moment) {
  const std::lock_guard<std::recursive_mutex> lock(mutex);
  const Allocation* found = find(address);
  if (bytes == 0 || found == nullptr || !found->on_host()) return;
  guards().push_back({address, bytes, only_read, what, stream, moment});
  protect_as_guarded(address, bytes);
}

void waited(const Clock& until) {
  const std::lock_guard<std::recursive_mutex> lock(mutex);
  std::vector<Guard> ended;
  auto& all = guards();
  for (size_t i = 0; i < all.size();) {
    const auto found = until.find(all[i].stream);
    if (found == until.end() || found->second < all[i].moment) {
      i++;
      continue;
    }
    ended.push_back(all[i]);
    all.erase(all.begin() + static_cast<ptrdiff_t>(i));
  }
  for (const Guard& one : ended) protect_as_guarded(one.address, one.bytes);
}

void say_leaks() {
  if (is_python()) return;  // its pools keep what they have until the process ends
  for (const Allocation& one : allocations())
    if (one.space == Space::device)
      report("leak", std::to_string(one.bytes) + " bytes of device memory are never freed", one.site);
}

}  // namespace workbench::capture
