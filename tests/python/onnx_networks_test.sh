#!/bin/bash
# Networks that torch exports, imported, against onnxruntime (onnx_networks.py). Skipped where it, torchvision or
# transformers are not installed.
# $1: onnx_scores.
# SPDX-License-Identifier: MIT
# shellcheck source=tests/tools/cli.sh
. "$(dirname "${BASH_SOURCE[0]}")/../tools/cli.sh"
here=$PWD/tests/python
export MODULES="torchvision transformers onnx onnxscript onnxruntime"

# agrees NET EXPORTER...
agrees() {
    local net=$1 exporter status
    shift
    for exporter in "$@"; do
        status=0
        "$here/with_torch" onnx_networks.py "$mm" "$net" "$exporter" >out 2>&1 </dev/null || status=$?
        ((status != 77)) || skip "$(<out)"
        ((status == 0)) || fail "$net, $exporter: status $status"
        tail -n 1 out
    done
}

resnet18_agrees_() { agrees resnet18 older newer open; }

vgg11_agrees_() { agrees vgg11 older; }

mobilenet_v2_agrees_() { agrees mobilenet_v2 newer; }

mobilenet_v3_small_agrees_() { agrees mobilenet_v3_small older newer; }

squeezenet_agrees_() { agrees squeezenet1_1 older newer; }

densenet121_agrees_() { agrees densenet121 older; }

googlenet_agrees_() { agrees googlenet newer; }

efficientnet_b0_agrees_() { agrees efficientnet_b0 newer; }

regnet_agrees_() { agrees regnet_y_400mf older; }

vit_agrees_() { agrees vit older newer open; }

gpt2_agrees_() { agrees gpt2 newer open; }

run_cases
