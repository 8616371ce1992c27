#!/bin/bash
# layering_test.sh DEPS TARGET ALLOWED...: fails if the file DEPS (labels, one per line) names a library that is neither
# TARGET nor allowed. The libraries that cuda_library makes of one (NAME_toolkit, NAME_emulated) count as NAME.
# SPDX-License-Identifier: MIT
set -euo pipefail
deps=$1 target=$2
shift 2
[[ -s $deps ]] || { echo "no dependencies were found for $target"; exit 1; }
allowed=$(printf '%s\n' "$target" "$@")
forbidden=$(grep -E '^//' "$deps" | sed -E 's/_(toolkit|emulated|emulated_kernels)$//' | sort -u | grep -vxF "$allowed" || true)
if [[ $forbidden ]]; then
    printf '%s must not depend on:\n%s\n' "$target" "$forbidden"
    exit 1
fi
