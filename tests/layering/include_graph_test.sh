#!/bin/bash
# include_graph_test.sh SCRIPT LAYERS README: include_graph.sh passes the tree that holds README. With one fault
# planted in a copy of the tree, it fails and names the fault.
# SPDX-License-Identifier: MIT
set -euo pipefail
script=$(realpath "$1") layers=$(realpath "$2") root=$(dirname "$(realpath "$3")")
tree=$(mktemp -d "${TEST_TMPDIR:-/tmp}/include_graph_test.XXXXXX")
trap 'rm -rf "$tree"' EXIT
passed=0 failed=0

verdict() { # CASE, whether it passed
    if $2; then
        passed=$((passed + 1))
    else
        echo "[  FAILED  ] $1"
        failed=$((failed + 1))
    fi
}

# FILE|LINE|TEXT: the fault is LINE at the end of FILE, which may be new; the script must print TEXT.
faults=(
    'buffers/layout/layout.h|#include "mm/device/contract/device.h"|buffers/layout may include only'
    'mm/core/status.h|#include "policies/policy.h"|mm/core may include only'
    'mm/core/facts/facts.h|#include "mm/core/plan/plan.h"|mm/core/facts may include only'
    'mm/planning/planning.h|#include "mm/manager/manager.h"|mm/planning may include only'
    'mm/manager/manager.h|#include "mm/stash/stash.h"|mm/manager may include only'
    'nets/net.h|#include "nets/host/host_ops.h"|nets may include only'
    'mm/mm.h|  #  include "tests/core/random.h"|mm may include only'
    'mm/core/graph/graph.h|#include "mm/core/plan/plan.h"|a circle of files: mm/core/'
    'tests/core/random.h|#include "tests/suite/suite_rig.h"|a circle of folders: tests/'
    'mm/core/graph/graph.c|#include "facts.h"|mm/core/graph/graph.c:[0-9]* includes facts.h, which is no path'
    'buffers/cache/line.h||buffers/cache/line.h: the table does not name its folder'
    'buffers/schedule.c||one name, several files: buffers/schedule.c policies/schedule/schedule.c'
)

echo "[ RUN      ] the_tree_has_no_upward_edge_and_no_circle"
if "$script" "$root" "$layers"; then ok=true; else ok=false; fi
verdict the_tree_has_no_upward_edge_and_no_circle $ok

(cd "$root" && find mm buffers pipeline policies nets tools tests \
    -regex '.*\.\(c\|h\|cc\|cu\|cuh\)' -exec cp --parents -t "$tree" {} +)
for fault in "${faults[@]}"; do
    IFS='|' read -r file line text <<<"$fault"
    echo "[ RUN      ] planted_in_$file"
    was=
    if [[ -e $tree/$file ]]; then
        was=$(mktemp "$tree/was.XXXXXX")
        cp "$tree/$file" "$was"
    fi
    mkdir -p "$tree/${file%/*}"
    [[ -z $line ]] || echo "$line" >>"$tree/$file"
    [[ -e $tree/$file ]] || : >"$tree/$file"
    ok=false
    if said=$("$script" "$tree" "$layers" 2>&1); then
        echo "  nothing was found"
    elif grep -q "$text" <<<"$said"; then
        ok=true
    else
        printf '  expected: %s\n  found: %s\n' "$text" "$said"
    fi
    verdict "planted_in_$file" $ok
    if [[ $was ]]; then mv "$was" "$tree/$file"; else rm "$tree/$file"; fi
done

echo "[  PASSED  ] $passed test(s)."
((failed == 0)) || { echo "[  FAILED  ] $failed test(s)" && exit 1; }
