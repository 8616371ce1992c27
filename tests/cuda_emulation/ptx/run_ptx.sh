#!/bin/bash
# run_ptx.sh PTX... -- PTX... -- NAME... -- PROGRAM...: runs the programs on the PTX. Fails if one of them does, if a
# kernel of the first files has not run but for the names given, and if lanes of a warp met at different instructions.
# SPDX-License-Identifier: MIT
set -euo pipefail

declare -a covered=() beside=() allowed=()
while [[ $1 != -- ]]; do covered+=("$PWD/$1") && shift; done
shift
while [[ $1 != -- ]]; do beside+=("$PWD/$1") && shift; done
shift
while [[ $1 != -- ]]; do allowed+=("$1") && shift; done
shift
export MM_PTX MM_PTX_REPORT=$TEST_TMPDIR/report
MM_PTX=$(IFS=: && echo "${covered[*]}${beside[*]:+:${beside[*]}}")

status=0
: >"$MM_PTX_REPORT"
for program; do
    "$program" || { echo "FAILED: ${program##*/}, on PTX" && status=1; }
done

# An entry's name begins, if it is in an anonymous namespace, with a number that says how long the namespace's is.
entries() {
    local file name stem at length
    for file in "${covered[@]}"; do
        stem=${file##*/}
        sed -nE 's/^(\.visible )?\.entry ([A-Za-z0-9_$]+)\(?.*/\2/p' "$file" | while read -r name; do
            while [[ $name =~ ([0-9]+)(_GLOBAL__N__) ]]; do
                at=${name%%"${BASH_REMATCH[0]}"*}
                length=${BASH_REMATCH[1]}
                name=${name#"$at$length"}
                name=${at}12_GLOBAL__N_1${name:length}
            done
            echo "${stem%.ptx} $name"
        done
    done | sort -u
}

sed -n 's/^run \([^ ]* [^ ]*\) .*/\1/p' "$MM_PTX_REPORT" | sort -u >"$TEST_TMPDIR/ran"
entries >"$TEST_TMPDIR/all"
comm -23 "$TEST_TMPDIR/all" "$TEST_TMPDIR/ran" >"$TEST_TMPDIR/missing"
while read -r stem name; do
    [[ " ${allowed[*]} " != *" $name "* ]] || continue
    echo "NOT RUN: $name of $stem.cu"
    status=1
done <"$TEST_TMPDIR/missing"
for name in "${allowed[@]}"; do
    grep -q " $name\$" "$TEST_TMPDIR/missing" || { echo "ALLOWED, but it runs, or is none: $name" && status=1; }
done
split=$(sed -n 's/^split //p' "$MM_PTX_REPORT" | paste -sd+)
if ((${split:-1})); then
    echo "SPLIT: lanes of a warp met at different instructions (split, in $MM_PTX_REPORT: $split times)"
    status=1
fi
echo "$(wc -l <"$TEST_TMPDIR/all") kernels, $(awk '/^run/ { n += $4 } END { print n }' "$MM_PTX_REPORT") launches on PTX"
exit $status
