#!/bin/bash
# Networks that torch exports, imported, against onnxruntime (onnx_networks.py). Skipped where it, torchvision or
# transformers are not installed.
# $1: onnx_scores. With MM_TEST_DEEP all networks and exporters; each takes five to ten seconds.
# SPDX-License-Identifier: MIT
# shellcheck source=tests/tools/cli.sh
. "$(dirname "${BASH_SOURCE[0]}")/../tools/cli.sh"
here=$PWD/tests/python
export MODULES="torchvision transformers onnx onnxscript onnxruntime"

# agrees NET EXPORTER...: with the first exporter, and if deep with the others.
agrees() {
    local net=$1 exporter status
    [[ ${MM_TEST_DEEP-} ]] || set -- "$1" "$2"
    shift
    for exporter in "$@"; do
        status=0
        "$here/with_torch" onnx_networks.py "$mm" "$net" "$exporter" >out 2>&1 </dev/null || status=$?
        ((status != 77)) || skip "$(<out)"
        ((status == 0)) || fail "$net, $exporter: status $status"
        tail -n 1 out
    done
}

deep() { [[ ${MM_TEST_DEEP-} ]] || skip "only with --deep"; }

resnet18_agrees_() { agrees resnet18 older newer open; }

vgg11_agrees_() { deep && agrees vgg11 older; }

mobilenet_v2_agrees_() { deep && agrees mobilenet_v2 newer; }

mobilenet_v3_small_agrees_() { agrees mobilenet_v3_small newer older; }

squeezenet_agrees_() { deep && agrees squeezenet1_1 older newer; }

densenet121_agrees_() { deep && agrees densenet121 older; }

googlenet_agrees_() { deep && agrees googlenet newer; }

efficientnet_b0_agrees_() { deep && agrees efficientnet_b0 newer; }

regnet_agrees_() { deep && agrees regnet_y_400mf older; }

vit_agrees_() { agrees vit open newer older; }

gpt2_agrees_() { agrees gpt2 newer open; }

run_cases
