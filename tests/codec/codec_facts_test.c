/* SPDX-License-Identifier: MIT */
/* What planners are told about codecs: where codes may be cut, and what bodies take. */

#include "mm/core/graph/graph.h"
#include "mm/core/plan/plan.h"
#include "pipeline/codec/codec_facts.h"
#include "tests/core/random_graph.h"
#include "tests/core/test_case.h"

/* A map is cut after the first rows where the codec allows a cut, and where both the map and the code are aligned
 * behind it, as codecs may rely on. */
TEST_CASE(codes_are_cut_where_map_and_code_are_aligned) {
    static const char specs[][MM_SPEC_CAPACITY] = {"raw", "mask", "zfp:rate=6.4", "zfp:rate=32", "dpr:fp10", "mx"};
    enum { SPECS = sizeof specs / sizeof *specs };
    mm_codec *codecs[SPECS];
    int cuts = 0, none = 0;
    for (int c = 0; c < SPECS; c++) assert_int_equal(mm_codec_create(specs[c], "host", &codecs[c]), MM_OK);
    for (uint64_t seed = 1; seed <= 12; seed++) {
        mm_graph *graph;
        mm_graph_facts *facts;
        random_graph_options options = {.seed = seed, .layers = 10, .max_channels = 8, .images = 1 + (int)seed * 5};
        assert_int_equal(random_graph_create(&options, &graph), MM_OK);
        assert_int_equal(mm_codec_facts_create(graph, codecs, specs, SPECS, &facts), MM_OK);
        for (int i = 0; i < SPECS * facts->n_tensors; i++) {
            const mm_codec *codec = codecs[i / facts->n_tensors];
            const mm_tensor_info *tensor = mm_graph_tensor(graph, i % facts->n_tensors);
            mm_shape shape = {tensor->dtype, tensor->rank, {0, tensor->dims[1], tensor->dims[2], tensor->dims[3]}};
            int64_t all = tensor->dims[0], cut = facts->codes[i].split_rows, bytes;
            assert_in_range(cut, 0, all - 1);
            shape.dims[0] = all;
            int64_t split = mm_codec_split(codec, &shape);
            for (int64_t rows = split; split > 0 && rows < all && (cut == 0 || rows <= cut); rows += split) {
                shape.dims[0] = rows;
                assert_int_equal(mm_codec_bound(codec, &shape, &bytes), MM_OK);
                bool aligned = bytes % MM_ALIGN == 0 && rows * (tensor->bytes / all) % MM_ALIGN == 0;
                assert_int_equal(aligned, rows == cut);
            }
            if (cut > 0) assert_true(split > 0 && cut % split == 0);
            for (int64_t rows = cut; cut > 0 && rows < all; rows += cut) {
                shape.dims[0] = rows;
                assert_int_equal(mm_codec_bound(codec, &shape, &bytes), MM_OK);
                assert_int_equal(bytes, rows / cut * facts->codes[i].split_bytes);
            }
            *(cut > 0 ? &cuts : &none) += 1;
        }
        mm_graph_facts_destroy(facts);
        mm_graph_destroy(graph);
    }
    for (int c = 0; c < SPECS; c++) mm_codec_destroy(codecs[c]);
    assert_true(cuts > 100 && none > 100);
}

/* reserve= sets what is reserved for a body; it does not change the body's bound and typical size. Codes of fixed size
 * have no body. */
TEST_CASE(bodies_have_a_bound_a_reserve_and_a_typical_size) {
    static const char specs[][MM_SPEC_CAPACITY] = {"zvc", "zvc:reserve=1", "zvc:reserve=100", "mask", "csr:values=fp8"};
    enum { SPECS = sizeof specs / sizeof *specs };
    mm_codec *codecs[SPECS];
    mm_graph *graph;
    mm_graph_facts *facts;
    random_graph_options options = {.seed = 3, .layers = 10, .max_channels = 8, .images = 20};
    int bodies = 0;
    for (int c = 0; c < SPECS; c++) assert_int_equal(mm_codec_create(specs[c], "host", &codecs[c]), MM_OK);
    assert_int_equal(random_graph_create(&options, &graph), MM_OK);
    assert_int_equal(mm_codec_facts_create(graph, codecs, specs, SPECS, &facts), MM_OK);
    assert_true(facts->codecs[0].lossless && facts->codecs[3].fixed_size);
    assert_true(!facts->codecs[0].fixed_size && !facts->codecs[4].lossless);
    for (int t = 0; t < facts->n_tensors; t++) {
        const mm_code_facts *of[SPECS];
        const int64_t bytes = mm_graph_tensor(graph, t)->bytes;
        for (int c = 0; c < SPECS; c++) {
            of[c] = mm_facts_code(facts, c, t);
            assert_true(mm_facts_body_is_possible(&facts->codecs[c], of[c]));
        }
        if (of[0]->code_bytes < 0) continue; /* not f32 */
        assert_int_equal(of[0]->code_bytes, 8 + ((bytes + 4095) / 4096 + 2) / 2 * 8);
        assert_int_equal(of[0]->body_bound_bytes, bytes);
        assert_int_equal(of[2]->body_reserve_bytes, bytes);
        assert_in_range(of[1]->body_reserve_bytes, bytes / 100, bytes / 100 + 4);
        assert_int_equal(of[1]->body_typical_bytes, of[0]->body_typical_bytes);
        assert_in_range(of[0]->body_typical_bytes, bytes / 3, bytes / 2 + 4);
        assert_int_equal(of[0]->split_rows, 0);
        assert_int_equal(of[3]->body_bound_bytes, 0);
        bodies++;
    }
    assert_true(bodies > 10);
    for (int c = 0; c < SPECS; c++) mm_codec_destroy(codecs[c]);
    mm_graph_facts_destroy(facts);
    mm_graph_destroy(graph);
}
