/* SPDX-License-Identifier: MIT */
/* Which known name a name that is not known may have meant. */
#include <errno.h>
#include <string.h>

#include "mm/core/nearest.h"
#include "tests/core/test_case.h"

static const char *const known[] = {"resnet50", "resnet152", "liveness", "swap-async",
                                    "zfp",      "mx",        "--policy", "--net"};

static const char *nearest(const char *text) {
    mm_nearest n = {.text = text, .length = strlen(text)};
    for (size_t i = 0; i < sizeof known / sizeof *known; i++) mm_nearest_try(&n, known[i]);
    return n.found ? n.found : "";
}

TEST_CASE(a_slip_of_one_or_two_letters_is_understood) {
    assert_string_equal(nearest("resnet5"), "resnet50");
    assert_string_equal(nearest("resnet-50"), "resnet50");
    assert_string_equal(nearest("rsenet50"), "resnet50");
    assert_string_equal(nearest("livenes"), "liveness");
    assert_string_equal(nearest("liveeness"), "liveness");
    assert_string_equal(nearest("levinass"), "");
    assert_string_equal(nearest("swpa_async"), "swap-async");
    assert_string_equal(nearest("zpf"), "zfp");
    assert_string_equal(nearest("--polcy"), "--policy");
}

TEST_CASE(letters_are_equal_in_either_case) {
    assert_string_equal(nearest("ResNet50"), "resnet50");
    assert_string_equal(nearest("RESNTE50"), "resnet50");
    assert_string_equal(nearest("SWAP-"), "swap-async");
}

TEST_CASE(a_beginning_of_three_letters_is_enough_either_way) {
    assert_string_equal(nearest("live"), "liveness");
    assert_string_equal(nearest("swap-async-fast"), "swap-async");
    assert_string_equal(nearest("--pol"), "--policy");
    assert_string_equal(nearest("--po"), "");
    assert_string_equal(nearest("--network"), "--net");
}

TEST_CASE(nothing_is_suggested_for_what_is_far) {
    static const char *const far[] = {"", "a", "m", "xm", "bert", "qqq", "--", "vgg16", "--nope", "--device"};
    for (size_t i = 0; i < sizeof far / sizeof *far; i++) assert_string_equal(nearest(far[i]), "");
    char endless[200];
    memset(endless, 'x', sizeof endless - 1);
    endless[sizeof endless - 1] = '\0';
    assert_string_equal(nearest(endless), "");
}

TEST_CASE(the_nearest_wins_and_of_equals_the_first) {
    mm_nearest n = {.text = "abcdef", .length = 6};
    mm_nearest_try(&n, "abcdxy");
    assert_string_equal(n.found, "abcdxy");
    mm_nearest_try(&n, "abcdex");
    mm_nearest_try(&n, "abcdez");
    assert_string_equal(n.found, "abcdex");
    assert_string_equal(MM_DID_YOU_MEAN(&n), " (did you mean abcdex?)");
    n.found = NULL;
    assert_string_equal(MM_DID_YOU_MEAN(&n), "");
}

TEST_CASE(only_the_length_given_counts) {
    mm_nearest n = {.text = "zpf:rate=4", .length = 3};
    mm_nearest_try(&n, "zfp");
    assert_string_equal(n.found, "zfp");
}

TEST_CASE(files_are_suggested_only_where_the_file_is_missing) {
    errno = EACCES;
    assert_string_equal(MM_DID_YOU_MEAN_FILE("/dev/nul"), "");
    errno = ENOENT;
    assert_string_equal(MM_DID_YOU_MEAN_FILE("/dev/nul"), " (did you mean null?)");
    assert_int_equal(errno, ENOENT);
    assert_string_equal(MM_DID_YOU_MEAN_FILE("/none/at/all"), "");
    assert_string_equal(MM_DID_YOU_MEAN_FILE(""), "");
    assert_string_equal(MM_DID_YOU_MEAN_FILE("/"), "");
}
