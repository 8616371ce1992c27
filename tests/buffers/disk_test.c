/* SPDX-License-Identifier: MIT */
/* The disk: what is written comes back, whatever its size and address; and it fails by name. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include <dirent.h>
#include <errno.h>
#include <unistd.h>

#include "buffers/disk.h"
#include "tests/core/random.h"

enum { SPACE = 1 << 20 };

static const char *directory(void) {
    const char *given = getenv("TEST_TMPDIR");
    return given ? given : "/tmp";
}

static mm_disk *create(int64_t bytes) {
    mm_disk *disk;
    assert_int_equal(mm_disk_create(directory(), bytes, &disk), MM_OK);
    return disk;
}

static uint8_t *fill(uint8_t *data, int64_t bytes, uint64_t seed) {
    for (int64_t i = 0; i < bytes; i++) data[i] = (uint8_t)random_next(&seed);
    return data;
}

static void what_is_written_comes_back(void **state) {
    (void)state;
    static const int64_t sizes[] = {1, 100, 4095, 4096, 4097, 65536, 65537, 300000};
    mm_disk *disk = create(SPACE);
    uint8_t *data = aligned_alloc(MM_DISK_BLOCK, SPACE), *back = aligned_alloc(MM_DISK_BLOCK, SPACE);
    assert_non_null(data);
    assert_non_null(back);
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
        for (int shift = 0; shift < 2; shift++) { /* at an aligned address, and at one that is not */
            fill(data + shift * 256, sizes[i], i + 1);
            memset(back, 0xee, SPACE);
            assert_int_equal(mm_disk_write(disk, 8192, data + shift * 256, sizes[i]), MM_OK);
            assert_int_equal(mm_disk_read(disk, 8192, back + shift * 256, sizes[i]), MM_OK);
            assert_memory_equal(data + shift * 256, back + shift * 256, (size_t)sizes[i]);
            assert_int_equal(back[shift * 256 + sizes[i]], 0xee); /* and no byte more */
        }
    free(data);
    free(back);
    mm_disk_destroy(disk);
}

/* A write does not touch the block after its last one. */
static void neighbours_keep_their_bytes(void **state) {
    (void)state;
    uint8_t one[5000], other[4096], back[4096];
    mm_disk *disk = create(SPACE);
    assert_int_equal(mm_disk_write(disk, 8192, fill(other, sizeof other, 2), sizeof other), MM_OK);
    assert_int_equal(mm_disk_write(disk, 0, fill(one, sizeof one, 1), sizeof one), MM_OK);
    assert_int_equal(mm_disk_read(disk, 8192, back, sizeof back), MM_OK);
    assert_memory_equal(back, other, sizeof back);
    mm_disk_destroy(disk);
}

/* Random parts of what is there: each reads and writes just its own bytes. */
static void parts_begin_at_any_byte(void **state) {
    (void)state;
    enum { BYTES = 40000, WRITES = 60, BEGIN = 4096 };
    uint8_t *data = malloc(BYTES), *back = malloc(BYTES), *part = malloc(BYTES);
    uint64_t random = 5;
    mm_disk *disk = create(SPACE);
    assert_true(data && back && part);
    assert_int_equal(mm_disk_write(disk, BEGIN, fill(data, BYTES, 1), BYTES), MM_OK);
    for (int i = 0; i < WRITES; i++) {
        const int64_t at = random_below(&random, BYTES), most = random_chance(&random, 50) ? 5000 : BYTES;
        const int64_t bytes = random_below(&random, (int)(most < BYTES - at ? most : BYTES - at) + 1);
        memcpy(data + at, fill(part, bytes, (uint64_t)i), (size_t)bytes);
        assert_int_equal(mm_disk_write_part(disk, BEGIN + at, part, bytes), MM_OK);
        const int64_t from = random_below(&random, BYTES), n = random_below(&random, (int)(BYTES - from) + 1);
        assert_int_equal(mm_disk_read_part(disk, BEGIN + from, back, n), MM_OK);
        assert_memory_equal(back, data + from, (size_t)n);
    }
    assert_int_equal(mm_disk_read(disk, BEGIN, back, BYTES), MM_OK);
    assert_memory_equal(back, data, BYTES);
    free(data);
    free(back);
    free(part);
    mm_disk_destroy(disk);
}

static int files_in(const char *path) {
    DIR *list = opendir(path);
    int n = 0;
    assert_non_null(list);
    for (const struct dirent *entry; (entry = readdir(list)) != NULL;) n += entry->d_name[0] != '.';
    closedir(list);
    return n;
}

static void the_file_has_no_name(void **state) {
    (void)state;
    char path[512];
    snprintf(path, sizeof path, "%s/disk-XXXXXX", directory());
    assert_non_null(mkdtemp(path));
    mm_disk *disk;
    assert_int_equal(mm_disk_create(path, SPACE, &disk), MM_OK);
    assert_int_equal(mm_disk_write(disk, 0, path, sizeof path), MM_OK);
    assert_int_equal(files_in(path), 0);
    mm_disk_destroy(disk);
    assert_int_equal(rmdir(path), 0);
    mm_disk_destroy(NULL);
}

static void expect(mm_status status, mm_status wanted, const char *words) {
    assert_int_equal(status, wanted);
    if (!strstr(mm_last_error(), words)) fail_msg("no '%s' in '%s'", words, mm_last_error());
}

static void wrong_places_are_refused(void **state) {
    (void)state;
    uint8_t data[4096] = {0};
    mm_disk *disk = create(SPACE);
    expect(mm_disk_write(disk, 256, data, 1), MM_ERR_INVALID, "not at a block");
    expect(mm_disk_write(disk, SPACE, data, 1), MM_ERR_INVALID, "beyond the limit");
    expect(mm_disk_read(disk, SPACE - 4096, data, 4097), MM_ERR_INVALID, "beyond the limit");
    expect(mm_disk_reserve(disk, SPACE + 1), MM_ERR_INVALID, "its limit is");
    assert_int_equal(mm_disk_reserve(disk, 5000), MM_OK);
    mm_disk_destroy(disk);
    expect(mm_disk_create("/nowhere/at/all", SPACE, &disk), MM_ERR_INVALID,
           "disk /nowhere/at/all: cannot create a file in this directory: No such file");
}

/* What the next call does: an errno; or, if that is 0, so many bytes of what is asked (-1: all). */
static struct {
    int fails;
    ssize_t bytes;
} next;

static ssize_t write_some(int file, const void *data, size_t bytes, off_t offset) {
    if (next.fails) {
        errno = next.fails;
        next.fails = next.fails == EINTR ? 0 : next.fails;
        return -1;
    }
    return pwrite(file, data, next.bytes >= 0 && (size_t)next.bytes < bytes ? (size_t)next.bytes : bytes, offset);
}

static ssize_t read_some(int file, void *data, size_t bytes, off_t offset) {
    if (next.fails) {
        errno = next.fails;
        next.fails = next.fails == EINTR ? 0 : next.fails;
        return -1;
    }
    return pread(file, data, next.bytes >= 0 && (size_t)next.bytes < bytes ? (size_t)next.bytes : bytes, offset);
}

static void a_failing_disk_is_named(void **state) {
    (void)state;
    static const mm_disk_io io = {write_some, read_some};
    uint8_t data[16384], back[16384];
    mm_disk *disk = create(SPACE);
    fill(data, sizeof data, 3);
    mm_disk_set_io(disk, &io);
    next.bytes = 4096; /* parts are put together */
    assert_int_equal(mm_disk_write(disk, 0, data, sizeof data), MM_OK);
    assert_int_equal(mm_disk_read(disk, 0, back, sizeof back), MM_OK);
    assert_memory_equal(data, back, sizeof data);
    next.fails = EINTR; /* tried again */
    assert_int_equal(mm_disk_write(disk, 0, data, sizeof data), MM_OK);
    next.fails = ENOSPC;
    expect(mm_disk_write(disk, 0, data, sizeof data), MM_ERR_IO, ": cannot write 16384 bytes at 0: No space left");
    next.fails = EIO;
    expect(mm_disk_write(disk, 0, data, sizeof data), MM_ERR_IO, "Input/output error");
    next.fails = 0;
    assert_int_equal(mm_disk_write(disk, 0, data, sizeof data), MM_OK);
    next.fails = EIO;
    expect(mm_disk_read(disk, 0, back, sizeof back), MM_ERR_IO, "cannot read 16384 bytes at 0: Input/output error");
    next.fails = 0;
    next.bytes = 0;
    expect(mm_disk_read(disk, 0, back, sizeof back), MM_ERR_IO, "they are not there");
    next.bytes = -1;
    mm_disk_set_io(disk, NULL);
    assert_int_equal(mm_disk_read(disk, 0, back, sizeof back), MM_OK);
    mm_disk_destroy(disk);
}

static ssize_t no_write(int file, const void *data, size_t bytes, off_t offset) {
    (void)file, (void)data, (void)bytes, (void)offset;
    errno = EIO;
    return -1;
}

/* What a failed write was to change is not read until another write succeeds there. */
static void what_could_not_be_written_is_not_read(void **state) {
    (void)state;
    static const mm_disk_io failing = {no_write, pread};
    uint8_t data[3 * 4096] = {1}, back[3 * 4096];
    mm_disk *disk = create(SPACE);
    assert_int_equal(mm_disk_write(disk, 0, data, sizeof data), MM_OK);
    mm_disk_set_io(disk, &failing);
    assert_int_equal(mm_disk_write(disk, 4096, data, 5000), MM_ERR_IO);
    mm_disk_set_io(disk, NULL);
    assert_int_equal(mm_disk_read(disk, 0, back, 4096), MM_OK);
    expect(mm_disk_read(disk, 0, back, 4097), MM_ERR_IO, "they could not be written");
    expect(mm_disk_read_part(disk, 2 * 4096 + 1000, back, 1), MM_ERR_IO, "they could not be written");
    expect(mm_disk_write_part(disk, 4096 + 10, data, 1), MM_ERR_IO, "they could not be written");
    assert_int_equal(mm_disk_write(disk, 4096, data, 4096), MM_OK);
    assert_int_equal(mm_disk_read(disk, 0, back, 2 * 4096), MM_OK);
    assert_int_equal(mm_disk_read(disk, 2 * 4096, back, 1), MM_ERR_IO);
    assert_int_equal(mm_disk_write(disk, 2 * 4096, data, 1), MM_OK); /* the whole block */
    assert_int_equal(mm_disk_read(disk, 0, back, sizeof back), MM_OK);
    mm_disk_destroy(disk);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_is_written_comes_back),
        cmocka_unit_test(neighbours_keep_their_bytes),
        cmocka_unit_test(the_file_has_no_name),
        cmocka_unit_test(wrong_places_are_refused),
        cmocka_unit_test(a_failing_disk_is_named),
        cmocka_unit_test(parts_begin_at_any_byte),
        cmocka_unit_test(what_could_not_be_written_is_not_read),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
