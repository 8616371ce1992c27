#include "tools/picture_page.h"

#include "nets/io/temp_file.h"

void picture_text(FILE *file, const char *raw) {
    for (const char *c = raw; *c; c++) switch (*c) {
        case '&':
            fputs("&amp;", file);
            break;
        case '<':
            fputs("&lt;", file);
            break;
        case '>':
            fputs("&gt;", file);
            break;
        default:
            if ((unsigned char)*c >= ' ') fputc(*c, file);
        }
}

mm_status picture_write(const char *path, const char *bytes, size_t n_bytes) {
    nets_temp_file file;
    MM_TRY(nets_temp_file_create(path, &file));
    mm_status status = nets_temp_file_write(&file, bytes, (int64_t)n_bytes);
    if (status == MM_OK) return nets_temp_file_commit(&file);
    nets_temp_file_abandon(&file);
    return status;
}
