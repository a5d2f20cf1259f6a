// Compilations at run time by NVRTC, as CuPy and others do them: with lines of the source, and to PTX in
// place of machine code. The table of the library's functions is made to name those here before anybody looks
// one up.
#include <dlfcn.h>
#include <elf.h>
#include <link.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <string>
#include <vector>

#include "connection.hpp"
#include "python.hpp"
#include "runtime.hpp"

namespace workbench::capture {
namespace {

const void *original_create = nullptr, *original_compile = nullptr;

template <class... Arguments>
int call(const void* function, Arguments... arguments) {
  return reinterpret_cast<int (*)(Arguments...)>(const_cast<void*>(function))(arguments...);
}

int create(void** program, const char* source, const char* name, int count, const char* const* headers,
           const char* const* names) {
  static std::atomic<int> number{0};
  std::string text = python_origin(source);
  if (text.empty()) {
    const std::string file =
        name != nullptr && *name != 0 ? name : "nvrtc-" + std::to_string(++number) + ".cu";
    ask(Request(Operation::source).text(file).text(source));
    text = "#line 1 \"" + file + "\"\n";
  }
  return call(original_create, program, (text + source).c_str(), name, count, headers, names);
}

int compile(void* program, int count, const char* const* options) {
  std::vector<const char*> all(options, options + count);
  const auto has_lines = [](const char* option) {
    const std::string text = option;
    return text == "-lineinfo" || text == "--generate-line-info" || text == "-G" || text == "--device-debug";
  };
  if (std::none_of(all.begin(), all.end(), has_lines)) all.push_back("-lineinfo");
  const char* const* given = all.data();
  return call(original_compile, program, static_cast<int>(all.size()), given);
}

// The entry of a function in the table of a library; where it is now.
ElfW(Sym) * entry_of(void* library, const char* function, const void** now) {
  *now = dlsym(library, function);
  Dl_info info{};
  void* found = nullptr;
  if (*now == nullptr || dladdr1(*now, &info, &found, RTLD_DL_SYMENT) == 0) return nullptr;
  const auto page = static_cast<uint64_t>(sysconf(_SC_PAGESIZE));
  mprotect(reinterpret_cast<void*>(address_of(found) / page * page), 2 * page, PROT_READ | PROT_WRITE);
  return static_cast<ElfW(Sym)*>(found);
}

}  // namespace

void redirect_nvrtc(const char* path, uint64_t base) {
  void* library = dlopen(path, RTLD_LAZY | RTLD_NOLOAD);
  const auto replace = [&](const char* function, const void* with) {
    const void* now = nullptr;
    if (ElfW(Sym)* entry = entry_of(library, function, &now)) entry->st_value = address_of(with) - base;
    return now;
  };
  original_create = replace("nvrtcCreateProgram", reinterpret_cast<const void*>(&create));
  original_compile = replace("nvrtcCompileProgram", reinterpret_cast<const void*>(&compile));
  replace("nvrtcGetCUBIN", dlsym(library, "nvrtcGetPTX"));
  replace("nvrtcGetCUBINSize", dlsym(library, "nvrtcGetPTXSize"));
}

}  // namespace workbench::capture
