// Programs that hold the runtime inside, as nvcc links them by default, and extensions of Python: the
// functions of CUDA that the symbol table of an object names are made to jump to those here.
//
// The table is read from the file, since the dynamic linker does not load it. Objects that are loaded later
// are met before their constructors run: the linker then calls a function that is there for debuggers.
#include <dlfcn.h>
#include <elf.h>
#include <fcntl.h>
#include <link.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <set>
#include <string>

#include "runtime.hpp"

namespace workbench::capture {
namespace {

void* own_handle = nullptr;
const char* const kSuffixes[] = {"_ptsz", "_ptds"};  // of functions whose legacy stream is the thread's

void jump(void* from, const void* to) {
#if defined(__x86_64__)
  uint8_t code[14] = {0xFF, 0x25, 0, 0, 0, 0};  // jmp [rip + 0]
  std::memcpy(code + 6, &to, sizeof to);
#elif defined(__aarch64__)
  uint8_t code[16] = {0x50, 0x00, 0x00, 0x58, 0x00, 0x02, 0x1F, 0xD6};  // ldr x16, [pc + 8]; br x16
  std::memcpy(code + 8, &to, sizeof to);
#endif
  const auto page = static_cast<uint64_t>(sysconf(_SC_PAGESIZE));
  const uint64_t first = address_of(from) / page * page, end = address_of(from) + sizeof code;
  const size_t bytes = (end - first + page - 1) / page * page;
  mprotect(reinterpret_cast<void*>(first), bytes, PROT_READ | PROT_WRITE | PROT_EXEC);
  std::memcpy(from, code, sizeof code);
  mprotect(reinterpret_cast<void*>(first), bytes, PROT_READ | PROT_EXEC);
  __builtin___clear_cache(static_cast<char*>(from), static_cast<char*>(from) + sizeof code);
}

bool is_of_cuda(const char* name) {
  if (std::strncmp(name, "__cuda", 6) == 0) name += 2;
  return std::strncmp(name, "cuda", 4) == 0 && name[4] >= 'A' && name[4] <= 'Z';
}

const void* replacement(const char* name) {
  std::string found = name;
  for (const char* suffix : kSuffixes)
    if (found.size() > 5 && found.compare(found.size() - 5, 5, suffix) == 0) found.resize(found.size() - 5);
  return own_function(found);
}

// The functions of CUDA's runtime in an object that was loaded at `base`; whether it has any.
bool redirect(const char* path, uint64_t base) {
  const int file = open(path, O_RDONLY | O_CLOEXEC);
  if (file < 0) return false;
  struct stat status{};
  void* mapped = fstat(file, &status) == 0 && status.st_size > static_cast<off_t>(sizeof(ElfW(Ehdr)))
                     ? mmap(nullptr, static_cast<size_t>(status.st_size), PROT_READ, MAP_PRIVATE, file, 0)
                     : MAP_FAILED;
  close(file);
  if (mapped == MAP_FAILED) return false;
  bool any = false;
  const auto* bytes = static_cast<const uint8_t*>(mapped);
  const auto* header = static_cast<const ElfW(Ehdr)*>(mapped);
  const auto* sections = reinterpret_cast<const ElfW(Shdr)*>(bytes + header->e_shoff);
  const uint64_t file_base = header->e_type == ET_EXEC ? 0 : base;
  for (int i = 0; header->e_shoff != 0 && i < header->e_shnum; i++) {
    if (sections[i].sh_type != SHT_SYMTAB) continue;
    const auto* symbols = reinterpret_cast<const ElfW(Sym)*>(bytes + sections[i].sh_offset);
    const auto* names = reinterpret_cast<const char*>(bytes + sections[sections[i].sh_link].sh_offset);
    for (size_t j = 0; j < sections[i].sh_size / sizeof *symbols; j++) {
      const ElfW(Sym) & symbol = symbols[j];
      const char* name = names + symbol.st_name;
      if ((symbol.st_info & 15) != STT_FUNC || symbol.st_shndx == SHN_UNDEF || !is_of_cuda(name)) continue;
      if (const void* to = replacement(name)) {
        jump(reinterpret_cast<void*>(file_base + symbol.st_value), to);
        any = true;
      }
    }
  }
  munmap(mapped, static_cast<size_t>(status.st_size));
  return any;
}

std::set<std::string>& seen() {
  static auto* all = new std::set<std::string>;
  return *all;
}

void redirect_loaded() {
  dl_iterate_phdr(
      [](dl_phdr_info* info, size_t, void*) {
        Dl_info own{};
        dladdr(reinterpret_cast<void*>(&redirect_loaded), &own);
        const char* path =
            info->dlpi_name != nullptr && *info->dlpi_name != 0 ? info->dlpi_name : "/proc/self/exe";
        if (info->dlpi_addr == address_of(own.dli_fbase) || !seen().insert(path).second) return 0;
        redirect(path, info->dlpi_addr);
        redirect_compiler(path, info->dlpi_addr);
        return 0;
      },
      nullptr);
}

// In place of the linker's function for debuggers, which does nothing. Objects are complete when it is
// consistent.
void on_load() {
  if (_r_debug.r_state == r_debug::RT_CONSISTENT) redirect_loaded();
}

__attribute__((constructor)) void begin() {
  Dl_info own{};
  dladdr(reinterpret_cast<void*>(&begin), &own);
  own_handle = dlopen(own.dli_fname, RTLD_LAZY | RTLD_NOLOAD);
  redirect_loaded();
  if (_r_debug.r_brk != 0)
    jump(reinterpret_cast<void*>(_r_debug.r_brk), reinterpret_cast<const void*>(&on_load));
}

}  // namespace

void* own_function(const std::string& name) { return dlsym(own_handle, name.c_str()); }

}  // namespace workbench::capture
