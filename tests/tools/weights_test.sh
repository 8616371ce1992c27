#!/bin/bash
# Weights of other programs: elements of 16 bits, names with a wrapper's prefix, another head.
# SPDX-License-Identifier: MIT
# shellcheck source=tests/tools/cli.sh
. "$(dirname "${BASH_SOURCE[0]}")/cli.sh"

script=$(realpath "$2")
train=(train --net tiny --batch 4 --threads 1 --quiet)

# rewrite OLD NEW HOW...: writes the tensors of a state in another way (weights.py).
rewrite() { python3 "$script" "$@" || fail "weights.py $*"; }

# Loads FILE, trains an iteration with small steps, and saves to STATE.
go_on() { # FILE STATE ARGUMENT...
    expect 0 "${train[@]}" --iterations 1 --lr 1e-6 --load "$1" --save "$2" "${@:3}"
}

made() { expect 0 "${train[@]}" --iterations 2 --save state; }

names_with_a_wrapper_s_prefix_are_the_same_() {
    local prefix
    made
    rewrite state plain F32 ""
    go_on plain expected
    for prefix in module. _orig_mod. model. module._orig_mod. module._orig_mod.transformer.; do
        rewrite state prefixed F32 $prefix
        go_on prefixed got
        equal_tensors expected got
    done
}

# The same values in 16 or 64 bits as in 32. Values that F16 does not have are rounded before, in all files.
elements_of_16_bits_are_widened_() {
    local type
    made
    for type in F16 BF16; do
        rewrite state rounded rounded-to-$type ""
        rewrite state half $type module.
        go_on rounded expected
        go_on half got
        equal_tensors expected got
    done
    rewrite state wide F64 ""
    rewrite state plain F32 ""
    go_on plain expected
    go_on wide got
    equal_tensors expected got
    rewrite state integers I32 ""
    refused 1 "its tensor conv1.weight is I32" "${train[@]}" --load integers
}

another_head_is_refused_or_what_matches_is_taken_() {
    made
    rewrite state other F32 module. fc
    refused 1 "module.fc.weight is F32 [7," "${train[@]}" --load other
    says err ", expected F32 [10,"
    says err "; nor has it fc.bias; --load-matching takes the tensors that match"
    rewrite state half F16 module. fc
    refused 1 "module.fc.weight is F16 [7," "${train[@]}" --load half
    says err ", expected F16 [10,"
    expect 0 "${train[@]}" --load other --load-matching --iterations 1 --lr 1e-6 --save taken
    says err "tensors of tiny are taken from other; started anew: fc.weight, fc.bias"
    expect 0 "${train[@]}" --iterations 1 --lr 1e-6 --save fresh
    python3 - <<'END' || fail "other tensors than those of the file and of a new run"
import json, struct
def load(path):
    data = open(path, 'rb').read()
    n = struct.unpack('<Q', data[:8])[0]
    head = json.loads(data[8:8 + n])
    return {k: struct.unpack('<%df' % ((v['data_offsets'][1] - v['data_offsets'][0]) // 4),
                             data[8 + n + v['data_offsets'][0]:8 + n + v['data_offsets'][1]])
            for k, v in head.items() if k != '__metadata__' and v['dtype'] == 'F32'}
state, taken, fresh = load('state'), load('taken'), load('fresh')
near = lambda a, b: all(abs(x - y) < 1e-4 for x, y in zip(a, b))
assert near(state['conv1.weight'], taken['conv1.weight']) and not near(fresh['conv1.weight'], taken['conv1.weight'])
assert near(fresh['fc.weight'], taken['fc.weight']) and not near(state['fc.weight'], taken['fc.weight'])
END
    refused 2 "--load-matching: needs --load FILE" "${train[@]}" --load-matching
    rewrite state none F32 else.
    refused 1 "none has none of the tensors of tiny" "${train[@]}" --load none --load-matching
}

gpt=(train --net "gpt,layers=1,width=16,heads=2,context=8,vocabulary=40" --batch 2 --threads 1 --optimizer adamw --quiet)

# has FILE TENSOR
has() { grep -aq "\"$2\":" "$1"; }

adapters_are_saved_alone_and_go_on_bit_for_bit_() {
    local adapted=("${gpt[@]}" --lora "rank=2,alpha=3,layers=all" --base base)
    expect 0 "${gpt[@]}" --iterations 2 --save plain
    rewrite plain base F32 transformer.
    expect 0 "${adapted[@]}" --iterations 4 --save whole
    has whole base_model.model.transformer.h.0.attn.c_attn.lora_A.weight || fail "an adapter is not saved"
    has whole exp_avg.h.0.mlp.c_fc.lora_B.weight || fail "an adapter's state is not saved"
    ! grep -aq wte whole || fail "a frozen weight is saved"
    expect 0 "${adapted[@]}" --iterations 2 --save half
    expect 0 train --load half --iterations 4 --save half --quiet # with the state's --lora and --base
    equal_tensors whole half
    expect 0 "${adapted[@]}" --iterations 4 --save low --policy recompute-swap --budget "$(minimum \
        "${gpt[2]}" 2 recompute-swap --lora "rank=2,alpha=3,layers=all" --optimizer adamw --threads 1)"
    equal_tensors whole low
    expect 0 "${adapted[@]}" --iterations 2 --precision bf16 --save rounded
    expect 0 train --load rounded --iterations 3 --save rounded --quiet
    rm base
    refused 1 "base: No such file" train --load half --iterations 5 --quiet
}

a_file_of_frozen_weights_is_checked_() {
    expect 0 "${gpt[@]}" --iterations 1 --save plain
    made
    refused 1 "--base state: not of gpt" "${gpt[@]}" --lora rank=2 --base state
    refused 1 "; --base takes a file of frozen weights" "${gpt[@]}" --lora rank=2 --load plain
    refused 2 "--base plain: is for the frozen weights of --lora or --freeze" "${gpt[@]}" --base plain
    refused 2 "--lora and --freeze: give one of them" "${gpt[@]}" --lora rank=2 --freeze wte
    refused 2 "--lora: rank=0: must be" "${gpt[@]}" --lora rank=0
}

what_is_frozen_is_taken_from_its_file_and_not_saved_() {
    made
    rewrite state other F32 "" fc
    expect 0 "${train[@]}" --iterations 1 --freeze '*,!fc' --base other --save head
    says err "tensors of tiny are taken from other; started anew: fc.weight, fc.bias"
    has head fc.weight || fail "the new head is not saved"
    has head bn2.running_mean || fail "running statistics are not saved"
    ! has head conv1.weight || fail "a frozen weight is saved"
    expect 0 "${train[@]}" --iterations 3 --freeze '*,!fc' --base other --save three
    expect 0 train --load head --iterations 3 --save head --quiet
    equal_tensors three head
}

run_cases
