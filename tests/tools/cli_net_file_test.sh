#!/bin/bash
# Network files through the command: what 'mm nets --json' prints and --net file:PATH reads.
# SPDX-License-Identifier: MIT
# shellcheck source=tests/tools/cli.sh
. "$(dirname "${BASH_SOURCE[0]}")/cli.sh"
example=$(realpath "$2")

few=(--batch 4 --iterations 3 --quiet)

the_example_trains_() {
    expect 0 train --net "file:$example" "${few[@]}" --json rows.json
    [[ $(values rows.json net) == small-cnn ]] || fail "it trained $(values rows.json net)"
    [[ $(values rows.json iterations) == 3 ]] || fail "it trained for $(values rows.json iterations) iterations"
    [[ $(values rows.json status) == ok ]] || fail "it says $(values rows.json status)"
}

a_printed_network_trains_to_the_same_bits_() {
    expect 0 nets --net tiny --json
    cp out my.json
    expect 0 train --net tiny "${few[@]}" --save built_in
    expect 0 train --net file:my.json "${few[@]}" --save from_file
    equal_tensors built_in from_file
    sed -i 's/"p": 0.25/"p": 0.5/' my.json
    expect 0 train --net file:my.json "${few[@]}" --save other
    ! (equal_tensors built_in other) >/dev/null || fail "p makes no difference"
}

# A state names its network's file. It goes on from another folder, as long as the file has that network.
a_state_finds_its_network_file_() {
    cp "$example" my.json
    mkdir other
    expect 0 train --net file:my.json "${few[@]}" --save other/state
    expect 0 train --net "file:$PWD/my.json" --batch 4 --iterations 4 --quiet --save whole
    cd other || exit
    expect 0 train --load state --iterations 4 --quiet --save on
    equal_tensors on ../whole
    sed -i 's/"name": "small-cnn"/"name": "mine"/' ../my.json
    refused 2 "state is a state of net small-cnn, but file:" train --load state --quiet
    says err "my.json has net mine; name its file: --net file:PATH"
    rm ../my.json
    refused 1 "state is a state of net small-cnn, which file:" train --load state --quiet
    says err "my.json does not give any more; name its file: --net file:PATH"
    expect 0 train --load state --net "file:$example" --iterations 4 --quiet
}

plan_bench_and_nets_take_a_file_() {
    cp "$example" my.json
    expect 0 plan --net file:my.json --batch 4 --policy liveness
    says out my.json
    expect 0 bench --net tiny,file:my.json --batch 4 --policies naive,liveness --iterations 2 --quiet --json rows.json
    [[ $(values rows.json net) == $'tiny\ntiny\nsmall-cnn\nsmall-cnn' ]] || fail "not the four rows"
    COLUMNS=100 expect 0 nets --net file:my.json
    says out "small-cnn: images of 32x32x3, 10 classes; 12 layers, 1434 learned parameters"
    says out "conv2    conv             16x16x16         768  pool1; out_channels=16 kernel=[1, 3] pad=[0, 1]"
}

all_that_is_listed_prints_and_comes_back_() {
    local name n=0
    "$mm" nets >names
    while read -r name _; do
        [[ $name != *'<'* ]] || continue
        expect 0 nets --net "$name"
        says out "$name: images of"
        expect 0 nets --net "$name" --json
        cp out my.json
        expect 0 nets --net file:my.json --json
        equal out my.json
        n=$((n + 1))
    done <names
    ((n >= 7)) || fail "only $n networks are listed"
}

a_pipe_is_a_file_too_() {
    "$mm" nets --net file:<("$mm" nets --net tiny --json) >out || fail "status $?"
    says out "tiny: images of"
}

bad_files_are_named_with_the_layer_() {
    local command run
    for command in $(commands_with --net); do
        run=("$command")
        [[ $command != device ]] || run+=(--facts facts)
        refused 1 "cannot read none.json: No such file" "${run[@]}" --net file:none.json
        refused 1 "cannot read .: Is a directory" "${run[@]}" --net file:.
        sed 's/"op": "max_pool"/"op": "maxpool"/' "$example" >bad.json
        refused 1 'bad.json: layer pool1: unknown op "maxpool" (did you mean max_pool?)' "${run[@]}" \
            --net file:bad.json
        sed 's/"kernel": 2/"kernal": 2/' "$example" >bad.json
        refused 1 'bad.json: layer pool1: "kernal" is no attribute of max_pool' "${run[@]}" --net file:bad.json
        sed 's/\["conv1"\]/["relu1"]/' "$example" >bad.json
        refused 1 'bad.json: layer bn1: its input "relu1" is not before it' "${run[@]}" --net file:bad.json
        head -n 12 "$example" >bad.json
        refused 1 'bad.json: line 13, column 0: ' "${run[@]}" --net file:bad.json
        refused 2 "a network file is given as file:my.json" "${run[@]}" --net my.json
    done
    refused 2 "no operation 'nope'; there are conv, " nets --ops nope
    refused 2 "give one of them" nets --ops --net tiny
    refused 2 "no net nope" nets --net nope
}

operations_are_listed_and_bad_layers_point_there_() {
    local line
    expect 0 nets --ops
    says out "output: out_size; channels"
    says out "momentum      number  0.1           above 0, at most 1"
    while IFS= read -r line; do ((${#line} <= 100)) || fail "above 100 columns: $line"; done <out
    expect 0 nets --ops max_pool
    says out "from 1 to 255, height times width at most 255"
    says out '{"name": "pool1", "op": "max_pool"'
    refused 2 "no operation 'bn' (did you mean batch_norm?)" nets --ops bn
    expect 0 nets --json --ops=conv
    [[ $(value out parameters) == weight* ]] || fail "not one operation"
    sed 's/"kernel": 2/"kernel": 0/' "$example" >bad.json
    refused 1 'layer pool1: "kernel" must be from 1 to 255, height times width at most 255, not 0' nets --net file:bad.json
    says err "; see 'mm nets --ops max_pool'"
}

run_cases
