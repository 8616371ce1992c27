/* SPDX-License-Identifier: MIT */
/* Lowering: the graphs that nets become. */
#include <stdio.h>
#include <string.h>

#include "mm/core/graph/graph.h"
#include "mm/core/splitmix.h"
#include "nets/lower/lower.h"
#include "nets/zoo/zoo.h"
#include "tests/core/test_case.h"
#include "tests/nets/ref_exec.h"

typedef struct fixture {
    nets_net *net;
    nets_backend *backend;
    nets_lowered *lowered;
} fixture;

static void start_with(fixture *f, const char *net, int64_t batch, nets_precision precision, nets_lowering how) {
    assert_int_equal(nets_zoo_build(net, &f->net), MM_OK);
    assert_int_equal(nets_backend_open("host", &(nets_backend_config){.precision = precision}, &f->backend), MM_OK);
    if (nets_lower(f->net, f->backend, batch, &how, &f->lowered) != MM_OK) fail_msg("%s", mm_last_error());
}

static void start(fixture *f, const char *net, int64_t batch, nets_mode mode) {
    start_with(f, net, batch, NETS_FP32, (nets_lowering){.mode = mode, .optimizer = NETS_SGD});
}

/* Lowers each layer of the net as a step of its own. */
static void start_unfused(fixture *f, const char *net, int64_t batch, nets_mode mode) {
    start_with(f, net, batch, NETS_FP32, (nets_lowering){.mode = mode, .optimizer = NETS_SGD, .no_fuse = true});
}

static void finish(fixture *f) {
    nets_lowered_destroy(f->lowered);
    nets_backend_close(f->backend);
    nets_net_destroy(f->net);
}

static mm_tensor find(const fixture *f, const char *name) {
    mm_tensor tensor;
    return mm_graph_find_tensor(f->lowered->graph, name, &tensor) == MM_OK ? tensor : -1;
}

static const mm_tensor_info *info(const fixture *f, const char *name) {
    mm_tensor tensor = find(f, name);
    if (tensor < 0) fail_msg("no tensor %s", name);
    return mm_graph_tensor(f->lowered->graph, tensor);
}

static const mm_step_info *step_of(const fixture *f, const char *name) {
    char buffer[128];
    for (int s = 0; s < f->lowered->n_steps; s++)
        if (strcmp(mm_graph_step_name(f->lowered->graph, s, buffer, sizeof buffer), name) == 0)
            return mm_graph_step(f->lowered->graph, s);
    fail_msg("no step %s", name);
    return NULL;
}

static const mm_use *use_of(const fixture *f, const char *step, const char *tensor) {
    const mm_step_info *info = step_of(f, step);
    for (int u = 0; u < info->n_uses; u++)
        if (info->uses[u].tensor == find(f, tensor)) return &info->uses[u];
    fail_msg("%s does not use %s", step, tensor);
    return NULL;
}

/* How a step relates two tensors: 'a': the output is an alias of the input; 'i': the output may be written over the
 * input; '-': neither. */
static char pair_of(const fixture *f, const char *step, const char *input, const char *output) {
    const mm_step_info *info = step_of(f, step);
    for (int p = 0; p < info->n_pairs; p++)
        if (info->pairs[p].input == find(f, input) && info->pairs[p].output == find(f, output))
            return info->pairs[p].alias ? 'a' : 'i';
    return '-';
}

/* 4 layers before the blocks, 9 blocks of 7, 2 projections of 2, 3 layers after. */
enum { RESNET20_LAYERS = 4 + 9 * 7 + 2 * 2 + 3 };

TEST_CASE(training_has_a_step_for_each_layer_both_ways_and_an_update) {
    fixture f;
    start_unfused(&f, "resnet20", 4, NETS_TRAIN);
    assert_true(mm_graph_frozen(f.lowered->graph));
    assert_int_equal(mm_graph_steps(f.lowered->graph), RESNET20_LAYERS + (RESNET20_LAYERS - 1) + 1);
    assert_int_equal(f.lowered->n_steps, mm_graph_steps(f.lowered->graph));
    assert_int_equal(mm_graph_layers(f.lowered->graph), RESNET20_LAYERS + 1);
    for (int s = 0; s < f.lowered->n_steps; s++) {
        assert_int_equal(mm_graph_step(f.lowered->graph, s)->layer, f.lowered->steps[s].graph_layer);
        assert_int_equal(mm_graph_step(f.lowered->graph, s)->phase, f.lowered->steps[s].phase);
    }
    finish(&f);
}

/* The number of the step in the graph. */
static int place_of(const fixture *f, const char *name) {
    const mm_step_info *step = step_of(f, name);
    return mm_graph_layer(f->lowered->graph, step->layer)->step[step->phase];
}

/* conv1, its bias is added by relu1, and fc: its update follows at once. */
TEST_CASE(a_layer_is_updated_right_behind_its_backward_step) {
    fixture f;
    start_with(&f, "vgg11@32x32,classes=10,thin=16", 2, NETS_FP32,
               (nets_lowering){.mode = NETS_TRAIN, .optimizer = NETS_SGD, .update = NETS_UPDATE_IN_BACKWARD});
    const char *layers[] = {"features.0", "features.3", "classifier.6"};
    for (int i = 0; i < 3; i++) {
        char backward[64], update[64], bias[64];
        snprintf(backward, sizeof backward, "%s backward", layers[i]);
        snprintf(update, sizeof update, "sgd.%s update", layers[i]);
        snprintf(bias, sizeof bias, "grad.%s.bias", layers[i]);
        assert_int_equal(place_of(&f, update), place_of(&f, backward) + 1);
        assert_int_equal(use_of(&f, update, bias)->access, MM_READ);
        assert_int_equal(info(&f, bias)->ownership, MM_MANAGED);
        assert_int_equal(info(&f, bias)->last_use, place_of(&f, update));
    }
    /* Dropouts may run again between updates, so the last one alone counts. */
    assert_int_equal(info(&f, "rng")->last_write, f.lowered->n_steps - 1);
    assert_int_equal(info(&f, "rng")->writes, 1);
    assert_int_equal(place_of(&f, "sgd.features.0 update"), f.lowered->n_steps - 1);
    assert_int_equal(f.lowered->n_updates, 11);
    finish(&f);
}

TEST_CASE(a_shared_weight_is_updated_behind_all_that_add_to_its_gradient) {
    fixture f;
    start_with(&f, "gpt,layers=2,width=32,heads=2,context=16,vocabulary=64", 2, NETS_BF16,
               (nets_lowering){.mode = NETS_TRAIN, .optimizer = NETS_ADAMW, .update = NETS_UPDATE_IN_BACKWARD});
    const int last = f.lowered->n_steps - 1;
    const int tied = f.lowered->params[nets_net_layer(f.net, nets_net_layers(f.net) - 1)->tied_param].gradient;
    assert_int_equal(mm_graph_tensor(f.lowered->graph, tied)->last_use, last);
    assert_int_equal(mm_graph_tensor(f.lowered->graph, tied)->writes, 2);
    assert_int_equal(mm_graph_step(f.lowered->graph, last)->phase, MM_UPDATE);
    finish(&f);
}

TEST_CASE(strips_cover_a_parameter_in_units) {
    uint64_t random = 3;
    for (int c = 0; c < 1000; c++) {
        const int64_t elems = 1 + (int64_t)(mm_random_next(&random) >> (mm_random_next(&random) % 40 + 20));
        const int64_t most = 1 + (int64_t)(mm_random_next(&random) % (uint64_t)elems);
        const nets_param_strips strips = nets_param_strips_of(elems, elems / most > 1000 ? elems / 1000 : most);
        int64_t covered = 0;
        assert_true(strips.n == 1 || strips.elems % NETS_STRIP_UNIT == 0);
        for (int i = 0; i < strips.n; i++) {
            const nets_share strip = nets_strip(&strips, i, elems);
            assert_true(strip.first == covered && strip.n > 0);
            covered += strip.n;
        }
        assert_true(covered == elems);
    }
    /* By the usual rule, and in a net with many more elements. */
    assert_int_equal(nets_strip_most(1000), NETS_STRIP_ELEMS);
    assert_int_equal(nets_strip_most(INT64_C(8) << 30), INT64_C(64) << 20);
    assert_int_equal(nets_param_strips_of(2 * NETS_STRIP_ELEMS, NETS_STRIP_ELEMS).n, 1);
    const nets_param_strips more = nets_param_strips_of(2 * NETS_STRIP_ELEMS + 1, NETS_STRIP_ELEMS);
    assert_true(more.n == 3 && more.elems <= NETS_STRIP_ELEMS);
}

/* The tied embedding has 6400 elements: three strips of 2048, and one of the rest. */
TEST_CASE(a_cut_parameter_is_updated_strip_by_strip) {
    fixture f;
    start_with(
        &f, "gpt,layers=1,width=64,heads=2,context=16,vocabulary=100", 2, NETS_BF16,
        (nets_lowering){
            .mode = NETS_TRAIN, .optimizer = NETS_ADAMW, .update = NETS_UPDATE_IN_BACKWARD, .strip_elems = 2048});
    assert_true(find(&f, "exp_avg.wte.weight") < 0 && find(&f, "exp_avg.wte.weight[4]") < 0);
    assert_int_equal(info(&f, "exp_avg_sq.wte.weight[0]")->bytes, 4 * 2048);
    assert_int_equal(info(&f, "exp_avg_sq.wte.weight[3]")->bytes, 4 * 256);
    assert_int_equal(info(&f, "exp_avg.wte.weight[3]")->weight, find(&f, "wte.weight"));
    for (int i = 0; i < 4; i++) {
        char update[64], state[64];
        snprintf(update, sizeof update, "adamw.wte.weight[%d] update", i);
        snprintf(state, sizeof state, "exp_avg.wte.weight[%d]", i);
        assert_int_equal(place_of(&f, update), place_of(&f, "adamw.wte.weight[0] update") + i);
        assert_int_equal(use_of(&f, update, "grad.wte.weight")->access, MM_READ);
        assert_int_equal(use_of(&f, update, "wte.weight")->access, MM_MODIFY);
        assert_int_equal(use_of(&f, update, "bf16.wte.weight")->access, MM_MODIFY);
        assert_int_equal(use_of(&f, update, state)->access, MM_MODIFY);
        assert_int_equal(info(&f, state)->last_use, place_of(&f, update));
        assert_int_equal(info(&f, state)->writes, 1);
    }
    assert_int_equal(info(&f, "step")->last_write, f.lowered->n_steps - 1);
    assert_int_equal(info(&f, "step")->writes, 1);
    /* Beside a weight that is cut, a bias has a step of its own. */
    assert_int_equal(use_of(&f, "adamw.h.0.mlp.c_fc.bias update", "exp_avg.h.0.mlp.c_fc.bias")->access, MM_MODIFY);
    finish(&f);
}

/* One step that updates all needs all states at once; a rank's share, and what has no states, is not cut either. */
TEST_CASE(states_are_whole_where_strips_save_nothing) {
    static const nets_lowering cases[] = {
        {.optimizer = NETS_ADAMW, .update = NETS_UPDATE_AT_END},
        {.optimizer = NETS_PLAIN_SGD, .update = NETS_UPDATE_IN_BACKWARD},
        {.optimizer = NETS_SGD, .update = NETS_UPDATE_BY_LAYER, .allreduce = {.n = 2, .divide = NETS_DIVIDE_STATES}},
    };
    for (size_t c = 0; c < sizeof cases / sizeof *cases; c++) {
        fixture f;
        nets_lowering how = cases[c];
        how.strip_elems = 2048;
        start_with(&f, "gpt,layers=1,width=64,heads=2,context=16,vocabulary=100", 2, NETS_FP32, how);
        for (int p = 0; p < nets_net_params(f.net); p++) assert_int_equal(f.lowered->params[p].strips.n, 1);
        finish(&f);
    }
}

TEST_CASE(by_layer_the_updates_follow_the_backward_pass) {
    fixture f;
    start_with(&f, "resnet8", 2, NETS_FP32,
               (nets_lowering){.mode = NETS_TRAIN, .optimizer = NETS_SGD, .update = NETS_UPDATE_BY_LAYER});
    const int first = f.lowered->n_steps - f.lowered->n_updates;
    int updated = 0;
    for (int s = 0; s < f.lowered->n_steps; s++) {
        const nets_step *step = &f.lowered->steps[s];
        assert_int_equal(step->phase == MM_UPDATE, s >= first);
        if (s < first) continue;
        assert_int_equal(step->part, s - first);
        updated += step->n_updated;
    }
    int learned = 0;
    for (int p = 0; p < nets_net_params(f.net); p++) learned += nets_net_param(f.net, p)->learned;
    assert_int_equal(updated, learned);
    assert_int_equal(info(&f, "grad.conv1.weight")->ownership, MM_PERSISTENT);
    finish(&f);
}

TEST_CASE(evaluation_has_only_forward_steps_and_shares_the_parameters) {
    fixture f;
    start_unfused(&f, "resnet20", 4, NETS_EVAL);
    assert_int_equal(mm_graph_steps(f.lowered->graph), RESNET20_LAYERS);
    for (int t = 0; t < mm_graph_tensors(f.lowered->graph); t++) {
        mm_tensor_kind kind = mm_graph_tensor(f.lowered->graph, t)->kind;
        assert_true(kind != MM_GRADIENT_MAP && kind != MM_WEIGHT_GRADIENT && kind != MM_OPTIMIZER && kind != MM_SAVED);
    }
    for (int i = 0; i < nets_net_params(f.net); i++)
        assert_int_equal(info(&f, nets_net_param(f.net, i)->name)->ownership, MM_PERSISTENT);
    assert_int_equal(use_of(&f, "bn1 forward", "bn1.running_mean")->access, MM_READ);
    assert_int_equal(pair_of(&f, "bn1 forward", "conv1.out", "bn1.out"), 'i');
    finish(&f);
}

/* 3 layers before the blocks, 9 blocks of 4, 2 projections of 2, 3 layers after. Of the two batch norms that a
 * projecting block adds, one is fused with the sum and the ReLU. */
enum { RESNET20_FUSED = 3 + 9 * 4 + 2 * 2 + 3 };

TEST_CASE(fused_layers_are_one_by_the_batch_norms_name) {
    fixture f;
    start(&f, "resnet20", 4, NETS_TRAIN);
    assert_int_equal(mm_graph_layers(f.lowered->graph), RESNET20_FUSED + 1);
    assert_int_equal(mm_graph_steps(f.lowered->graph), RESNET20_FUSED + (RESNET20_FUSED - 1) + 1);
    const mm_step_info *step = step_of(&f, "layer1.0.bn2 forward");
    assert_int_equal(mm_graph_layer(f.lowered->graph, step->layer)->kind, MM_LAYER_BATCH_NORM_RELU);
    assert_int_equal(use_of(&f, "layer1.0.bn2 forward", "layer1.0.conv2.out")->access, MM_READ);
    assert_int_equal(use_of(&f, "layer1.0.bn2 forward", "relu.out")->access, MM_READ);
    assert_int_equal(use_of(&f, "layer1.0.bn2 forward", "layer1.0.bn2.mean")->access, MM_WRITE);
    assert_int_equal(use_of(&f, "layer1.0.bn2 forward", "layer1.0.bn2.running_var")->access, MM_MODIFY);
    assert_int_equal(use_of(&f, "layer1.0.bn2 forward", "layer1.0.relu2.out")->access, MM_WRITE);
    static const char *const gone[] = {"layer1.0.bn1.out", "layer1.0.bn2.out", "layer1.0.add.out",
                                       "grad.layer1.0.bn2.out", "grad.layer1.0.add.out"};
    for (size_t i = 0; i < sizeof gone / sizeof gone[0]; i++) assert_int_equal(find(&f, gone[i]), -1);
    finish(&f);
}

TEST_CASE(fused_layers_give_both_gradients_and_need_signs_alone_of_their_output) {
    fixture f;
    start(&f, "resnet20", 4, NETS_TRAIN);
    const char *step = "layer1.1.bn2 backward";
    assert_int_equal(use_of(&f, step, "layer1.1.relu2.out")->form, MM_FORM_SIGN);
    assert_int_equal(use_of(&f, step, "layer1.1.conv2.out")->form, MM_FORM_VALUE);
    assert_int_equal(use_of(&f, step, "grad.layer1.1.relu2.out")->access, MM_READ);
    assert_int_equal(use_of(&f, step, "grad.layer1.1.conv2.out")->access, MM_WRITE);
    assert_int_equal(use_of(&f, step, "grad.layer1.0.relu2.out.1")->access, MM_WRITE);
    assert_int_equal(use_of(&f, "layer1.1.conv1 backward", "grad.layer1.0.relu2.out.1")->access, MM_READ);
    assert_int_equal(pair_of(&f, step, "grad.layer1.1.relu2.out", "grad.layer1.1.conv2.out"), 'i');
    assert_int_equal(pair_of(&f, "layer1.1.bn2 forward", "layer1.0.relu2.out", "layer1.1.relu2.out"), 'i');
    assert_int_equal(pair_of(&f, "layer1.1.bn2 forward", "layer1.1.conv2.out", "layer1.1.relu2.out"), '-');
    finish(&f);
    start(&f, "resnet20", 4, NETS_EVAL);
    assert_int_equal(mm_graph_steps(f.lowered->graph), RESNET20_FUSED);
    assert_int_equal(use_of(&f, "bn1 forward", "bn1.running_mean")->access, MM_READ);
    assert_int_equal(pair_of(&f, "layer1.1.bn2 forward", "layer1.1.conv2.out", "layer1.1.relu2.out"), 'i');
    finish(&f);
}

/* The gradient that the ReLU passes to the addend may be written over the map whose signs decide, or over the earlier
 * contribution. */
TEST_CASE(the_addends_gradient_may_take_the_outputs_place_or_that_of_an_earlier_one) {
    fixture f;
    start(&f, "resnet20", 4, NETS_TRAIN);
    assert_int_equal(pair_of(&f, "layer1.1.bn2 backward", "layer1.1.relu2.out", "grad.layer1.0.relu2.out.1"), 'i');
    finish(&f);
    assert_int_equal(nets_net_create("later", &f.net), MM_OK);
    const nets_attrs conv = {.out_channels = 4, .kernel = {1, 1}};
    int stem = nets_add1(f.net, "stem", NETS_CONV, &conv, nets_add_data(f.net, 4, 4, 3, 10));
    int norm = nets_add1(f.net, "norm", NETS_BATCH_NORM, NULL, nets_add1(f.net, "conv", NETS_CONV, &conv, stem));
    int sum = nets_add(f.net, "sum", NETS_ADD, NULL, (const int[]){norm, stem}, 2);
    int relu = nets_add1(f.net, "relu", NETS_RELU, NULL, sum);
    int end = nets_add(f.net, "end", NETS_ADD, NULL, (const int[]){relu, stem}, 2);
    nets_add1(f.net, "loss", NETS_LOSS, NULL,
              nets_add1(f.net, "fc", NETS_LINEAR, &(nets_attrs){.out_channels = 10}, end));
    assert_int_equal(nets_net_finish(f.net), MM_OK);
    assert_int_equal(nets_backend_open("host", NULL, &f.backend), MM_OK);
    assert_int_equal(
        nets_lower(f.net, f.backend, 2, &(nets_lowering){.mode = NETS_TRAIN, .optimizer = NETS_SGD}, &f.lowered),
        MM_OK);
    assert_int_equal(pair_of(&f, "norm backward", "relu.out", "grad.stem.out.2"), '-');
    assert_int_equal(pair_of(&f, "norm backward", "grad.stem.out.1", "grad.stem.out.2"), 'i');
    finish(&f);
}

TEST_CASE(a_map_that_a_layer_reads_twice_is_one_use_and_gets_one_gradient) {
    fixture f = {.net = ref_repeated_net(0.3f)};
    assert_int_equal(nets_backend_open("host", NULL, &f.backend), MM_OK);
    assert_int_equal(
        nets_lower(f.net, f.backend, 2, &(nets_lowering){.mode = NETS_TRAIN, .optimizer = NETS_SGD}, &f.lowered),
        MM_OK);
    assert_int_equal(step_of(&f, "twice forward")->n_uses, 2);
    assert_int_equal(step_of(&f, "twice backward")->n_uses, 3);
    assert_int_equal(use_of(&f, "twice backward", "grad.relu1.out.1")->access, MM_READ);
    assert_int_equal(use_of(&f, "twice backward", "grad.relu1.out")->access, MM_WRITE);
    assert_int_equal(step_of(&f, "twice backward")->n_pairs, 0);
    assert_int_equal(step_of(&f, "cat backward")->n_uses, 3);
    assert_int_equal(find(&f, "grad.twice.out.1"), -1);
    assert_int_equal(pair_of(&f, "with_dropped backward", "grad.with_dropped.out", "grad.drop.out"), 'a');
    finish(&f);
    f.net = ref_repeated_net(0.3f);
    assert_int_equal(nets_backend_open("host", NULL, &f.backend), MM_OK);
    assert_int_equal(
        nets_lower(f.net, f.backend, 2, &(nets_lowering){.mode = NETS_EVAL, .optimizer = NETS_SGD}, &f.lowered), MM_OK);
    assert_int_equal(step_of(&f, "with_dropped forward")->n_uses, 2);
    finish(&f);
}

TEST_CASE(a_fused_bias_is_the_relus) {
    static const nets_mode modes[] = {NETS_TRAIN, NETS_EVAL};
    for (size_t m = 0; m < 2; m++) {
        fixture f;
        start(&f, "tiny", 4, modes[m]);
        assert_int_equal(use_of(&f, "relu1 forward", "conv1.bias")->access, MM_READ);
        assert_int_equal(mm_graph_layer(f.lowered->graph, step_of(&f, "relu1 forward")->layer)->kind, MM_LAYER_RELU);
        assert_int_equal(step_of(&f, "conv1 forward")->n_uses, 3);
        if (modes[m] == NETS_TRAIN) {
            assert_int_equal(use_of(&f, "relu1 backward", "grad.conv1.bias")->access, MM_WRITE);
            assert_int_equal(pair_of(&f, "relu1 backward", "grad.relu1.out", "grad.conv1.out"), 'i');
        }
        assert_int_equal(pair_of(&f, "relu1 forward", "conv1.out", "relu1.out"), 'i');
        finish(&f);
    }
}

TEST_CASE(first_access_of_every_managed_tensor_is_a_write) {
    static const char *const nets[] = {"resnet20", "tiny"};
    for (size_t n = 0; n < 2; n++) {
        fixture f;
        start(&f, nets[n], 4, NETS_TRAIN);
        for (int t = 0; t < mm_graph_tensors(f.lowered->graph); t++) {
            const mm_tensor_info *tensor = mm_graph_tensor(f.lowered->graph, t);
            if (tensor->ownership != MM_MANAGED) continue;
            const mm_step_info *first = mm_graph_step(f.lowered->graph, tensor->first_use);
            for (int u = 0; u < first->n_uses; u++)
                if (first->uses[u].tensor == t) assert_int_equal(first->uses[u].access, MM_WRITE);
            assert_int_equal(tensor->writes, 1);
        }
        finish(&f);
    }
}

TEST_CASE(tensors_are_named_and_kept_as_documented) {
    fixture f;
    start(&f, "tiny", 4, NETS_TRAIN);
    static const struct {
        const char *name;
        mm_tensor_kind kind;
        mm_ownership ownership;
        mm_dtype dtype;
        int64_t bytes;
    } known[] = {
        {"images", MM_INPUT, MM_MANAGED, MM_F32, 4 * 32 * 32 * 3 * 4},
        {"labels", MM_INPUT, MM_MANAGED, MM_I32, 4 * 4},
        {"conv1.out", MM_FEATURE_MAP, MM_MANAGED, MM_F32, 4 * 32 * 32 * 8 * 4},
        {"maxpool.index", MM_SAVED, MM_MANAGED, MM_U8, 4 * 16 * 16 * 8 / 2},
        {"bn2.mean", MM_SAVED, MM_MANAGED, MM_F32, 16 * 4},
        {"bn2.var", MM_SAVED, MM_MANAGED, MM_F32, 16 * 4},
        {"bn2.running_var", MM_STATE, MM_PERSISTENT, MM_F32, 16 * 4},
        {"grad.relu1.out", MM_GRADIENT_MAP, MM_MANAGED, MM_F32, 4 * 32 * 32 * 8 * 4},
        {"conv1.bias", MM_WEIGHT, MM_PERSISTENT, MM_F32, 8 * 4},
        {"grad.conv1.weight", MM_WEIGHT_GRADIENT, MM_PERSISTENT, MM_F32, 8 * 3 * 25 * 4},
        {"momentum.fc.weight", MM_OPTIMIZER, MM_PERSISTENT, MM_F32, 10 * 256 * 4},
        {"loss", MM_STATE, MM_PERSISTENT, MM_F32, 4},
        {"correct", MM_STATE, MM_PERSISTENT, MM_I32, 4},
        {"rng", MM_STATE, MM_PERSISTENT, MM_I32, 4 * NETS_RNG_WORDS},
    };
    for (size_t i = 0; i < sizeof known / sizeof known[0]; i++) {
        const mm_tensor_info *tensor = info(&f, known[i].name);
        assert_int_equal(tensor->kind, known[i].kind);
        assert_int_equal(tensor->ownership, known[i].ownership);
        assert_int_equal(tensor->dtype, known[i].dtype);
        assert_int_equal(tensor->bytes, known[i].bytes);
    }
    finish(&f);
}

TEST_CASE(images_get_no_gradient) {
    fixture f;
    start(&f, "resnet20", 4, NETS_TRAIN);
    for (int t = 0; t < mm_graph_tensors(f.lowered->graph); t++)
        assert_null(strstr(mm_graph_tensor(f.lowered->graph, t)->name, "grad.data"));
    const mm_step_info *first = step_of(&f, "conv1 backward");
    for (int u = 0; u < first->n_uses; u++)
        assert_true(mm_graph_tensor(f.lowered->graph, first->uses[u].tensor)->kind != MM_GRADIENT_MAP ||
                    first->uses[u].access == MM_READ);
    finish(&f);
}

/* A block's input feeds its first convolution and its sum. The sum's backward runs first: its contribution is the
 * incoming gradient itself, to which the convolution adds its own. */
TEST_CASE(two_consumers_contribute_one_after_the_other) {
    fixture f;
    start_unfused(&f, "resnet20", 4, NETS_TRAIN);
    assert_int_equal(use_of(&f, "layer1.1.add backward", "grad.layer1.0.relu2.out.1")->access, MM_WRITE);
    assert_int_equal(pair_of(&f, "layer1.1.add backward", "grad.layer1.1.add.out", "grad.layer1.0.relu2.out.1"), 'a');
    assert_int_equal(pair_of(&f, "layer1.1.add backward", "grad.layer1.1.add.out", "grad.layer1.1.bn2.out"), 'a');
    assert_int_equal(use_of(&f, "layer1.1.conv1 backward", "grad.layer1.0.relu2.out.1")->access, MM_READ);
    assert_int_equal(use_of(&f, "layer1.1.conv1 backward", "grad.layer1.0.relu2.out")->access, MM_WRITE);
    assert_int_equal(use_of(&f, "layer1.0.relu2 backward", "grad.layer1.0.relu2.out")->access, MM_READ);
    assert_int_equal(find(&f, "grad.layer1.0.relu2.out.2"), -1);
    finish(&f);
}

TEST_CASE(relu_needs_only_the_sign_of_its_output) {
    fixture f;
    start_unfused(&f, "resnet20", 4, NETS_TRAIN);
    assert_int_equal(use_of(&f, "layer1.0.relu1 backward", "layer1.0.relu1.out")->form, MM_FORM_SIGN);
    assert_int_equal(use_of(&f, "layer1.0.conv2 backward", "layer1.0.relu1.out")->form, MM_FORM_VALUE);
    int sign_reads = 0;
    for (int s = 0; s < f.lowered->n_steps; s++) {
        const mm_step_info *step = mm_graph_step(f.lowered->graph, s);
        for (int u = 0; u < step->n_uses; u++) sign_reads += step->uses[u].form == MM_FORM_SIGN;
    }
    assert_int_equal(sign_reads, 19);
    finish(&f);
}

TEST_CASE(what_may_run_in_place_is_said) {
    fixture f;
    start_unfused(&f, "resnet20", 4, NETS_TRAIN);
    assert_int_equal(pair_of(&f, "relu forward", "bn1.out", "relu.out"), 'i');
    assert_int_equal(pair_of(&f, "relu backward", "grad.relu.out", "grad.bn1.out"), 'i');
    assert_int_equal(pair_of(&f, "bn1 backward", "grad.bn1.out", "grad.conv1.out"), 'i');
    assert_int_equal(pair_of(&f, "layer1.0.add forward", "layer1.0.bn2.out", "layer1.0.add.out"), 'i');
    assert_int_equal(pair_of(&f, "layer1.0.add forward", "relu.out", "layer1.0.add.out"), 'i');
    assert_int_equal(pair_of(&f, "loss backward", "loss.out", "grad.fc.out"), 'i');
    finish(&f);
    start_unfused(&f, "tiny", 4, NETS_TRAIN);
    assert_int_equal(pair_of(&f, "dropout forward", "relu2.out", "dropout.out"), 'i');
    assert_int_equal(pair_of(&f, "dropout backward", "grad.dropout.out", "grad.relu2.out"), 'i');
    finish(&f);
}

/* Lowers data - conv - (relu, conv2) - concat of relu, conv2 and conv - crop - fc. */
static void start_concat(fixture *f) {
    const nets_attrs conv = {.out_channels = 4, .kernel = {3, 3}, .pad = {1, 1}};
    assert_int_equal(nets_net_create("cat", &f->net), MM_OK);
    int data = nets_add_data(f->net, 8, 8, 3, 10);
    int x = nets_add1(f->net, "conv", NETS_CONV, &conv, data);
    int a = nets_add1(f->net, "relu", NETS_RELU, NULL, x), b = nets_add1(f->net, "conv2", NETS_CONV, &conv, a);
    int cat = nets_add(f->net, "cat", NETS_CONCAT, NULL, (const int[]){a, data, b, x}, 4);
    cat = nets_add1(f->net, "crop", NETS_CROP, &(nets_attrs){.out_size = {4, 4}, .center = true}, cat);
    cat = nets_add1(f->net, "fc", NETS_LINEAR, &(nets_attrs){.out_channels = 10}, cat);
    nets_add1(f->net, "loss", NETS_LOSS, NULL, cat);
    if (nets_net_finish(f->net) != MM_OK) fail_msg("%s", mm_last_error());
    assert_int_equal(nets_backend_open("host", NULL, &f->backend), MM_OK);
    if (nets_lower(f->net, f->backend, 2, &(nets_lowering){.mode = NETS_TRAIN, .optimizer = NETS_SGD}, &f->lowered) !=
        MM_OK)
        fail_msg("%s", mm_last_error());
}

TEST_CASE(concat_needs_no_map_in_its_backward_and_skips_the_images) {
    fixture f;
    start_concat(&f);
    assert_int_equal(step_of(&f, "cat forward")->n_uses, 5);
    const mm_step_info *backward = step_of(&f, "cat backward");
    assert_int_equal(backward->n_uses, 1 + 3);
    for (int u = 0; u < backward->n_uses; u++)
        assert_int_equal(mm_graph_tensor(f.lowered->graph, backward->uses[u].tensor)->kind, MM_GRADIENT_MAP);
    assert_int_equal(use_of(&f, "cat backward", "grad.relu.out.1")->access, MM_WRITE);
    assert_int_equal(use_of(&f, "cat backward", "grad.conv2.out")->access, MM_WRITE);
    assert_int_equal(use_of(&f, "cat backward", "grad.conv.out.1")->access, MM_WRITE);
    assert_int_equal(use_of(&f, "conv2 backward", "grad.relu.out.1")->access, MM_READ);
    assert_int_equal(mm_graph_layer(f.lowered->graph, backward->layer)->kind, MM_LAYER_CONCAT);
    finish(&f);
}

/* A concat that runs before its input's other consumer in the forward runs after it in the backward. */
TEST_CASE(later_slices_may_take_the_place_of_earlier_contributions) {
    fixture f;
    assert_int_equal(nets_net_create("late", &f.net), MM_OK);
    int data = nets_add_data(f.net, 4, 4, 3, 10);
    const nets_attrs conv = {.out_channels = 4, .kernel = {1, 1}};
    int a = nets_add1(f.net, "a", NETS_CONV, &conv, data), b = nets_add1(f.net, "b", NETS_CONV, &conv, data);
    int cat = nets_add(f.net, "cat", NETS_CONCAT, NULL, (const int[]){a, b}, 2);
    int crop = nets_add1(f.net, "crop", NETS_CROP, &(nets_attrs){.out_size = {4, 4}}, b);
    cat = nets_add(f.net, "cat2", NETS_CONCAT, NULL, (const int[]){cat, crop, b}, 3);
    cat = nets_add1(f.net, "fc", NETS_LINEAR, &(nets_attrs){.out_channels = 10}, cat);
    nets_add1(f.net, "loss", NETS_LOSS, NULL, cat);
    assert_int_equal(nets_net_finish(f.net), MM_OK);
    assert_int_equal(nets_backend_open("host", NULL, &f.backend), MM_OK);
    assert_int_equal(
        nets_lower(f.net, f.backend, 2, &(nets_lowering){.mode = NETS_TRAIN, .optimizer = NETS_SGD}, &f.lowered),
        MM_OK);
    assert_int_equal(pair_of(&f, "crop backward", "grad.b.out.1", "grad.b.out.2"), 'i');
    assert_int_equal(pair_of(&f, "cat backward", "grad.b.out.2", "grad.b.out"), 'i');
    assert_int_equal(step_of(&f, "cat backward")->n_pairs, 1);
    assert_int_equal(step_of(&f, "cat2 backward")->n_pairs, 0);
    finish(&f);
}

/* Of two convolutions of one input, the first in the forward adds its gradient last, and may do so in place. That
 * convolution may be a transposed one. */
TEST_CASE(a_convolutions_gradient_may_take_the_place_of_the_earlier_one) {
    for (int transposed = 0; transposed < 2; transposed++) {
        fixture f;
        assert_int_equal(nets_net_create("fork", &f.net), MM_OK);
        const nets_attrs conv = {.out_channels = 4, .kernel = {1, 1}};
        int a = nets_add1(f.net, "a", NETS_CONV, &conv, nets_add_data(f.net, 4, 4, 3, 10));
        int b = nets_add1(f.net, "b", transposed ? NETS_CONV_TRANSPOSE : NETS_CONV, &conv, a);
        int c = nets_add1(f.net, "c", NETS_CONV, &conv, a);
        int sum = nets_add(f.net, "sum", NETS_ADD, NULL, (const int[]){b, c}, 2);
        sum = nets_add1(f.net, "fc", NETS_LINEAR, &(nets_attrs){.out_channels = 10}, sum);
        nets_add1(f.net, "loss", NETS_LOSS, NULL, sum);
        assert_int_equal(nets_net_finish(f.net), MM_OK);
        assert_int_equal(nets_backend_open("host", NULL, &f.backend), MM_OK);
        assert_int_equal(
            nets_lower(f.net, f.backend, 2, &(nets_lowering){.mode = NETS_TRAIN, .optimizer = NETS_SGD}, &f.lowered),
            MM_OK);
        assert_int_equal(step_of(&f, "c backward")->n_pairs, 0);
        assert_int_equal(pair_of(&f, "b backward", "grad.a.out.1", "grad.a.out"), 'i');
        finish(&f);
    }
}

/* Of LRN's maps its backward reads only the input. (oneDNN's LRN would stash a map of its own.) */
TEST_CASE(normalisation_keeps_only_its_input) {
    fixture f;
    assert_int_equal(nets_net_create("lrn", &f.net), MM_OK);
    int x = nets_add_data(f.net, 4, 4, 3, 10);
    x = nets_add1(f.net, "conv", NETS_CONV, &(nets_attrs){.out_channels = 4, .kernel = {1, 1}}, x);
    x = nets_add1(f.net, "lrn", NETS_LRN, &(nets_attrs){.size = 5}, x);
    x = nets_add1(f.net, "up", NETS_UPSAMPLE, &(nets_attrs){.scale = {2, 2}}, x);
    x = nets_add1(f.net, "score", NETS_CONV_TRANSPOSE, &(nets_attrs){.out_channels = 10, .kernel = {1, 1}}, x);
    nets_add1(f.net, "loss", NETS_LOSS, NULL, x);
    assert_int_equal(nets_net_finish(f.net), MM_OK);
    assert_int_equal(nets_backend_open("host", NULL, &f.backend), MM_OK);
    assert_int_equal(
        nets_lower(f.net, f.backend, 2, &(nets_lowering){.mode = NETS_TRAIN, .optimizer = NETS_SGD}, &f.lowered),
        MM_OK);
    assert_int_equal(use_of(&f, "lrn backward", "conv.out")->access, MM_READ);
    assert_int_equal(pair_of(&f, "lrn backward", "grad.lrn.out", "grad.conv.out"), 'i');
    assert_int_equal(info(&f, "lrn.out")->first_backward, -1);
    assert_int_equal(step_of(&f, "up backward")->n_uses, 2);
    assert_int_equal(mm_graph_layer(f.lowered->graph, step_of(&f, "lrn forward")->layer)->kind, MM_LAYER_LRN);
    assert_int_equal(mm_graph_layer(f.lowered->graph, step_of(&f, "score forward")->layer)->kind, MM_LAYER_CONV);
    const mm_tensor_info *labels = info(&f, "labels");
    assert_int_equal(labels->rank, 3);
    assert_int_equal(labels->bytes, 2 * 8 * 8 * 4);
    finish(&f);
}

TEST_CASE(dropout_is_the_identity_in_evaluation) {
    fixture f;
    start(&f, "tiny", 4, NETS_EVAL);
    assert_int_equal(find(&f, "dropout.out"), -1);
    assert_int_equal(find(&f, "rng"), -1);
    assert_int_equal(use_of(&f, "avgpool forward", "relu2.out")->access, MM_READ);
    finish(&f);
}

TEST_CASE(equal_layers_share_one_op) {
    fixture small, large;
    start(&small, "resnet20", 4, NETS_TRAIN);
    start(&large, "resnet110", 4, NETS_TRAIN);
    assert_true(large.lowered->n_steps > 4 * small.lowered->n_steps);
    assert_int_equal(large.lowered->n_ops, small.lowered->n_ops);
    finish(&small);
    finish(&large);
}

TEST_CASE(batch_out_of_range_is_refused) {
    fixture f;
    assert_int_equal(nets_zoo_build("resnet20", &f.net), MM_OK);
    assert_int_equal(nets_backend_open("host", NULL, &f.backend), MM_OK);
    assert_int_equal(
        nets_lower(f.net, f.backend, 0, &(nets_lowering){.mode = NETS_TRAIN, .optimizer = NETS_SGD}, &f.lowered),
        MM_ERR_INVALID);
    assert_int_equal(nets_lower(f.net, f.backend, INT64_MAX / 2,
                                &(nets_lowering){.mode = NETS_TRAIN, .optimizer = NETS_SGD}, &f.lowered),
                     MM_ERR_INVALID);
    nets_backend_close(f.backend);
    nets_net_destroy(f.net);
}

TEST_CASE(unknown_device_has_no_backend) {
    nets_backend *backend;
    assert_int_equal(nets_backend_open("abacus", NULL, &backend), MM_ERR_NOT_FOUND);
    assert_non_null(strstr(mm_last_error(), "abacus"));
}

/* Each learned parameter has one gradient and one momentum, which name it as their weight; no other tensor names a
 * weight. */
TEST_CASE(gradients_and_momenta_belong_to_their_parameters) {
    fixture f;
    int weights = 0, of_weights = 0;
    start(&f, "resnet20", 2, NETS_TRAIN);
    for (int t = 0; t < mm_graph_tensors(f.lowered->graph); t++) {
        const mm_tensor_info *tensor = mm_graph_tensor(f.lowered->graph, t);
        char name[256];
        weights += tensor->kind == MM_WEIGHT;
        if (tensor->kind != MM_WEIGHT_GRADIENT && tensor->kind != MM_OPTIMIZER) {
            assert_int_equal(tensor->weight, -1);
            continue;
        }
        const mm_tensor_info *weight = mm_graph_tensor(f.lowered->graph, tensor->weight);
        const bool gradient = tensor->kind == MM_WEIGHT_GRADIENT;
        snprintf(name, sizeof name, "%s.%s", gradient ? "grad" : "momentum", weight->name);
        assert_string_equal(tensor->name, name);
        if (gradient) assert_int_equal(weight->gradient, t);
        of_weights++;
    }
    assert_int_equal(of_weights, 2 * weights);
    finish(&f);
}

/* So a policy's rules find every layer of a net by name: also layers that are fused into others, and dropouts in
 * evaluation. */
TEST_CASE(every_layer_of_a_net_is_a_layer_of_the_graph_or_a_part_of_one) {
    static const char *const nets[] = {"resnet20", "alexnet-2012"};
    for (int i = 0; i < 4; i++) {
        fixture f;
        int parts = 0, found = 0;
        start(&f, nets[i / 2], 2, i % 2 ? NETS_EVAL : NETS_TRAIN);
        for (int l = 0; l < mm_graph_layers(f.lowered->graph); l++) {
            const mm_layer_info *layer = mm_graph_layer(f.lowered->graph, l);
            for (int n = 0; n < nets_net_layers(f.net); n++) {
                const char *name = nets_net_layer(f.net, n)->name;
                found += strcmp(layer->name, name) == 0;
                for (int p = 0; p < layer->n_parts; p++) found += strcmp(layer->parts[p], name) == 0;
            }
            parts += layer->n_parts;
        }
        assert_int_equal(found, nets_net_layers(f.net));
        assert_true((parts > 0) == (i != 2)); /* AlexNet in training: nothing is fused, dropouts are steps */
        finish(&f);
    }
}

/* Name of the tensor that has this role in the layer's step; "": none. */
static const char *role_of(const fixture *f, const char *layer, mm_phase phase, nets_role role) {
    for (int s = 0; s < f->lowered->n_steps; s++) {
        const nets_step *step = &f->lowered->steps[s];
        if (step->phase != phase || strcmp(mm_graph_layer(f->lowered->graph, step->graph_layer)->name, layer) != 0)
            continue;
        return step->tensors[role] < 0 ? "" : mm_graph_tensor(f->lowered->graph, step->tensors[role])->name;
    }
    fail_msg("no layer %s", layer);
    return NULL;
}

TEST_CASE(products_of_bf16_maps_read_the_copies_of_weights_that_the_update_writes) {
    static const char *const nets[] = {"tiny", "gpt,layers=1,width=8,heads=2,context=4"};
    static const struct {
        const char *layer, *factor, *weight;
    } known[] = {{"conv1", "bf16.conv1.weight", ""}, {"bn2", "", "bn2.weight"}, {"fc", "bf16.fc.weight", ""},
                 {"loss", "bf16.wte.weight", ""},    {"wte", "", "wte.weight"}, {"h.0.ln_1", "", "h.0.ln_1.weight"}};
    for (int n = 0; n < 4; n++) {
        fixture f;
        int copies = 0;
        start_with(&f, nets[n / 2], 2, NETS_BF16,
                   (nets_lowering){.mode = n % 2 ? NETS_EVAL : NETS_TRAIN, .optimizer = NETS_SGD});
        for (int i = 0; i < 3; i++) {
            const int k = n / 2 * 3 + i;
            assert_string_equal(role_of(&f, known[k].layer, MM_FORWARD, NETS_W16), known[k].factor);
            assert_string_equal(role_of(&f, known[k].layer, MM_FORWARD, NETS_W), known[k].weight);
        }
        for (int i = 0; i < nets_net_params(f.net); i++) {
            const nets_param_tensors *p = &f.lowered->params[i];
            if (p->copy < 0) continue;
            const mm_tensor_info *copy = mm_graph_tensor(f.lowered->graph, p->copy);
            copies++;
            assert_true(copy->kind == MM_WEIGHT && copy->ownership == MM_PERSISTENT && copy->dtype == MM_BF16);
            assert_int_equal(2 * copy->bytes, mm_graph_tensor(f.lowered->graph, p->value)->bytes);
            if (n % 2 == 0) assert_int_equal(use_of(&f, "sgd update", copy->name)->access, MM_MODIFY);
        }
        assert_int_equal(copies, n < 2 ? 3 : 5); /* conv1, conv2, fc; wte, and four projections */
        finish(&f);
    }
}

/* A backend for planning alone lowers nets to the same steps, with the same workspaces. */
TEST_CASE(a_backend_for_planning_alone_tells_the_same_needs) {
    static const char *const nets[] = {"tiny", "mobilenet_v2", "googlenet", "unet", "gpt,layers=1"};
    for (size_t n = 0; n < 2 * sizeof nets / sizeof *nets; n++) {
        const nets_backend_config config = {.threads = n % 2 ? 7 : 1, .plans_only = true};
        const nets_lowering how = {.mode = NETS_TRAIN, .optimizer = NETS_SGD};
        fixture runs, plans;
        assert_int_equal(nets_zoo_build(nets[n / 2], &runs.net), MM_OK);
        assert_int_equal(nets_zoo_build(nets[n / 2], &plans.net), MM_OK);
        assert_int_equal(nets_backend_open("host", &(nets_backend_config){.threads = config.threads}, &runs.backend),
                         MM_OK);
        assert_int_equal(nets_backend_open("host", &config, &plans.backend), MM_OK);
        if (nets_lower(runs.net, runs.backend, 5, &how, &runs.lowered) != MM_OK) fail_msg("%s", mm_last_error());
        if (nets_lower(plans.net, plans.backend, 5, &how, &plans.lowered) != MM_OK) fail_msg("%s", mm_last_error());
        assert_int_equal(runs.lowered->n_steps, plans.lowered->n_steps);
        for (int s = 0; s < runs.lowered->n_steps; s++)
            assert_int_equal(mm_graph_step(runs.lowered->graph, s)->workspace_bytes,
                             mm_graph_step(plans.lowered->graph, s)->workspace_bytes);
        finish(&runs);
        finish(&plans);
    }
}
