#!/bin/bash
# mm train: it keeps to budgets to the byte, weights are equal to the bit, and runs go on from saved states.
# SPDX-License-Identifier: MIT
# shellcheck source=tests/tools/cli.sh
. "$(dirname "${BASH_SOURCE[0]}")/cli.sh"
machine=$(realpath "$2")

net=(train --net resnet8 --batch 8 --quiet)
tiny=(train --net tiny --batch 4 --quiet)

# trained FILE ARGUMENT...: runs resnet8 for 4 iterations with status "ok". Its state goes to FILE, its row to
# FILE.json.
trained() {
    local file=$1
    shift
    expect 0 "${net[@]}" --iterations 4 --save "$file" --json "$file.json" "$@"
    [[ $(values "$file.json" status) == ok ]] || fail "$file.json: not ok"
}

# Checks in the row that measured <= predicted <= budget, and that measured is within 1 % of predicted.
kept_its_budget() { # ROW
    local measured predicted budget
    measured=$(values "$1" peak_bytes) predicted=$(values "$1" predicted_peak_bytes) budget=$(values "$1" budget_bytes)
    ((0 < measured && measured <= predicted && predicted <= budget)) ||
        fail "measured $measured, predicted $predicted, budget $budget"
    ((predicted - measured <= predicted / 100)) || fail "measured $measured, predicted $predicted: more than 1 %"
}

# ---------------------------------------------------------------- budgets

a_byte_below_the_minimum_is_refused_and_the_minimum_trains_() {
    for policy in naive liveness freelunch:rate=4 freelunch:codec=raw,eligible=all freelunch:rate=8,depth=5; do
        local least
        least=$(minimum resnet8 8 $policy)
        refused 1 "infeasible: needs at least $least bytes" "${net[@]}" --policy $policy --budget $((least - 1)) \
            --save refused --json refused.json
        [[ $(<err) =~ "held by "[a-z0-9.]+\ (forward|backward) ]] || fail "no layer is named"
        [[ ! -e refused && ! -e refused.json ]] || fail "the refused run wrote something"
        trained state --policy $policy --budget "$least"
        kept_its_budget state.json
        [[ $(values state.json minimum_bytes) == "$least" ]] || fail "the row has another minimum"
    done
}

without_a_budget_the_minimum_is_taken_() {
    trained state --policy freelunch:rate=4
    [[ $(values state.json budget_bytes) == $(minimum resnet8 8 freelunch:rate=4) ]] || fail "another budget"
    kept_its_budget state.json
}

evaluation_and_smaller_batches_stay_within_the_budget_() {
    expect 0 "${net[@]}" --epochs 2 --data synthetic:samples=20 --eval --json row
    kept_its_budget row
    (($(values row iterations) == 6)) || fail "not 3 iterations an epoch"
    says out "iteration 3: test accuracy"
    says out "iteration 6: test accuracy"
    [[ $(values row test_accuracy) =~ ^[01]\.[0-9]+$ ]] || fail "no accuracy in the row"
}

# A batch of 8 in sub-batches of 3: the last pass has 2 images.
sub_batches_train_in_less_with_equal_bits_under_every_policy_() {
    local least whole policy vgg=vgg11@32x32,classes=10,thin=16
    local net=(train --net "$vgg" --batch 8 --quiet) sub=(--sub-batch 3)
    expect 0 plan --net $vgg --batch 8 "${sub[@]}" --policy liveness --json plan.json
    least=$(values plan.json minimum_bytes) whole=$(minimum $vgg 8 liveness)
    ((least < whole)) || fail "$least bytes in sub-batches, $whole as a whole"
    refused 1 "infeasible: needs at least $least bytes" "${net[@]}" "${sub[@]}" --policy liveness --budget $((least - 1))
    says err "'mm plan --net $vgg --batch 8 --sub-batch 3' shows what each policy needs"
    trained state "${sub[@]}" --policy liveness --budget "$least"
    kept_its_budget state.json
    [[ $(values state.json sub_batch) == 3 ]] || fail "the row has another sub-batch"
    for policy in swap-async recompute freelunch:codec=raw,eligible=all; do
        trained other "${sub[@]}" --policy $policy
        kept_its_budget other.json
        equal state other
    done
    expect 0 "${net[@]}" "${sub[@]}" --iterations 2 --save half
    expect 0 "${net[@]}" --iterations 4 --load half --save on
    equal state on
    expect 0 "${net[@]}" --iterations 4 --load half --sub-batch 4
    says err "--sub-batch 4: half was trained with 3"
    expect 0 "${net[@]}" --iterations 4 --load half --sub-batch 8
    says err "mm train: --sub-batch: half was trained with 3"
}

an_evaluation_is_in_sub_batches_too_() {
    local vgg=vgg11@32x32,classes=10,thin=16 least
    local net=(train --net "$vgg" --batch 40 --data synthetic:samples=90 --iterations 3 --eval --quiet)
    expect 0 plan --net $vgg --batch 40 --sub-batch 1 --policy liveness --json plan.json
    least=$(values plan.json minimum_bytes)
    expect 0 "${net[@]}" --sub-batch 1 --policy liveness --budget "$least" --json parts.json
    kept_its_budget parts.json
    expect 0 "${net[@]}" --policy liveness --json whole.json
    [[ $(values parts.json test_accuracy) == "$(values whole.json test_accuracy)" ]] || fail "another accuracy"
}

# Also a run that was saved half way. States of 8 bits and of 32 do not go on from each other.
states_of_8_bits_are_lossy_and_go_on_from_themselves_() {
    local net=(train --net "gpt,layers=1,width=64,heads=2,context=16,vocabulary=64" --batch 2 --quiet)
    local bits=(--optimizer "adamw,states=8bit")
    expect 0 "${net[@]}" "${bits[@]}" --iterations 4 --save state --json row
    says err "mm: --optimizer adamw,states=8bit is lossy"
    kept_its_budget row
    expect 0 "${net[@]}" "${bits[@]}" --iterations 2 --save half
    expect 0 train --load half --iterations 4 --quiet --save on --policy recompute --update by-layer
    equal state on
    refused 2 "half was trained with adamw" "${net[@]}" --load half --iterations 4 --optimizer adamw
    expect 0 "${net[@]}" --load half --iterations 4 --optimizer adamw --reset-optimizer --save floats
    refused 2 "floats was trained with adamw" "${net[@]}" --load floats --iterations 5 "${bits[@]}"
    (($(wc -c <floats) > $(wc -c <half) * 3 / 2)) || fail "states of 8 bits are not smaller in the file"
    refused 1 "ranks cannot divide 8-bit states" plan "${net[@]:1:4}" "${bits[@]}" --ranks 2 --divide states
}

# The saved state has the chosen sub-batch. Runs that load the state use the same sub-batch in any budget.
a_sub_batch_is_chosen_for_a_budget_() {
    local vgg=vgg11@32x32,classes=10,thin=16 whole one n
    local net=(train --net "$vgg" --batch 40 --quiet --policy liveness)
    expect 0 plan --net $vgg --batch 40 --sub-batch 1 --policy liveness --json one
    whole=$(minimum $vgg 40 liveness) one=$(values one minimum_bytes)
    trained all --budget "$whole" --sub-batch auto
    [[ $(values all.json sub_batch) == 40 ]] || fail "a batch that fits is not trained on as a whole"
    trained state --budget $(((whole + one) / 2)) --sub-batch auto
    kept_its_budget state.json
    n=$(values state.json sub_batch)
    ((1 < n && n < 40 && (n & (n - 1)) == 0)) || fail "sub-batches of $n"
    says err "--sub-batch auto: $n images at a time"
    expect 0 "${net[@]}" --load state --iterations 5 --json row
    [[ $(values row sub_batch) == "$n" ]] || fail "goes on with $(values row sub_batch)"
    refused 1 "infeasible: sub-batches of one image need at least $one bytes" "${net[@]}" \
        --budget $((one - 1)) --sub-batch auto
    says err "stay on the device, classifier.3 backward uses the rest; policy auto would fit"
    refused 1 "; with --sub-batch auto policy liveness would fit" "${net[@]}" --budget "$one"
    refused 1 "; with --sub-batch auto policy liveness would fit" "${net[@]}" --budget "$one" --sub-batch 20
    expect 1 plan --net $vgg --batch 40 --policy liveness --budget "$one"
    says err "; with --sub-batch auto policy liveness would fit"
    expect 1 plan --net $vgg --batch 40 --sub-batch auto --policy liveness --budget $((one - 1))
    says err "; any plan needs at least "
    says err "; policy auto would fit"
}

# A refusal says nothing twice, and no number that another --sub-batch would change.
a_refusal_in_sub_batches_says_nothing_twice_() {
    local net=(--net resnet20 --batch 32 --policy modnn:subbatch=4 --budget 4MiB)
    local told="policy auto would fit, with about [^;]*; with --sub-batch auto policy modnn would fit"
    expect 1 train "${net[@]}" --quiet --iterations 1
    [[ $(<err) =~ $told ]] || fail "$(<err)"
    expect 1 plan "${net[@]}"
    [[ $(<err) =~ $told ]] || fail "$(<err)"
}

# --sub-batch overrides the policy's option subbatch. The option of a policy that is switched to has no effect.
a_policy_can_say_the_sub_batch_() {
    local vgg=vgg11@32x32,classes=10,thin=16 whole
    local net=(train --net "$vgg" --batch 8 --quiet)
    trained state --sub-batch 3
    trained own --policy vdnn-all:subbatch=3
    [[ $(<err) != *"3 images at a time"* ]] || fail "what was given is told again: $(<err)"
    equal state own
    trained other --policy vdnn-all:subbatch=2 --sub-batch 3
    equal state other
    whole=$(minimum $vgg 8 liveness)
    trained other --policy vdnn-all:subbatch=3 --switch 1:vdnn-conv:subbatch=2 --budget "$whole"
    equal state other
    trained all --policy vdnn-all:subbatch=auto
    [[ $(values all.json sub_batch) == 8 ]] || fail "without a budget the batch is not whole"
    trained all --policy vdnn-all:subbatch=auto --budget $((whole * 9 / 10))
    (($(values all.json sub_batch) < 8)) || fail "the batch is whole in nine tenths of what liveness needs"
    kept_its_budget all.json
    expect 0 "${net[@]}" --load own --policy vdnn-all:subbatch=2 --iterations 5 --json row
    [[ $(values row sub_batch) == 3 ]] || fail "a state goes on with other sub-batches"
    refused 2 "policy vdnn-all:subbatch=9: subbatch=9: must be at most the batch, 8" "${net[@]}" \
        --policy vdnn-all:subbatch=9
}

sub_batches_that_cannot_be_are_refused_() {
    for n in 0 9 -1 1.5 some; do
        refused 2 "--sub-batch $n: must be from 1 to the batch, 8, or auto" "${net[@]}" --sub-batch $n
    done
    refused 2 "--sub-batch 9: must be from 1 to the batch, 8, or auto" plan --net resnet8 --batch 8 --sub-batch 9
    refused 2 "--sub-batch and --max-batch: give one of them" plan --max-batch --budget 1GiB --sub-batch 9
    refused 2 "--sub-batch auto: needs a --budget to fit into" "${net[@]}" --sub-batch auto
    refused 2 "--sub-batch auto: needs a --budget to fit into" plan --net resnet8 --sub-batch auto
    expect 0 "${net[@]}" --sub-batch 4 --iterations 1
    says err "the batch norms of resnet8 normalise 4 images at a time, not the batch of 8"
}

# ---------------------------------------------------------------- equal bits

naive_and_liveness_save_equal_weights_at_every_budget_() {
    local least_naive least_liveness
    least_naive=$(minimum resnet8 8 naive) least_liveness=$(minimum resnet8 8 liveness)
    trained reference --policy liveness --budget "$least_liveness"
    for budget in $(((least_naive + least_liveness) / 2)) "$least_naive" 200MiB; do
        trained liveness --policy liveness --budget "$budget"
        equal reference liveness
    done
    for budget in "$least_naive" $((least_naive + 1000000)) 200MiB; do
        trained naive --policy naive --budget "$budget"
        equal reference naive
    done
    trained other --policy liveness --seed 2
    differ reference other
}

freelunch_has_equal_bits_however_it_is_carried_out_() {
    trained reference --policy freelunch:rate=4,when=always
    for options in depth=1 depth=7 buffers=naive workspace=naive buffers=naive,workspace=naive; do
        trained state --policy freelunch:rate=4,when=always,$options
        equal_tensors reference state
    done
    trained inline --policy freelunch:rate=4,when=always --issue inline
    equal reference inline
    trained checked --policy freelunch:rate=4,when=always --self-check
    equal reference checked
    trained deterministic --policy freelunch:rate=4,when=always --deterministic --no-measure
    equal reference deterministic
    trained rate_8 --policy freelunch:rate=8,when=always
    differ reference rate_8
}

what_is_issued_is_held_against_the_plans_() {
    local options=(train --net tiny --batch 4 --iterations 3 --policy swap-async:when=always --verify-issued --quiet)
    expect 0 "${options[@]}"
    says err "mm train: what was issued is what the plans say: "
    expect 0 "${options[@]}" --issue inline --optimizer adamw,on=host --on-overflow stop
    says err "mm train: what was issued is what the plans say: "
    refused 2 "self_check issues work that no plan has" "${options[@]}" --self-check
}

layers_that_are_fused_give_the_weights_of_those_that_are_not_() {
    local policy
    for policy in liveness freelunch:rate=4,when=always recompute:when=always; do
        trained fused --policy "$policy"
        trained apart --policy "$policy" --fuse off
        equal fused apart
    done
}

# Writes a net of a small dense block. A batch norm's input has other readers there, so its gradient needs bytes of its
# own. The gradient of an unfused ReLU's input does not.
dense_net() { # FILE
    local i at=conv0 layers='{"name": "conv0", "op": "conv", "inputs": ["data"], "out_channels": 16, "kernel": 3, "pad": 1}'
    for i in 1 2 end; do
        layers+=', {"name": "norm'$i'", "op": "batch_norm", "inputs": ["'$at'"]}'
        layers+=', {"name": "relu'$i'", "op": "relu", "inputs": ["norm'$i'"]}'
        [[ $i != end ]] || break
        layers+=', {"name": "conv'$i'", "op": "conv", "inputs": ["relu'$i'"], "out_channels": 16, "kernel": 1}'
        layers+=', {"name": "cat'$i'", "op": "concat", "inputs": ["'$at'", "conv'$i'"]}'
        at=cat$i
    done
    layers+=', {"name": "pool", "op": "avg_pool", "inputs": ["reluend"], "kernel": 16}'
    layers+=', {"name": "fc", "op": "linear", "inputs": ["pool"], "out_channels": 4, "bias": true}'
    layers+=', {"name": "loss", "op": "loss", "inputs": ["fc"]}'
    echo '{"format": "mm net", "version": 1, "name": "dense", "input":
        {"height": 16, "width": 16, "channels": 3, "classes": 4}, "layers": ['"$layers]}" >"$1"
}

# Sets auto's least budgets for dense_net: with layers fused, and apart. roomy: a budget in which fused plans fit well,
# so unfused ones are not compared with them.
dense_minima() {
    dense_net dense.json
    dense=(--net file:dense.json --batch 8)
    expect 0 plan "${dense[@]}" --policy auto --fuse on --json on.json
    expect 0 plan "${dense[@]}" --policy auto --fuse off --json off.json
    fused=$(values on.json minimum_bytes) apart=$(values off.json minimum_bytes) between=$(((fused + apart) / 2))
    roomy=$((fused * 5 / 4))
    ((apart < between && between < fused)) || fail "fused $fused, apart $apart"
}

# ran FILE on|off: checks by the row in FILE whether layers were fused.
ran() {
    [[ $(values "$1" fuse) == "$2" ]] || fail "$1: layers fused: $(values "$1" fuse)"
}

auto_leaves_layers_apart_where_fused_ones_do_not_fit_() {
    local dense fused apart between roomy
    dense_minima
    expect 0 plan "${dense[@]}" --policy auto --json plan.json
    ran plan.json off
    [[ $(values plan.json minimum_bytes) == "$apart" ]] || fail "$(values plan.json minimum_bytes), apart $apart"
    expect 0 plan "${dense[@]}" --policy auto --budget "$between" --json plan.json
    ran plan.json off
    says out "layers fused; here not"
    expect 0 plan "${dense[@]}" --policy auto --budget "$roomy" --minimum --json plan.json
    ran plan.json on
    [[ $(values plan.json minimum_bytes) == "$apart" ]] || fail "$(values plan.json minimum_bytes), apart $apart"
    local run=(train "${dense[@]}" --quiet --iterations 3)
    refused 1 "needs at least $fused bytes" "${run[@]}" --budget "$between" --fuse on
    refused 1 "needs at least $apart bytes" "${run[@]}" --budget "$((apart - 256))"
    expect 0 "${run[@]}" --budget "$between" --save state --json row.json
    says err "layers are not fused: fused, it needs at least $fused bytes"
    ran row.json off
    kept_its_budget row.json
    expect 0 "${run[@]}" --budget "$roomy" --save fused --json row.json
    [[ $(<err) != *fused* ]] || fail "something is told of a fused run"
    ran row.json on
    expect 0 "${run[@]}" --policy liveness --fuse off --save liveness
    equal state liveness
    equal state fused
    expect 0 train --net file:dense.json --load state --iterations 5 --budget "$roomy" --save on_fused --quiet
    expect 0 train --net file:dense.json --load liveness --iterations 5 --fuse off --save on_apart --quiet
    equal on_fused on_apart
    refused 1 "infeasible" "${run[@]}" --budget "$between" --policy liveness
}

# The facts have no times of masks, because the measured runs made none. The smallest plans need masks, and make them
# nevertheless.
auto_makes_masks_that_facts_lack_where_nothing_else_fits_() {
    local dense fused apart between roomy
    dense_minima
    expect 0 bench "${dense[@]}" --policies swap-async:when=always --iterations 2 --facts facts --quiet
    expect 0 train "${dense[@]}" --iterations 2 --facts facts --budget "$fused" --json row.json --quiet
    kept_its_budget row.json
    refused 1 "needs at least $fused bytes" train "${dense[@]}" --facts facts --budget "$((fused - 256))" --fuse on
}

bench_leaves_layers_apart_cell_by_cell_() {
    local dense fused apart between roomy
    dense_minima
    local cells=(bench "${dense[@]}" --policies "liveness,auto" --quiet --iterations 2 --budgets "1GiB,$between,$roomy,own")
    expect 0 "${cells[@]}" --json rows.json
    [[ $(values rows.json fuse) == $'on\non\non\noff\non\non\non\noff' ]] || fail "$(values rows.json fuse)"
    expect 0 "${cells[@]}" --simulate "$machine" --json rows.json
    [[ $(values rows.json fuse) == $'on\non\non\noff\non\non\non\noff' ]] || fail "$(values rows.json fuse)"
    [[ $(values rows.json minimum_bytes) == *$'\n'"$apart" ]] || fail "$(values rows.json minimum_bytes), apart $apart"
}

# Measured facts are for the fused or for the unfused graph: a run with facts trains that graph.
layers_are_fused_as_they_were_measured_() {
    local dense fused apart between roomy
    dense_minima
    local measure=(bench "${dense[@]}" --policies "auto,swap:when=always" --quiet --iterations 2)
    expect 0 "${measure[@]}" --facts of_fused
    expect 0 "${measure[@]}" --facts of_apart --fuse off
    local run=(train "${dense[@]}" --quiet --iterations 2)
    refused 1 "it fits with --fuse off, but of_fused has no times for that" "${run[@]}" --budget "$between" --facts of_fused
    refused 1 "of_apart is for another graph" "${run[@]}" --budget "$between" --facts of_apart --fuse on
    expect 0 "${run[@]}" --budget "$between" --facts of_apart --json row.json
    ran row.json off
    expect 0 plan "${dense[@]}" --policy liveness --facts of_apart --json plan.json
    ran plan.json off
    expect 0 plan "${dense[@]}" --policy liveness --facts of_fused --json plan.json
    ran plan.json on
    expect 1 plan "${dense[@]}" --policy auto --facts of_fused --budget "$between"
    says err "it fits with --fuse off, but of_fused has no times for that"
    local measured=(bench --net tiny --batch 4 --policies liveness --quiet --iterations 2)
    expect 0 "${measured[@]}" --facts of_apart --fuse off
    expect 0 "${measured[@]}" --facts of_fused
    expect 0 bench --simulate of_apart,of_fused --policies liveness --quiet --json rows.json
    [[ $(values rows.json fuse) == $'off\non' ]] || fail "$(values rows.json fuse)"
}

a_lossless_codec_gives_the_weights_of_liveness_() {
    trained liveness --policy liveness
    trained freelunch --policy freelunch:codec=raw,eligible=all,when=always --self-check
    equal liveness freelunch
}

# ---------------------------------------------------------------- pinned memory

pinned_memory_is_a_budget_too_() {
    local budget pinned
    budget=$(minimum resnet8 8 swap:when=always)
    pinned=$(values minimum.json pinned_bytes)
    ((pinned > 0)) || fail "nothing is pinned"
    trained liveness --policy liveness
    trained given --policy swap:when=always --pinned "$pinned"
    equal liveness given
    refused 1 "needs $pinned bytes (" "${net[@]}" \
        --policy swap:when=always --pinned $((pinned - 1))
    refused 1 ", and $pinned bytes (" "${net[@]}" --policy swap:when=always --budget 1MiB --pinned 0
    says err "no policy needs less than "
    refused 1 "needs $pinned bytes (" "${net[@]}" --policy swap:when=always --pinned 0
    trained none --policy swap --pinned 0
    equal_tensors given none
    [[ $(values none.json pinned_bytes) == 0 ]] || fail "pinned memory though there is to be none"
    expect 0 bench --net tiny --batch 8 --iterations 1 --policies swap:when=always --pinned 0 --quiet
    says out "0 bytes are given"
    # With less pinned memory, fewer bytes are moved out, and more memory is needed on the device.
    trained less --policy swap --pinned $((pinned / 2))
    equal liveness less
    (($(values less.json budget_bytes) > budget)) || fail "with half the pinned memory it needs as little on the device"
    refused 1 "infeasible: with $((pinned / 2)) bytes (" \
        "${net[@]}" --policy swap --pinned $((pinned / 2)) --budget "$budget"
    says err " of pinned memory needs at least $(values less.json budget_bytes) bytes ("
    refused 1 " (--pinned) it needs " "${net[@]}" --policy swap --pinned $((pinned / 2)) --budget "$budget"
    # A limit that was not given is named as the default. This run would pin 1 TB.
    local large=(train --net vgg16 --batch 40000 --policy swap --quiet)
    refused 1 " of pinned memory (half of what this host has free) needs at least " "${large[@]}" --budget 1600GB
    # A budget too small with any amount of pinned memory is refused at once, without a search for one with less.
    refused 1 "infeasible: needs at least " "${large[@]}" --budget 1GiB
    [[ $(<err) =~ ", held by "[a-z0-9.]+" "(forward|backward)", and "[0-9]+.*" of pinned host memory" ]] ||
        fail "the step and the pinned memory are not named"
    # Only what plans need is pinned.
    expect 0 "${net[@]}" --policy swap:when=always --pinned 1000TB
    ! [[ -s err ]] || fail "pinning that much was tried"
}

a_budget_above_what_the_control_group_allows_is_refused_() {
    local group limit_file status
    make_group
    in_group 150000000 train --net resnet8 --batch 8 --budget 400MiB --iterations 1 --quiet
    ((status != 99)) || skip "no process can be moved into a control group"
    ((status == 1)) || fail "status $status"
    says err "mm train: the budget is 419430400 bytes (400MiB), device host has "
    says err " free in its control group; "
    (($(wc -l <err) == 1)) || fail "$(wc -l <err) lines"
    in_group 150000000 train --net resnet8 --batch 8 --budget 20MiB --iterations 1 --quiet
    ((status == 0)) || fail "status $status: a budget that the group allows"
    in_group 150000000 plan --net resnet8 --batch 8 --policy swap --json row.json
    ((status == 0 && $(value row.json pinned_limit_bytes) < 75000000)) || fail "$(value row.json pinned_limit_bytes)"
}

a_budget_too_small_names_what_would_fit_() {
    local least
    least=$(minimum resnet8 8 liveness)
    refused 1 "policy auto would fit" "${net[@]}" --policy liveness --budget $((least - 1))
    refused 1 "no policy would fit: " "${net[@]}" --policy liveness --budget 1KiB
    refused 1 "no policy needs less than" "${net[@]}" --policy auto --budget 1KiB
}

# ---------------------------------------------------------------- switching

switching_keeps_the_weights_and_the_budget_() {
    local least_liveness least_freelunch least_raw raw=freelunch:codec=raw,eligible=all,when=always
    least_liveness=$(minimum resnet8 8 liveness) least_freelunch=$(minimum resnet8 8 freelunch:rate=4)
    least_raw=$(minimum resnet8 8 $raw)
    ((least_freelunch < least_liveness)) || fail "freelunch needs no less than liveness"
    trained lossy --policy liveness --switch 1:freelunch:rate=4,when=always --switch 3:liveness --budget "$least_liveness"
    kept_its_budget lossy.json
    trained lossless --policy liveness --switch 1:$raw --switch 3:liveness --budget "$least_raw"
    kept_its_budget lossless.json
    trained liveness --policy liveness
    equal liveness lossless
    differ liveness lossy
}

a_switch_that_does_not_fit_is_refused_before_training_() {
    local least_liveness least_freelunch
    least_liveness=$(minimum resnet8 8 liveness) least_freelunch=$(minimum resnet8 8 freelunch:rate=4)
    refused 1 "infeasible: switching to liveness needs at least $least_liveness bytes (" \
        "${net[@]}" --policy freelunch:rate=4 --switch 2:liveness --budget "$least_freelunch" --save refused
    says err "the budget is $least_freelunch bytes ("
    refused 1 ", what freelunch:rate=4 takes; --budget sets it" \
        "${net[@]}" --policy freelunch:rate=4 --switch 2:liveness --save refused
    [[ ! -e refused ]] || fail "the refused run wrote something"
    # A switch after the last iteration does not count in the budget.
    trained state --policy freelunch:rate=4 --switch 4:liveness
    [[ $(values state.json budget_bytes) == "$least_freelunch" ]] || fail "the budget is another one"
}

the_policy_at_the_end_is_in_the_row_() {
    trained state --policy liveness
    [[ $(values state.json policy_effective) == liveness && $(values state.json ladder_steps) == 0 ]] || fail "not liveness"
    trained state --policy liveness --switch 2:freelunch:rate=4
    [[ $(values state.json policy) == liveness ]] || fail "not the policy that was asked for"
    [[ $(values state.json policy_effective) == freelunch:rate=4 ]] || fail "not the policy at the end"
    [[ $(values state.json lossy) == false && $(<out) != *"(lossy)"* ]] || fail "nothing was encoded"
    trained state --policy liveness --switch 2:freelunch:rate=4,when=always
    says out "liveness -> freelunch:rate=4,when=always (lossy)"
    trained state --policy liveness --switch 2:freelunch:rate=4,when=always --switch 3:liveness
    [[ $(values state.json policy_effective) == liveness && $(values state.json lossy) == true ]] ||
        fail "two iterations were lossy, the row does not say so"
}

# ---------------------------------------------------------------- memory that is short

# A limit on the process's memory leaves the arena less than asked for. How much less differs between machines.
less_memory_than_asked_for_is_made_do_with_() {
    (ulimit -v 8000000 && "$mm" nets >/dev/null 2>&1) || skip "this build takes more address space than can be limited"
    local run=(train --net resnet20 --batch 128 --iterations 2 --no-measure --quiet --policy liveness) limit status base=50000
    export OMP_NUM_THREADS=1
    expect 0 "${run[@]}" --save wanted
    # Finds in `base` the address space that this build's libraries need by themselves.
    until (ulimit -s 256 && ulimit -v $base && exec "$mm" nets >/dev/null 2>&1); do base=$((base + 50000)); done
    for ((limit = base + 600000; limit > base; limit -= 30000)); do
        status=0
        (ulimit -s 256 && ulimit -v $limit && exec "$mm" "${run[@]}" --budget 300MiB --save found >out 2>err) || status=$?
        ((status <= 1)) || fail "status $status with $limit kB"
        ((status == 1)) || equal wanted found
        [[ $status == 1 || $(<err) != *"instead of liveness"* ]] || return 0
    done
    fail "no policy ever ran instead of liveness"
}

# ---------------------------------------------------------------- a loss that is not finite

# The saved state is the one before the iteration whose loss is not finite.
a_diverged_training_ends_with_what_was_before_() {
    local lines trained
    expect 1 "${net[@]}" --iterations 40 --lr 900 --eval --save state --json row --log log
    mapfile -t lines <log
    trained=$((${#lines[@]} - 2))
    [[ $trained -gt 1 && $(value row status) == diverged && $(value row test_accuracy) == null ]] ||
        fail "the row does not say so"
    (($(value row iterations) == trained + 1)) || fail "$(value row iterations) iterations"
    mapfile -t lines <err
    ((${#lines[@]} == 1)) || fail "not one line"
    says err "diverged: the loss of iteration $((trained + 1)) is "
    expect 0 "${net[@]}" --iterations $trained --lr 900 --save before
    equal_tensors before state
    # The saved weights give a finite loss.
    expect 0 "${net[@]}" --iterations $((trained + 1)) --lr 1e-9 --keep-going --load state --json row
    [[ $(value row loss_first) == [0-9]* ]] || fail "its loss is not finite"
}

a_loss_that_is_not_finite_is_null_() {
    doubling_net >doubling.json
    expect 1 train --net file:doubling.json --batch 4 --quiet --iterations 5 --save state --json row
    [[ $(value row status) == diverged && $(value row loss_last) == null && $(value row iterations) == 1 ]] ||
        fail "the row is of something else"
    [[ ! -e state ]] || fail "there was nothing to save"
}

a_diverged_training_goes_on_if_asked_() {
    expect 0 "${net[@]}" --iterations 14 --lr 900 --keep-going --save state --json row --log log
    [[ $(value row status) == diverged && $(value row iterations) == 14 && $(value row loss_last) == null ]] ||
        fail "the row is of something else"
    mapfile -t lines <err
    ((${#lines[@]} == 1)) || fail "not one line: ${lines[*]}"
    mapfile -t lines <log
    [[ ${lines[-1]} == 14,nan,* ]] || fail "log: ${lines[-1]}"
}

# ---------------------------------------------------------------- saving and loading

a_loaded_state_goes_on_bit_for_bit_() {
    for policy in naive liveness freelunch:rate=4 'rules:*=compress(group:bits=2),when=always'; do
        expect 0 "${tiny[@]}" --policy "$policy" --iterations 10 --save at_once
        expect 0 "${tiny[@]}" --policy "$policy" --iterations 5 --save half
        expect 0 "${tiny[@]}" --policy "$policy" --iterations 10 --load half --save in_two
        equal at_once in_two
        differ half in_two
    done
}

wide_net() { # CHANNELS: the network's large parameter has CHANNELS rows of 12 KiB
    cat >wide.json <<END
{"format": "mm net", "version": 1, "name": "wide", "input": {"height": 32, "width": 32, "channels": 3, "classes": 10},
"layers": [{"name": "fc1", "op": "linear", "inputs": ["data"], "out_channels": $1},
{"name": "relu", "op": "relu", "inputs": ["fc1"]}, {"name": "fc2", "op": "linear", "inputs": ["relu"], "out_channels": 10},
{"name": "loss", "op": "loss", "inputs": ["fc2"]}]}
END
}

# A large parameter is written and read in several pieces.
large_parameters_are_saved_and_loaded_whole_() {
    wide_net 800
    local wide=(train --net file:wide.json --batch 4 --quiet)
    expect 0 "${wide[@]}" --iterations 4 --save at_once
    expect 0 "${wide[@]}" --iterations 2 --save half
    expect 0 "${wide[@]}" --iterations 4 --load half --save in_two
    equal at_once in_two
}

# The row is made after the first save, so it counts the memory of saving. A copy of the parameter would take 48 MiB;
# all else takes about 20.
no_copy_of_a_large_parameter_is_in_memory_() {
    (ulimit -v 4000000 && exec "$mm" nets) >out 2>err || skip "a sanitizer's own memory is more than that"
    wide_net 4096
    local wide=(train --net file:wide.json --batch 1 --quiet --json row)
    expect 0 "${wide[@]}" --iterations 2 --save state --save-every 1
    (($(value row host_other_bytes) < 52 << 20)) || fail "saving: $(value row host_other_bytes) bytes beside the plan"
    expect 0 "${wide[@]}" --iterations 3 --load state
    (($(value row host_other_bytes) < 52 << 20)) || fail "loading: $(value row host_other_bytes) bytes beside the plan"
}

a_loaded_state_goes_on_in_the_middle_of_epochs_() {
    for policy in liveness 'rules:*=compress(group:bits=2),when=always'; do # rounding does not count evaluations
        local run=("${tiny[@]}" --policy "$policy" --data synthetic:samples=18)
        expect 0 "${run[@]}" --eval --epochs 3 --save at_once
        expect 0 "${run[@]}" --epochs 1 --save part
        expect 0 "${run[@]}" --eval --epochs 3 --load part --save in_two
        equal at_once in_two
    done
}

# goes_on_alone ITERATIONS ARGUMENT...: checks that a run of 2 * ITERATIONS gives the same state as one in two halves,
# of which the second is given only the first one's state.
goes_on_alone() {
    local half=$1
    shift
    expect 0 train --quiet --iterations $((2 * half)) "$@" --save at_once
    expect 0 train --quiet --iterations "$half" "$@" --save half
    expect 0 train --quiet --iterations $((2 * half)) --load half --save in_two
    [[ ! -s err ]] || fail "nothing differs, but something is told"
    equal at_once in_two
    differ half in_two
}

# The run has dropout, shuffles over an epoch's end, and its rate steps before and after the save.
a_state_says_how_its_run_goes_on_() {
    goes_on_alone 7 --net tiny --batch 4 --data synthetic:samples=18 --seed 5 --lr 0.037 --lr-step 3 --lr-step 9 \
        --momentum 0.7 --weight-decay 0.003 --threads 1
    [[ $(<in_two) == *'"epoch":"3"'*'"iteration":"14"'*'"position":"8"'*'"version":"1"'* ]] || fail "the state does not say where its run goes on"
}

# Images are cropped and flipped at random, and lossy policies are switched. All images are copies of one, so that other
# crops show.
a_state_says_how_augmented_data_and_lossy_policies_go_on_() {
    mkdir data
    { printf '\3' && head -c 3072 /dev/urandom; } >record
    for _ in {1..100}; do cat record; done >hundred
    for _ in {1..100}; do cat hundred; done >data/test_batch.bin
    for i in {1..5}; do ln data/test_batch.bin "data/data_batch_$i.bin"; done
    goes_on_alone 3 --net resnet8 --batch 8 --data cifar10:data --budget 8MiB --policy freelunch:rate=4,when=always \
        --switch 2:liveness --switch 4:freelunch:rate=8,when=always
}

comet_goes_on_bit_for_bit_and_logs_what_it_measures_() {
    local comet=("${net[@]}" --policy "comet:every=3,when=always") at lines rest
    expect 0 "${comet[@]}" --iterations 8 --save whole --codec-log whole.log
    mapfile -t lines <whole.log
    ((${#lines[@]} == 3)) || fail "${#lines[@]} lines in the log, not those of iterations 1, 4 and 7"
    [[ ${lines[0]} == '{"iteration":1,'*'"measured_sigma":null,"guard":"off"'* ]] || fail "first line: ${lines[0]}"
    [[ ${lines[1]} == '{"iteration":4,'*'"guard":"kept"'* ]] || fail "second line: ${lines[1]}"
    for at in 4 5; do # 4: right after an iteration that sampled; 5: later
        expect 0 "${comet[@]}" --iterations $at --save part
        expect 0 "${net[@]}" --load part --iterations 8 --save resumed --codec-log resumed.log
        equal_tensors whole resumed
        mapfile -t rest <resumed.log
        [[ ${#rest[@]} == 1 && ${rest[0]} == "${lines[2]}" ]] || fail "another log: ${rest[*]}"
    done
    expect 0 "${comet[@]}" --iterations 4 --sub-batch 3 --codec-log passes.log # each pass is a graph of its own
    mapfile -t lines <passes.log
    ((${#lines[@]} == 6)) || fail "${#lines[@]} lines in the log, not those of two iterations of three passes"
}

# Each pass of a batch has its own error bounds. A batch of 6 has passes of 2 + 2 + 2 images, the 3 images at an epoch's
# end passes of 2 + 1.
bounds_of_sub_batches_go_on_bit_for_bit_() {
    local comet=(train --net resnet8@8x8 --batch 6 --sub-batch 2 --data synthetic:samples=15 --quiet
        --policy "comet:every=3,when=always")
    expect 0 "${comet[@]}" --epochs 3 --save whole
    expect 0 "${comet[@]}" --epochs 1 --save part
    expect 0 train --quiet --load part --epochs 3 --save resumed
    equal_tensors whole resumed
    expect 0 "${comet[@]}" --iterations 8 --save whole --codec-log log
    expect 0 "${comet[@]}" --iterations 5 --save part
    expect 0 train --quiet --load part --iterations 8 --save resumed
    equal_tensors whole resumed
    for graph in first next last; do
        [[ $(grep -c "of 6, $graph\"" log) == 3 ]] || fail "$graph: not logged in iterations 1, 4 and 7"
    done
}

bounds_that_cannot_be_are_refused_() {
    refused 2 "must be a number above 0" "${net[@]}" --policy comet:sigma=0
    refused 2 "must be one of sum|eq9" "${net[@]}" --policy comet:bound=max
    refused 2 "has no error bound" "${net[@]}" --policy freelunch:codec=eb
    refused 2 "needs a policy that samples" "${net[@]}" --policy liveness --codec-log log
    refused 2 "needs a policy that samples" "${net[@]}" --policy comet:codec=zvc --codec-log log
    refused 2 "name the same file" "${net[@]}" --policy comet --codec-log log --log log
    [[ ! -e log ]] || fail "a refused run wrote its log"
}

# Maps in bf16 take half the bytes. States are fp32, and runs of either precision load them.
bf16_has_equal_bits_under_lossless_policies_() {
    local policy state n=0 data=$PWD/text
    local tokens=gpt,layers=2,width=16,heads=2,context=16,vocabulary=256
    local gpt=(train --net "$tokens" --batch 4 --quiet --optimizer adamw)
    printf '%s' {1..2000} >"$data"
    (($(minimum resnet8 8 naive --precision bf16) * 10 < $(minimum resnet8 8 naive) * 7)) || fail "maps are as large as in fp32"
    for policy in liveness swap-async:when=always recompute:mode=sqrt,when=always \
        'rules:*=compress-swap(zvc),when=always' auto; do
        state=state$((n++))
        expect 0 "${net[@]}" --iterations 4 --precision bf16 --policy "$policy" --save $state --json row
        [[ $(values row precision) == bf16 ]] || fail "the row has another precision"
        cmp -s state0 $state || fail "$policy: other weights"
    done
    gpt+=(--data text:"$data" --iterations 4 --precision bf16)
    expect 0 "${gpt[@]}" --policy liveness --save kept
    expect 0 "${gpt[@]}" --policy rules:attention=recompute,when=always --save again --json row
    cmp -s kept again || fail "other weights of gpt whose attention runs again"
    [[ $(values row steps_again) == 2 ]] || fail "$(values row steps_again) steps run again, not both attentions"
    expect 0 "${net[@]}" --iterations 4 --save fp32
    ! cmp -s state0 fp32 || fail "bf16 rounds nothing"
    expect 0 "${net[@]}" --iterations 6 --precision bf16 --save whole
    expect 0 "${net[@]}" --iterations 6 --load state0 --save on
    cmp whole on || fail "a state of bf16 does not go on in bf16"
    expect 0 "${net[@]}" --iterations 6 --precision fp32 --load state0
    says err "--precision fp32: state0 was trained with bf16"
    expect 0 "${net[@]}" --iterations 6 --precision bf16 --load fp32
    says err "--precision bf16: fp32 was trained with fp32"
    refused 2 "--precision bf16x: must be fp32, tf32 or bf16" "${net[@]}" --precision bf16x
}

adamw_has_equal_bits_under_lossless_policies_() {
    trained reference --optimizer adamw --policy naive
    for policy in liveness swap:when=always swap-async:when=always recompute:when=always recompute-swap:when=always \
        freelunch:codec=raw,eligible=all,when=always; do
        trained state --optimizer adamw --policy $policy
        equal_tensors reference state
    done
    trained sgd --policy naive
    differ reference sgd
    [[ $(<reference) == *exp_avg.fc.weight*exp_avg_sq.fc.weight* && $(<reference) != *momentum.* ]] || fail "its states"
    goes_on_alone 3 --net tiny --batch 4 --optimizer adamw,beta2=0.99,weight-decay=0.1 --lr-step 4
    [[ $(<in_two) == *'"optimizer":"adamw,weight-decay=0.1,beta1=0.9,beta2=0.99,eps=1e-08,clip-norm=0"'* ]] ||
        fail "its options"
}

states_of_another_optimizer_are_refused_() {
    expect 0 "${tiny[@]}" --iterations 2 --momentum 0.5 --lr 0.3 --save sgd
    refused 2 "--optimizer adamw: sgd was trained with sgd,momentum=0.5,weight-decay=0.0001,clip-norm=0;" \
        "${tiny[@]}" --load sgd --optimizer adamw
    expect 0 "${tiny[@]}" --iterations 4 --load sgd --optimizer adamw --reset-optimizer --save adamw
    [[ $(<adamw) == *'"lr":"0.001"'*'"optimizer":"adamw,weight-decay=0.01,'* ]] || fail "options of another optimizer"
    refused 2 "--optimizer sgd: adamw was trained with adamw," "${tiny[@]}" --load adamw --optimizer sgd
    # A reset also restarts the update count, so the bits differ from those of a run that goes on.
    expect 0 train --quiet --iterations 6 --load adamw --save on
    expect 0 train --quiet --iterations 6 --load adamw --reset-optimizer --save anew
    differ on anew
    refused 2 "--reset-optimizer: needs --load FILE" "${tiny[@]}" --reset-optimizer
    refused 2 "--momentum 0.9: optimizer adamw has no option 'momentum'; it has" "${tiny[@]}" --optimizer adamw --momentum 0.9
    refused 2 "--optimizer adamw,beta1=1: optimizer adamw: beta1 is 1: must be from 0 to below 1" \
        "${tiny[@]}" --optimizer adamw,beta1=1
    refused 2 "--optimizer adam: no optimizer 'adam' (did you mean adamw?): there are sgd and adamw" plan --optimizer adam
}

weights_are_the_same_whenever_they_are_updated_() {
    local how trains=("${tiny[@]}" --optimizer adamw)
    expect 0 "${trains[@]}" --iterations 4 --save at-end
    expect 0 "${trains[@]}" --iterations 6 --save whole
    for how in by-layer in-backward auto; do
        expect 0 "${trains[@]}" --iterations 4 --update $how --on-overflow stop --self-check --save $how
        cmp -s at-end $how || fail "$how: other weights"
        expect 0 "${trains[@]}" --iterations 6 --load $how --save on
        cmp -s whole on || fail "$how: its state does not go on"
    done
    expect 0 "${trains[@]}" --iterations 6 --load at-end --update in-backward --keep-going --save on
    cmp -s whole on || fail "in-backward: does not go on from another's state"
    (($(minimum resnet20 1 liveness --update in-backward) < $(minimum resnet20 1 liveness) * 9 / 10)) || fail "as much memory"
}

what_needs_whole_gradients_keeps_them_() {
    local why
    refused 2 "--update in-backward: an overflow may be found after some updates, which --on-overflow stop allows" \
        "${tiny[@]}" --update in-backward
    local after=("${tiny[@]}" --iterations 2 --on-overflow stop)
    for why in "--clip-norm 1" "--sub-batch 2" "--policy modnn --budget 3MiB" "--policy comet"; do
        # shellcheck disable=SC2086
        expect 2 "${after[@]}" $why --update in-backward
        [[ $(<err) == "mm train: --update in-backward: "* && $(wc -l <err) == 1 ]] || fail "$why: $(<err)"
        # shellcheck disable=SC2086
        expect 0 "${after[@]}" $why --update auto
        says err "mm train: --update auto: at-end: "
        says err "--on-overflow stop: the same as undo: weights are updated at the end"
    done
    refused 2 "--update by-layer: clipping" "${tiny[@]}" --update by-layer --clip-norm 1
    refused 2 "--update never: must be at-end, by-layer, in-backward or auto" "${tiny[@]}" --update never
    refused 2 "--on-overflow never: must be undo or stop" "${tiny[@]}" --on-overflow never
    refused 2 "--on-overflow stop and --keep-going: give one of them" "${tiny[@]}" --on-overflow stop --keep-going
    refused 2 "--update in-backward: gradients of several ranks" plan --net tiny --batch 4 --ranks 2 --update in-backward
    refused 2 "--update in-backward: clipping" bench --net tiny --optimizer sgd,clip-norm=1 --update in-backward
    expect 0 bench --net tiny --batch 4 --iterations 2 --policies liveness --update auto --quiet
}

without_momentum_there_is_none_to_keep_() {
    expect 0 "${tiny[@]}" --iterations 2 --save with
    expect 0 "${tiny[@]}" --iterations 4 --load with --optimizer sgd,momentum=0 --save without
    says err "--optimizer sgd,momentum=0,weight-decay=0.0001,clip-norm=0: with was trained with sgd,momentum=0.9"
    [[ $(<without) == *'"optimizer":"sgd,momentum=0,'* && $(<without) != *momentum.* ]] || fail "its states"
    expect 0 "${tiny[@]}" --iterations 4 --load with --momentum 0 --save again
    equal_tensors without again
    goes_on_alone 3 --net tiny --batch 4 --optimizer sgd,momentum=0
}

a_rate_falls_as_a_cosine_() {
    expect 0 "${tiny[@]}" --iterations 6 --lr-schedule constant --save constant
    expect 0 "${tiny[@]}" --iterations 6 --save reference
    equal_tensors reference constant
    expect 0 "${tiny[@]}" --iterations 6 --lr-schedule cosine,warmup=2 --save cosine
    differ reference cosine
    # The schedule spans the whole run; an interrupted run goes on with it.
    local run=(--net resnet8 --batch 8 --iterations 300)
    start train "${run[@]}" --lr-schedule cosine,warmup=9 --optimizer adamw --save half --log log --quiet
    wait_for log $'\n3,'
    interrupt
    says err "; saved in half; go on with: mm train --load half --save half --log log --quiet"
    # Without --iterations it goes on to the end that it had, and without another schedule nothing is said of it.
    expect 0 train --load half --save in_two --log log --quiet
    [[ $(<err) =~ ^"mm train: --log log: goes on after iteration "[0-9]+$ ]] || fail "something else is told"
    mapfile -t lines <log
    [[ ${#lines[@]} == 301 && ${lines[300]} == 300,* && ${lines[1]} == 1,* ]] || fail "${#lines[@]} lines in the log"
    [[ ${lines[1]} != *,0 ]] || fail "the first line has no planned bytes: ${lines[1]}"
    expect 0 train --load in_two --quiet
    [[ $(<err) == "mm train: nothing to train: in_two has done 300 iterations already; to train on: --iterations N, "* ]] ||
        fail "not told how to train on"
    [[ $(<err) != *$'\n'* ]] || fail "more is told"
    expect 0 train "${run[@]}" --lr-schedule cosine,warmup=9 --optimizer adamw --save at_once --quiet
    equal at_once in_two
    differ half in_two
    refused 2 "--lr-schedule cosine and --lr-step: give one of them" "${tiny[@]}" --lr-schedule cosine --lr-step 3
    refused 2 "--lr-schedule cos: learning rate's schedule 'cos': must be" "${tiny[@]}" --lr-schedule cos
    refused 2 "warmup of 6 iterations: must be from 0 to below all 6" "${tiny[@]}" --iterations 6 \
        --lr-schedule cosine,warmup=6
}

what_is_said_and_differs_is_told_() {
    local lines
    expect 0 "${tiny[@]}" --iterations 2 --save state --data synthetic:samples=18
    expect 0 train --net tiny --quiet --iterations 4 --load state --batch 6 --lr 0.1 --seed 2 --lr-step 3 --save other
    mapfile -t lines <err
    ((${#lines[@]} == 3)) || fail "not three lines: ${lines[*]}"
    says err "mm train: --batch 6: state was trained with 4"
    says err "mm train: --seed 2: state was trained with 1"
    says err "mm train: --lr-step 3: state was trained without"
    # The eight images that were seen before the state was saved are a batch of six, and a part of the next.
    [[ $(<other) == *'"epoch":"1"'*'"iteration":"4"'*'"position":"0"'*'"seed":"2"'* ]] || fail "it did not go on behind the images seen"
    expect 0 train --quiet --epochs 1 --load state
    says err "mm train: --epochs 1: this run also trains on an epoch's last, smaller batch, which the run of state left out"
}

# States of older versions say nothing about the run that saved them, so the options' defaults hold.
a_state_without_a_version_says_only_how_far_it_is_() {
    expect 0 "${tiny[@]}" --iterations 2 --seed 5 --lr 0.03 --save state
    sed 's/"version":"1"/"versiom":"1"/' state >old
    expect 0 "${tiny[@]}" --iterations 4 --load old --save from_old
    [[ ! -s err ]] || fail "something is told"
    expect 0 "${tiny[@]}" --iterations 4 --load state --seed 1 --lr 0.1 --save from_state
    [[ $(<from_old) == *'"iteration":"4"'*'"lr":"0.1"'*'"seed":"1"'* ]] || fail "the old state says more than how far it is"
    refused 1 "not a state of resnet32" train --iterations 4 --load old --quiet
}

states_that_say_what_cannot_be_are_refused_() {
    expect 0 "${tiny[@]}" --iterations 2 --save state --lr-step 7
    sed 's/"lr-step":"7"/"lr-step":"x"/' state >decay
    sed 's/"version":"1"/"version":"9"/' state >newer
    refused 1 "newer: the state has version 9, but this mm reads versions up to 1" train --load newer
    sed 's/"batch":"4"/"batch":"0"/' state >wrong
    refused 1 "wrong: what it says of its run cannot be: --batch 0" train --load wrong
    refused 1 "decay: what it says of its run cannot be: --lr-step x: must be an iteration" train --load decay --quiet
    sed 's/"data":"synthetic"/"data":"synthetik"/' state >data
    refused 1 "data: what it says of its run cannot be: unknown data 'synthetik'" train --load data --quiet
    sed 's/"optimizer":"sgd/"optimizer":"sgx/' state >optimizer
    refused 1 "optimizer: what it says of its run cannot be: " train --load optimizer --quiet
    sed 's/"position":"8"/"position":"x"/' state >place
    refused 1 "metadata position is 'x', not a count" train --load place --quiet
    sed 's/"net":"tiny"/"net":"mine"/' state >mine
    refused 2 "mine is a state of net mine, which mm does not have; name its file: --net file:PATH or onnx:PATH" train --load mine
}

data_of_less_than_a_batch_has_figures_() {
    expect 0 "${tiny[@]}" --data synthetic:samples=3 --epochs 5 --json row
    says out " img/s "
    local rate seconds
    rate=$(value row images_per_second) seconds=$(value row iteration_seconds_median)
    awk -v r="$rate" -v s="$seconds" 'BEGIN { exit !(s > 0 && r * s > 2.99 && r * s < 3.01) }' ||
        fail "$rate images/s of 3 in $seconds s"
    [[ $(value row loss_last) != null ]] || fail "no loss"
}

states_are_saved_on_the_way_() {
    start train --net tiny --batch 4 --iterations 1000000 --save state --save-every 3 --log log --quiet
    wait_for log $'\n8,'
    kill -KILL $!
    wait $! 2>/dev/null
    trap - EXIT
    [[ $(<state) =~ '"iteration":"'([0-9]+)'"' ]] || fail "no state"
    local done_by=${BASH_REMATCH[1]}
    ((done_by >= 6 && done_by % 3 == 0)) || fail "saved at $done_by"
    expect 0 "${tiny[@]}" --iterations "$done_by" --save at_once
    equal_tensors at_once state
    # The log has lines of iterations that run again. Its lines up to the state's stay.
    head -n $((done_by + 1)) log >before
    expect 0 train --load state --iterations $((done_by + 2)) --log log --quiet
    says err "mm train: --log log: goes on after iteration $done_by"
    mapfile -t lines <log
    ((${#lines[@]} == done_by + 3)) || fail "${#lines[@]} lines in the log"
    head -n $((done_by + 1)) log >after
    equal before after
    expect 0 train --load at_once --iterations $((done_by + 3)) --log after --quiet
    [[ $(<err) == "mm train: --log after: goes on after iteration $done_by" ]] || fail "what becomes of the log?"
    sed -i 2d before && sed -i '$d' before
    expect 0 train --load state --iterations $((done_by + 1)) --log before --quiet
    says err "--log before: is overwritten: it does not have the lines up to iteration $done_by"
    (($(wc -l <before) == 2)) || fail "not overwritten"
    # Saves after each epoch: this does not change the result.
    expect 0 "${tiny[@]}" --data synthetic:samples=18 --epochs 2 --eval --save state --save-every 1epoch
    expect 0 "${tiny[@]}" --data synthetic:samples=18 --epochs 2 --save at_once
    equal at_once state
    expect 0 train --load state --quiet
    says err "nothing to train: state has done "
    expect 1 "${net[@]}" --iterations 40 --lr 900 --save state --save-every 2
    [[ $(<state) =~ '"iteration":"'([0-9]+)'"' ]] || fail "no state"
    says out "state: the state after iteration ${BASH_REMATCH[1]}"
    ((BASH_REMATCH[1] % 2 == 0)) || fail "what was saved on the way is lost"
    refused 2 "--save-every 2: needs --save" "${tiny[@]}" --save-every 2
    for n in 0 -1 x 1epic epoch; do
        refused 2 "--save-every $n: must be iterations or epochs" "${tiny[@]}" --save s --save-every=$n
    done
}

a_state_loaded_behind_a_switch_has_its_policy_() {
    local switches=(--switch "1:freelunch:rate=4,when=always" --switch 4:liveness --switch "2:freelunch:rate=8,when=always")
    expect 0 "${net[@]}" --iterations 6 "${switches[@]}" --save at_once
    expect 0 "${net[@]}" --iterations 3 "${switches[@]}" --save part
    expect 0 "${net[@]}" --iterations 6 "${switches[@]}" --load part --save in_two
    equal at_once in_two
    expect 0 "${net[@]}" --iterations 6 --switch 1:freelunch:rate=4,when=always --load part --save other
    differ at_once other
}

a_state_at_the_end_is_only_evaluated_() {
    expect 0 "${tiny[@]}" --iterations 3 --save state --eval --data synthetic:samples=40
    local accuracy
    read -r accuracy <out
    expect 0 "${tiny[@]}" --iterations 3 --load state --save again --eval --data synthetic:samples=40 --json row
    says err "nothing to train: state has done 3 iterations already"
    says out "$accuracy"
    equal state again
    [[ $(values row net) == tiny && $(values row iterations) == 0 ]] || fail "the row is of something else"
}

saving_replaces_what_a_link_points_to_() {
    echo old >target
    ln -s target link
    expect 0 "${tiny[@]}" --iterations 2 --save link
    [[ -L link ]] || fail "the link was replaced"
    expect 0 "${tiny[@]}" --iterations 4 --load target
}

# Pinned memory is sized for the policy's plan in the budget, not for its least plan.
a_switch_without_a_budget_is_as_one_with_the_same_given_() {
    local options=(train --net "vgg11@32x32,thin=8" --batch 4 --iterations 2 --policy recompute --switch 1:recompute-swap
        --quiet)
    expect 0 "${options[@]}" --json own
    expect 0 "${options[@]}" --budget "$(value own budget_bytes)" --json given
    (($(value own stash_bytes) == $(value given stash_bytes))) ||
        fail "stash of $(value own stash_bytes), with the same budget given $(value given stash_bytes)"
}

# ---------------------------------------------------------------- data of one's own

# npy FILE TYPE SHAPE BYTES...: writes a .npy file of version 1; elements are printf escapes.
npy() {
    local file=$1 header="{'descr': '$2', 'fortran_order': False, 'shape': ($3,), }"
    printf -v header '%-117s\n' "$header"
    printf '\x93NUMPY\1\0\x76\0%s' "$header" >"$file"
    shift 3
    printf '%b' "$@" >>"$file"
}

# Eight images of 4x4x3. Brightness depends on the label, so that they can be learned.
own_data() { # IMAGES LABELS
    local i elem pixels=() labels=()
    for ((i = 0; i < 8; i++)); do
        for ((elem = 0; elem < 48; elem++)); do printf -v 'pixels[i * 48 + elem]' '\\x%02x' $((i % 4 * 60 + elem % 5)); done
        labels[i]="\\x0$((i % 4))\\0\\0\\0"
    done
    npy "$1" '|u1' '8, 4, 4, 3' "${pixels[@]}"
    npy "$2" '<i4' 8 "${labels[@]}"
}

own=(train --net "resnet8@4x4,classes=4" --quiet --batch 4 --threads 1) # learning from 8 images depends on the last bit

measured_times_are_planned_by_() {
    local plan=(--net tiny --batch 4 --policy hybrid:when=needed --budget) least
    expect 0 bench --net tiny --batch 4 --iterations 3 --policies liveness,hybrid:when=always --facts facts --quiet
    least=$(minimum tiny 4 hybrid)
    expect 0 plan "${plan[@]}" $((least + 4096)) --facts facts --minimum --json planned
    expect 0 train "${plan[@]}" $((least + 4096)) --facts facts --json row --iterations 2 --quiet
    [[ ! -s err ]] || fail "$(<err)"
    [[ $(values row minimum_bytes) == $(values planned minimum_bytes) ]] || fail "other minima"
    [[ $(values row predicted_peak_bytes) == $(values planned predicted_peak_bytes) ]] || fail "other plans"
    refused 2 "--facts facts: was measured with batch 4, but this is batch 8" train --net tiny --batch 8 --facts facts \
        --iterations 2 --quiet
    sed 's/"workspace_bytes": 0/"workspace_bytes": 64/' facts >others
    refused 1 "has other workspaces there than here" "${tiny[@]}" --facts others --iterations 2
    echo '{"format": "mm machine"' >broken
    refused 1 "facts file broken, line" "${tiny[@]}" --facts broken --iterations 2
    refused 2 "--save and --facts name the same file, facts" "${tiny[@]}" --facts facts --save facts
}

data_of_ones_own_trains_and_is_evaluated_() {
    own_data x.npy y.npy
    expect 0 "${own[@]}" --data files:x.npy,y.npy --test-data files:x.npy,y.npy --epochs 12 --eval --json row
    [[ $(value row test_accuracy) == 1* ]] || fail "it learned only $(value row test_accuracy)"
    (($(value row iterations) == 24)) || fail "not 2 iterations an epoch"
    expect 0 "${own[@]}" --data files:x.npy,y.npy --iterations 3 --save whole
    expect 0 "${own[@]}" --data files:x.npy,y.npy --iterations 2 --save part
    expect 0 "${own[@]}" --data files:x.npy,y.npy --iterations 3 --load part --save whole2
    equal whole whole2
    mkdir elsewhere
    (cd elsewhere && expect 0 "${own[@]}" --iterations 3 --load ../part --save whole3) || exit 1
    equal whole elsewhere/whole3
    expect 0 "${own[@]}" --data files:./x.npy,elsewhere/../y.npy --iterations 3 --load part
    [[ ! -s err ]] || fail "the same data is told as other data"
    mv x.npy z.npy
    refused 1 "part: what it says of its run cannot be: " "${own[@]}" --iterations 3 --load part
    says err "/x.npy"
    mv z.npy x.npy
    expect 0 "${own[@]}" --data synthetic --test-data files:x.npy,y.npy --iterations 1 --eval
    expect 0 bench --net resnet8@4x4,classes=4 --data files:x.npy,y.npy --batch 4 --iterations 1 --quiet
}

data_of_ones_own_that_does_not_go_with_the_network_is_refused_() {
    own_data x.npy y.npy
    refused 2 "x.npy has images of 4x4x3 in 10 classes, the network wants 32x32x3 in 10" "${net[@]}" \
        --data files:x.npy,y.npy
    refused 1 "y.npy: image 3 has label 3, must be from 0 to 2: there are 3 classes" train \
        --net resnet8@4x4,classes=3 --batch 4 --data files:x.npy,y.npy
    refused 2 "--data files:x.npy,y.npy has no test set; give one with --test-data" "${own[@]}" --eval \
        --data files:x.npy,y.npy
    refused 2 "is what --eval evaluates on; add --eval" "${own[@]}" --test-data files:x.npy,y.npy
    refused 2 "must be two paths without commas: files:IMAGES.npy,LABELS.npy" "${own[@]}" --data files:x.npy
    refused 2 "--save and --data name the same file, y.npy" "${own[@]}" --data files:x.npy,y.npy --save y.npy
}

# Evaluation uses the text's last tenth. Every lossless policy gives the same bits, and each moves bytes or runs steps
# again.
a_text_is_learned_with_equal_bits_under_lossless_policies_() {
    local i need precision policy
    for ((i = 0; i < 400; i++)); do echo "$i: the text's lines are numbered, $((i * i)) is the square"; done >text
    local net=(--net "gpt,layers=4,width=32,heads=2,context=32,vocabulary=128")
    local run=(train --quiet --batch 16 --data text:text --iterations 30 --optimizer adamw --lr 1e-2 --clip-norm 1
        --lr-schedule "cosine,warmup=5" --eval --eval-every 10 --json row.json)
    for precision in bf16 fp32; do
        expect 0 "${run[@]}" "${net[@]}" --precision $precision --policy liveness --save reference
        says out "tokens/s"
        mapfile -t losses < <(sed -n 's/.*test loss \([0-9.]*\), perplexity .*/\1/p' out)
        ((${#losses[@]} == 3)) || fail "evaluated ${#losses[@]} times"
        [[ ${losses[0]} > ${losses[2]} ]] || fail "nothing is learned: ${losses[*]}"
        [[ $(value row.json tokens_per_second) != null ]] || fail "no tokens_per_second"
        grep perplexity out >reference.out
        need=$(value row.json minimum_bytes)
        for policy in "auto --budget $((need / 2))" swap-async:when=always recompute:mode=sqrt,when=always \
            'rules:*=compress-swap(zvc),when=always'; do
            # shellcheck disable=SC2086 # a policy and its budget
            expect 0 "${run[@]}" "${net[@]}" --precision $precision --policy $policy --save state
            equal_tensors reference state
            grep perplexity out | cmp -s - reference.out || fail "$precision, $policy: another perplexity"
            (($(value row.json moved_bytes) + $(value row.json steps_again) + $(value row.json spilled_bytes) > 0)) ||
                fail "$precision, $policy: nothing moves, and nothing runs again"
            [[ $policy != auto* ]] || (($(value row.json peak_bytes) <= need / 2)) || fail "$precision, $policy: over half"
        done
    done
    expect 0 "${run[@]:0:1}" "${run[@]:2}" "${net[@]}" --sub-batch 8 --save parts
    says err " 11/30 loss" # progress counts the whole run, not up to the next evaluation
    differ reference parts
    expect 0 nets "${net[@]}" --json
    cp out gpt.json
    expect 0 "${run[@]}" --net file:gpt.json --policy liveness --save file
    equal_tensors reference file
}

# A sample of one token has one label, as an image has, but is read as tokens.
a_gpt_with_a_context_of_one_token_trains_() {
    local one_token=gpt,layers=1,width=16,heads=2,context=1 run=(--batch 16 --eval --iterations 100 --lr 0.2 --quiet --json row)
    printf '%s ' {1..2000} >text
    expect 0 train --net $one_token,vocabulary=256 --data text:text "${run[@]}"
    is_less "$(value row test_loss)" 4 || fail "text: a loss of $(value row test_loss), of a guess 5.55"
    expect 0 train --net $one_token,vocabulary=16 "${run[@]}"
    is_less "$(value row test_loss)" 2.5 || fail "synthetic: a loss of $(value row test_loss), of a guess 2.77"
    expect 0 bench --net $one_token,vocabulary=16 --batch 16 --iterations 1 --policies liveness,recompute
}

# Loads a file like GPT-2's, which has parameters, causal masks (which are not parameters) and another program's
# metadata. The update after loading is so small that the weights stay as they were loaded.
a_published_gpt_is_loaded_() {
    local run=(train --net "gpt,layers=2,width=16,heads=2,context=16,vocabulary=256" --data text:text --batch 4 --quiet)
    printf '%s ' {1..2000} >text
    expect 0 "${run[@]}" --iterations 3 --lr 1e-2 --save trained
    python3 -S - trained published <<'END' || fail "python3"
import json, struct, sys
with open(sys.argv[1], "rb") as f:
    header = json.loads(f.read(struct.unpack("<Q", f.read(8))[0]))
    data = f.read()
out = {"__metadata__": {"format": "pt"}}
for name, tensor in header.items():
    if name.split(".")[0] in ("wte", "wpe", "h", "ln_f"):
        out[name] = tensor
for block in range(2):
    out["h.%d.attn.bias" % block] = {"dtype": "F32", "shape": [1, 1, 16, 16], "data_offsets": [len(data), len(data) + 1024]}
    data += bytes(1024)
spans = sorted((tensor["data_offsets"] for name, tensor in out.items() if name != "__metadata__"))
packed = b"".join(data[begin:end] for begin, end in spans)
starts, at = {}, 0
for begin, end in spans:
    starts[begin], at = at, at + end - begin
for name, tensor in out.items():
    if name != "__metadata__":
        begin, end = tensor["data_offsets"]
        tensor["data_offsets"] = [starts[begin], starts[begin] + end - begin]
text = json.dumps(out).encode()
with open(sys.argv[2], "wb") as f:
    f.write(struct.pack("<Q", len(text)) + text + packed)
END
    expect 0 "${run[@]}" --iterations 1 --load published --optimizer sgd,momentum=0,weight-decay=0 --lr 1e-9 \
        --clip-norm 1e-9 --save loaded
    python3 -S - published loaded <<'END' || fail "other weights than were published"
import json, struct, sys
def tensors(path):
    with open(path, "rb") as f:
        header = json.loads(f.read(struct.unpack("<Q", f.read(8))[0]))
        data = f.read()
    return {name: data[slice(*tensor["data_offsets"])] for name, tensor in header.items() if name != "__metadata__"}
published, loaded = map(tensors, sys.argv[1:])
names = [name for name in published if not name.endswith(".attn.bias")]
sys.exit(len(names) != 28 or any(published[name] != loaded[name] for name in names))
END
}

# one_line TEXT ARGUMENT...: checks that "${run[@]}" ARGUMENT... is refused in one line with TEXT, and no file is
# written.
one_line() {
    refused 2 "$1" "${run[@]}" "${@:2}"
    (($(wc -l <err) == 1)) || fail "$(wc -l <err) lines"
    [[ ! -e state && ! -e row.json && ! -e trace.json ]] || fail "a file was written"
}

what_cannot_be_learned_of_a_text_is_one_line_() {
    local -a run=(train --iterations 2 --batch 2 --quiet --save state --json row.json --trace trace.json)
    local precision
    printf 'short' >short
    printf '\xff%.0s' {1..2000} >bytes
    printf 'a%.0s' {1..1999} >late && printf '\xff' >>late
    printf '\x00\x02%.0s' {1..2000} >numbers
    for precision in fp32 bf16; do
        run+=(--precision "$precision")
        one_line "short: has 5 tokens, of which training takes 5: too short for a context of 128" --net gpt --data text:short
        one_line "bytes: token 0 is 255, must be from 0 to 99" --net gpt,vocabulary=100 --data text:bytes
        one_line "net gpt: heads=5 must divide width=128" --net gpt,heads=5
        run=("${run[@]:0:${#run[@]}-2}")
    done
    one_line "late: has 2000 tokens, of which evaluation takes 200: too short for a context of 256" --eval \
        --net gpt,context=256 --data text:late
    one_line "late: token 1999 is 255, must be from 0 to 127" --eval --net gpt,vocabulary=128 --data text:late
    one_line "numbers: token 0 is 512, must be from 0 to 255" --net gpt --data tokens:numbers
    one_line "net gpt: heads=12 must divide width=100" --net gpt,heads=12,width=100
    one_line "net gpt2: heads=12 must divide width=8" --net gpt2,width=8
    one_line "net gpt: ',depth=3' after its name; expected ,layers=N (to 1024)" --net gpt,depth=3
    one_line "net gpt: ',classes=10' after its name; expected ,layers=N (to 1024)" --net gpt,classes=10
    one_line "net gpt: ',heads=2,heads=4' after its name" --net gpt,heads=2,heads=4
    one_line "net gpt: ',layers=0' after its name" --net gpt,layers=0
    one_line "net gpt: ',dropout=1' after its name" --net gpt,dropout=1
    one_line "net gpt: '@32' after its name" --net gpt@32
    one_line "net resnet20: ',heads=2' after its name" --net resnet20,heads=2
    one_line "net resnet20: ',vocabulary=9' after its name; expected @HEIGHTxWIDTH" --net resnet20,vocabulary=9
    one_line "bytes: has tokens, each with a label; the network takes 32x32x3" --net resnet20 --data text:bytes
    one_line "clip-norm" --net gpt --clip-norm -1
    # Batch norms can decode codes by themselves in f32, but not in bf16.
    local -a steps=(--net tiny --batch 4 --policy "freelunch:codec=dpr:fp8,codes=in-step,when=always")
    run=(train --iterations 2 --quiet --save state --json row.json --trace trace.json)
    one_line "batch norms of f32 maps can" "${steps[@]}" --precision bf16
    expect 0 "${run[@]}" "${steps[@]}"
}

run_cases
