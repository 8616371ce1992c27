// SPDX-License-Identifier: MIT
#define PTX_TABLE operations_fast
#include "tests/cuda_emulation/ptx/ptx_operations.h"
