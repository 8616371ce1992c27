#!/bin/bash
# mutants_ptx.sh PROGRAM PTX...: changes one instruction of the PTX at a time; the program, a test, must fail each time,
# and pass without a change.
# SPDX-License-Identifier: MIT
set -euo pipefail

program=$1
shift
files=("${@/#/$PWD/}")

# FILE KERNEL FROM TO: the first match of FROM in a kernel whose name matches becomes TO (& stands for the match).
mutants=(
    "op_elementwise_kernels IfLi4E3sum add.rn.f32 sub.rn.f32"
    "op_windows_kernels 8max_poolIfLi4 st.global.v4.f32[^+]*%rd[0-9]+ &+16"
    "op_layer_norm_kernels joinI|9normalise|8sum_part|7give_dx|8give_all|10join_parts bar.sync membar.gl;//"
)

runs() { MM_PTX=$(IFS=: && echo "$*") timeout 200 "$program" >"$TEST_TMPDIR/out" 2>&1; }

runs "${files[@]}" || { cat "$TEST_TMPDIR/out" && echo "fails without a change" && exit 1; }
status=0
for mutant in "${mutants[@]}"; do
    read -r stem kernel from to <<<"$mutant"
    changed=$TEST_TMPDIR/$stem.ptx all=()
    for file in "${files[@]}"; do
        if [[ $file != */"$stem.ptx" ]]; then
            all+=("$file")
        else
            all+=("$changed")
            awk -v kernel="$kernel" -v from="$from" -v to="$to" '
                /\.entry / { within = $0 ~ kernel }
                !done && within && $0 ~ from { done = sub(from, to) }
                { print }' "$file" >"$changed"
            ! cmp -s "$file" "$changed" || { echo "stale: $mutant changes nothing" && status=1; }
        fi
    done
    if runs "${all[@]}"; then
        echo "ALIVE: $mutant"
        status=1
    else
        echo "found: $mutant: $(grep -m 1 -E 'FAILED|CUDA emulation' "$TEST_TMPDIR/out")"
    fi
done
exit $status
