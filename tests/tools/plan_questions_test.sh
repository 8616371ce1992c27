#!/bin/bash
# plan_questions_test.sh MM TITANX K40 H200: what mm plan answers beyond one plan: the fastest batch, the longest
# context, why a map gets its action, what sub-batches would gain.
# SPDX-License-Identifier: MIT
# shellcheck source=tests/tools/cli.sh
. "$(dirname "${BASH_SOURCE[0]}")/cli.sh"

machine=$(realpath "$2")
k40=$(realpath "$3")
h200=$(realpath "$4")

# ---------------------------------------------------------------- the fastest batch

# Beside all batches that fit: none is faster by more than a fiftieth.
the_fastest_batch_is_nearly_as_fast_as_any_() {
    local policy batch speed most any
    for policy in liveness swap recompute-swap; do
        expect 0 plan --net tiny --policy $policy --budget 1500KiB --facts "$machine" --fastest-batch --json found
        batch=$(value found fastest_batch) most=$(value found max_batch)
        ((batch > 0 && batch <= most && batch == $(values found batch | head -1))) || fail "$policy: $batch of $most"
        (($(count found '"planned"') <= 24)) || fail "$policy: $(count found '"planned"') tried"
        says out "the fastest"
        expect 0 bench --simulate "$machine" --net tiny --batch "$(seq -s, 1 "$most")" --policies $policy \
            --budgets 1500KiB --quiet --json all
        speed=$(awk -v n="$batch" -v s="$(value found iteration_seconds_predicted)" 'BEGIN { print 1.02 * n / s }')
        for any in $(values all images_per_second); do
            [[ $any == null ]] || ! is_less "$speed" "$any" || fail "$policy: batch $batch, but another makes $any images/s"
        done
    done
}

a_smaller_batch_may_be_faster_than_the_largest_() {
    expect 0 plan --net tiny --policy liveness,swap --budget 20MiB --facts "$machine" --fastest-batch --json rows
    says out $'\npolicy    fastest batch'
    [[ $(values rows fastest_batch) == $'200\n200' ]] || fail "$(values rows fastest_batch)"
    (($(values rows max_batch | tail -1) > 250)) || fail "swap fits $(values rows max_batch)"
    says out "not planned: cannot be faster by a hundredth"
    expect 1 plan --net tiny --policy liveness --budget 100KiB --facts "$machine" --fastest-batch --json none
    [[ $(value none fastest_batch) == 0 ]] || fail "$(<none)"
    expect 0 plan --net tiny --policy liveness --gpu l4 --budget 20MiB --fastest-batch
}

the_fastest_batch_needs_times_of_any_batch_() {
    refused 2 "--fastest-batch needs times: --gpu NAME" plan --net tiny --budget 20MiB --fastest-batch
    refused 2 "--fastest-batch needs a --budget" plan --net tiny --facts "$machine" --fastest-batch
    refused 2 "--max-batch and --fastest-batch: give one" plan --net tiny --gpu t4 --fastest-batch --max-batch
    refused 2 "--fastest-batch finds the batch, and --batch 8" plan --net tiny --gpu t4 --fastest-batch --batch 8
    refused 2 "--sub-batch and --fastest-batch" plan --net tiny --gpu t4 --fastest-batch --sub-batch 8
    expect 0 bench --simulate "$machine" --net tiny --batch 8 --policies liveness --facts facts --quiet
    refused 2 "with --fastest-batch, give a machine file" plan --net tiny --budget 1MiB --fastest-batch --facts facts
}

# ---------------------------------------------------------------- the longest context

the_longest_context_fits_and_the_next_does_not_() {
    local policy context next
    for policy in liveness swap; do
        expect 0 plan --net gpt --batch 2 --policy $policy --budget 30MiB --minimum --max-context --json row
        context=$(value row max_context) next=$(value row next_context)
        ((context > 0 && context % 64 == 0 && next == context + 64)) || fail "$policy: $context, then $next"
        says out "gpt, context $context, batch 2"
        says out "it grows with the context"
        expect 0 plan --net "gpt,context=$context" --batch 2 --policy $policy --budget 30MiB --minimum --json same
        [[ $(value row minimum_bytes) == "$(value same minimum_bytes)" ]] || fail "another network than the zoo's"
        expect 1 plan --net "gpt,context=$next" --batch 2 --policy $policy --budget 30MiB --json more
        [[ $(value row next_bytes) == "$(value more minimum_bytes)" ]] || fail "$next needs $(value row next_bytes)"
    done
    expect 0 nets --net gpt --json
    mv out gpt.json
    expect 0 plan --net file:gpt.json --batch 2 --policy swap --budget 30MiB --max-context --json file
    [[ $(value file max_context) == "$context" ]] || fail "of the file $(value file max_context), not $context"
    expect 1 plan --net gpt --batch 64 --policy liveness --budget 20MiB --max-context
    says out "none in 20MiB"
    expect 0 plan --net gpt --batch 1 --policy liveness --gpu l4 --max-context
    says out "tokens/s"
}

only_networks_of_tokens_have_a_context_() {
    refused 2 "net resnet20: has no context: its samples are not tokens" \
        plan --net resnet20 --batch 1 --budget 1GiB --max-context
    refused 2 "net vit_b_16: has no context" plan --net vit_b_16 --batch 1 --budget 1GiB --max-context
    refused 2 "--max-context needs a --budget" plan --net gpt --max-context
}

# ---------------------------------------------------------------- why

# instead MAP ACTION KEY: what `row` says of another action on what a layer writes.
instead() {
    awk -v map="\"$1\"," -v action="\"$2\"," -v key="\"$3\":" '
        $1 == "\"producer\":" { here = $2 == map }
        $1 == "\"action\":" { this = here && $2 == action }
        this && $1 == key { gsub(/[",]/, "", $2); print $2; exit }' row
}

# A reason is what a plan with that action shows. (Drafts round every tensor up to 256 bytes.)
an_action_that_needs_more_than_the_budget_does_so_() {
    local always=when=always budget layer more live rest checked=0
    for rest in "*=recompute,mode=sqrt" "*=recompute,mode=memory"; do
        expect 0 plan --net resnet8 --batch 32 --policy "rules:$rest,$always" --facts "$machine" --json least
        budget=$(value least minimum_bytes)
        expect 0 plan --net resnet8 --batch 32 --policy "rules:$rest,$always" --facts "$machine" --budget "$budget" \
            --explain --json row
        says out "more than the budget, at layer"
        says out "with none changed"
        for layer in conv1 bn1 layer2.0.bn1; do
            [[ $(instead $layer keep reason) == device ]] || continue
            more=$(instead $layer keep more_bytes)
            expect 1 plan --net resnet8 --batch 32 --policy "rules:$layer=keep;$rest,$always" --budget "$budget" --json other
            live=$(value other live_peak_bytes)
            ((more > 0 && live - budget <= more && more <= live - budget + 8192)) ||
                fail "$layer: $more more, $((live - budget)) by a plan"
            checked=1
        done
    done
    ((checked)) || fail "no map would need more"
}

an_action_that_is_faster_or_slower_is_so_() {
    local rest="*=swap,when=always" own changed
    expect 0 plan --net resnet8 --batch 32 --policy "rules:$rest" --budget 30MiB --facts "$machine" --explain --json row
    [[ $(instead layer2.0.conv1 keep reason) == faster ]] || fail "$(instead layer2.0.conv1 keep reason)"
    says out "ms less; the policy did not do that"
    own=$(value row iteration_seconds_predicted)
    expect 0 plan --net resnet8 --batch 32 --policy "rules:layer2.0.conv1=keep;$rest" --budget 30MiB --facts "$machine" --json other
    changed=$(value other iteration_seconds_predicted)
    awk "BEGIN { d = $own - $changed + $(instead layer2.0.conv1 keep more_seconds); exit !(d * d < 1e-12) }" ||
        fail "$own s, $changed s, told $(instead layer2.0.conv1 keep more_seconds) s"
}

a_kept_map_has_room_() {
    expect 0 plan --net resnet8 --batch 32 --policy liveness --explain --json row
    says out "keep, there is room"
    [[ $(<out) != *instead* && $(instead conv1 keep reason) == room ]] || fail "reasons where nothing is acted on"
    (($(count row '"reason"') == 10)) || fail "$(count row '"reason"') reasons"
    expect 0 plan --net resnet8 --batch 32 --policy liveness --explain-all --json row
    (($(count row '"reason"') == $(count row '"decided_seconds"'))) || fail "not of all maps"
}

# auto on a transformer in little memory: each reason is one of the list.
the_reasons_of_auto_are_told_() {
    expect 0 plan --net gpt --batch 64 --policy auto --budget 60MiB --facts "$h200" --explain --json row
    local reason known=" room impossible barred device pinned places slower equal faster "
    for reason in $(values row reason); do [[ $known == *" $reason "* ]] || fail "reason $reason"; done
    (($(count row '"reason"') > 10)) || fail "$(count row '"reason"') reasons"
}

# ---------------------------------------------------------------- sub-batches

more_memory_is_never_slower_in_sub_batches_() {
    local budget ns last=1e9
    for budget in 4.5GiB 5.62GiB 8.21GiB 12GiB 16GiB; do
        expect 0 plan --net vgg101 --batch 128 --facts "$k40" --policy modnn --optimizer sgd,momentum=0 --sub-batch auto \
            --budget $budget --json row
        ns=$(value row iteration_seconds_predicted)
        ! is_less "$last" "$ns" || fail "$budget: $ns s, $last s with less"
        last=$ns
    done
}

sub_batches_that_gain_are_offered_() {
    local speed
    local -a plan=(plan --net gpt --batch 64 --facts "$h200" --json row)
    expect 0 "${plan[@]}" --policy auto --budget 46MiB
    speed=$(value row images_per_second)
    is_less 1.1 "$(value row times)" || fail "$(value row times) times"
    [[ $(value row differs) == rounding ]] || fail "$(value row differs)"
    says out "auto:subbatch=auto would make at least "
    says out "the same sums in another order: bits differ"
    says out "(whole batches, this budget, these codecs): no plan is faster"
    [[ $(value row bound_of) == "whole batches, this budget, these codecs" ]] || fail "$(value row bound_of)"
    expect 0 "${plan[@]}" --policy auto:subbatch=auto --budget 46MiB
    awk "BEGIN { exit !(64 / $(value row iteration_seconds_predicted) > 0.999 * $speed) }" || fail "not so fast"
    says out "(these sub-batches, this budget, these codecs)"
    expect 0 "${plan[@]}" --policy auto --budget 120MiB
    [[ $(<out) != *subbatch* && -z $(values row differs) ]] || fail "an offer where it gains nothing"
    expect 0 "${plan[@]}" --policy swap --budget 80MiB
    [[ $(<out) != *subbatch* ]] || fail "an offer to another policy than auto"
}

sub_batches_that_alone_fit_are_offered_() {
    expect 1 plan --net resnet8 --batch 64 --policy auto --budget 6MiB --facts "$machine" --json row
    [[ $(value row differs) == statistics && $(value row times) == null ]] || fail "$(<row)"
    says out "batch norms normalise each sub-batch by itself: statistics differ"
    says err "; with --sub-batch auto policy auto would fit at "
    refused 1 "policy auto would fit (batch norms normalise each sub-batch by itself: statistics differ)" \
        train --net resnet8 --batch 64 --iterations 1 --quiet --policy auto --budget 6MiB
}

a_table_offers_the_same_sub_batches_() {
    local plan
    expect 1 plan --net resnet8 --batch 64 --policy auto --budget 6MiB --facts "$machine" --json row
    plan=$(value row images_per_second)
    expect 0 bench --net resnet8 --batch 64 --policies auto,swap --budgets 6MiB,60MiB --simulate "$machine" --quiet \
        --json rows
    [[ $(values rows differs) == statistics && $(values rows times) == null ]] || fail "$(values rows differs)"
    [[ $(values rows images_per_second | grep -cxF "$plan") == 1 ]] || fail "$plan images/s are planned"
    says out "resnet8, batch 64, 6MiB: auto:subbatch=auto would make at least "
}

run_cases
