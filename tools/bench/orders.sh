# shellcheck shell=bash
# SPDX-License-Identifier: MIT
# Sourced: FreeLunch's policies as published, and their published order. They act on every map, whatever the budget.
# ratio=5: FreeLunch compresses all maps to a fifth.
freelunch=freelunch:ratio=5,eligible=all,when=always
policies=(swap:when=always swap-async:when=always "$freelunch,buffers=naive,workspace=naive" "$freelunch"
    "hybrid:ratio=8,when=always")
names=(swap swap-async unoptimised freelunch hybrid)
in_order="in order: freelunch and hybrid ahead of swap-async, freelunch of its unoptimised form, all of swap"

# policies_list: prints the policies for --policies.
policies_list() {
    local IFS=,
    echo "${policies[*]}"
}

# speeds ROWS: prints images/s of each row.
speeds() { sed -n 's/^ *"images_per_second": \([0-9.e+]*\),*$/\1/p' "$1"; }

# ordered CASE SPEED...: speeds of the policies, in their order. Prints those not in the published order; then returns
# 1.
ordered() {
    local what=$1 pair a b status=0
    shift
    local found=("$@")
    for pair in 3-1 3-2 4-1 1-0 3-0 4-0; do
        a=${pair%-*} b=${pair#*-}
        awk -v a="${found[a]}" -v b="${found[b]}" 'BEGIN { exit !(a >= b) }' && continue
        echo "not in order: $what: ${names[a]} ${found[a]} < ${names[b]} ${found[b]}"
        status=1
    done
    return $status
}
