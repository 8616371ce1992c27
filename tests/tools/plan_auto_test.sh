#!/bin/bash
# plan_auto_test.sh MM MACHINE H200: plans of auto.
# SPDX-License-Identifier: MIT
# shellcheck source=tests/tools/cli.sh
. "$(dirname "${BASH_SOURCE[0]}")/cli.sh"

machine=$(realpath "$2")
h200=$(realpath "$3")

# With codecs named, auto searches more plans, and must not end in a slower one. For this network it once did.
naming_codecs_makes_no_plan_slower_() {
    local -a plan=(plan --net resnet32 --batch 128 --threads 2 --budget 63MiB --facts "$h200" --json)
    expect 0 "${plan[@]}" lossless.json --policy auto
    expect 0 "${plan[@]}" row.json --policy auto:codecs=zfp:rate=4+zfp:rate=6.4
    at_most "$(value row.json iteration_seconds_predicted)" "$(value lossless.json iteration_seconds_predicted)" "with codecs"
}

twenty_codecs_are_planned_with_() {
    local i codecs=zfp:rate=1 long
    for ((i = 2; i <= 20; i++)); do codecs+=+zfp:rate=$i; done
    expect 0 plan --net resnet8 --batch 8 --policy "auto:codecs=$codecs" --budget 3200000 --facts "$machine" --json row.json
    [[ $(value row.json policy) == "auto:codecs=$codecs" ]] || fail "$(<row.json)"
    expect 0 plan --net resnet8 --batch 8 --policy auto --budget 3200000 --facts "$machine" --json lossless.json
    at_most "$(value row.json iteration_seconds_predicted)" "$(value lossless.json iteration_seconds_predicted)" "with codecs"
    for ((i = 21; i <= 32; i++)); do codecs+=+zfp:rate=$i; done
    refused 2 "name more than 30 codecs" plan --net tiny --policy "auto:codecs=$codecs"
    sed 's/"codecs": {/"codecs": {'"$(for i in {1..40}; do printf '"c%d": {"encode_bytes_per_s": 1e9, "decode_bytes_per_s": 1e9}, ' "$i"; done)/" \
        "$machine" >many
    expect 0 plan --net tiny --batch 8 --policy swap --facts many
    # Texts of ten thousand characters are shortened in messages.
    long=$(printf '%010000d' 0)
    refused 2 "zfp:rate=000" plan --net tiny --policy "auto:codecs=zfp:rate=$long"
    refused 2 "name is longer than 63 characters" plan --net tiny --policy "rules:*=compress(zfp:rate=$long)"
    refused 2 "; there are " plan --net "$long" --policy liveness
    refused 2 "a network file is given as file:" plan --net "$long.json" --policy liveness
    refused 2 "has no such layer" plan --net tiny --policy "rules:conv$long=swap"
}

# Bounds on the memory at batch 64, from when auto was written. auto needs at most 1.15 times as much.
autos_least_budget_is_near_the_full_batch_bound_() {
    local net bound
    while read -r net bound; do
        expect 0 plan --net "$net" --batch 64 --policy auto --pinned 32GiB --json row.json # whatever this host has free
        (($(value row.json minimum_bytes) <= bound * 115 / 100)) || fail "$net: $(value row.json minimum_bytes)"
    done <<<"resnet50 824041468
resnet152 1240063996
densenet121 641212668
vgg16 4126688764"
}

# Near the minimum with all weights on the device single layers are compared, too, though weights may leave.
auto_is_no_slower_than_with_all_weights_on_the_device_() {
    local one net budget all
    for one in "resnet20 32 100" "vgg11 16 100" "squeezenet1_0 16 104"; do
        read -r -a net <<<"$one"
        local -a plan=(plan --net "${net[0]}" --batch "${net[1]}" --facts "$h200" --no-advice --json row.json)
        expect 0 "${plan[@]}" --policy auto:resident=all
        budget=$(($(value row.json minimum_bytes) * net[2] / 100))
        expect 0 "${plan[@]}" --policy auto:resident=all --budget $budget
        all=$(value row.json iteration_seconds_predicted)
        expect 0 "${plan[@]}" --policy auto --budget $budget
        at_most "$(value row.json iteration_seconds_predicted)" "$all" "$one: after all weights on the device"
    done
}

auto_is_no_slower_in_its_minimum_than_others_() {
    local least lean
    local -a plan=(plan --net vgg16 --batch 2 --facts "$machine" --json row.json)
    expect 0 "${plan[@]}" --policy auto:resident=all
    least=$(value row.json minimum_bytes)
    expect 0 "${plan[@]}" --policy "rules:*=lean-swap,depth=0" --budget "$least"
    lean=$(value row.json iteration_seconds_predicted)
    expect 0 "${plan[@]}" --policy auto:resident=all --budget "$least"
    at_most "$(value row.json iteration_seconds_predicted)" "$lean" "auto in its minimum, after lean-swap"
}

# Near the least budget of fused layers in which weights stay, plans of single layers can be faster.
auto_fuses_layers_where_that_is_faster_() {
    local fuse budget trained
    local -A takes
    local -a net=(--net resnet20 --batch 32 --threads 1 --policy auto:resident=all --json row.json)
    expect 0 plan "${net[@]}" --facts "$h200" --fuse on
    budget=$(($(value row.json minimum_bytes) * 101 / 100)) trained=$(($(value row.json minimum_bytes) * 102 / 100))
    for fuse in on off auto; do
        expect 0 plan "${net[@]}" --facts "$h200" --fuse $fuse --budget "$budget"
        takes[$fuse]=$(value row.json iteration_seconds_predicted)
    done
    awk -v on="${takes[on]}" -v off="${takes[off]}" 'BEGIN { exit !(off < on) }' || fail "single layers take longer"
    at_most "${takes[auto]}" "${takes[off]}" "auto, after --fuse off"
    [[ $(value row.json fuse) == off ]] || fail "layers are fused"
    says out "not fused: that is faster in this budget"
    expect 0 bench --net resnet20 --batch 32 --threads 1 --policies auto:resident=all --simulate "$h200" --budgets "$budget" \
        --json rows.json --quiet
    at_most "$(value rows.json iteration_seconds_predicted)" "${takes[off]}" "mm bench, after --fuse off"
    # Training without facts plans by nominal times.
    expect 0 train "${net[@]}" --budget "$trained" --iterations 1 --quiet
    [[ $(value row.json fuse) == off ]] || fail "layers are fused in training"
    says err "layers are not fused: that is faster in this budget; the weights are the same"
    # In a larger budget fused and single layers are not compared.
    expect 0 plan "${net[@]}" --facts "$h200" --budget $((budget * 2))
    [[ $(value row.json fuse) == on ]] || fail "layers are not fused in a large budget"
}

# Fusion leaves this net its number of steps, and only moves biases. Single layers are faster here.
auto_compares_single_layers_wherever_fusion_changes_a_step_() {
    local -a squeezenet=(--net squeezenet1_0 --batch 64 --facts "$h200" --budget 418259968 --json row.json)
    expect 0 plan "${squeezenet[@]}" --policy auto
    [[ $(value row.json fuse) == off ]] || fail "single layers were not tried: $(value row.json iteration_seconds_predicted)"
}

# In training, auto's search has only the pinned memory that the first plan needs, so it may go another way. It must
# still fit the budget.
auto_runs_in_the_budgets_that_its_plans_fit_() {
    local least percent
    local -a run=(--net resnet8 --batch 64 --policy auto --threads 1 --json row.json)
    expect 0 plan "${run[@]}"
    least=$(value row.json minimum_bytes)
    for percent in 100 140; do
        expect 0 train "${run[@]}" --budget $((least * percent / 100)) --iterations 1 --quiet
    done
}

# one_line TEXT FACTS POLICY: mm plan and mm train of "${net[@]}" and $batch refuse the facts in one line with TEXT.
one_line() {
    refused 2 "$1" plan "${net[@]}" --batch "$batch" --facts "$2" --policy "$3"
    (($(wc -l <err) == 1)) || fail "$(wc -l <err) lines"
    refused 2 "$1" train "${net[@]}" --batch "$batch" --facts "$2" --policy "$3" --iterations 1 --quiet --budget 1MiB
    (($(wc -l <err) == 1)) || fail "$(wc -l <err) lines"
}

# Facts without times of copies or of a codec, or of another batch, are refused: auto cannot compare plans by them.
auto_names_what_its_facts_lack_() {
    local lacks="which this policy needs: 'mm bench --facts' with this policy measures it"
    local batch=4
    local -a net=(--net tiny --threads 1)
    expect 0 bench "${net[@]}" --batch 4 --iterations 2 --quiet --policies liveness --facts kept
    expect 0 bench "${net[@]}" --batch 4 --iterations 2 --quiet --facts swapped \
        --policies "liveness,swap:when=always,rules:*=mask,when=always"
    expect 0 plan "${net[@]}" --batch 4 --policy auto --facts swapped
    one_line "policy auto: the facts have no rate of copies to host memory, $lacks" kept auto
    one_line "the facts have no time of codec zfp:rate=4, $lacks" swapped auto:codecs=zfp:rate=4
    sed '/"layer": "relu1"/,/"ns":/s/"ns": [0-9]*/"ns": 0/' swapped >untimed
    one_line "policy auto: the facts have no time of relu1 forward, $lacks" untimed auto
    batch=8
    one_line "--facts swapped: was measured with batch 4, but this is batch 8; give facts measured with that" swapped auto
}

# With maps in bf16 liveness needs at most 8 GB, and auto at most half of that need. The gap to the bound on any plan's
# time is printed.
gpt2_in_bf16_needs_at_most_8_gb_() {
    expect 0 plan --net gpt2 --batch 16 --precision bf16 --policy liveness,auto:resident=all --explain --json rows \
        --facts "${h200%/*}/h200-bf16-estimated.json"
    local needs
    mapfile -t needs < <(values rows minimum_bytes)
    ((needs[0] <= 8000000000)) || fail "liveness needs ${needs[0]}"
    ((2 * needs[1] <= needs[0])) || fail "auto needs ${needs[1]} of ${needs[0]}"
    [[ $(grep -c "tokens/s (whole batches, these bytes, these codecs): no plan is faster; the gap is [0-9.]*%" out) == 2 ]] || fail "no gap is told"
}

# The command catches signals before it opens the facts, here a pipe, and plans after that. So a signal that is sent
# once the pipe is open interrupts the planning.
an_interrupted_search_is_told_in_its_row_() {
    mkfifo facts
    start plan --net resnet20 --batch 16 --policy auto,swap --plan-effort 1000000 --budget 8MiB --facts facts --json rows
    cat "$machine" >facts
    interrupt
    [[ $(value rows interrupted) == true ]] || fail "the row does not tell"
    says err "mm plan: interrupted: swap was not planned"
    expect 0 plan --net tiny --batch 4 --policy auto --json row
    [[ $(value row interrupted) == false ]] || fail "nothing was interrupted"
}

run_cases
