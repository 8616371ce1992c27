/* SPDX-License-Identifier: MIT */
#include "mm/core/atomic_file.h"
#include "nets/io/safetensors.h"

#include "mm/core/status.h"
#include "tests/nets_io/scratch.h"

#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

typedef scratch_folder folder;

static const float weight[2][3] = {{1, 2, 3}, {4, 5, 6}};
static const float bias[3] = {-1, 0.5f, 1e-30f};
static const int64_t steps = 123456789012;
static const uint8_t mask[5] = {1, 0, 255, 7, 9};
static const int32_t counts[1] = {-7};

static const nets_safetensors_tensor tensors[] = {
    {"mask", NETS_SAFETENSORS_U8, 1, {5}, mask},      {"fc.weight", NETS_SAFETENSORS_F32, 2, {2, 3}, weight},
    {"steps", NETS_SAFETENSORS_I64, 0, {0}, &steps},  {"fc.bias", NETS_SAFETENSORS_F32, 1, {3}, bias},
    {"counts", NETS_SAFETENSORS_I32, 1, {1}, counts}, {"empty", NETS_SAFETENSORS_F32, 2, {0, 4}, NULL},
};

#define N_TENSORS ((int)(sizeof tensors / sizeof *tensors))

/* A builder with all tensors and metadata: tensor `first` comes first, and those before it last; likewise the
 * metadata. */
static nets_safetensors_builder *build(int first) {
    nets_safetensors_builder *builder;
    assert_int_equal(nets_safetensors_builder_create(&builder), MM_OK);
    for (int i = 0; i < N_TENSORS; i++)
        assert_int_equal(nets_safetensors_add(builder, &tensors[(first + i) % N_TENSORS]), MM_OK);
    const char *const keys[] = {"net", "format"};
    for (int i = 0; i < 2; i++)
        assert_int_equal(nets_safetensors_add_metadata(builder, keys[(first + i) % 2],
                                                       (first + i) % 2 ? "\"quoted\"\n" : "resnet32"),
                         MM_OK);
    return builder;
}

static void write_to(const char *path, int first) {
    nets_safetensors_builder *builder = build(first);
    assert_int_equal(nets_safetensors_write(builder, path), MM_OK);
    nets_safetensors_builder_destroy(builder);
}

static void what_is_written_is_read_back(void **state) {
    const folder *f = *state;
    write_to(f->file, 0);
    nets_safetensors_file *file;
    assert_int_equal(nets_safetensors_open(f->file, &file), MM_OK);
    assert_int_equal(nets_safetensors_count(file), N_TENSORS);
    for (int i = 0; i < N_TENSORS; i++) {
        const nets_safetensors_tensor *found = nets_safetensors_find(file, tensors[i].name);
        int64_t bytes;
        const void *data;
        assert_non_null(found);
        assert_int_equal(found->dtype, tensors[i].dtype);
        assert_int_equal(found->rank, tensors[i].rank);
        assert_int_equal(nets_safetensors_bytes(found, &bytes), MM_OK);
        if (bytes) assert_memory_equal(found->data, tensors[i].data, (size_t)bytes);
        assert_int_equal(nets_safetensors_get(file, &tensors[i], &data), MM_OK);
        assert_ptr_equal(data, found->data);
        /* The mapping starts at a page, so this shows that the file aligns its data. */
        if (tensors[i].dtype == NETS_SAFETENSORS_I64) assert_int_equal((uintptr_t)data % 8, 0);
        if (tensors[i].dtype == NETS_SAFETENSORS_F32) assert_int_equal((uintptr_t)data % 4, 0);
    }
    assert_null(nets_safetensors_find(file, "fc"));
    assert_null(nets_safetensors_find(file, "__metadata__"));
    assert_string_equal(nets_safetensors_metadata(file, "net"), "resnet32");
    assert_string_equal(nets_safetensors_metadata(file, "format"), "\"quoted\"\n");
    assert_null(nets_safetensors_metadata(file, "other"));
    nets_safetensors_close(file);
    nets_safetensors_close(NULL);
}

static void bytes_are_those_of_the_format(void **state) {
    const folder *f = *state;
    nets_safetensors_builder *builder;
    assert_int_equal(nets_safetensors_builder_create(&builder), MM_OK);
    assert_int_equal(nets_safetensors_add(builder, &tensors[4]), MM_OK);
    assert_int_equal(nets_safetensors_add(builder, &tensors[0]), MM_OK);
    assert_int_equal(nets_safetensors_write(builder, f->file), MM_OK);
    nets_safetensors_builder_destroy(builder);
    static const char header[] = "{\"counts\":{\"data_offsets\":[0,4],\"dtype\":\"I32\",\"shape\":[1]},"
                                 "\"mask\":{\"data_offsets\":[4,9],\"dtype\":\"U8\",\"shape\":[5]}}";
    size_t n_bytes, padded = (sizeof header - 1 + 7) / 8 * 8;
    uint8_t *bytes = scratch_read(f->file, &n_bytes);
    assert_int_equal(n_bytes, 8 + padded + 9);
    uint64_t length;
    memcpy(&length, bytes, 8);
    assert_int_equal(length, padded);
    assert_memory_equal(bytes + 8, header, sizeof header - 1);
    for (size_t i = sizeof header - 1; i < padded; i++) assert_int_equal(bytes[8 + i], ' ');
    assert_memory_equal(bytes + 8 + padded, counts, 4);
    assert_memory_equal(bytes + 8 + padded + 4, mask, 5);
    free(bytes);
}

static void order_of_adding_does_not_change_the_bytes(void **state) {
    const folder *f = *state;
    size_t first_bytes, bytes;
    write_to(f->file, 0);
    uint8_t *first = scratch_read(f->file, &first_bytes);
    for (int i = 1; i < N_TENSORS; i++) {
        write_to(f->file, i);
        uint8_t *other = scratch_read(f->file, &bytes);
        assert_int_equal(bytes, first_bytes);
        assert_memory_equal(other, first, bytes);
        free(other);
    }
    free(first);
}

/* Fetches data from `tensors`; *ctx gets the size of the largest piece. */
static mm_status fetch_data(void *ctx, const nets_safetensors_tensor *tensor, int64_t offset, void *data_out,
                            int64_t bytes) {
    int64_t *most = ctx;
    if (bytes > *most) *most = bytes;
    for (int i = 0; i < N_TENSORS; i++)
        if (strcmp(tensors[i].name, tensor->name) == 0) {
            memcpy(data_out, (const char *)tensors[i].data + offset, (size_t)bytes);
            return MM_OK;
        }
    return mm_fail(MM_ERR_NOT_FOUND, "no %s", tensor->name);
}

static void data_fetched_in_pieces_makes_the_same_file(void **state) {
    const folder *f = *state;
    nets_safetensors_builder *empty;
    int64_t most = 0;
    size_t whole_bytes, bytes;
    write_to(f->file, 0);
    uint8_t *whole = scratch_read(f->file, &whole_bytes);
    assert_int_equal(nets_safetensors_builder_create(&empty), MM_OK);
    for (int i = 0; i < N_TENSORS; i++) {
        nets_safetensors_tensor tensor = tensors[i];
        tensor.data = NULL;
        assert_int_equal(nets_safetensors_add(empty, &tensor), MM_OK);
    }
    assert_int_equal(nets_safetensors_add_metadata(empty, "net", "resnet32"), MM_OK);
    assert_int_equal(nets_safetensors_add_metadata(empty, "format", "\"quoted\"\n"), MM_OK);
    assert_int_equal(nets_safetensors_write_from(empty, f->file, 8, fetch_data, &most), MM_OK);
    uint8_t *pieces = scratch_read(f->file, &bytes);
    assert_int_equal(most, 8);
    assert_int_equal(bytes, whole_bytes);
    assert_memory_equal(pieces, whole, bytes);
    /* Without a function to fetch data, the file stays as it is. */
    assert_int_equal(nets_safetensors_write(empty, f->file), MM_ERR_INVALID);
    assert_int_equal(scratch_count(f->path), 1);
    nets_safetensors_builder_destroy(empty);
    free(whole);
    free(pieces);
}

static void a_piece_is_read_and_a_file_cut_meanwhile_is_told(void **state) {
    const folder *f = *state;
    nets_safetensors_file *file;
    const void *data;
    float values[3];
    write_to(f->file, 0);
    assert_int_equal(nets_safetensors_open(f->file, &file), MM_OK);
    assert_int_equal(nets_safetensors_get(file, &tensors[1], &data), MM_OK);
    assert_int_equal(nets_safetensors_read(file, data, 12, values, sizeof values), MM_OK);
    assert_memory_equal(values, weight[1], sizeof values);
    assert_int_equal(truncate(f->file, 64), 0);
    assert_int_equal(nets_safetensors_read(file, data, 12, values, sizeof values), MM_ERR_IO);
    assert_non_null(strstr(mm_last_error(), "cut short"));
    nets_safetensors_close(file);
}

static void no_tensor_at_all_is_a_file_too(void **state) {
    const folder *f = *state;
    nets_safetensors_builder *builder;
    nets_safetensors_file *file;
    assert_int_equal(nets_safetensors_builder_create(&builder), MM_OK);
    assert_int_equal(nets_safetensors_write(builder, f->file), MM_OK);
    assert_int_equal(nets_safetensors_open(f->file, &file), MM_OK);
    assert_int_equal(nets_safetensors_count(file), 0);
    nets_safetensors_close(file);
    nets_safetensors_builder_destroy(builder);
    nets_safetensors_builder_destroy(NULL);
}

static void impossible_tensors_are_refused(void **state) {
    (void)state;
    static const nets_safetensors_tensor impossible[] = {
        {"fc.bias", NETS_SAFETENSORS_F32, 1, {3}, bias},
        {"__metadata__", NETS_SAFETENSORS_F32, 1, {3}, bias},
        {"\xff\xfe", NETS_SAFETENSORS_F32, 1, {3}, bias},
        {"a", NETS_SAFETENSORS_DTYPES, 1, {3}, bias},
        {"a", (nets_safetensors_dtype)-1, 1, {3}, bias},
        {"a", NETS_SAFETENSORS_F32, 9, {1}, bias},
        {"a", NETS_SAFETENSORS_F32, -1, {1}, bias},
        {"a", NETS_SAFETENSORS_F32, 1, {-1}, bias},
        {"a", NETS_SAFETENSORS_F32, 2, {INT64_MAX, INT64_MAX}, bias},
        {"a", NETS_SAFETENSORS_U8, 1, {INT64_MAX}, bias},
    };
    nets_safetensors_builder *builder = build(0);
    for (size_t i = 0; i < sizeof impossible / sizeof *impossible; i++)
        assert_int_equal(nets_safetensors_add(builder, &impossible[i]), MM_ERR_INVALID);
    assert_int_equal(nets_safetensors_add_metadata(builder, "key", "\xff"), MM_ERR_INVALID);
    assert_int_equal(nets_safetensors_add_metadata(builder, "\xff", "text"), MM_ERR_INVALID);
    nets_safetensors_builder_destroy(builder);
}

static void tensor_of_another_network_is_named(void **state) {
    const folder *f = *state;
    static const nets_safetensors_tensor missing = {"conv1.weight", NETS_SAFETENSORS_F32, 4, {16, 3, 3, 3}, NULL};
    static const nets_safetensors_tensor others[] = {
        {"fc.weight", NETS_SAFETENSORS_F32, 2, {3, 2}, NULL},
        {"fc.weight", NETS_SAFETENSORS_F32, 1, {6}, NULL},
        {"fc.weight", NETS_SAFETENSORS_F32, 1, {2}, NULL},
        {"fc.weight", NETS_SAFETENSORS_I32, 2, {2, 3}, NULL},
    };
    nets_safetensors_file *file;
    const void *data;
    write_to(f->file, 0);
    assert_int_equal(nets_safetensors_open(f->file, &file), MM_OK);
    assert_int_equal(nets_safetensors_get(file, &missing, &data), MM_ERR_FORMAT);
    assert_non_null(strstr(mm_last_error(), "has no tensor conv1.weight (F32 [16,3,3,3])"));
    for (size_t i = 0; i < sizeof others / sizeof *others; i++) {
        assert_int_equal(nets_safetensors_get(file, &others[i], &data), MM_ERR_FORMAT);
        assert_non_null(strstr(mm_last_error(), f->file));
        assert_non_null(strstr(mm_last_error(), "tensor fc.weight is F32 [2,3], expected "));
    }
    nets_safetensors_close(file);
}

/* ---------------------------------------------------------------- damaged files */

typedef struct damage {
    const char *what; /* part of the message */
    const char *header;
    int data_bytes;
} damage;

#define TENSOR(name, dtype, shape, offsets)                                                                            \
    "\"" name "\":{\"dtype\":\"" dtype "\",\"shape\":" shape ",\"data_offsets\":" offsets "}"

static const damage damages[] = {
    {"not a safetensors file", "[]", 0},
    {"header, byte", "{\"a\":", 0},
    {"header, byte", "{} x", 0},
    {"header, byte", "{\"a\":1,}", 0},
    {"duplicate", "{" TENSOR("a", "U8", "[0]", "[0,0]") "," TENSOR("a", "U8", "[0]", "[0,0]") "}", 0},
    {"tensor a: unknown dtype (none)", "{\"a\":1}", 0},
    {"tensor a: unknown dtype (none)", "{\"a\":{\"shape\":[1],\"data_offsets\":[0,4]}}", 4},
    {"tensor a: unknown dtype Q7", "{" TENSOR("a", "Q7", "[1]", "[0,1]") "}", 1},
    {"tensor a: its shape", "{\"a\":{\"dtype\":\"F32\",\"data_offsets\":[0,4]}}", 4},
    {"tensor a: its shape", "{" TENSOR("a", "F32", "[1,1,1,1,1,1,1,1,1]", "[0,4]") "}", 4},
    {"tensor a: dimension 1", "{" TENSOR("a", "F32", "[1,-1]", "[0,4]") "}", 4},
    {"tensor a: dimension 0", "{" TENSOR("a", "F32", "[1.0]", "[0,4]") "}", 4},
    {"tensor a: dimension 0", "{" TENSOR("a", "F32", "[\"1\"]", "[0,4]") "}", 4},
    {"header, byte", "{" TENSOR("a", "F32", "[99999999999999999999]", "[0,4]") "}", 4},
    {"tensor a: offsets", "{\"a\":{\"dtype\":\"F32\",\"shape\":[1]}}", 4},
    {"tensor a: offsets 0 to 8", "{" TENSOR("a", "F32", "[2]", "[0,8]") "}", 4},
    {"tensor a: offsets 4 to 0", "{" TENSOR("a", "F32", "[1]", "[4,0]") "}", 4},
    {"tensor a: offsets -1 to 4", "{" TENSOR("a", "F32", "[1]", "[-4,4]") "}", 4},
    {"tensor a: offsets", "{" TENSOR("a", "F32", "[1]", "[0,4,4]") "}", 4},
    {"tensor a: F32 [2] does not take the 4 bytes", "{" TENSOR("a", "F32", "[2]", "[0,4]") "}", 4},
    {"does not take", "{" TENSOR("a", "F32", "[4611686018427387905,4]", "[0,16]") "}", 16},
    {"tensor a begins at 4, but the one before it ends at 0", "{" TENSOR("a", "F32", "[1]", "[4,8]") "}", 8},
    {"tensor b begins at 4, but the one before it ends at 8",
     "{" TENSOR("b", "F32", "[1]", "[4,8]") "," TENSOR("a", "F32", "[2]", "[0,8]") "}", 8},
    {"tensor b begins at 0, but the one before it ends at 4",
     "{" TENSOR("b", "F32", "[1]", "[0,4]") "," TENSOR("a", "F32", "[1]", "[0,4]") "}", 4},
    {"8 bytes of data, but its tensors end at 4", "{" TENSOR("a", "F32", "[1]", "[0,4]") "}", 8},
    {"metadata is not an object", "{\"__metadata__\":[]}", 0},
    {"metadata k is not a text", "{\"__metadata__\":{\"k\":1}}", 0},
};

static void expect_format_error(const char *path, const char *what) {
    nets_safetensors_file *file = NULL;
    assert_int_equal(nets_safetensors_open(path, &file), MM_ERR_FORMAT);
    assert_null(file);
    assert_non_null(strstr(mm_last_error(), path));
    if (!strstr(mm_last_error(), what)) fail_msg("'%s' is not in '%s'", what, mm_last_error());
}

static void each_damage_is_refused_saying_what_it_is(void **state) {
    const folder *f = *state;
    for (size_t i = 0; i < sizeof damages / sizeof *damages; i++) {
        uint8_t bytes[1024] = {0};
        uint64_t length = strlen(damages[i].header);
        memcpy(bytes, &length, 8);
        memcpy(bytes + 8, damages[i].header, length);
        scratch_write(f->file, bytes, 8 + length + (size_t)damages[i].data_bytes);
        expect_format_error(f->file, damages[i].what);
    }
}

static void lengths_out_of_range_are_refused(void **state) {
    const folder *f = *state;
    static const uint64_t lengths[] = {0, 1, 3, 100, 100000001, UINT64_MAX, UINT64_C(1) << 63};
    for (size_t i = 0; i < sizeof lengths / sizeof *lengths; i++) {
        uint8_t bytes[10] = "01234567{}";
        memcpy(bytes, &lengths[i], 8);
        scratch_write(f->file, bytes, sizeof bytes);
        expect_format_error(f->file, "not a safetensors file");
    }
    scratch_write(f->file, "", 0);
    expect_format_error(f->file, "empty");
    scratch_write(f->file, "\2\0\0\0\0\0\0\0{", 9);
    expect_format_error(f->file, "too few");
}

static void file_cut_anywhere_is_refused(void **state) {
    const folder *f = *state;
    size_t n_bytes;
    write_to(f->file, 0);
    uint8_t *bytes = scratch_read(f->file, &n_bytes);
    for (size_t n = 0; n < n_bytes; n++) {
        scratch_write(f->file, bytes, n);
        expect_format_error(f->file, "");
    }
    free(bytes);
}

static void what_is_no_file_cannot_be_opened(void **state) {
    const folder *f = *state;
    nets_safetensors_file *file;
    assert_int_equal(nets_safetensors_open(f->file, &file), MM_ERR_IO);
    assert_non_null(strstr(mm_last_error(), f->file));
    assert_int_equal(nets_safetensors_open(f->path, &file), MM_ERR_FORMAT);
    assert_int_equal(mkfifo(f->file, 0666), 0);
    assert_int_equal(nets_safetensors_open(f->file, &file), MM_ERR_FORMAT);
}

/* ---------------------------------------------------------------- writing where one cannot */

static void expect_unwritable(const char *path) {
    nets_safetensors_builder *builder = build(0);
    assert_int_equal(nets_safetensors_write(builder, path), MM_ERR_IO);
    assert_non_null(strstr(mm_last_error(), path));
    assert_int_equal(mm_atomic_file_check(path), MM_ERR_IO);
    assert_non_null(strstr(mm_last_error(), path));
    nets_safetensors_builder_destroy(builder);
}

static void unwritable_paths_are_named(void **state) {
    const folder *f = *state;
    char path[PATH_MAX], longer[PATH_MAX], name[300];
    expect_unwritable(scratch_join(f->path, "no/such/folder", path));
    expect_unwritable(f->path);
    scratch_write(f->file, "x", 1);
    expect_unwritable(scratch_join(f->file, "below-a-file", path));
    memset(name, 'n', sizeof name - 1);
    name[sizeof name - 1] = 0;
    expect_unwritable(scratch_join(f->path, name, longer));
    assert_int_equal(scratch_count(f->path), 1);
    assert_int_equal(mm_atomic_file_check(""), MM_ERR_INVALID);
}

static void writable_leaves_nothing_and_changes_nothing(void **state) {
    const folder *f = *state;
    size_t n_bytes;
    assert_int_equal(mm_atomic_file_check(f->file), MM_OK);
    assert_int_equal(scratch_count(f->path), 0);
    scratch_write(f->file, "old", 3);
    assert_int_equal(mm_atomic_file_check(f->file), MM_OK);
    uint8_t *bytes = scratch_read(f->file, &n_bytes);
    assert_int_equal(n_bytes, 3);
    assert_memory_equal(bytes, "old", 3);
    free(bytes);
    assert_int_equal(scratch_count(f->path), 1);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(what_is_written_is_read_back, scratch_setup, scratch_teardown),
        cmocka_unit_test_setup_teardown(bytes_are_those_of_the_format, scratch_setup, scratch_teardown),
        cmocka_unit_test_setup_teardown(order_of_adding_does_not_change_the_bytes, scratch_setup, scratch_teardown),
        cmocka_unit_test_setup_teardown(data_fetched_in_pieces_makes_the_same_file, scratch_setup, scratch_teardown),
        cmocka_unit_test_setup_teardown(a_piece_is_read_and_a_file_cut_meanwhile_is_told, scratch_setup,
                                        scratch_teardown),
        cmocka_unit_test_setup_teardown(no_tensor_at_all_is_a_file_too, scratch_setup, scratch_teardown),
        cmocka_unit_test(impossible_tensors_are_refused),
        cmocka_unit_test_setup_teardown(tensor_of_another_network_is_named, scratch_setup, scratch_teardown),
        cmocka_unit_test_setup_teardown(each_damage_is_refused_saying_what_it_is, scratch_setup, scratch_teardown),
        cmocka_unit_test_setup_teardown(lengths_out_of_range_are_refused, scratch_setup, scratch_teardown),
        cmocka_unit_test_setup_teardown(file_cut_anywhere_is_refused, scratch_setup, scratch_teardown),
        cmocka_unit_test_setup_teardown(what_is_no_file_cannot_be_opened, scratch_setup, scratch_teardown),
        cmocka_unit_test_setup_teardown(unwritable_paths_are_named, scratch_setup, scratch_teardown),
        cmocka_unit_test_setup_teardown(writable_leaves_nothing_and_changes_nothing, scratch_setup, scratch_teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
