#!/bin/bash
# Every script tells what it is for and its version, and does nothing else.
# shellcheck source=tests/tools/cli.sh
. "$(dirname "${BASH_SOURCE[0]}")/cli.sh"

header=$(realpath "$1")
root=$PWD

# ask SCRIPT ARGUMENT: what it prints goes to out. Whatever it would run answers with a failure.
ask() {
    local script=$1 status=0
    shift
    PATH=$stand_ins:$PATH PYTHONDONTWRITEBYTECODE=1 "$root/$script" "$@" >out 2>err </dev/null || status=$?
    ((status == 0)) || fail "$script $*: status $status"
    [[ ! -s err && ! -e calls ]] || fail "$script $*: does something else"
}

every_script_has_help_and_a_version_() {
    local script version scripts=()
    mkdir bin
    stand_ins=$PWD/bin
    for name in bazel mm sudo apt-get curl npm dpkg-query; do
        printf '#!/bin/bash\necho "%s" >>"%s/calls"\nexit 1\n' "$name" "$PWD" >"bin/$name"
        chmod +x "bin/$name"
    done
    version="mm $(sed -n 's/^#define MM_VERSION "\(.*\)"$/\1/p' "$header")"
    for script in "$root"/tools/* "$root"/tools/bench/*; do
        [[ -f $script && $(head -c 2 "$script") == "#!" ]] && scripts+=("${script#"$root/"}")
    done
    ((${#scripts[@]} >= 11)) || fail "only ${#scripts[@]} scripts: ${scripts[*]}"
    for script in "${scripts[@]}"; do
        ask "$script" --help
        says out "${script##*/}"
        ask "$script" --version
        [[ $(<out) == "$version" ]] || fail "$script --version: $(<out), expected $version"
    done
}

run_cases
