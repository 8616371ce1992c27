/* SPDX-License-Identifier: MIT */
/* Checks the table of codecs, and runs the suite on each codec of it in each of its formats, and at several rates where
 * it has rates. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "pipeline/codec/codec.h"
#include "tests/codec/codec_suite.h"
#include "tests/core/deep.h"

static void names_are_unique_on_a_device_and_the_table_ends(void **state) {
    (void)state;
    size_t n = 0;
    for (; mm_codec_table(n) != NULL; n++)
        for (size_t j = 0; j < n; j++)
            assert_true(strcmp(mm_codec_table(n)->name, mm_codec_table(j)->name) != 0 ||
                        strcmp(mm_codec_table(n)->device, mm_codec_table(j)->device) != 0);
    assert_true(n > 0);
    assert_null(mm_codec_table(n + 1));
    assert_null(mm_codec_table((size_t)-1));
}

static void an_unknown_codec_is_not_found_and_the_message_lists_those_there_are(void **state) {
    (void)state;
    static const char *const specs[] = {"", "zip", "zf", "zfpp:rate=4", "ZFP", ":rate=4"};
    for (size_t s = 0; s < sizeof specs / sizeof specs[0]; s++) {
        mm_codec *codec = NULL;
        assert_int_equal(mm_codec_create(specs[s], "host", &codec), MM_ERR_NOT_FOUND);
        assert_null(codec);
        for (size_t i = 0; mm_codec_table(i) != NULL; i++)
            if (strcmp(mm_codec_table(i)->device, "host") == 0)
                assert_non_null(strstr(mm_last_error(), mm_codec_table(i)->name));
    }
}

static void there_is_no_codec_for_an_unknown_device(void **state) {
    (void)state;
    mm_codec *codec = NULL;
    assert_int_equal(mm_codec_create("raw", "abacus", &codec), MM_ERR_NOT_FOUND);
    assert_null(codec);
    assert_non_null(strstr(mm_last_error(), "abacus"));
}

static void bad_parameters_of_chunk_codecs_are_said_in_a_line(void **state) {
    (void)state;
    static const struct {
        const char *spec, *says;
    } bad[] = {
        {"zvc:reserve=0", "'reserve=0': must be a whole number from 1 to 100"},
        {"zvc:reserve=101", "from 1 to 100"},
        {"zvc:reserve=-1", "from 1 to 100"},
        {"zvc:reserve=5x", "from 1 to 100"},
        {"zvc:reserve=", "from 1 to 100"},
        {"zvc:reserve=99999999999999999999", "from 1 to 100"},
        {"zvc:sms=0", "from 1 to 65536"},
        {"zvc:sms=65537", "from 1 to 65536"},
        {"zvc:reserve=5,reserve=6", "reserve= is given twice"},
        {"zvc:sms=5:sms=5", "sms= is given twice"},
        {"zvc:reserve", "unknown parameter 'reserve'; there are reserve= and sms="},
        {"zvc:abs=1", "unknown parameter 'abs'"},
        {"zvc:reserve=5,", "unknown parameter ''"},
        {"zvc:=5", "unknown parameter ''"},
        {"eb:abs=0", "'abs=0': the error bound must be a number from 1e-30 to 1e+30"},
        {"eb:abs=-0.1", "must be a number"},
        {"eb:abs=nan", "must be a number"},
        {"eb:abs=inf", "must be a number"},
        {"eb:abs=1e-31", "must be a number"},
        {"eb:abs=", "must be a number"},
        {"eb:abs=0.1x", "must be a number"},
        {"eb:abs=0.1,abs=0.1", "abs= is given twice"},
        {"eb:rel=0.1", "unknown parameter 'rel'; there are abs=, reserve= and sms="},
    };
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        mm_codec *codec = NULL;
        assert_int_equal(mm_codec_create(bad[i].spec, "host", &codec), MM_ERR_INVALID);
        assert_null(codec);
        if (!strstr(mm_last_error(), bad[i].says)) fail_msg("%s: %s", bad[i].spec, mm_last_error());
        assert_null(strchr(mm_last_error(), '\n'));
    }
    mm_codec *codec;
    assert_int_equal(mm_codec_create("zvc:sms=07:reserve=030", "host", &codec), MM_OK);
    assert_string_equal(codec->spec, "zvc:reserve=30,sms=7");
    const mm_shape map = {MM_F32, 2, {10, 100, 1, 1}};
    mm_body_nominal body;
    assert_int_equal(mm_codec_body_nominal(codec, &map, &body), MM_OK);
    assert_int_equal(body.reserve_bytes, 1200);
    assert_int_equal(body.typical_bytes, 1540);
    mm_codec_destroy(codec);
    assert_int_equal(mm_codec_create("eb:sms=3,abs=0.10", "host", &codec), MM_OK);
    assert_string_equal(codec->spec, "eb:abs=0.1,sms=3");
    assert_false(codec->flags.reads_bound);
    mm_codec_destroy(codec);
    assert_int_equal(mm_codec_create("eb", "host", &codec), MM_OK);
    assert_true(codec->flags.reads_bound);
    mm_codec_destroy(codec);
}

static void destroying_nothing_is_legal(void **state) {
    (void)state;
    mm_codec_destroy(NULL);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(names_are_unique_on_a_device_and_the_table_ends),
        cmocka_unit_test(an_unknown_codec_is_not_found_and_the_message_lists_those_there_are),
        cmocka_unit_test(there_is_no_codec_for_an_unknown_device),
        cmocka_unit_test(bad_parameters_of_chunk_codecs_are_said_in_a_line),
        cmocka_unit_test(destroying_nothing_is_legal),
    };
    static const char *const more[] = {"zfp:rate=2.5",
                                       "zfp:rate=5.9",
                                       "zfp:rate=6",
                                       "zfp:rate=8",
                                       "zfp:rate=0.6",
                                       "zfp:rate=4",
                                       "zfp:rate=16.1",
                                       "zfp:rate=32",
                                       "zfp:rate=2.2,dims=1",
                                       "zfp:rate=7.9,dims=1",
                                       "zfp:rate=32,dims=1",
                                       "zfp:rate=0.14,dims=3",
                                       "zfp:rate=4,dims=3",
                                       "zfp:rate=6.4,dims=3",
                                       "zfp:rate=32,dims=3",
                                       "zfp:rate=4,layout=nchw",
                                       "zfp:rate=2.2,dims=1,layout=nchw",
                                       "zfp:rate=6.4,dims=3,layout=nchw"};
    int failed = cmocka_run_group_tests_name("table", tests, NULL, NULL);
    for (size_t i = 0; mm_codec_table(i) != NULL; i++) {
        const mm_codec_ops *ops = mm_codec_table(i);
        const char *format;
        if (test_is_slow() && strcmp(ops->device, "host") == 0) continue;
        for (size_t f = 0; (format = mm_codec_format(ops, f)); f++) {
            char spec[64];
            snprintf(spec, sizeof spec, "%s%s%s", ops->name, *format ? ":" : "", format);
            failed += codec_suite_run(spec, ops->device);
        }
        for (size_t m = 0; m < sizeof more / sizeof more[0] && strcmp(ops->name, "zfp") == 0;
             m += test_is_slow() ? 3 : 1)
            failed += codec_suite_run(more[m], ops->device);
    }
    return failed == 0 ? 0 : 1;
}
