#!/bin/bash
# mm's Llama against transformers' in float64, from transformers' weights (llama_peer.py). Skipped where no python3 has
# torch, transformers and safetensors. $1: mm.
# SPDX-License-Identifier: MIT
# shellcheck source=tests/tools/cli.sh
. "$(dirname "${BASH_SOURCE[0]}")/../tools/cli.sh"
here=$PWD/tests/python

# agrees OPTION...
agrees() {
    local status=0
    MODULES="transformers safetensors" "$here/with_torch" llama_peer.py "$mm" "$@" >out 2>&1 </dev/null || status=$?
    ((status != 77)) || skip "$(<out)"
    ((status == 0)) || fail "$*: status $status"
    tail -n 1 out
}

a_llama_agrees_() { agrees; }

a_llama_with_tied_weights_agrees_() { agrees tied; }

run_cases
