#!/bin/bash
# mm report's page in a headless Chromium: what is drawn, what answers to the pointer and to keys, both themes, a narrow
# window. Skipped where there is no Chromium ('tools/deps report' installs one).
# shellcheck source=tests/tools/cli.sh
. "$(dirname "${BASH_SOURCE[0]}")/cli.sh"
script=$(realpath "$2")
machine=$(realpath "$3")

page_draws_what_the_files_have_() {
    local policies=liveness,freelunch:when=always,swap-async:when=always evil="</script><script>window.ran=1</script>"
    python3 "$script" --find >/dev/null || skip "there is no Chromium"
    expect 0 bench --net resnet20 --batch 2,4 --policies $policies --iterations 1 --quiet --json rows.json
    expect 0 plan --net resnet20 --batch 64 --policy $policies --explain --json plans.json --facts "$machine" --trace trace.json
    sed "s|\"net\": \"resnet20\"|\"net\": \"$evil<img src=x onerror=window.ran=1>\"|" rows.json >evil.json
    expect 0 report rows.json evil.json plans.json trace.json --html page.html
    python3 "$script" page.html "$PWD" >said 2>&1 || fail "$(<said)"
}

run_cases
