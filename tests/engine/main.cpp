// Runs all tests, or those whose names contain the first argument.
#include <cstring>

#include "check.hpp"

static int failures = 0;

std::vector<Test>& tests() {
  static std::vector<Test> all;
  return all;
}

void report_failure(const char* file, int line, const std::string& what) {
  if (++failures <= 40) std::printf("%s:%d: %s\n", file, line, what.c_str());
}

int main(int argc, char** argv) {
  for (const Test& test : tests()) {
    if (argc > 1 && !std::strstr(test.name, argv[1])) continue;
    const int before = failures;
    test.run();
    std::printf("%-50s %s\n", test.name, failures == before ? "ok" : "FAILED");
  }
  if (failures) std::printf("%d checks failed\n", failures);
  return failures ? 1 : 0;
}
