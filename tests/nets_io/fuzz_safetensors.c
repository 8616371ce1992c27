/* SPDX-License-Identifier: MIT */
/* Thousands of damaged safetensors files: each is refused with MM_ERR_FORMAT, or accepted with tensors that lie within
 * the file and fill it. Each lies in memory of exactly its size, so that a sanitizer sees reads beyond it. */
#include "nets/io/reader_random.h"
#include "nets/io/safetensors_header.h"
#include "tests/core/test_case.h"
#include "tests/nets_io/scratch.h"

#include <stdlib.h>
#include <string.h>

enum { ROUNDS = 30000, MAX_EDITS = 4, CAPACITY = 2048 };

typedef struct random_numbers {
    uint64_t key, counter;
} random_numbers;

static size_t below(random_numbers *random, size_t n) {
    return (size_t)nets_random_below(nets_random_at(random->key, random->counter++), n);
}

static uint8_t *valid_file(size_t *n_bytes_out) {
    static const float values[24] = {1, 2, 3};
    static const int64_t steps = 5;
    static const nets_safetensors_tensor tensors[] = {
        {"conv1.weight", NETS_SAFETENSORS_F32, 4, {2, 1, 3, 4}, values},
        {"bn1.running_mean", NETS_SAFETENSORS_F32, 1, {2}, values},
        {"bn1.num_batches_tracked", NETS_SAFETENSORS_I64, 0, {0}, &steps},
        {"flags", NETS_SAFETENSORS_U8, 1, {7}, values},
    };
    char dir[PATH_MAX], path[PATH_MAX];
    nets_safetensors_builder *builder;
    assert_int_equal(nets_safetensors_builder_create(&builder), MM_OK);
    for (size_t i = 0; i < sizeof tensors / sizeof *tensors; i++)
        assert_int_equal(nets_safetensors_add(builder, &tensors[i]), MM_OK);
    assert_int_equal(nets_safetensors_add_metadata(builder, "net", "resnet32"), MM_OK);
    scratch_create(dir);
    assert_int_equal(nets_safetensors_write(builder, scratch_join(dir, "valid", path)), MM_OK);
    nets_safetensors_builder_destroy(builder);
    uint8_t *bytes = scratch_read(path, n_bytes_out);
    scratch_remove(dir);
    return bytes;
}

/* A random byte; a header's own characters come more often than by chance. */
static uint8_t random_byte(random_numbers *random) {
    static const char meaning[] = "{}[]\",:0123456789-.eE\\u F3264IU8";
    return below(random, 2) ? (uint8_t)below(random, 256) : (uint8_t)meaning[below(random, sizeof meaning - 1)];
}

/* One edit; may change the length. `bytes` has room for CAPACITY. Returns the new length. */
static size_t mutate(random_numbers *random, uint8_t *bytes, size_t n_bytes) {
    if (n_bytes == 0) return 0;
    size_t at = below(random, n_bytes), length = 1 + below(random, 16);
    switch (below(random, 7)) {
    case 0: /* cut */
        return at;
    case 1:
        bytes[at] ^= (uint8_t)(1u << below(random, 8));
        return n_bytes;
    case 2:
        bytes[at] = random_byte(random);
        return n_bytes;
    case 3: /* remove a piece */
        if (length > n_bytes - at) length = n_bytes - at;
        memmove(bytes + at, bytes + at + length, n_bytes - at - length);
        return n_bytes - length;
    case 4: /* insert a piece */
        if (n_bytes + length > CAPACITY) return n_bytes;
        memmove(bytes + at + length, bytes + at, n_bytes - at);
        for (size_t i = 0; i < length; i++) bytes[at + i] = random_byte(random);
        return n_bytes + length;
    case 5: { /* copy a piece over another */
        size_t from = below(random, n_bytes);
        if (length > n_bytes - at) length = n_bytes - at;
        if (length > n_bytes - from) length = n_bytes - from;
        memmove(bytes + at, bytes + from, length);
        return n_bytes;
    }
    default: /* change the length of the header */
        bytes[below(random, n_bytes < 8 ? n_bytes : 8)] = (uint8_t)below(random, 256);
        return n_bytes;
    }
}

/* Checks that the tensors' bytes follow each other up to the end of the file. */
static void check_accepted(const nets_safetensors_header *header, const uint8_t *bytes, size_t n_bytes) {
    const uint8_t *end = header->n_tensors ? header->tensors[0].data : bytes + n_bytes;
    for (int64_t i = 0; i < header->n_tensors; i++) {
        const nets_safetensors_tensor *tensor = &header->tensors[i];
        int64_t tensor_bytes;
        assert_int_equal(nets_safetensors_bytes(tensor, &tensor_bytes), MM_OK);
        assert_ptr_equal(tensor->data, end);
        assert_true(tensor_bytes <= bytes + n_bytes - end);
        end += tensor_bytes;
        assert_ptr_equal(nets_safetensors_header_find(header, tensor->name), tensor);
    }
    assert_ptr_equal(end, bytes + n_bytes);
}

/* Parses a copy of exactly this size; true if it was accepted. */
static bool parse_copy(const uint8_t *bytes, size_t n_bytes) {
    uint8_t *copy = malloc(n_bytes ? n_bytes : 1);
    assert_non_null(copy);
    memcpy(copy, bytes, n_bytes);
    nets_safetensors_header header;
    mm_status status = nets_safetensors_header_init(&header, "mutant", copy, (int64_t)n_bytes);
    if (status == MM_OK) {
        check_accepted(&header, copy, n_bytes);
        nets_safetensors_header_fini(&header);
    } else {
        assert_int_equal(status, MM_ERR_FORMAT);
        assert_int_equal(strncmp(mm_last_error(), "mutant: ", 8), 0);
    }
    free(copy);
    return status == MM_OK;
}

TEST_CASE(mutants_are_refused_or_whole) {
    size_t n_valid;
    uint8_t *valid = valid_file(&n_valid);
    assert_true(parse_copy(valid, n_valid));
    assert_true(n_valid < CAPACITY / 2);
    uint8_t mutant[CAPACITY];
    int accepted = 0;
    for (int round = 0; round < ROUNDS; round++) {
        random_numbers random = {.key = (uint64_t)round};
        size_t n_bytes = n_valid;
        memcpy(mutant, valid, n_valid);
        for (size_t edits = 1 + below(&random, MAX_EDITS); edits > 0; edits--)
            n_bytes = mutate(&random, mutant, n_bytes);
        accepted += parse_copy(mutant, n_bytes);
    }
    /* Flips within names and data are harmless, most others are not. */
    assert_in_range(accepted, ROUNDS / 100, ROUNDS / 2);
    free(valid);
}
