#!/bin/bash
# mm bench: tables over budgets and batches, simulation, and the simulator's error against measurements.
# SPDX-License-Identifier: MIT
# shellcheck source=tests/tools/cli.sh
. "$(dirname "${BASH_SOURCE[0]}")/cli.sh"

machine=$(realpath "$2")
link_orders=$(realpath "$3")
codec_bench=$(realpath "$4")
workflow=$(realpath "$5")
gradients=$(realpath "$6")
profile_sub_batch=$(realpath "$7")
simulate_any=(bench --simulate "$machine" --net tiny --quiet)
simulate=("${simulate_any[@]}" --batch 32)
measure_any=(bench --net tiny --iterations 2 --quiet)
measure=("${measure_any[@]}" --batch 8)

# Prints the number of rows whose KEY has this VALUE.
rows_with() { # FILE KEY VALUE
    local each n=0
    for each in $(values "$1" "$2"); do [[ $each != "$3" ]] || n=$((n + 1)); done
    echo $n
}

# ---------------------------------------------------------------- tables

throughput_is_printed_against_the_budget_() {
    expect 0 "${simulate[@]}" --policies liveness,freelunch,swap --budgets sweep:4 --json rows
    says out "tiny, batch 32: images/s by budget"
    mapfile -t lines < <(sed -n '/images.s by budget/,$p' out)
    ((${#lines[@]} == 6)) || fail "${#lines[@]} lines"
    [[ ${lines[1]} =~ ^policy(\ +[0-9.]+[KM]iB){4}$ ]] || fail "no four budgets: ${lines[1]}"
    [[ ${lines[2]} =~ ^liveness(\ +-){3}\ +[0-9.]+$ ]] || fail "liveness fits only the last: ${lines[2]}"
    [[ ${lines[4]} =~ ^swap(\ +[0-9.]+){4}=$ ]] || fail "swap fits all: ${lines[4]}"
    [[ ${lines[5]} == "= the same plan as a policy further up" ]] || fail "${lines[5]}"
    mapfile -t budgets < <(values rows budget_bytes)
    ((budgets[0] == $(minimum tiny 32 swap))) || fail "the least is ${budgets[0]}"
    ((budgets[11] == $(minimum tiny 32 liveness))) || fail "the most is ${budgets[11]}"
}

lossy_policies_are_marked_in_every_table_() {
    expect 0 "${simulate[@]}" --policies liveness,freelunch,freelunch:codec=raw,cdma --budgets 3MiB,2900KiB --json rows
    (($(count out $'\ntiny     32  freelunch (lossy) ') == 2)) || fail "not two rows of freelunch marked"
    (($(count out $'\nfreelunch (lossy) ') == 1)) || fail "not marked in the table over budgets"
    (($(count out "freelunch, budget") == 0)) || fail "not marked as the rows come"
    (($(rows_with rows lossy true) == 2)) || fail "$(rows_with rows lossy true) rows say that they are lossy"
    expect 0 plan --net tiny --batch 8 --policy freelunch,recompute --json planned
    says out "tiny, batch 8, freelunch (lossy)"
    [[ $(values planned lossy) == $'true\nfalse' ]] || fail "plan's rows say: $(values planned lossy)"
    expect 0 "${measure[@]}" --policies freelunch,swap --json rows
    says out "freelunch (lossy) "
    [[ $(tail -1 out) =~ freelunch\ \(lossy\)\ [0-9.]+ ]] || fail "not marked in the ranking: $(tail -1 out)"
    [[ $(values rows lossy) == $'true\nfalse' ]] || fail "the rows do not say so"
}

# In a budget that suffices without them, policies do what liveness does: what differs is noise, and no code is lossy.
rows_with_the_same_plan_are_not_ranked_() {
    COLUMNS=120 expect 0 "${measure[@]}" --policies naive,liveness,recompute,freelunch --budgets 90MiB --json rows
    [[ $(values rows same_plan_as) == $'null\nnull\nliveness\nliveness' ]] || fail "$(values rows same_plan_as)"
    [[ $(values rows lossy | sort -u) == false ]] || fail "nothing was encoded"
    says out "(same plan as liveness)"
    says out "fastest first (=: the same plan; the mean)"
    says out "liveness = recompute = freelunch "
    [[ $(values rows would) == $'null\nnull\nrecompute:when=always\nfreelunch:when=always' ]] || fail "$(values rows would)"
    says rows "recompute acts on no map of tiny train 8 where the budget suffices without it; "
    expect 0 "${measure[@]}" --policies liveness,freelunch --budgets 800KiB,90MiB --json rows
    says out "= the same plan as a policy further up: differences are noise"
    says out "freelunch (lossy), budget 800KiB"
    says out "freelunch, budget 90MiB"
    expect 0 "${simulate[@]}" --policies liveness,swap --budgets 16MiB --json rows
    [[ $(values rows same_plan_as) == $'null\nliveness' && $(values rows would) == *swap:when=always ]] || fail "simulated"
    expect 0 plan --net tiny --batch 8 --policy freelunch --budget 90MiB --json planned
    says out "freelunch acts on no map of tiny train 8"
    [[ $(value planned would) == freelunch:when=always && $(value planned lossy) == false ]] || fail "mm plan"
}

throughput_is_printed_against_the_batch_() {
    expect 0 "${simulate_any[@]}" --batches 4,16,64 --policies liveness,swap --budgets 3MiB
    says out "tiny, budget 3MiB: images/s by batch"
    mapfile -t lines < <(sed -n '/images.s by batch/,$p' out)
    [[ ${lines[1]} =~ ^policy\ +4\ +16\ +64$ ]] || fail "${lines[1]}"
    [[ ${lines[2]} =~ ^liveness(\ +[0-9.]+){2}\ +-$ ]] || fail "${lines[2]}"
}

a_sweep_of_batches_ends_with_the_largest_that_fits_() {
    expect 0 "${simulate_any[@]}" --batch sweep --policies liveness,swap --budgets 3MiB --json rows
    mapfile -t batches < <(values rows batch)
    ((${#batches[@]} == 14)) || fail "${#batches[@]} rows"
    local last=${batches[-1]}
    [[ $(printf '%s\n' "${batches[@]}") == "$(printf '%s\n' "${batches[@]}" | sort -n)" ]] || fail "they do not rise"
    expect 0 plan --net tiny --policy liveness --budget 3MiB --max-batch --json plan
    [[ " ${batches[*]} " == *" $(value plan max_batch) "* ]] || fail "liveness' largest batch is left out"
    [[ $(values rows status | tail -1) == ok ]] || fail "no policy fits $last"
    expect 0 plan --net tiny --policy swap --budget 3MiB --max-batch --json plan
    (($(value plan max_batch) == last)) || fail "$last is not the largest"
}

a_machine_measures_the_same_tables_() {
    expect 0 "${measure_any[@]}" --policies liveness,swap --budgets sweep:2 --batch 4,8 --svg chart.svg --json rows
    says out "tiny, batch 4: images/s by budget"
    says out "tiny, batch 8: images/s by budget"
    (($(rows_with rows simulated false) == 8)) || fail "not eight measured rows"
    balanced chart.svg
    says chart.svg "tiny, batch 8: images/s over the budget"
}

# A batch of 32 in sub-batches of 5: the last one has 2. Rows say what mm plan says for the same options.
rows_in_sub_batches_are_of_whole_updates_() {
    local net=(--net tiny --batch 32 --sub-batch 5) key
    expect 0 bench --simulate "$machine" "${net[@]}" --quiet --policies liveness,vdnn-all --budgets 500KiB,3MiB --json rows
    says out "32/5  liveness"
    says out "tiny, batch 32, sub-batch 5: images/s by budget"
    [[ $(values rows sub_batch) == $'5\n5\n5\n5' ]] || fail "$(values rows sub_batch)"
    expect 0 plan --facts "$machine" "${net[@]}" --policy liveness,vdnn-all --budget 3MiB --minimum --json plan
    for key in minimum_bytes predicted_peak_bytes iteration_seconds_predicted bound_seconds; do
        [[ $(values rows $key | tail -2) == "$(values plan $key)" ]] || fail "$key: $(values rows $key)"
    done
    is_less 27387 "$(values rows images_per_second | tail -1)" || fail "not images of whole updates"
    expect 0 "${measure[@]}" --sub-batch 3 --policies liveness,swap --json rows
    says out "8/3  liveness"
    says err "the batch norms of tiny normalise 3 images at a time"
    [[ $(values rows sub_batch) == $'3\n3' && $(rows_with rows status ok) == 2 ]] || fail "rows: $(values rows status)"
    expect 0 plan --net tiny --batch 8 --sub-batch 3 --policy liveness,swap --json plan
    [[ $(values rows stash_bytes | head -1) == "$(values plan stash_bytes | head -1)" ]] || fail "the last pass's stash"
}

# --sub-batch sets the sub-batch of policies without the option subbatch; auto chooses one for each budget.
each_policy_has_a_sub_batch_of_its_own_() {
    local -a n
    expect 0 "${simulate[@]}" --budgets 1MiB,2MiB --json rows --policies liveness,vdnn-all:subbatch=9,vdnn-conv:subbatch=auto
    mapfile -t n < <(values rows sub_batch)
    ((n[0] == 32 && n[1] == 9 && n[3] == 32 && n[4] == 9 && n[2] < n[5] && n[5] < 32)) || fail "${n[*]}"
    says out "tiny, batch 32, in sub-batches: images/s by budget"
    expect 0 plan --facts "$machine" --net tiny --batch 32 --policy vdnn-conv:subbatch=auto --budget 2MiB --json plan
    [[ $(value plan sub_batch) == "${n[5]}" ]] || fail "mm plan chooses $(value plan sub_batch), mm bench ${n[5]}"
    expect 0 "${simulate[@]}" --budgets own --json rows --policies vdnn-conv:subbatch=auto
    [[ $(value rows sub_batch) == 32 ]] || fail "without a budget the batch is in sub-batches"
    expect 0 "${simulate[@]}" --sub-batch auto --budgets sweep:2,100KiB --json rows --policies liveness,vdnn-all:subbatch=9
    mapfile -t n < <(values rows sub_batch)
    [[ ${n[*]} == "1 1 32 32 1 1" ]] || fail "${n[*]}"
    (($(rows_with rows status ok) == 3)) || fail "$(values rows status)"
}

sub_batches_that_cannot_be_are_refused_before_anything_runs_() {
    refused 2 "--sub-batch 9: must be from 1 to the batch, 8, or auto" "${measure_any[@]}" --batch 16,8 --sub-batch 9
    refused 2 "subbatch=9: must be at most the batch, 8" "${measure[@]}" --policies vdnn-all:subbatch=9
    refused 2 "--sub-batch auto: needs sizes in --budgets" "${measure[@]}" --sub-batch auto
    refused 2 "--batch sweep: chooses whole batches" "${simulate_any[@]}" --batch sweep --budgets 3MiB --sub-batch 2
    refused 2 "--facts measures whole batches" "${measure[@]}" --sub-batch 2 --facts facts
    refused 2 "--predict measures whole batches" "${measure[@]}" --policies vdnn-all:subbatch=2 --predict
    expect 0 "${measure[@]}" --policies vdnn-all:subbatch=auto --facts facts
}

# A machine's rates fit any sub-batch. Of facts that were measured with one batch, sub-batches must be asked for.
measured_facts_keep_a_policy_that_chooses_to_whole_batches_() {
    local run=(--net tiny --policy modnn --budget 400KB --facts facts --threads 1 --json rows)
    expect 0 bench --net tiny --batch 4 --iterations 2 --policies modnn --facts facts --threads 1 --quiet
    expect 0 plan "${run[@]}" --batch 4
    [[ $(value rows sub_batch) == 4 ]] || fail "mm plan: $(value rows sub_batch) images at a time"
    expect 0 train "${run[@]}" --batch 4 --iterations 1 --quiet
    [[ $(value rows sub_batch) == 4 ]] || fail "mm train: $(value rows sub_batch) images at a time"
    expect 0 bench --simulate facts --policies modnn --budgets 400KB,sweep:2 --threads 1 --json rows --quiet
    [[ $(rows_with rows status ok) == 3 && $(rows_with rows sub_batch 4) == 3 ]] || fail "not three rows of batch 4"
    expect 0 bench --simulate facts --policies modnn --sub-batch 2 --budgets 400KB --threads 1 --json rows --quiet
    (($(rows_with rows sub_batch 2) == 1)) || fail "one that is asked for: $(<rows)"
    refused 2 "facts: was measured with batch 4, but this is batch 8" plan "${run[@]}" --batch 8
    expect 0 plan "${run[@]}" --batch 8 --sub-batch 4
    expect 0 plan --net tiny --policy modnn --budget 300KB --facts "$machine" --batch 4 --json rows
    (($(value rows sub_batch) < 4)) || fail "by a machine's rates the batch is whole"
}

# Times of other batches follow from those that were measured, as they do from a machine's rates.
several_batches_that_were_measured_give_times_of_any_() {
    local n budget=(--net tiny --batch 16 --policy modnn --budget 500KB --threads 1 --json row)
    for n in 2 8; do
        expect 0 bench --net tiny --batch $n --iterations 2 --policies liveness,modnn --facts facts$n --threads 1 --quiet
    done
    expect 0 plan "${budget[@]}" --facts facts2,facts8
    (($(value row sub_batch) < 16)) || fail "with two files the batch is whole"
    expect 0 train "${budget[@]}" --facts facts2,facts8 --iterations 1 --quiet
    (($(value row sub_batch) < 16)) || fail "mm train: the batch is whole"
    expect 0 plan --net tiny --batch 4 --policy liveness --threads 1 --facts facts2,facts8 --json row
    refused 2 "facts2: is of the same batch as another file" plan "${budget[@]}" --facts facts2,facts2
    refused 2 "$machine: does not hold measured facts" plan "${budget[@]}" --facts "facts2,$machine"
    refused 1 "facts file missing: cannot be read" plan "${budget[@]}" --facts facts2,missing
    refused 1 "is for another graph" plan --net resnet8 --batch 4 --policy liveness --facts facts2,facts8
}

# moDNN's loop ends with a size that was measured, and its facts choose that size again.
sub_batches_are_measured_and_chosen_in_turns_() {
    local loop=("$profile_sub_batch" --net tiny --batch 16 --budget 400KB --mm "$mm" --iterations 2 --threads 1 --work w)
    local size facts
    "${loop[@]}" >out 2>err || fail "the loop failed"
    size=$(tail -2 out | head -1)
    [[ $size =~ ^([0-9]+)\ images?\ at\ a\ time,\ predicted ]] || fail "no size: $size"
    size=${BASH_REMATCH[1]}
    [[ -e w/tiny-$size.json && $(ls w) != *chosen* ]] || fail "$(ls w)"
    [[ $(tail -1 out) == *"mm train "*"--sub-batch $size --facts w/tiny-"*".json,w/tiny-"* ]] || fail "no command"
    facts=$(tail -1 out)
    expect 0 plan --net tiny --batch 16 --budget 400KB --policy modnn --threads 1 --sub-batch auto \
        --facts "${facts##*--facts }" --json row
    [[ $(value row sub_batch) == "$size" ]] || fail "$(value row sub_batch), not $size"
    facts=$(ls -l --time-style=full-iso w)
    "${loop[@]}" >out 2>err || fail "the second loop failed"
    [[ $(ls -l --time-style=full-iso w) == "$facts" && $(wc -l <out) == 2 ]] || fail "it measured again"
    ! "${loop[@]}" --net nope >out 2>err || fail "a network that is not there is measured"
    says err "nope"
    [[ $(wc -l <err) -le 2 ]] || fail "no short message"
}

# The size that --sub-batch auto chooses is as fast as any size that fits.
a_sub_batch_that_is_chosen_is_as_fast_as_any_() {
    local plan=(plan --net resnet20 --batch 256 --policy modnn --facts "$(dirname "$machine")/k40.json" --json rows)
    local budget n chosen
    for budget in "12MiB 4 8 16" "48MiB 16 32 128"; do
        expect 0 "${plan[@]}" --budget "${budget%% *}" --sub-batch auto
        chosen=$(value rows iteration_seconds_predicted)
        for n in ${budget#* }; do
            expect 0 "${plan[@]}" --budget "${budget%% *}" --sub-batch "$n"
            is_less "$chosen" "$(value rows iteration_seconds_predicted)" || fail "$budget: auto takes $chosen, $n less"
        done
    done
}

all_policies_and_peers_are_those_listed_but_for_those_that_ask_() {
    expect 0 "${simulate[@]}" --policies all --json rows
    local line listed=() peers=()
    while IFS= read -r line; do
        case $line in
            ' '* | rules* | plan*) ;;
            *' for comparison: '*) peers+=("${line%% *}") ;;
            *) listed+=("${line%% *}") ;;
        esac
    done < <("$mm" policies)
    [[ $(values rows policy) == "$(printf '%s\n' "${listed[@]}")" ]] || fail "$(values rows policy)"
    (($(rows_with rows status ok) == ${#listed[@]})) || fail "$(values rows status)"
    expect 0 "${simulate[@]}" --policies peers --json rows
    [[ $(values rows policy) == "$(printf '%s\n' "${peers[@]}")" && ${#peers[@]} -gt 0 ]] || fail "$(values rows policy)"
    (($(rows_with rows status ok) == ${#peers[@]})) || fail "$(values rows status)"
}

codes_of_variable_size_train_as_no_codes_do_() {
    local -a bench=(bench --net resnet8 --batch 8 --budgets plans --iterations 3 --quiet)
    expect 0 "${bench[@]}" --json rows --facts facts --policies \
        "liveness,rules:*=compress(zvc),when=always,rules:*=compress-swap(zvc),when=always,rules:*=compress(zvc:reserve=1)"
    (($(values rows loss_last | grep -v null | sort -u | wc -l) == 1)) || fail "other losses: $(values rows loss_last)"
    mapfile -t coded < <(values rows coded_bytes)
    mapfile -t spilled < <(values rows spilled_bytes)
    mapfile -t policy < <(values rows policy)
    ((${#coded[@]} > 12)) || fail "${#coded[@]} rows"
    for i in "${!coded[@]}"; do
        [[ ${policy[i]} == *always && ${coded[i]} != null ]] || continue
        ((coded[i] > 0)) || fail "no codes under ${policy[i]}"
        [[ ${policy[i]} != *compress-swap* ]] || ((2 * spilled[i] > coded[i])) || fail "${spilled[i]} of ${coded[i]}"
    done
    grep -q '"body_typical_bytes": [1-9]' facts || fail "not measured: what bodies take"
    expect 0 bench --simulate facts --policies "rules:*=compress(zvc),when=always" --quiet
}

one_case_ends_with_its_policies_by_speed_() {
    expect 0 "${simulate[@]}" --policies swap,liveness
    says out "tiny, batch 32, each in its own budget: images/s, fastest first"
    [[ $(tail -1 out) =~ ^\ \ liveness\ [0-9.]+\ \>\ swap\ [0-9.]+$ ]] || fail "$(tail -1 out)"
}

curves_are_drawn_() {
    expect 0 "${simulate_any[@]}" --batch 8,32 --policies 'liveness,swap,freelunch:rate=4' --budgets 1MiB,2MiB,4MiB --svg c.svg
    balanced c.svg
    for text in "tiny, batch 8: images/s over the budget" "tiny, budget 2MiB: images/s over the batch" \
        ">liveness, swap, freelunch:rate=4 (one line: they coincide)<"; do says c.svg "$text"; done
    (($(count c.svg "<path class=\"mark\"") == 8 + 5)) || fail "$(count c.svg "<path class=\"mark\"") marks"
    expect 0 "${simulate_any[@]}" --batch 8,32 --policies 'liveness,swap,freelunch:rate=4' --budgets 1MiB,2MiB,4MiB --svg d.svg
    equal c.svg d.svg
    says c.svg 'style="max-width:100%;height:auto"' # a window that is narrower shows all of it
    expect 0 "${simulate_any[@]}" --batch 8 --policies liveness,swap --budgets 500KiB,4MiB --svg e.svg
    says e.svg ">liveness (does not fit below "
    sed -nE 's/.* y1="([0-9.]+)".*/grid \1/p; s/.*class="mark".* d="M[0-9.]+ ([0-9.]+)m.*/mark \1/p' e.svg |
        awk '!($1 in top) || $2 < top[$1] { top[$1] = $2 } END { exit !(top["mark"] >= top["grid"] && top["grid"] > 0) }' ||
        fail "a mark lies beyond the last tick"
}

# rules:*=keep has the same times as liveness everywhere, and swap where liveness fits too.
coinciding_curves_are_told_apart_() {
    expect 0 "${simulate_any[@]}" --batch 8,32,48 --policies 'liveness,rules:*=keep,swap' --budgets 4MiB --svg c.svg
    says c.svg "liveness, rules:*=keep (up to batch 32) (one line: they coincide)"
    says c.svg "<title>liveness, rules:*=keep, swap</title>"
    (($(count c.svg "stroke-dasharray=\"7 7\"") == 2)) || fail "no stretch that both lines share"
    (($(count c.svg "class=\"many\"") == 0)) || fail "two marks have room side by side"
    ! (says c.svg "A number in a mark: so many lines meet there") >/dev/null || fail "a number that is not there is explained"
    expect 0 "${simulate_any[@]}" --batch 8,32 --policies liveness,swap,recompute,hybrid,vdnn-all --budgets 4MiB --svg d.svg
    balanced d.svg
    says d.svg "liveness, swap, recompute, hybrid, vdnn-all (one line: they coincide)"
    expect 0 "${simulate_any[@]}" --batch sweep --policies liveness,swap,recompute,hybrid,vdnn-all --budgets 2MiB --svg e.svg
    says e.svg "class=\"count\">5<"
    says e.svg "A number in a mark: so many lines meet there"
}

policies_that_never_fit_are_listed_with_their_minimum_() {
    local least
    least=$(minimum tiny 32 naive)
    expect 0 "${simulate[@]}" --policies naive,liveness,swap --budgets 3MiB,4MiB --svg c.svg --json rows
    says c.svg "naive: never fits, needs at least "
    [[ $(values rows minimum_bytes) == "$least"$'\n'* ]] || fail "another minimum"
    ! (says c.svg "liveness: never fits") >/dev/null || fail "liveness runs in 4MiB"
    expect 0 "${simulate_any[@]}" --batch 32,64 --policies naive,swap --budgets 8MiB --svg d.svg
    says d.svg "naive: never fits, needs at least "
    says d.svg ", at batch 32"
}

# ---------------------------------------------------------------- simulated

a_simulation_gives_the_same_times_again_() {
    expect 0 "${simulate[@]}" --policies all --json a
    expect 0 "${simulate[@]}" --policies all --json b
    equal a b
    [[ $(values a device | sort -u) == titanx ]] || fail "$(values a device)"
    (($(rows_with a simulated true) == $(values a simulated | wc -l))) || fail "not all are simulated"
}

a_policy_that_does_not_fit_is_a_row_that_says_why_() {
    COLUMNS=100 expect 0 "${simulate[@]}" --policies liveness --budgets 1MiB --json rows
    says out "infeasible: needs at least $(minimum tiny 32 liveness) bytes ("
    [[ $(values rows images_per_second) =~ ^0 ]] || fail "it has a speed"
    expect 0 "${simulate[@]}" --policies swap:when=always --pinned 1KiB
    says out "of pinned host"
    expect 0 "${simulate[@]}" --policies swap --budgets 1MiB --pinned 1KiB
    says out "infeasible: with 1024 bytes (1KiB) of"
}

# moDNN's Figure 17, VGG-16: four GPUs with 12 GiB each are three times as fast as one that can keep everything.
four_gpus_are_three_times_as_fast_as_the_ideal_of_one_() {
    local k40 speeds
    k40=$(dirname "$machine")/k40.json
    expect 0 plan --net vgg16 --batch 256 --policy naive --facts "$k40" --json ideal
    expect 0 bench --simulate "$k40" --net vgg16 --batch 256 --ranks 1,2,4 --budgets 12GiB --policies modnn --json rows --quiet
    mapfile -t speeds < <(values rows images_per_second)
    awk "BEGIN { exit !(${speeds[2]} * $(value ideal iteration_seconds_predicted) / 256 >= 3.1) }" || fail "${speeds[*]}"
}

# The workspaces that convolutions need on the k40 count in each row's minimum and in budgets derived from needs.
needs_are_those_with_the_workspaces_of_the_machine_() {
    local any=(bench --simulate "$(dirname "$machine")/k40.json" --net tiny --batch 32 --quiet --json rows) least
    expect 0 "${any[@]}" --budgets own --policies liveness
    least=$(value rows minimum_bytes)
    expect 0 "${any[@]}" --budgets 1MiB --policies liveness
    [[ $(value rows status) == "infeasible: needs at least $least bytes ("* ]] || fail "$(value rows status)"
    expect 0 "${any[@]}" --budgets 1MiB --policies liveness --pinned 1KiB
    [[ $(value rows status) == "infeasible: needs at least $least bytes ("* ]] || fail "$(value rows status)"
    expect 0 "${any[@]}" --budgets plans --policies liveness,modnn:subbatch=off
    [[ $(rows_with rows status ok) == 3 && $(values rows budget_bytes | head -1) == "$least" ]] || fail "plans: $(<out)"
    expect 0 "${any[@]}" --budgets sweep:2 --policies liveness,vdnn-all:subbatch=off
    [[ $(rows_with rows status ok) == 3 && $(values rows budget_bytes | tail -1) == "$least" ]] || fail "sweep: $(<out)"
}

facts_are_of_their_own_network_and_batch_() {
    expect 0 bench --net tiny --batch 8 --iterations 3 --policies liveness,swap --facts eight --quiet
    expect 0 bench --net tiny --batch 16 --iterations 3 --policies liveness,swap --facts sixteen --quiet
    expect 0 bench --simulate eight,sixteen --policies liveness,swap --json rows --quiet
    [[ $(values rows batch | tr '\n' ' ') == "8 8 16 16 " ]] || fail "batches $(values rows batch)"
    says out "tiny, each in its own budget: images/s by batch"
    refused 2 "--net and --batch need a machine's rates" bench --simulate eight --net resnet20 --quiet
    sed 's/"tiny train 8"/"resnet20 train 8"/' eight >renamed
    expect 1 bench --simulate renamed --policies liveness --quiet
    says err "renamed is for another graph"
    expect 1 bench --simulate eight --policies liveness,freelunch:rate=4 --quiet
    says err "eight has no times of "
}

facts_are_not_written_where_nothing_was_measured_() {
    local few=("${measure[@]}" --policies "liveness,swap" --facts facts --budgets)
    expect 1 "${few[@]}" 1KiB
    says out "infeasible: "
    says err "--facts facts: no policy fitted its budget"
    [[ ! -e facts ]] || fail "facts were written"
    echo kept >facts
    expect 1 "${few[@]}" 1KiB,2KiB
    [[ $(<facts) == kept ]] || fail "facts were written over"
    expect 0 "${few[@]}" 1KiB,own
    expect 0 bench --simulate facts --policies liveness --quiet
}

facts_are_of_their_own_optimizer_() {
    expect 0 bench --net tiny --batch 8 --iterations 3 --policies liveness --optimizer adamw --facts adamw --quiet
    expect 0 plan --net tiny --batch 8 --policy liveness --optimizer adamw --facts adamw
    says out "predicted step"
    expect 0 bench --simulate adamw --policies liveness --optimizer adamw --quiet
    expect 1 bench --simulate adamw --policies liveness --quiet
    says err "adamw is for another graph"
    expect 0 device --net tiny --batch 8 --iterations 2 --policies liveness --optimizer adamw --facts adamw
    expect 0 plan --net tiny --batch 8 --policy liveness --optimizer adamw --facts adamw
    refused 2 "--optimizer adam: no optimizer 'adam'" bench --net tiny --optimizer adam
    refused 2 "--optimizer: needs --facts FILE" device --optimizer adamw
}

facts_say_of_how_many_threads_they_are_() {
    expect 0 bench --net tiny --batch 8 --iterations 3 --policies liveness --facts two --json rows --threads 2 --quiet
    [[ $(value rows threads) == 2 ]] || fail "the row does not say it"
    grep -q '"threads": 2' two || fail "the facts do not say it"
    expect 0 plan --net tiny --batch 8 --policy liveness --facts two --threads 2
    [[ ! -s err ]] || fail "told what does not differ"
    expect 0 plan --net tiny --batch 8 --policy liveness --facts two --threads 3
    says err "mm: two: was measured on 2 threads, but this computes on 3: times and workspaces differ"
    expect 0 bench --simulate two --policies liveness --threads 1 --quiet
    says err "measured on 2 threads, but this computes on 1"
    refused 2 "--threads" plan --net tiny --threads 0
    refused 2 "--codec-threads" bench --net tiny --codec-threads 257
    refused 2 "--threads: needs --facts FILE" device --threads 2
    refused 2 "--precision: needs --facts FILE" device --precision bf16
    refused 2 "--deterministic: needs --facts FILE" device --deterministic
}

facts_say_what_the_link_does_both_ways_() {
    expect 0 bench --net tiny --batch 8 --iterations 3 --policies liveness,swap:when=always --link 400MB --facts facts \
        --quiet
    [[ $(grep -c '"[a-z]*_both_bytes_per_s": [1-9]' facts) == 2 ]] || fail "not measured: $(grep both facts)"
    expect 0 bench --simulate facts --policies liveness,swap:when=always --quiet
    # Facts of a run in which nothing was copied in one direction alone. The rates of both directions are set too: those
    # that a busy machine measures may contradict the nominal ones.
    sed -i -E 's/"(out|in)_bytes_per_s": [0-9]+/"\1_bytes_per_s": 0/
        s/"(out|in)_both_bytes_per_s": [0-9]+/"\1_both_bytes_per_s": 1/' facts
    expect 0 plan --net tiny --batch 8 --policy swap:when=always --facts facts
}

a_machines_facts_can_be_written_out_() {
    expect 0 "${simulate[@]}" --policies liveness,swap,freelunch --facts facts --json rates
    expect 0 bench --simulate facts --policies liveness,swap,freelunch --json facts.rows --quiet
    [[ $(values rates iteration_seconds_predicted) == "$(values facts.rows iteration_seconds_predicted)" ]] ||
        fail "other times than the machine's"
    expect 0 plan --net tiny --batch 32 --policy liveness --facts "$machine" --json plan
    [[ $(value plan iteration_seconds_predicted) == "$(values rates iteration_seconds_predicted | head -1)" ]] ||
        fail "mm plan has other times"
}

ranks_share_the_link_and_their_sums_hide_() {
    local speeds
    sed 's/"issue_ns"/"host_sum_bytes_per_s": 8e9, "link_sharers": 4, &/' "$machine" >four
    local ranks=(bench --simulate four --net vgg16 --batch 256 --policies naive --json rows --quiet --sum-at root)
    expect 0 "${ranks[@]}" --ranks 1,4
    says out "4x64"
    [[ $(values rows ranks) == $'1\n4' && $(values rows batch) == $'256\n256' ]] || fail "rows: $(<rows)"
    mapfile -t speeds < <(values rows images_per_second)
    awk "BEGIN { exit !(${speeds[1]} > 3.5 * ${speeds[0]} && ${speeds[1]} < 4 * ${speeds[0]}) }" || fail "${speeds[*]}"
    expect 0 "${ranks[@]}" --ranks 4 --sum end
    awk "BEGIN { exit !($(values rows images_per_second) < 0.95 * ${speeds[1]}) }" || fail "what is at the end hides"
    sed -i 's/"link_sharers": 4/"link_sharers": 1/; s/8e9/8e10/' four
    expect 0 "${ranks[@]}" --ranks 4 --sum end
    awk "BEGIN { exit !($(values rows images_per_second) > 0.9 * ${speeds[1]}) }" || fail "a link for each is no faster"
    expect 0 plan --net tiny --batch 8 --policy liveness --ranks 2 --json rows
    says out "tiny, batch 8, one of 2 ranks with 4 images, liveness"
    (($(value rows pinned_bytes) > 0)) || fail "gradients are nowhere in pinned memory"
    expect 0 plan --net tiny --batch 8 --policy liveness --ranks 2 --sum-at nccl --json rows
    (($(value rows pinned_bytes) == 0)) || fail "sums in place take pinned memory"
    expect 0 "${ranks[@]/root/nccl}" --ranks 4
    awk "BEGIN { exit !($(values rows images_per_second) > ${speeds[1]}) }" || fail "sums in place do not hide"
    refused 2 "--sum-at all: must be ranks, root, device or nccl" "${ranks[@]/root/all}" --ranks 4
    refused 2 "--ranks 0: must be a whole number from 1" "${ranks[@]}" --ranks 4,0
    refused 2 "--batch 256: is not a multiple of 3 ranks; the nearest are 255 and 258" "${ranks[@]}" --ranks 3
    refused 2 "--batch 2: is not a multiple of 3 ranks; the smallest is 3" plan --net tiny --batch 2 --ranks 3
    refused 2 "--sum never: must be overlap or end" "${ranks[@]}" --ranks 2 --sum never
    refused 2 "--sum: needs --ranks" plan --net tiny --sum end
    refused 2 "--ranks: goes with --simulate only" bench --net tiny --ranks 2
    refused 2 "--batch sweep: chooses batches of one device" "${ranks[@]/#256/sweep}" --ranks 2 --budgets 12GiB
    refused 2 "--ranks and --max-batch" plan --net tiny --ranks 2 --max-batch --budget 1GiB
}

speeds_of_networks_of_tokens_are_in_tokens_() {
    local gpt=(bench --simulate "$machine" --net "gpt,layers=1,width=16,heads=2,context=16,vocabulary=32" --batch 2)
    expect 0 "${gpt[@]}" --policies liveness,recompute:mode=sqrt,when=always,swap-async:when=always \
        --budgets 1MiB,2MiB --json rows --svg chart.svg
    says out " tokens/s "
    says out ": tokens/s by budget"
    says chart.svg ": tokens/s over the budget"
    [[ $(<out) != *img/s* && $(<out) != *images/s* ]] || fail "images/s: $(<out)"
    local images tokens
    images=$(values rows images_per_second | head -1) tokens=$(values rows tokens_per_second | head -1)
    awk "BEGIN { exit !($tokens / $images > 15.99 && $tokens / $images < 16.01) }" || fail "$tokens of $images"
    [[ $(values rows moved_bytes | tr '\n' ' ') == "0 0 "[1-9]* ]] || fail "moved: $(values rows moved_bytes)"
    [[ $(values rows steps_again | tr '\n' ' ') =~ ^0\ [1-9][0-9]*\ 0 ]] || fail "again: $(values rows steps_again)"
    expect 0 "${gpt[@]}" --policies liveness,swap-async:when=always
    says out ", each in its own budget: tokens/s, fastest first"
}

rates_of_an_element_type_count_for_its_maps_() {
    local plan=(plan --net "gpt,layers=1,width=64,heads=2,context=64,vocabulary=32" --batch 64 --policy liveness --json row)
    local times=()
    sed 's/"half_rate_elems"/"types": {"bf16": {"linear_flops_per_s": 1e9}}, &/;t
         s/"issue_ns"/"types": {"bf16": {"linear_flops_per_s": 1e9}}, &/' "$machine" >slow
    for run in "$machine fp32" "slow fp32" "$machine bf16" "slow bf16"; do
        expect 0 "${plan[@]}" --facts "${run% *}" --precision "${run#* }"
        times+=("$(value row iteration_seconds_predicted)")
    done
    [[ ${times[0]} == "${times[1]}" ]] || fail "f32: ${times[*]}"
    awk "BEGIN { exit !(${times[3]} > 10 * ${times[2]}) }" || fail "bf16: ${times[*]}"
    sed 's/"bf16"/"bf15"/' slow >unknown
    refused 1 "machine file unknown: types: bf15 is not an element type" "${plan[@]}" --facts unknown
    sed 's/1e9}}/"fast"}}/' slow >worded
    refused 1 "machine file worded: types: bf16: linear_flops_per_s is not a number" "${plan[@]}" --facts worded
}

bad_sources_are_refused_() {
    refused 1 "facts file nowhere: cannot be read: No such file" bench --simulate nowhere
    echo "{" >broken
    refused 1 "facts file broken, line " bench --simulate broken
    echo '{"format": "mm facts"}' >short
    refused 1 "facts file short: format: version is missing" bench --simulate short
    expect 0 "${simulate[@]}" --policies liveness --facts named
    sed 's/"name": ".* train .*"/"name": "mine"/' named >nameless
    refused 1 "nameless does not name its network and batch" bench --simulate nameless
    sed 's/"launch_ns": [0-9]*/"launch_ns": -1/' "$machine" >negative
    refused 1 "machine file negative: launch_ns is -1, must be 0 to" "${simulate[@]/#$machine/negative}"
    sed 's/"issue_ns"/"contention": {"dear": {"encode": 10, "decode": 9001}}, &/' "$machine" >crowded
    refused 1 "machine file crowded: contention of dear: decode is 9001, must be 0 to 9000" "${simulate[@]/#$machine/crowded}"
    sed '/"conv_flops_per_s"/d' "$machine" >missing
    refused 1 "machine file missing: conv_flops_per_s is missing" "${simulate[@]/#$machine/missing}"
    sed 's/"in_bytes_per_s": [0-9e]*/"in_bytes_per_s": 0/' "$machine" >linkless
    refused 1 "machine file linkless: link: in_bytes_per_s is 0, must be 1000 to" "${simulate[@]/#$machine/linkless}"
    sed 's/"zfp:rate=4"/"nope"/; s/"zfp:rate=6.4"/"nope2"/; s/"zfp"/"nope3"/' "$machine" >codecless
    expect 1 "${simulate[@]/#$machine/codecless}" --policies liveness,freelunch
    says err "codecless has no times of zfp:rate=6.4"
    says out liveness
    for option in --predict "--link 1MiB" "--alloc-cost 5"; do
        # shellcheck disable=SC2086
        refused 2 "--simulate runs nothing" "${simulate[@]}" $option
    done
}

codes_of_variable_size_take_what_a_study_says_() {
    local engine=(bench --simulate "$(dirname "$machine")/titanx-cdma.json" --net nin --batch 8 --fuse off --budgets own
        --policies "vdnn-all:when=always,cdma:codec=zvc,signs=whole,when=always" --quiet --json rows)
    local zeros speeds=()
    for zeros in 0.1 0.8; do # the two studies differ only in the bytes that cross the link
        expect 0 codecs --study --net nin --batch 1 --draw $zeros --windows 20 --quiet --json study
        expect 0 "${engine[@]}" --study study,nchw
        mapfile -t found < <(values rows images_per_second)
        is_less "${found[0]}" "${found[1]}" || fail "${found[*]}"
        speeds+=("${found[1]}")
    done
    is_less "${speeds[0]}" "${speeds[1]}" || fail "${speeds[*]}"
    expect 0 "${engine[@]}" # without a study, codes have the nominal share of zeros, 0.615
    is_less "$(values rows images_per_second | tail -1)" "${speeds[1]}" || fail "nominal codes take less than others"
    expect 0 plan --net nin --batch 8 --fuse off --policy cdma:codec=zvc,signs=whole,when=always --json plan \
        --facts "$(dirname "$machine")/titanx-cdma.json" --study study,nchw
    awk -v s="$(value plan iteration_seconds_predicted)" -v speed="${speeds[1]}" \
        'BEGIN { e = speed * s / 8; exit !(e > 0.999 && e < 1.001) }' || fail "mm plan has other times"
}

bad_studies_are_refused_() {
    refused 2 "--study: goes with --simulate only" bench --net tiny --study study --quiet
    refused 2 "--study: needs --facts" plan --net tiny --study study
    refused 1 "study file study: cannot be read: No such file" "${simulate[@]}" --study study
    echo '[{"layer": "relu1", "ratio": {"csr": {"nhwc": 2}}}]' >study
    refused 1 "study file study: does not hold rows" "${simulate[@]}" --study study
    refused 2 "the layout must be nhwc, nchw or chwn" "${simulate[@]}" --study study,hwcn
}

lists_are_read_through_before_anything_runs_() {
    for text in sweep:1 sweep:33 sweep:x sweeps; do
        refused 2 "--budgets" "${simulate[@]}" --budgets $text
        refused 2 "--batch" "${simulate_any[@]}" --batch $text --budgets 1MiB
    done
    refused 2 "needs one size in --budgets" "${simulate_any[@]}" --batch sweep
    refused 2 "needs one size in --budgets" "${simulate_any[@]}" --batch sweep --budgets 1MiB,2MiB
    refused 2 "--link codec/0: must be a size, or codec/N" "${measure[@]}" --link codec/0
    refused 2 "--link" "${measure[@]}" --link fast
    refused 1 "none/x: cannot be written" "${measure_any[@]}" --batch 4,8 --svg none/x
}

a_value_named_twice_runs_once_() {
    expect 0 "${simulate[@]}" --policies liveness,swap --budgets sweep:3,sweep:3 --json rows
    (($(values rows policy | wc -l) == 6)) || fail "$(values rows policy | wc -l) rows"
    expect 0 "${simulate_any[@]}" --policies liveness --batch 4,8,4 --budgets own,own --json rows
    [[ $(values rows batch | tr '\n' ' ') == "4 8 " ]] || fail "$(values rows batch)"
}

more_values_than_there_is_room_for_are_refused_() {
    local sweeps
    sweeps=$(printf 'sweep:32,%.0s' {1..8})
    refused 2 "--budgets: 257 values, at most 256" "${simulate[@]}" --budgets "${sweeps}own"
    refused 2 "--batch: 281 values, at most 256" "${simulate_any[@]}" --budgets 3MiB --batch "${sweeps}5"
}

# ---------------------------------------------------------------- predicted

every_measured_run_is_predicted_() {
    refused 2 "one of each" bench --net tiny,resnet20 --predict --facts facts
    expect 0 bench --net tiny,resnet20 --batch 4 --iterations 3 --predict --quiet --json rows \
        --policies 'liveness,swap,swap-async,freelunch,recompute,freelunch:buffers=naive,workspace=naive'
    (($(rows_with rows simulator_error null) == 0)) || fail "not all are predicted"
    (($(rows_with rows iteration_seconds_predicted null) == 0)) || fail "not all are predicted"
    says out " ms, "
    local policies calibrated i held=0
    mapfile -t policies < <(values rows policy)
    mapfile -t calibrated < <(values rows calibrated)
    for i in "${!policies[@]}"; do
        [[ ${calibrated[i]} == true ]] || held=$((held + 1))
        case ${policies[i]} in
        liveness) [[ ${calibrated[i]} == true ]] || fail "facts were measured of liveness" ;;
        swap | swap-async | recompute) [[ ${calibrated[i]} == false ]] || fail "no facts were measured of swap" ;;
        esac
    done
    local what="simulator error of $held runs without own facts"
    [[ $(tail -1 out) =~ ^$what:\ median\ [0-9.]+%,\ p90\ [0-9.]+%,\ max\ [0-9.]+%$ ]] || fail "$(tail -1 out)"
}

facts_for_predictions_are_measured_of_listed_codecs_alone_() {
    expect 0 bench --net tiny --batch 4 --iterations 3 --predict --quiet --policies hybrid,cdma --facts facts --json rows
    [[ $(values rows calibrated | tr '\n' ' ') == "false false " ]] || fail "$(values rows calibrated)"
    [[ $(<facts) == *zfp:rate=4* && $(<facts) == *raw* && $(<facts) != *zfp:rate=6.4* ]] || fail "other codecs"
    expect 0 bench --simulate facts --policies swap-async,hybrid --quiet
}

what_does_not_fit_is_not_predicted_() {
    local least
    least=$(minimum tiny 32 swap)
    expect 0 bench --net tiny --batch 32 --iterations 3 --predict --quiet --policies liveness,swap --budgets "$least" \
        --json rows
    mapfile -t predicted < <(values rows iteration_seconds_predicted)
    [[ ${predicted[0]} == null && ${predicted[1]} == 0.* ]] || fail "${predicted[*]}"
    [[ $(head -1 out) =~ ^tiny,\ batch\ 32,\ liveness,\ budget\ [0-9.]+[KM]iB:\ infeasible:\  ]] || fail "$(head -1 out)"
}

steps_are_told_beside_what_the_host_can_() {
    expect 0 "${measure[@]}" --policies liveness,recompute:when=always --kernels kernels
    says out "tiny, batch 8, liveness: steps take "
    grep -qE "^conv +backward +2 +[0-9.]+ +[0-9.]+ " out || fail "no row of convolutions' backward steps"
    python3 - <<'END' || fail "kernels"
import json
kept, again = json.load(open("kernels"))
host, steps = kept["host"], {(s["layer"], s["phase"]): s for s in kept["steps"]}
assert steps["conv1", "forward"]["flops"] == 2 * 8 * 32 * 32 * 8 * 5 * 5 * 3
assert steps["fc", "backward"]["flops"] == 2 * 2 * 8 * 256 * 10  # of the input and of the weights
assert steps["relu1", "backward"]["bytes"] == 3 * 4 * 8 * 32 * 32 * 8 + 32  # and the bias's gradient
assert not any(s["again"] for s in kept["steps"]) and any(s["again"] for s in again["steps"])
for run in kept, again:
    for s in run["steps"]:
        least = 1e9 * max(s["flops"] / host["flops_per_s"], s["bytes"] / host["bytes_per_s"])
        assert abs(s["least_ns"] - least) <= 1
    for key in "ns", "flops", "bytes":
        assert abs(sum(o[key] for o in run["operations"]) - sum(s[key] for s in run["steps"])) <= len(run["steps"]), key
    assert sum(o["steps"] for o in run["operations"]) == len(run["steps"])
END
    refused 2 "--kernels: is of runs" bench --net tiny --kernels kernels --predict
}

each_row_is_a_line_before_the_table_() {
    expect 0 "${measure[@]}" --policies liveness,swap
    mapfile -t lines <out
    [[ ${lines[0]} =~ ^tiny,\ batch\ 8,\ liveness:\ [0-9.]+\ img/s,\ [0-9.]+\ ms:\ ok$ ]] || fail "${lines[0]}"
    [[ ${lines[1]} == "tiny, batch 8, swap: "* && ${lines[2]} == "net "* ]] || fail "no two lines"
}

rows_of_a_run_that_is_killed_are_saved_() {
    "$mm" bench --net tiny --batch 8 --iterations 1000000 --policies recompute,liveness --quiet --json rows --budgets 1KiB,1GiB \
        >out 2>err </dev/null &
    wait_for rows '"policy": "liveness"'
    kill -9 $!
    wait $! 2>/dev/null
    [[ $(values rows policy | tr '\n' ' ') == "recompute liveness " ]] || fail "$(values rows policy)"
    [[ $(tail -1 rows) == "]" ]] || fail "not a whole array"
}

a_link_can_be_a_part_of_the_codecs_speed_() {
    expect 0 "${measure[@]}" --policies liveness,freelunch --link codec/10
    [[ $(head -1 out) =~ ^link:\ [0-9.]+[KMG]iB/s:\ the\ codec\'s\ speed,\ [0-9.]+[KMG]iB/s,\ divided\ by\ 10$ ]] ||
        fail "$(head -1 out)"
}

# ---------------------------------------------------------------- orders and machines

the_order_over_a_slow_link_is_said_with_the_exit_status_() {
    local status=0
    "$link_orders" "$mm" tiny 8 2 >out 2>err || status=$?
    says out "link: "
    says out "unoptimised "
    says out "% of liveness"
    if ((status == 0)); then
        [[ $(tail -1 out) == "in order: freelunch and hybrid ahead of swap-async"* ]] || fail "$(tail -1 out)"
    else
        ((status == 1)) && says out "not in order: tiny, batch 8: "
    fi
    ! "$link_orders" "$mm" nope 8 2 >out 2>err || fail "a network that is not there is in order"
    says err "nope"
}

a_frameworks_time_is_of_steps_alone_() {
    sed 's/"launch_ns": 8000/&, "step_ns": 1000000/' "$machine" >framework
    expect 0 bench --simulate "$machine" --net tiny --batch 8 --policies freelunch --quiet --facts without
    expect 0 bench --simulate framework --net tiny --batch 8 --policies freelunch --quiet --facts with
    sed 's/"ns": 1\(0[0-9]\{5\}\)$/"ns": \1/; s/"ns": 0*/"ns": /' with >less
    sed 's/"ns": 0*/"ns": /' without >plain
    equal less plain
    ! cmp -s with without || fail "step_ns has no effect"
    sed 's/"step_ns": [0-9]*/"step_ns": -1/' framework >negative
    refused 1 "machine file negative: step_ns is -1, must be 0 to" "${simulate[@]/#$machine/negative}"
}

a_gpus_steps_take_what_was_measured_on_one_() {
    while read -r net measured; do
        expect 0 plan --net "$net" --batch 16 --policy liveness --fuse off --facts "$machine" --json plan
        local ms
        ms=$(awk -v s="$(value plan iteration_seconds_predicted)" 'BEGIN { print 1000 * s }')
        is_less "$(awk -v p="$measured" 'BEGIN { print 0.75 * p }')" "$ms" || fail "$net: $ms ms, measured $measured"
        is_less "$ms" "$(awk -v p="$measured" 'BEGIN { print 1.1 * p }')" || fail "$net: $ms ms, measured $measured"
    done <<'END'
alexnet-2012 23.71
vgg16 262.42
resnet18 53.84
resnet152 366.97
END
}

# ---------------------------------------------------------------- the other benches

# json_alone TABLE PROGRAM ARGUMENT...: with --json -, standard output has only JSON, and stderr has the TABLE.
json_alone() {
    local table=$1
    shift
    "$@" --json - >out 2>err </dev/null || fail "$*: failed"
    [[ $(head -c 2 out) == "[" && $(tail -c 2 out) == "]" ]] || fail "$*: not JSON alone"
    says err "$table"
    "$@" >out 2>/dev/null </dev/null || fail "$*: failed"
    says out "$table"
}

benches_keep_their_tables_from_their_json_() {
    json_alone "median" "$codec_bench" --shape 1x8x8x4 --codecs zfp:rate=4,zvc --zeros 62 --rounds 1
    json_alone "bf16" "$codec_bench" --shape 1x8x8x4 --type bf16 --codecs zfp:rate=4,zvc --rounds 1
    json_alone "unplanned allocations" "$workflow" --net tiny --batch 4 --rounds 1
    json_alone "minimum cosine" "$gradients" --net tiny --batch 4 --iterations 1 --quiet
}

run_cases
