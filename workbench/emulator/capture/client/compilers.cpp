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
#include <map>
#include <string>
#include <vector>

#include "connection.hpp"
#include "python.hpp"
#include "runtime.hpp"

namespace workbench::capture {
namespace {

const void *original_create = nullptr, *original_compile = nullptr, *original_link = nullptr,
           *original_add = nullptr, *original_ptx = nullptr, *original_ptx_size = nullptr;

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

// PTX by the link that it was given to: where there is one, and no intermediate code, that is what the link
// makes.
std::map<const void*, std::vector<std::string>>& linked() {
  static auto* all = new std::map<const void*, std::vector<std::string>>;
  return *all;
}

int create_link(void** link, uint32_t count, const char** options) {
  std::vector<const char*> all(options, options + count);
  const auto of_intermediate = [](const char* option) { return std::string(option) == "-lto"; };
  if (std::any_of(all.begin(), all.end(), of_intermediate)) all.push_back("-ptx");
  return call(original_link, link, static_cast<uint32_t>(all.size()), all.data());
}

int add(void* link, int type, const void* data, size_t size, const char* name) {
  constexpr int kPtx = 2;
  if (type == kPtx) linked()[link].emplace_back(static_cast<const char*>(data), size);
  return call(original_add, link, type, data, size, name);
}

int linked_size(void* link, size_t* size) {
  const auto& given = linked()[link];
  if (call(original_ptx_size, link, size) == 0) return 0;
  if (given.size() != 1) return refuse("a link of several modules by nvJitLink");
  return *size = given.front().size(), 0;
}

int linked_image(void* link, char* image) {
  if (call(original_ptx, link, image) == 0) return 0;
  for (const std::string& given : linked()[link]) std::memcpy(image, given.data(), given.size());
  return linked().erase(link), 0;
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

void redirect_compiler(const char* path, uint64_t base) {
  const bool is_nvrtc = std::strstr(path, "/libnvrtc.so") != nullptr;
  if (!is_nvrtc && std::strstr(path, "/libnvJitLink.so") == nullptr) return;
  // Of another library, in the middle of being loaded, this would run constructors before what they call is
  // in place.
  void* library = dlopen(path, RTLD_LAZY | RTLD_NOLOAD);
  const auto replace = [&](const char* function, auto* with) {
    const void* now = nullptr;
    if (ElfW(Sym)* entry = entry_of(library, function, &now))
      entry->st_value = reinterpret_cast<uint64_t>(with) - base;
    return now;
  };
  if (is_nvrtc) {
    original_create = replace("nvrtcCreateProgram", &create);
    original_compile = replace("nvrtcCompileProgram", &compile);
    replace("nvrtcGetCUBIN", static_cast<char*>(dlsym(library, "nvrtcGetPTX")));
    replace("nvrtcGetCUBINSize", static_cast<char*>(dlsym(library, "nvrtcGetPTXSize")));
  } else {
    original_ptx = dlsym(library, "nvJitLinkGetLinkedPtx");
    original_ptx_size = dlsym(library, "nvJitLinkGetLinkedPtxSize");
    original_link = replace("nvJitLinkCreate", &create_link);
    original_add = replace("nvJitLinkAddData", &add);
    replace("nvJitLinkGetLinkedCubinSize", &linked_size);
    replace("nvJitLinkGetLinkedCubin", &linked_image);
  }
}

}  // namespace workbench::capture
