#!/bin/bash
# mm's Llama against transformers' in float64, from transformers' weights (llama_peer.py), and its adapters against
# peft's (lora_peer.py). Skipped where no python3 has torch, transformers, safetensors and, for adapters, peft. $1: mm.
# SPDX-License-Identifier: MIT
# shellcheck source=tests/tools/cli.sh
. "$(dirname "${BASH_SOURCE[0]}")/../tools/cli.sh"
here=$PWD/tests/python

# agrees SCRIPT OPTION...
agrees() {
    local status=0 modules="transformers safetensors"
    [[ $1 != lora_* ]] || modules+=" peft"
    MODULES=$modules "$here/with_torch" "$1" "$mm" "${@:2}" >out 2>&1 </dev/null || status=$?
    ((status != 77)) || skip "$(<out)"
    ((status == 0)) || fail "$*: status $status"
    tail -n 1 out
}

a_llama_agrees_() { agrees llama_peer.py; }

a_llama_with_tied_weights_agrees_() { agrees llama_peer.py tied; }

adapters_agree_with_peft_s_() { agrees lora_peer.py; }

a_llama_of_which_most_is_frozen_agrees_() { agrees lora_peer.py freeze; }

run_cases
