#!/bin/bash
# The figures of papers (tools/bench/published) are as recorded, and each planted fault turns the scripts red that the
# table below names. The whole table takes minutes, so most of it is for MM_TEST_DEEP.
# $1: mm. $2: published. $3: faulty_mm.py. $4: gradients.
# SPDX-License-Identifier: MIT
# shellcheck source=tests/tools/cli.sh
. "$(dirname "${BASH_SOURCE[0]}")/cli.sh"

published=$(realpath "$2")
faulty=$(realpath "$3")
gradients=$(realpath "$4")
facts=$(realpath "${published%/*}/../facts")
export PYTHONDONTWRITEBYTECODE=1

deep() { [[ ${MM_TEST_DEEP-} ]] || skip "only with --deep"; }

# script PROGRAM PAPER OPTION...: runs a script with that program as mm. Its output goes to out.
script() {
    local program=$1
    shift
    [[ $1 != comet ]] || set -- "$@" --gradients "$gradients"
    python3 -S "$published" "$@" "$program" >out 2>err
}

# green PAPER OPTION...
green() { script "$mm" "$@" || fail "published $*: red"; }

# red FAULT TEXT PAPER OPTION...: with the fault the script fails, and says TEXT.
red() {
    local fault=$1 text=$2 status=0
    shift 2
    FAULT=$fault MM=$mm script "$faulty" "$@" || status=$?
    ((status == 1)) || fail "published $*, fault $fault: status $status"
    says out "$text"
}

# ---------------------------------------------------------------- script x fault: which must turn red
#
#            | codec 3 x slower | density 0.1 off | twice the maps | 2 points less accurate
#  freelunch | red              | -               | red            | -
#  gist      | red              | red             | red            | -
#  cdma      | -                | red             | -              | -
#  modnn     | -                | -               | red            | -
#  comet     | -                | -               | red            | -
#  accuracy  | -                | -               | -              | red
#
# cdma's engine is so fast that its link is full even then, and its figures have no memory. comet's overhead does not
# count, since the codec's speed is assumed. modnn has no codec.

freelunch_is_as_recorded_and_a_slow_codec_or_twice_the_maps_is_seen_() {
    green freelunch
    [[ $(tail -1 out) == "in order: as published, except lines marked different"* ]] || fail "$(tail -1 out)"
    says out "(calibrated: not counted)"
    red codec "farther off than recorded: resnet152 at batch 44, over recompute" freelunch
    red maps "not in order: alexnet-2012: freelunch as published takes more memory than liveness" freelunch
}

gists_plans_are_as_recorded_and_another_density_is_seen_() {
    green gist --fast
    red density "farther off than recorded: SSDC" gist --fast
}

gists_figures_are_as_recorded_and_each_fault_is_seen_() {
    deep
    green gist
    says out "assumed: not counted"
    red codec "farther off than recorded: Gist lossless, average step" gist
    red maps "not in order: alexnet: lossless takes less than the baseline" gist
}

cdmas_figures_are_as_recorded_and_another_density_is_seen_() {
    deep
    green cdma
    red density "farther off than recorded: Figure 13, Pascal Titan Xp: zvc of vdnn on average" cdma
}

cdmas_figures_come_in_the_published_order_() {
    green cdma --quick
    # `swapped` runs mm, and exchanges zvc's and rle's figures in what it writes.
    printf '%s\n' "#!/bin/bash" "\"$mm\" \"\$@\" || exit" "[[ \$1 != codecs ]] ||" \
        "sed -i 's/\"zvc\"/\"z\"/; s/\"rle\"/\"zvc\"/; s/\"z\"/\"rle\"/' \"\${@: -1}\"" >swapped
    chmod +x swapped
    ! script ./swapped cdma --quick || fail "rle ahead of zvc is called in order"
    says out "not in order: Figure 11, nhwc: zvc "
    says out "not in order: Figure 13, Maxwell Titan X, nin: zvc "
    ! python3 -S "$published" cdma --quick "$mm" cifar10:/nowhere >out 2>err || fail "without data it is called in order"
    [[ $(<err) == *"/nowhere"* && $(<err) != *Traceback* ]] || fail "$(<err)"
    ! python3 -S "$published" cdma --quik >out 2>err || fail "--quik is accepted"
    says err "unrecognized arguments: --quik"
}

modnns_figures_are_as_recorded_and_twice_the_maps_is_seen_() {
    deep
    green modnn
    green modnn --ranks
    red maps "not in order: Figure 12: vgg16 holds more than" modnn --quick
}

comets_networks_learn_and_twice_the_maps_is_seen_() {
    deep
    green comet
    red maps "takes more memory under comet" comet
}

freelunchs_machine_is_the_best_one_for_table_1_() {
    deep
    green freelunch --calibrate
    sed 's/"step_ns": [0-9]*/"step_ns": 8000/' "$facts/titanx-freelunch.json" >quick.json
    ! python3 -S "$published" freelunch --calibrate "$mm" quick.json >out 2>err || fail "any machine is the best one"
    says out "not in order: titanx-freelunch is not the best machine for Table I"
}

# A machine for a paper differs from titanx.json in what its page says, and in nothing else.
machines_of_papers_differ_in_what_is_said_() {
    local file
    for file in freelunch:8 gist:1; do
        diff "$facts/titanx.json" "$facts/titanx-${file%:*}.json" >out
        (($(grep -c '^>' out) == ${file#*:} + 1)) || fail "titanx-${file%:*}.json"
    done
}

pages_have_the_recorded_figures_() {
    python3 -S "$published" pages --check >out 2>err || fail "a page or picture is not what published pages writes"
}

figures_without_a_program_or_a_machine_end_in_one_line_() {
    local paper lines
    printf '{}' >empty
    for paper in freelunch cdma comet gist modnn; do
        ! python3 -S "$published" $paper ./nowhere >out 2>err || fail "$paper: in order without mm"
        mapfile -t lines <err
        [[ ${#lines[@]} == 1 && ${lines[0]} == *"'./nowhere'"* ]] || fail "$paper: $(<err)"
    done
    for paper in freelunch comet gist modnn; do
        ! python3 -S "$published" $paper "$mm" empty >out 2>err || fail "$paper: in order on a machine without rates"
        mapfile -t lines <err
        ((${#lines[@]} == 1)) || fail "$paper: $(<err)"
    done
}

# ---------------------------------------------------------------- accuracy

# trained SEED LIVENESS FREELUNCH: adds rows of two finished runs to the file `table`.
trained() {
    [[ -e table ]] ||
        echo net,policy,seed,data,epochs,batch,lr,test_accuracy,test_loss,ratio,version,command >table
    printf 'resnet20,liveness,%s,cifar10,20,128,,%s,1,,mm,mm train\n' "$1" "$2" >>table
    printf 'resnet20,freelunch:ratio=8,%s,cifar10,20,128,,%s,1,8,mm,mm train\n' "$1" "$3" >>table
}

a_policy_that_is_two_points_less_accurate_is_worse_() {
    local table=(python3 -S "$published" accuracy --table table --nets resnet20 --policies freelunch:ratio=8 --seeds)
    trained 1 0.910 0.909
    "${table[@]}" 1 >out 2>err || fail "one seed"
    says out "1/1    90.90       -0.10         -     8.0  no claim"
    trained 2 0.911 0.912
    "${table[@]}" 2 >out 2>err || fail "equal, and not in order"
    says out "2/2    91.05       +0.00      0.16     8.0  undecided"
    trained 3 0.912 0.911
    trained 2 0.911 0.911
    "${table[@]}" 3 >out 2>err || fail "within, and not in order"
    says out "within 0.3 points"
    "${table[@]}" 4 >out 2>err || fail "not finished, and not in order"
    says out "3/4    91.03  not finished"
    says out "not finished: 2 of 8 runs"
    rm table
    for seed in 1 2 3; do trained $seed 0.91$seed 0.89$seed; done
    ! "${table[@]}" 3 >out 2>err || fail "two points less accurate, and in order"
    says out "not in order: resnet20 under freelunch:ratio=8: 2.00 points worse than liveness"
}

# The study's script, in small: it is stopped while two runs train, goes on, and gives what it gives undisturbed.
runs_that_were_stopped_go_on_() {
    local study=(python3 -S "$published" accuracy --mm "$mm" --train synthetic:samples=64 --nets tiny --seeds 1 --batch 8
        --policies "freelunch:ratio=8,when=always" "comet:every=2,when=always" --epochs 60 --save-every 8) id at
    "${study[@]}" --table whole --work a >out 2>err || fail "the whole"
    "${study[@]}" --table parts --work b >out 2>err &
    id=$!
    for ((at = 0; at < 400; at++)); do
        [[ ! -e b/tiny-liveness-1.state ]] || break
        sleep 0.02
    done
    kill -TERM $id
    wait $id
    [[ ! -e parts ]] || (($(wc -l <parts) < 4)) || fail "it ended before it was stopped"
    "${study[@]}" --table parts --work b >out 2>err || fail "does not go on"
    says out "going on with tiny under"
    cut -d, -f1-9 whole | sort >one
    cut -d, -f1-9 parts | sort >two
    equal one two
    "${study[@]}" --table parts --work b >out 2>err || fail "not read"
    [[ $(<out) != *training* ]] || fail "trained again"
    ! "${study[@]}" --policies recompute:deep --table parts --work b >out 2>err || fail "a policy that mm refuses is in order"
    [[ $(<err) == *recompute:deep* && $(<err) != *Traceback* ]] || fail "$(<err)"
}

run_cases
