#!/bin/bash
# Tests of 'mm verify' and of the second checker, tools/verify/verify.py: the published races, each rule, random plans.
# Arguments: mm, plan_samples, a file of tools/verify, by_hand.py, agree.py.
# SPDX-License-Identifier: MIT
samples=$(realpath "$2") tools=$(dirname "$(realpath "$3")") by_hand=$(realpath "$4") agree=$(realpath "$5")
# shellcheck source=tests/tools/cli.sh
source "$(dirname "${BASH_SOURCE[0]}")/../tools/cli.sh"

second=$tools/verify.py
# What refuses each race, and which node the message names.
races=(
    "megatron-lm-7398 6.2 prefetch of h1 after layer3 backward"
    "trl-7195-stream 6.2 offload of h2 after layer2 forward"
    "trl-7195-block 8.1 prefetch of h1 after layer2 backward"
    "torchtune-1867 8.1 layer2 forward"
    "torchtitan-2581 8.1 offload of h2 after layer2 forward"
    "diffusers-13502 6.2 block forward"
)

published_races_are_refused_and_their_repairs_proved_() {
    local race name rule node
    for race in "${races[@]}"; do
        read -r name rule node <<<"$race"
        expect 1 verify "$tools/races/$name.faulty.plan" --trace trace.json
        says out "refused by rule $rule: "
        says out ": $node, tensor "
        says out "An execution that the waits allow"
        python3 -c 'import json; assert json.load(open("trace.json"))["traceEvents"]' || fail "no trace of $name"
        rm trace.json
        expect 0 verify "$tools/races/$name.repaired.plan"
        says out ": proved: "
    done
    python3 "$tools/races/races.py" . || fail "races.py fails"
    for race in "$tools"/races/*.plan; do equal "$race" "$(basename "$race")"; done
    rm ./*.plan
    python3 "$agree" "$mm" "$second" "$tools"/races/*.plan || fail "the checkers do not agree"
}

each_rule_is_named_by_both_checkers_() {
    # No file can be of another graph than its own (1.1); by_hand.py breaks the others that no mutant breaks.
    local -a lacking
    mapfile -t lacking < <("$samples" rules .)
    [[ ${lacking[*]} == "1.1 5.5 6.7 6.10 7.3" ]] || fail "other rules lack samples: ${lacking[*]}"
    python3 "$by_hand" "$tools" . || fail "by_hand.py fails"
    python3 "$agree" --rules "$mm" "$second" ./*.plan || fail "the checkers do not agree"
    expect 0 verify right-5.5.plan right-6.7.plan right-6.10.plan right-7.3.plan right-7.4.plan
    rm ./*.plan
}

both_checkers_agree_on_random_plans_() {
    local batches=1 n=1000 seed=0
    # On this one they did not agree: a step writes a code that needs no workspace.
    "$samples" random . 1 8747 || fail "plan_samples fails"
    mv samples-0000.plan samples-8747.plan
    # Deep: 100,000 plans, in batches because they take 27 KB each.
    [[ ! ${MM_TEST_DEEP:-} ]] || batches=20 n=5000
    for ((; batches > 0; batches--)); do
        seed=$("$samples" random . "$n" "$seed") || fail "plan_samples fails"
        python3 "$agree" "$mm" "$second" ./samples-*.plan || fail "the checkers do not agree"
        rm ./*.plan
    done
}

a_plan_of_a_policy_is_proved_by_both_() {
    expect 0 plan --net resnet8 --batch 8 --policy swap-async --save-plan own.plan
    expect 0 verify own.plan --json verdict.json
    python3 "$agree" "$mm" "$second" own.plan || fail "the checkers do not agree"
    rm own.plan verdict.json
}

wrong_arguments_and_files_are_refused_() {
    refused 2 "give a plan file" verify
    refused 1 "cannot be read" verify there-is-none.plan
    echo '{"format": "mm graph"}' >other.plan
    refused 1 "other.plan" verify other.plan
    rm other.plan
    expect 0 verify "$tools/races/diffusers-13502.repaired.plan" --trace trace.json
    says err "no execution goes wrong: --trace writes nothing"
}

run_cases
