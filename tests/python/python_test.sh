#!/bin/bash
# mm_torch against plain torch: bad input, loops that drift, random graphs, networks, and the wheel. Skipped where no
# python3 has torch ('tools/deps python' installs it). $1: libmm.so.
# SPDX-License-Identifier: MIT
# shellcheck source=tests/tools/cli.sh
. "$(dirname "${BASH_SOURCE[0]}")/../tools/cli.sh"
here=$PWD/tests/python
export MM_LIBRARY=$mm

# with_torch ARGUMENT...: runs the script with_torch; what it prints goes to the file out.
with_torch() {
    local status=0
    "$here/with_torch" "$@" >out 2>&1 </dev/null || status=$?
    ((status != 77)) || skip "$(<out)"
    ((status == 0)) || fail "$*: status $status"
}

compare() {
    with_torch -m mm_torch.compare "$@"
    says out "All rows are right"
}

inputs_are_refused_and_the_next_step_works_() { with_torch inputs.py; }

headers_are_mirrored_and_budgets_are_shared_() { with_torch beside.py; }

graphs_of_python_are_planned_() { with_torch planned_graphs.py; }

compiled_nets_are_bit_equal_within_budgets_() { with_torch compiled.py; }

loops_that_drift_are_bit_equal_() { with_torch drift.py; }

random_graphs_are_bit_equal_or_refused_by_both_() { with_torch torture.py --graphs 40 --seed 3 --settle; }

resnet20_is_bit_equal_at_each_share_() {
    compare --net resnet20 --batch 16 --steps 4 --share 1,0.5,0.27
    [[ $(grep -c bit-equal out) == 5 ]] || fail "not 5 rows ran"
}

operations_in_place_are_bit_equal_() { compare --net resnet18 --batch 2 --steps 3 --share 0.5 --policy swap-async; }

views_and_tied_weights_are_bit_equal_() { compare --net gpt --batch 2 --steps 3 --share 0.5 --policy swap-async; }

autocast_is_bit_equal_() { compare --net gpt --autocast bf16 --batch 2 --steps 3 --share 0.5 --policy swap-async; }

lossy_codes_keep_losses_() {
    compare --net resnet20 --batch 8 --steps 6 --share 0.6 --policy freelunch:rate=8,eligible=all
    says out "lossy,"
}

costs_are_told_() {
    with_torch -m mm_torch.cost --steps 2 --rounds 2 --no-limits
    says out "a tensor moved"
}

wheel_installs_without_network_and_loads_() {
    local wheel size needs
    "$here/with_torch" -c 'import ensurepip' >out 2>&1 || skip "no python3 has torch and makes environments: $(<out)"
    with_torch -m venv --system-site-packages env
    ./env/bin/python -m pip install -q --no-index "$here/../../tools/python" >out 2>&1 || fail "pip install failed"
    MM_LIBRARY='' ./env/bin/python -W ignore -c 'import mm_torch as mm, sys, torch
m = mm.budget("1MiB", device="cpu")
with m:
    torch.ones(2000, requires_grad=True).exp().sum().backward()
assert m.stats.puts == 1 and sys.prefix in mm.__file__, mm.__file__' >out 2>&1 || fail "it does not work"
    mkdir wheels
    "$here/../../tools/wheel" wheels >out 2>&1 || fail "tools/wheel failed"
    wheel=$(echo wheels/mm_torch-*-py3-none-manylinux_2_*.whl)
    size=$(stat -c %s "$wheel") || fail "no wheel"
    ((size < 2000000)) || fail "$wheel has $size bytes"
    python3 -m zipfile -e "$wheel" inside || fail "$wheel cannot be read"
    grep -q "^MIT License" inside/mm_torch-*.dist-info/LICENSE || fail "$wheel has no licence"
    needs=$(objdump -T inside/mm_torch/*.so* | grep -o 'GLIBC_[0-9.]*' | sort -Vu | tail -1)
    [[ $(printf '%s\n' "$needs" GLIBC_2.34 | sort -V | tail -1) == GLIBC_2.34 ]] || fail "$wheel needs $needs"
}

run_cases
