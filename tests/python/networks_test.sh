#!/bin/bash
# Networks of operations that need them (networks.py) against torch in float64. Skipped where no python3 has torch.
# $1: mm. $2: Darknet's network file.
# SPDX-License-Identifier: MIT
# shellcheck source=tests/tools/cli.sh
. "$(dirname "${BASH_SOURCE[0]}")/../tools/cli.sh"
here=$PWD/tests/python
example=$(realpath "$2")

# agrees NET IMAGES
agrees() {
    local status=0
    "$here/with_torch" networks.py "$mm" "$@" >out 2>&1 </dev/null || status=$?
    ((status != 77)) || skip "$(<out)"
    ((status == 0)) || fail "$*: status $status"
    tail -n 1 out
}

mobilenet_v2_agrees_() { agrees mobilenet_v2@96,classes=7 6; }

efficientnet_b0_agrees_() { agrees efficientnet_b0@64,classes=7 4; }

vit_b_16_agrees_() { agrees vit_b_16@48,classes=7,thin=4 2; }

darknets_cifar_agrees_() { agrees "file:$example" 2; }

run_cases
