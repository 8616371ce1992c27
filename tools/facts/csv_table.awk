# csv_table.awk: prints a table of this folder as C. -v row=TYPE -v table=NAME: "const TYPE NAME[]", and its length
# NAME_n. Each field is set by its column's name, so a wrong or missing column fails to compile. A column that begins
# with a capital is the value for that generation; the column "generation" names one. An empty number is 0.
# SPDX-License-Identifier: MIT
BEGIN {
    FS = ","
    print "/* SPDX-License-Identifier: MIT */"
    print "#include \"tools/facts/gpu.h\"\n"
    printf "const %s %s[] = {\n", row, table
}
/^#/ { next }
!columns {
    columns = split($0, column, ",")
    next
}
NF != columns {
    printf "%s:%d: %d fields, must be %d\n", FILENAME, FNR, NF, columns >"/dev/stderr"
    failed = 1
    exit 1
}
{
    printf "    {"
    for (i = 1; i <= columns; i++) {
        value = $i
        if (column[i] == "generation") value = "GPU_" toupper(value)
        else if (column[i] ~ /^(name|aliases|source)$/) value = "\"" value "\""
        else if (value == "") value = "0"
        else if (value !~ /^[0-9.]+(e[0-9]+)?$/) {
            printf "%s:%d: %s: %s is not a number\n", FILENAME, FNR, column[i], value >"/dev/stderr"
            failed = 1
            exit 1
        }
        field = column[i] ~ /^[A-Z]/ ? ".of[GPU_" toupper(column[i]) "]" : "." column[i]
        printf "%s%s = %s", (i == 1 ? "" : ", "), field, value
    }
    print "},"
}
END {
    if (failed) exit 1
    printf "};\n\nconst size_t %s_n = sizeof %s / sizeof *%s;\n", table, table, table
}
