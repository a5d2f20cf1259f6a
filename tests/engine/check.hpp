// The smallest test framework that will do: TEST(name) { CHECK(condition); }
#pragma once

#include <cstdio>
#include <string>
#include <vector>

struct Test {
  const char* name;
  void (*run)();
};
std::vector<Test>& tests();
void report_failure(const char* file, int line, const std::string& what);

struct Registration {
  Registration(const char* name, void (*run)()) { tests().push_back({name, run}); }
};

#define TEST(name)                                               \
  static void test_##name();                                     \
  static const Registration register_##name(#name, test_##name); \
  static void test_##name()

#define CHECK(condition)                                              \
  do {                                                                \
    if (!(condition)) report_failure(__FILE__, __LINE__, #condition); \
  } while (false)

#define CHECK_MESSAGE(condition, message)                            \
  do {                                                               \
    if (!(condition)) report_failure(__FILE__, __LINE__, (message)); \
  } while (false)
