// What a program of Python says of itself. All of it is empty in other programs.
#pragma once

#include <string>

namespace workbench::capture {

bool is_python();
// Where the calling thread is, the innermost frame first: `@file:line` a line. In front of them `@@` and the
// test of pytest that is running.
std::string python_frames();
// `#line` for a text that stands in a file of the program, so that compilers and kernels name that file.
std::string python_origin(const std::string& text);

}  // namespace workbench::capture
