#!/bin/bash
# stack.sh LOG... -- NAME...: fails if ptxas gave a kernel of the logs a stack frame, which is local memory, but for the
# kernels whose mangled names contain one of the names.
# SPDX-License-Identifier: MIT
set -euo pipefail

logs=()
while [[ $1 != -- ]]; do logs+=("$1") && shift; done
shift
allowed=$(IFS='|' && echo "${*:-none}")

awk -v allowed="$allowed" '
    /Compiling entry function/ { split($0, part, "\047"); kernel = part[2]; kernels++ }
    # A function that a kernel calls follows the kernel; its frame counts in the cumulative size alone.
    /bytes stack frame/ && kernel != "" {
        if ($1 > 0 && kernel ~ allowed) passed++
        else if ($1 > 0) { print FILENAME ": " kernel ":" $0; faults++ }
        kernel = ""
    }
    END {
        print kernels " kernels, " faults + 0 " with a stack frame, " passed + 0 " that may have one"
        exit faults > 0 || kernels == 0
    }' "${logs[@]}"
