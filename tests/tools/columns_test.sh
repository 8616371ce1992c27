#!/bin/bash
# columns_test.sh COLUMNS: which lines tools/columns.awk takes for comments and prose (tools/lint runs it). Each case is
# a file with one line that is too long; the script must report those whose names begin with x, and no others.
# SPDX-License-Identifier: MIT
set -euo pipefail
columns=$(realpath "$1")
work=$(mktemp -d "${TEST_TMPDIR:-/tmp}/columns_test.XXXXXX")
trap 'rm -rf "$work"' EXIT
cd "$work"
export LC_ALL=C

l=$(printf 'word %.0s' {1..30}) # 150 columns
s=$(printf 'é %.0s' {1..55})    # 110 columns, of more bytes

printf '/* %s */\n' "$l" >x1.c
printf '/* a\n * %s */\n' "$l" >x2.h
printf 'int a; /* %s */\n' "$l" >x3.c
printf 'int a; // %s\n' "$l" >x4.cc
printf '/* a\n * b */\nchar *t = "/* %s";\n' "$l" >5.c
printf 'char c = %s, *t = "%s";\n/* b */\n' "'\"'" "$l" >6.c
printf '/* %s*/\n' "$s" >7.c
printf 'a\n\n%s\n' "$l" >x8.md
printf '| %s |\n' "$l" >9.md
printf '%s\n%s\n%s\n' '~~~' "$l" '~~~' >10.md
printf '%s\na\n%s\n%s\n' '~~~' '~~~' "$l" >x11.md
printf '"""a\n%s\n"""\n' "$l" >x12.py
printf 'a = """b\n%s\n"""\n' "$l" >13.py
printf 'a = 1  # %s\n' "$l" >x14.py
printf 'a = "%s"\n' "$l" >15.py
printf '# %s\n' "$l" >xBUILD
printf 'echo "%s" # %s\n' a "$l" >x16.sh
printf 'echo "%s # a"\n' "$l" >17.sh
printf '/* %s\n' a >18.c # a comment left open must not continue into the next file
printf 'int %s;\n' "$l" >19.c

passed=0 failed=0
awk -f "$columns" [0-9]* x* >told || [[ $? == 1 ]]
for file in [0-9]* x*; do
    status=0
    awk -f "$columns" "$file" >alone || status=$?
    expected=0
    [[ $file != x* ]] || expected=1
    if ((status == expected)) && (($(grep -c "^$file:" told) == expected)); then
        passed=$((passed + 1))
    else
        echo "$file: status $status, $(cat alone)"
        echo "[  FAILED  ] $file"
        failed=$((failed + 1))
    fi
done
echo "[  PASSED  ] $passed test(s)."
((failed == 0)) || { echo "[  FAILED  ] $failed test(s)." && exit 1; }
