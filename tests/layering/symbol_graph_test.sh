#!/bin/bash
# symbol_graph_test.sh ARCHIVE...: the files in these archives call each other in no circle. include_graph_test cannot
# see a circle of calls that one header declares, as mm.h does.
# SPDX-License-Identifier: MIT
set -euo pipefail
edges=$(mktemp "${TEST_TMPDIR:-/tmp}/edges.XXXXXX")
trap 'rm -f "$edges"' EXIT

# "CALLER CALLEE", files without their suffixes. A line of nm: ARCHIVE:FILE:[ADDRESS] TYPE SYMBOL.
nm -A -g "$@" | awk '
    { split($1, at, ":"); file = at[2]; sub(/\..*/, "", file) }
    $2 == "U" { wanted[file, $3]; next }
    { owner[$3] = file }
    END {
        for (pair in wanted) {
            split(pair, of, SUBSEP)
            if (of[2] in owner && owner[of[2]] != of[1]) print of[1], owner[of[2]]
        }
    }' | sort -u >"$edges"

# What is known to be there is found, and so is a circle with it.
grep -qx 'iteration prepare' "$edges" || { echo "iteration.c does not call prepare.c: no calls were found" && exit 1; }
if { cat "$edges" && echo 'prepare iteration'; } | tsort >/dev/null 2>&1; then
    echo "a circle that was planted was not found"
    exit 1
fi

if ! circle=$(tsort "$edges" 2>&1 >/dev/null); then
    echo "a circle of calls: $(sed -n 's/^tsort: \([^ ]*\)$/\1.c/p' <<<"$circle" | paste -sd' ')"
    exit 1
fi
