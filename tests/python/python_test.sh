#!/bin/bash
# mm_torch against plain torch: bad input, loops that drift, real loops' faults, random graphs, networks, and the wheel.
# Skipped where no python3 has torch from 2.6 (MM_PYTHON names one). $1: libmm.so.
# SPDX-License-Identifier: MIT
# shellcheck source=tests/tools/cli.sh
. "$(dirname "${BASH_SOURCE[0]}")/../tools/cli.sh"
here=$PWD/tests/python
export MM_LIBRARY=$mm TORCH=2.6

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

headers_are_mirrored_() { with_torch beside.py; }

gpu_budgets_are_shared_() { with_torch gpu_budget.py; }

saved_tensors_are_named_by_modules_() { with_torch named.py; }

graphs_of_python_are_planned_() { with_torch planned_graphs.py; }

memory_does_not_grow_() { with_torch growth.py; }

shares_are_told_() { with_torch coverage_told.py; }

real_loops_faults_stay_away_() { with_torch faults.py; }

compiled_regions_are_managed_() { with_torch compiled_regions.py; }

minimums_of_refusals_run_() { with_torch minimum_runs.py; }

modules_run_again_within_a_budget_() { with_torch fitted.py; }

saved_tensors_go_on_to_a_disk_() { with_torch on_disk.py; }

what_people_see_is_hinted_and_read_() { with_torch interface.py; }

compiled_nets_are_bit_equal_within_budgets_() { with_torch compiled_nets.py; }

loops_that_drift_are_bit_equal_() { with_torch drift.py; }

plans_without_running_are_as_real_steps_() {
    MM_COMMAND=$here/../../tools/mm with_torch joint_plans.py
}

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
    with_torch -m venv env
    with_torch -c 'import torch; print(torch.__path__[0])'
    dirname "$(tail -n 1 out)" >"$(echo env/lib/python3*/site-packages)/torch.pth"
    ./env/bin/python -m pip install -q --no-index --no-deps "$here/../../tools/python" >out 2>&1 || fail "pip install failed"
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
    [[ $(printf '%s\n' "$needs" GLIBC_2.17 | sort -V | tail -1) == GLIBC_2.17 ]] || fail "$wheel needs $needs"
    [[ $(uname -m) != x86_64 || $wheel == *-manylinux_2_17_x86_64.whl ]] || fail "another tag: $wheel"
    [[ -e inside/mm_torch/py.typed ]] || fail "$wheel has no py.typed"
}

# Where bazel is, MM_LIBRARY is not needed.
sources_make_the_same_wheel_() {
    "$here/with_torch" -c 'import ensurepip' >out 2>&1 || skip "no python3 has torch and makes environments: $(<out)"
    with_torch -m venv env
    mkdir dist wheels made
    "$here/../../tools/wheel" dist --sdist >out 2>&1 || fail "no source distribution"
    "$here/../../tools/wheel" wheels >out 2>&1 || fail "no wheel"
    ./env/bin/python -m pip wheel -q --no-index --no-deps -w made dist/mm_torch-*.tar.gz >out 2>&1 || fail "pip wheel failed"
    equal wheels/*.whl made/*.whl
    mkdir bin
    printf '#!/bin/sh\nexit 1\n' >bin/bazel
    chmod +x bin/bazel
    ! PATH=$PWD/bin:$PATH MM_LIBRARY='' ./env/bin/python -m pip wheel --no-index --no-deps -w none dist/*.tar.gz >out 2>&1 ||
        fail "a wheel without bazel"
    says out "bazel cannot build libmm.so"
    says out "tools/deps build"
}

run_cases
