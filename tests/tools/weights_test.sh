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

run_cases
