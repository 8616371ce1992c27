// SPDX-License-Identifier: MIT
#define PTX_TABLE operations_plain
#include "tests/cuda_emulation/ptx/ptx_operations.h"
