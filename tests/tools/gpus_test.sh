#!/bin/bash
# gpus_test.sh MM: GPUs by name: mm gpus, --gpu of plan and bench, mm plan --which-gpu.
# SPDX-License-Identifier: MIT
# shellcheck source=tests/tools/cli.sh
. "$(dirname "${BASH_SOURCE[0]}")/cli.sh"

plan=(plan --net tiny --batch 4 --policy liveness)
estimated="estimated from data sheet and assumptions"

gpus_are_listed_within_eighty_columns_and_as_json_() {
    local line
    expect 0 gpus
    while IFS= read -r line; do ((${#line} <= 80)) || fail "${#line} columns: $line"; done <out
    says out "A100-40"
    says out "unchecked"
    expect 0 gpus --json list
    [[ $(values list gpu) == *$'RTX-4090\n'* ]] || fail "RTX-4090 is missing"
    (($(values list source | grep -c .) == $(values list gpu | grep -c .))) || fail "sources are missing"
    expect 0 gpus a100-40
    says out "A100-40 (Ampere)"
    says out "conv_tf32"
    says out "h100.json; others as Hopper"
    refused 2 "may be A100-40, A100-80-PCIe, A100-80-SXM" gpus a100
    refused 2 "give one name" gpus t4 l4
}

a_gpus_machine_file_plans_as_its_name_() {
    expect 0 gpus "rtx 4090" --json own.json
    expect 0 "${plan[@]}" --gpu rtx4090 --budget 1GiB --json name
    expect 0 "${plan[@]}" --facts own.json --budget 1GiB --json file
    [[ $(value name iteration_seconds_predicted) == "$(value file iteration_seconds_predicted)" ]] || fail "times differ"
    [[ $(value name machine) == RTX-4090-est. ]] || fail "machine $(value name machine)"
    [[ $(value name machine_from) == "$estimated" ]] || fail "it is not said that times are estimated"
    [[ -z $(values file machine_from) ]] || fail "a file's rates are called estimated"
}

a_gpus_memory_is_the_budget_if_none_is_given_() {
    local budget
    expect 0 "${plan[@]}" --gpu t4 --json row --svg picture.svg --html page.html
    says out "T4: times are $estimated"
    says out "less 1GiB for the CUDA context and libraries"
    says out "fits 13.8GiB"
    says picture.svg "$estimated"
    says page.html "$estimated"
    budget=$(value row budget_bytes)
    expect 0 gpus t4
    says out "budget of 'mm plan' 13.8GiB"
    expect 0 plan --net tiny --policy liveness --facts T4 --max-batch --json most
    [[ $(value most budget_bytes) == "$budget" ]] || fail "--max-batch has another budget"
    says out "largest batch"
    expect 0 "${plan[@]}" --gpu t4 --budget 1GiB --json row
    [[ $(value row budget_bytes) == 1073741824 ]] || fail "--budget does not count"
    [[ $(<out) != *"CUDA context"* ]] || fail "a budget that was given is explained"
}

names_that_are_not_one_gpus_are_refused_() {
    refused 2 "GPU 'a100' may be A100-40, A100-80-PCIe, A100-80-SXM: name one of them" "${plan[@]}" --gpu a100
    refused 2 "no GPU is called 'rtx4091' (did you mean RTX-4090?)" "${plan[@]}" --gpu rtx4091
    refused 2 "no GPU is called 'zzz'; 'mm gpus' lists them" bench --net tiny --gpu t4,zzz
    refused 1 "facts file zzz: cannot be read: " "${plan[@]}" --facts zzz
    says err "; no GPU is called 'zzz'"
    refused 2 "--gpu and --facts: give one of them" "${plan[@]}" --gpu t4 --facts t4
    refused 2 "--gpu and --simulate: give one of them" bench --net tiny --gpu t4 --simulate l4
    refused 2 "--gpu: is not for --graph" plan --graph graphs --gpu t4
    refused 2 "is a GPU's name" train --net tiny --iterations 1 --facts t4
    refused 2 "T4-est. does not multiply bf16" "${plan[@]}" --gpu t4 --precision bf16
    expect 0 plan --net gpt --batch 2 --policy liveness --gpu l4 --precision bf16
    echo "no machine" >t4
    refused 1 "facts file t4" "${plan[@]}" --facts t4 # a file comes first
    expect 0 "${plan[@]}" --gpu t4
}

gpus_are_simulated_by_name_() {
    expect 0 bench --gpu v100-16,l4 --net tiny --batch 4 --policies liveness --quiet --json rows
    says out "V100-16-est.: times are $estimated"
    says out "L4-est.: times are $estimated"
    [[ $(values rows device) == $'V100-16-est.\nL4-est.' ]] || fail "devices $(values rows device)"
    expect 0 bench --simulate l4 --net tiny --batch 4 --policies liveness --quiet --json again
    [[ $(value again images_per_second) == "$(values rows images_per_second | tail -1)" ]] || fail "speeds differ"
}

gpus_that_a_training_fits_come_by_speed_() {
    local speeds last=1e99 speed
    expect 0 plan --net tiny --batch 4 --policy liveness,naive --which-gpu --json rows
    says out "speeds are $estimated"
    says out "fits 28 of 28 GPUs"
    mapfile -t speeds < <(values rows images_per_second)
    ((${#speeds[@]} == 28)) || fail "${#speeds[@]} rows"
    for speed in "${speeds[@]}"; do
        ! is_less "$last" "$speed" || fail "$speed after $last"
        last=$speed
    done
    expect 0 "${plan[@]}" --gpu h200 --json row
    grep -qF "\"iteration_seconds_predicted\": $(value row iteration_seconds_predicted)" rows || fail "the H200's time differs"

    expect 0 plan --net resnet50 --batch 128 --policy liveness --which-gpu # 9.9 GiB; the 1080 Ti has 9.83
    says out "do not fit:"
    says out "GTX-1080-Ti (needs "
    expect 1 plan --net gpt2 --batch 4096 --policy liveness --which-gpu
    says out "fits 0 of 28 GPUs"
    expect 0 plan --net gpt --batch 2 --policy liveness --which-gpu --precision bf16 --json rows
    says out "no units for bf16: K40, "
    [[ $(values rows status | sort -u) == $'no units for bf16\nok' ]] || fail "status $(values rows status | sort -u)"

    refused 2 "leave --budget out" "${plan[@]}" --which-gpu --budget 1GiB
    refused 2 "leave --gpu out" "${plan[@]}" --which-gpu --gpu t4
    refused 2 "leave --svg out" "${plan[@]}" --which-gpu --svg picture.svg
}

names_are_completed_() {
    local list
    list=$("$mm" completion bash)
    [[ $list == *"*GPU*) list='"*"RTX-4090 "* && $list == *"--gpu=GPU"* ]] || fail "bash does not complete GPUs"
}

run_cases
