/* SPDX-License-Identifier: MIT */
/* For any processor, of bf16. */
#define TARGET
#define HALF
#define LINES nets_lines_bf16_portable
#include "nets/host/lines_loops.h"
