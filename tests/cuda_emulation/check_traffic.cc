// SPDX-License-Identifier: MIT
#include "tests/cuda_emulation/traffic.h"

#include <vector>

#include "tests/cuda_emulation/check_access.h"

namespace cuda_emulation {
namespace {

/* Changed while a launch runs, of which there is one at a time (check.h). */
std::vector<cuda_emulation_traffic> kernels;
size_t current;

} // namespace

void check_traffic_begins(const char *kernel) {
    current = 0;
    while (current < kernels.size() && strcmp(kernels[current].kernel, kernel) != 0) current++;
    if (current == kernels.size()) kernels.push_back({kernel, 0, 0, 0, 0});
    kernels[current].launches++;
}

void check_traffic_read(size_t bytes) { kernels[current].read += (long)bytes; }

void check_traffic_first(size_t bytes, use as) {
    long &count = as == use::READ ? kernels[current].once : kernels[current].written;
    count += (long)bytes;
}

} // namespace cuda_emulation

using cuda_emulation::kernels;

void cuda_emulation_traffic_reset(void) { kernels.clear(); }

cuda_emulation_traffic cuda_emulation_traffic_get(int i) {
    return (size_t)i < kernels.size() ? kernels[(size_t)i] : cuda_emulation_traffic{};
}
