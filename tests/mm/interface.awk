# SPDX-License-Identifier: MIT
# Writes a table of what the public headers declare (interface.h). Relies on clang-format's style: a function's
# declaration begins a line with MM_API, a type's with typedef. An enum constant without "= NUMBER" counts the others,
# so its value is left out.

BEGIN {
    print "#include \"tests/mm/interface.h\""
    print "#include \"mm/mm.h\""
    print "#include \"mm/mm_loop.h\""
    print "#include <stddef.h>"
    print "const interface_entry interface_entries[] = {"
}

# Removes parameters' names: "const mm_use *uses, size_t n" becomes "const mm_use *, size_t".
function types(parameters, n, part, i, out) {
    n = split(parameters, part, ",")
    for (i = 1; i <= n; i++) {
        gsub(/^ +| +$/, "", part[i])
        if (part[i] ~ /[ *]/) sub(/ *[a-z_0-9]+$/, "", part[i])
        out = out (i > 1 ? ", " : "") part[i]
    }
    return out
}

function of_function(text, name, at, before) {
    gsub(/(MM_API|MM_CHECKED|MM_DEPRECATED\("[^"]*"\)) */, "", text)
    at = index(text, "(")
    before = substr(text, 1, at - 1)
    match(before, /[a-z_0-9]+$/)
    name = substr(before, RSTART)
    before = substr(before, 1, RSTART - 1)
    sub(/ +$/, "", before)
    sub(/\).*/, "", text)
    printf "{\"function\", \"%s\", \"%s(%s)\", 0, 0},\n", name, before, types(substr(text, at + 1))
}

function of_enum(text, n, part, i) {
    sub(/^[^{]*\{/, "", text)
    sub(/\}.*/, "", text)
    n = split(text, part, ",")
    for (i = 1; i <= n; i++) {
        gsub(/ /, "", part[i])
        if (part[i] ~ /=/) {
            sub(/=.*/, "", part[i])
            printf "{\"constant\", \"%s\", NULL, %s, 0},\n", part[i], part[i]
        } else if (part[i] != "") printf "{\"count\", \"%s\", NULL, 0, 0},\n", part[i]
    }
}

function member(type, name) {
    sub(/ +$/, "", name)
    printf "{\"member\", \"%s.%s\", NULL, offsetof(%s, %s), sizeof(((%s *)0)->%s)},\n", type, name, type, name, type, name
}

function of_struct(text, type) {
    type = text
    sub(/^[^{]*\{/, "", text)
    sub(/ *\{.*/, "", type)
    sub(/^(typedef )?struct /, "", type)
    structs[type] = text
    print_struct(text, type)
}

# Prints a struct and its members. type: the struct's name, or a deprecated name of it.
function print_struct(text, type, n, part, i, m, names, j) {
    printf "{\"struct\", \"%s\", NULL, 0, sizeof(%s)},\n", type, type
    sub(/\}[^}]*$/, "", text)
    n = split(text, part, ";")
    for (i = 1; i <= n; i++) {
        if (part[i] ~ /^ *$/) continue
        if (match(part[i], /\(\*[a-z_0-9]+\)/)) {
            member(type, substr(part[i], RSTART + 2, RLENGTH - 3))
            continue
        }
        m = split(part[i], names, ",")
        for (j = 1; j <= m; j++) {
            sub(/\[[A-Z_0-9]+\] *$/, "", names[j])
            match(names[j], /[a-z_0-9]+ *$/)
            member(type, substr(names[j], RSTART))
        }
    }
}

# Collects each declaration, without comments and line breaks, and prints it once it is complete.
FNR == 1 { text = "" }
/^#define MM_[A-Z_]+ +MM_[A-Z_]+$/ { printf "{\"constant\", \"%s\", NULL, %s, 0},\n", $2, $2 }
/^ *#/ { next }
{
    line = $0
    while (line != "") {
        if (comment) {
            at = index(line, "*/")
            comment = !at
            line = at ? substr(line, at + 2) : ""
        } else {
            at = index(line, "/*")
            text = text " " (at ? substr(line, 1, at - 1) : line)
            comment = at > 0
            line = at ? substr(line, at + 2) : ""
        }
    }
    gsub(/ +/, " ", text)
    sub(/^ /, "", text)
    if (text ~ /^extern "C" \{/) text = ""
    if (text !~ /[;}] ?$/ || split(text, ignored, "{") != split(text, ignored, "}")) next
    if (text ~ /^MM_API/) of_function(text)
    else if (text ~ /^(typedef )?enum/) of_enum(text)
    else if (text ~ /^(typedef )?struct [a-z_]+ \{/) of_struct(text)
    else if (text ~ /^typedef/ && text !~ /^typedef struct [a-z_]+ [a-z_]+;/) {
        sub(/; *$/, "", text)
        at = index(text, ")(")
        if (at) text = substr(text, 1, at + 1) types(substr(text, at + 2, length(text) - at - 2)) ")"
        match(text, /[a-z_0-9]+(\)\(.*)?$/)
        name = substr(text, RSTART)
        sub(/\).*/, "", name)
        split(text, word, " ")
        if (word[2] in structs) {
            print_struct(structs[word[2]], name)
            text = ""
            next
        }
        printf "{\"type\", \"%s\", \"%s\", 0, 0},\n", name, text
    }
    text = ""
}

END {
    print "};"
    print "const size_t interface_n = sizeof interface_entries / sizeof *interface_entries;"
}
