#!/bin/bash
# Weights as torchvision and transformers publish them (published.py). Skipped where these are not installed.
# $1: mm.
# SPDX-License-Identifier: MIT
# shellcheck source=tests/tools/cli.sh
. "$(dirname "${BASH_SOURCE[0]}")/../tools/cli.sh"
here=$PWD/tests/python
export MODULES="torchvision transformers safetensors"

# loads NET TYPE [PREFIX]
loads() {
    local status=0
    "$here/with_torch" published.py "$mm" "$@" >out 2>&1 </dev/null || status=$?
    ((status != 77)) || skip "$(<out)"
    ((status == 0)) || fail "$*: status $status"
    tail -n 1 out
}

resnet18_loads_() { loads resnet18 float32 module.; }

vgg11_loads_() { # half a gigabyte in floats
    [[ ${MM_TEST_DEEP-} ]] || skip "only with --deep"
    loads vgg11 float16
}

mobilenet_v2_loads_() { loads mobilenet_v2 bfloat16 _orig_mod.; }

vit_b_16_loads_() { loads vit_b_16 bfloat16 model.; }

gpt2_loads_() { loads gpt2 float16 _orig_mod.module.; }

run_cases
