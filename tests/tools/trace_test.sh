#!/bin/bash
# Traces that plan, bench and train write: valid by the format's rules, complete, with the plans' bytes. And facts that
# train saves.
# SPDX-License-Identifier: MIT
# shellcheck source=tests/tools/cli.sh
. "$(dirname "${BASH_SOURCE[0]}")/cli.sh"

machine=$(realpath "$2")
trace_told=$(realpath "$3")

a_trace_shows_the_simulated_iteration_of_each_plan_() {
    local policies=liveness,freelunch:when=always,swap-async:when=always,cdma:when=always
    expect 0 plan --net resnet20 --batch 16 --policy $policies --facts "$machine" --explain --json rows --trace trace
    "$trace_told" trace rows >told 2>err || fail "not valid"
    local seconds
    mapfile -t seconds < <(sed -nE 's/.* seconds=([^ ]*).*/\1/p' told)
    mapfile -t wanted < <(values rows iteration_seconds_predicted)
    ((${#wanted[@]} == 4 && ${#seconds[@]} == 4)) || fail "${#seconds[@]} processes"
    for i in 0 1 2 3; do
        awk -v a="${seconds[i]}" -v b="${wanted[i]}" 'BEGIN { exit !(a - b < 1e-8 && b - a < 1e-8) }' ||
            fail "process $i takes ${seconds[i]} seconds, not ${wanted[i]}"
    done
    says told "resnet20 b16 freelunch:when=always"
    says told "iterations=1 flows=0 "
    [[ $(grep -c "memories=1 " told) == 4 ]] || fail "not every plan has its memory"
    [[ $(grep -c "flows=[1-9].* out=0\.[0-9]*[1-9]" told) == 2 ]] || fail "not two of the policies swap"
    says told dropped=0
}

a_trace_of_runs_has_each_iteration_with_the_bytes_of_its_plan_() {
    local what=(--net resnet8 --batch 8) policies=liveness,freelunch:when=always,swap-async:when=always
    expect 0 bench "${what[@]}" --policies $policies --iterations 3 --quiet --trace trace --json bench
    expect 0 plan "${what[@]}" --policy $policies --explain --json rows
    "$trace_told" trace rows >told 2>err || fail "not valid, or not as planned"
    [[ $(grep -c "^resnet8 b8 " told) == 3 && $(grep -c "^iterations=3 " told) == 3 ]] || fail "not three runs of three"
    [[ $(grep -c " flows=[1-9]" told) == 2 && $(grep -c " flows=0 .* decode=0.0* " told) == 1 ]] || fail "other flows"
    [[ $(grep -c "memories=1 " told) == 3 ]] || fail "not every plan has its memory"
    says told dropped=0
    expect 0 train "${what[@]}" --sub-batch 4 --iterations 3 --quiet --trace trace
    "$trace_told" trace >told 2>err || fail "not valid"
    says told "iterations=6 " # three iterations of two passes each
}

# The sum of a figure of microseconds over all iterations of a trace.
sum_of() { # TRACE KEY
    grep -o "\"$2\":[0-9.e+-]*" "$1" | awk -F: '{ sum += $2 } END { print sum }'
}

hidden_in_a_row_is_that_of_the_same_run_s_trace_() {
    local busy wait hidden policy
    for policy in freelunch:rate=4,eligible=all,when=always cdma:codec=zvc,when=always; do
        expect 0 train --net resnet8 --batch 16 --iterations 6 --policy $policy --quiet --trace trace --json row
        busy=$(sum_of trace codec_busy_us) wait=$(sum_of trace codec_wait_us) hidden=$(value row codec_hidden_share)
        is_less 0 "$busy" || fail "$policy: no codec ran"
        awk -v b="$busy" -v w="$wait" -v h="$hidden" 'BEGIN { d = (w < b ? 1 - w / b : 0) - h; exit !(d < 0.02 && d > -0.02) }' ||
            fail "$policy: the row says $hidden, the trace $wait of $busy us"
    done
}

a_trace_says_whether_and_where_it_was_measured_and_what_is_lossy_() {
    local what=(--net tiny --batch 8) policies=liveness,freelunch:when=always
    expect 0 plan "${what[@]}" --policy $policies --facts "$machine" --trace trace
    (($(count trace '"labels":"predicted on titanx"') == 1)) || fail "liveness is not predicted on titanx"
    (($(count trace '"labels":"predicted on titanx, lossy"') == 1)) || fail "freelunch is not lossy"
    expect 0 bench "${what[@]}" --policies $policies --iterations 2 --quiet --trace trace
    (($(count trace '"labels":"measured on host"') == 1)) || fail "liveness was not measured on host"
    (($(count trace '"labels":"measured on host, lossy"') == 1)) || fail "freelunch is not lossy"
}

a_row_is_written_although_the_trace_fails_() {
    mkdir there
    start train --net tiny --batch 4 --iterations 1000000 --quiet --trace there/trace --json row --log log
    wait_for log $'\n2,'
    rm -r there
    local status=0
    kill -INT $!
    wait $! || status=$?
    trap - EXIT
    ((status == 1)) || fail "status $status"
    says err "there/trace"
    [[ $(value row status) == interrupted ]] || fail "the row says $(value row status)"
}

a_trace_that_cannot_be_made_leaves_nothing_() {
    refused 1 "no/trace" train --net tiny --trace no/trace
    refused 1 "no/trace" bench --net tiny --trace no/trace
    refused 2 "--trace: records runs" bench --net tiny --simulate "$machine" --trace trace
    refused 2 "--trace: needs --facts" plan --net tiny --trace trace
    refused 1 "no/trace" plan --net tiny --facts "$machine" --trace no/trace
    refused 2 "--trace" plan --net tiny --facts "$machine" --trace same --json same
    [[ -z $(find . -name '*trace*') ]] || fail "$(find . -name '*trace*')"
}

facts_that_a_run_saves_are_planned_by_() {
    local what=(--net resnet8 --batch 8 --policy freelunch:when=always) seconds
    expect 0 train "${what[@]}" --iterations 4 --quiet --facts-save facts --json row
    expect 0 plan "${what[@]}" --facts facts --json planned
    seconds=$(value planned iteration_seconds_predicted)
    is_less 0 "$seconds" || fail "a step of $seconds seconds"
    expect 0 train "${what[@]}" --iterations 2 --quiet --facts facts --facts-save again
    expect 1 train "${what[@]}" --iterations 1 --quiet --facts-save once
    says err "no iteration of resnet8"
    says out "freelunch:when=always" # the row of the run, which did not fail
    refused 2 "--facts-save once: facts need whole batches" train "${what[@]}" --sub-batch 4 --facts-save once
    refused 2 "--facts-save and --facts name the same file" train "${what[@]}" --facts facts --facts-save facts
    [[ ! -e once ]] || fail "something was written"
}

a_trace_goes_where_a_link_leads_() {
    mkdir there
    echo old >there/trace
    ln -s there/trace link
    expect 0 plan --net tiny --batch 4 --policy liveness --facts "$machine" --trace link
    [[ -L link ]] || fail "the link was replaced"
    says there/trace traceEvents
    [[ $(echo there/*) == there/trace ]] || fail "something was left behind"
    rm there/trace # now the link leads to no file
    ln -s "$PWD/link" second
    expect 0 plan --net tiny --batch 4 --policy liveness --facts "$machine" --trace second
    [[ -L link && -L second ]] || fail "a dangling link was replaced"
    says there/trace traceEvents
    ln -s circle circle
    refused 1 "circle" plan --net tiny --batch 4 --policy liveness --facts "$machine" --trace circle
}

# By the facts the link is fast, but the run has a slow one: the run is planned again, and the weights stay the same.
a_run_plans_again_where_the_link_is_slower_than_planned_() {
    local what=(--net resnet8 --batch 8 --iterations 14 --quiet --link 8MiB --facts facts) least pinned
    expect 0 plan --net resnet8 --batch 8 --policy liveness,swap:when=always --json rows
    mapfile -t least < <(values rows minimum_bytes)
    expect 0 train --net resnet8 --batch 8 --policy swap:when=always --iterations 4 --quiet --facts-save facts
    what+=(--policy auto --budget $(((least[0] + least[1]) / 2)) --pinned 64MiB)
    expect 0 train "${what[@]}" --save one --json row
    [[ $(value row replans) == 0 ]] || fail "planned again without --replan"
    pinned=$(value row pinned_bytes)
    expect 0 train "${what[@]}" --replan 20 --save two --json row --trace trace --facts-save learned
    [[ $(value row replans) == 1 ]] || fail "planned again $(value row replans) times: $(<err)"
    says err "is planned again: an iteration takes"
    is_less "$pinned" "$(value row pinned_bytes)" || fail "no more than $pinned bytes are pinned for plans to come"
    "$trace_told" trace >told 2>err || fail "not valid"
    says told "replans=1 "
    cmp one two || fail "other weights"
    is_less "$(value learned 'out_bytes_per_s')" $((9 << 20)) || fail "the link was not learned: $(value learned out_bytes_per_s) bytes/s"
}

replan_says_what_it_needs_() {
    refused 2 "--replan 0: must be a whole number from 1 to 1000" train --net tiny --replan 0
    refused 2 "--replan -5: must be a whole number from 1 to 1000" train --net tiny --replan -5
    refused 2 "--replan 1001: must be a whole number from 1 to 1000" train --net tiny --replan 1001
    refused 2 "--replan often" train --net tiny --replan often
    refused 2 "--replan 20: needs measured times to compare iterations with: --facts FILE" train --net tiny --replan 20
}

run_cases
