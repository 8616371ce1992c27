#!/bin/bash
# symbol_graph_test.sh SCRIPT CIRCLES ARCHIVE...: symbol_graph.py passes the files in these archives. It fails on a
# planted circle, on a listed circle that does not exist, and on an input without calls.
# SPDX-License-Identifier: MIT
set -euo pipefail
script=$1 circles=$2
shift 2
work=$(mktemp -d "${TEST_TMPDIR:-/tmp}/symbol_graph_test.XXXXXX")
trap 'rm -rf "$work"' EXIT
passed=0 failed=0

# expect CASE SYMBOLS CIRCLES [TEXT]: the script must pass; with TEXT it must fail and print TEXT.
expect() {
    local ok=false said
    echo "[ RUN      ] $1"
    if said=$(python3 -S "$script" "$3" <"$2" 2>&1); then
        [[ ${4-} ]] || ok=true
    else
        [[ ${4-} && $said == *"$4"* ]] && ok=true
    fi
    if $ok; then
        passed=$((passed + 1))
    else
        printf '%s\n[  FAILED  ] %s\n' "${said:-nothing was found}" "$1"
        failed=$((failed + 1))
    fi
}

nm -A -g "$@" >"$work/symbols"
echo "[ RUN      ] a_file_of_each_folder_is_there"
missing=
for file in graph device_host device_cuda pool codec_zfp dispatch engine manager stash net host_conv cudnn_conv zoo \
    reader comm exec cmd_train; do
    grep -q ":$file\." "$work/symbols" || missing+=" $file"
done
if [[ $missing ]]; then
    printf 'not there:%s\n[  FAILED  ] a_file_of_each_folder_is_there\n' "$missing"
    failed=$((failed + 1))
else
    passed=$((passed + 1))
fi
expect files_call_each_other_in_listed_circles_alone "$work/symbols" "$circles"

# iteration.c calls prepare.c, so a call back makes a circle. Calls by a kernel count for its .cu file.
{ cat "$work/symbols" && echo 'lib.a:prepare.o: U mm_iteration_begin'; } >"$work/planted"
expect planted_circle_is_found "$work/planted" "$circles" 'a circle of calls: iteration prepare'
{ cat "$work/symbols" && echo 'lib.a:device_cuda_emulated_cuda_sums_cu.o: U cuda_sums_async'; } >"$work/kernel"
expect planted_circle_through_a_kernel_is_found "$work/kernel" "$circles" 'a circle of calls: cuda_sums cuda_work'

{ cat "$circles" && echo 'iteration prepare : they were one'; } >"$work/circles"
expect listed_circle_that_is_gone_is_found "$work/symbols" "$work/circles" 'strike it from the list: iteration prepare'
echo 'iteration prepare :' >"$work/circles"
expect listed_circle_without_a_reason_is_refused "$work/symbols" "$work/circles" 'without its reason'
: >"$work/nothing"
expect no_calls_are_a_failure "$work/nothing" "$circles" 'no calls were found'

echo "[  PASSED  ] $passed test(s)."
((failed == 0)) || { echo "[  FAILED  ] $failed test(s)" && exit 1; }
