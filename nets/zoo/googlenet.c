/* SPDX-License-Identifier: MIT */
/* GoogLeNet (Inception v1), Szegedy et al. 2014, as torchvision's: with batch norm, the paper's 5x5 convolutions being
 * 3x3 (torchvision's known difference), and without the auxiliary classifiers, as its published weights are. */
#include "nets/zoo/layers.h"

static int unit(const zoo *z, const char *name, int64_t channels, zoo_window window, int input) {
    int x = zoo_conv_bare(z, zoo_namef("%s.conv", name).text, channels, window, input);
    x = nets_add1(z->net, zoo_namef("%s.bn", name).text, NETS_BATCH_NORM, &(nets_attrs){.eps = 1e-3f}, x);
    return zoo_relu(z, zoo_namef("%s.relu", name).text, x);
}

/* Channels of one inception module's branches. */
typedef struct inception {
    const char *name;
    int64_t ch1x1, reduce3, ch3x3, reduce5, ch5x5, pool;
} inception;

static int build_inception(const zoo *z, const inception *m, int input) {
    const zoo_window point = {1, 1, 0}, same = {3, 1, 1};
    int branches[4];
    branches[0] = unit(z, zoo_namef("%s.branch1", m->name).text, m->ch1x1, point, input);
    int x = unit(z, zoo_namef("%s.branch2.0", m->name).text, m->reduce3, point, input);
    branches[1] = unit(z, zoo_namef("%s.branch2.1", m->name).text, m->ch3x3, same, x);
    x = unit(z, zoo_namef("%s.branch3.0", m->name).text, m->reduce5, point, input);
    branches[2] = unit(z, zoo_namef("%s.branch3.1", m->name).text, m->ch5x5, same, x);
    x = zoo_max_pool_ceil(z, zoo_namef("%s.branch4.0", m->name).text, same, input);
    branches[3] = unit(z, zoo_namef("%s.branch4.1", m->name).text, m->pool, point, x);
    return zoo_concat(z, zoo_namef("%s.cat", m->name).text, branches, 4);
}

/* Stages of modules, each but the last followed by a pool of this kernel and stride 2. */
typedef struct stage {
    inception modules[5];
    const char *pool;
    int64_t kernel;
} stage;

static const stage STAGES[] = {
    {{{"inception3a", 64, 96, 128, 16, 32, 32}, {"inception3b", 128, 128, 192, 32, 96, 64}}, "maxpool3", 3},
    {{{"inception4a", 192, 96, 208, 16, 48, 64},
      {"inception4b", 160, 112, 224, 24, 64, 64},
      {"inception4c", 128, 128, 256, 24, 64, 64},
      {"inception4d", 112, 144, 288, 32, 64, 64},
      {"inception4e", 256, 160, 320, 32, 128, 128}},
     "maxpool4",
     2},
    {{{"inception5a", 256, 160, 320, 32, 128, 128}, {"inception5b", 384, 192, 384, 48, 128, 128}}, NULL, 0},
};

void zoo_build_googlenet(const zoo *z, const int numbers[ZOO_NUMBERS]) {
    (void)numbers;
    const zoo_window halve = {3, 2, 0};
    int x = zoo_data(z, 3);
    x = unit(z, "conv1", 64, (zoo_window){7, 2, 3}, x);
    x = zoo_max_pool_ceil(z, "maxpool1", halve, x);
    x = unit(z, "conv2", 64, (zoo_window){1, 1, 0}, x);
    x = unit(z, "conv3", 192, (zoo_window){3, 1, 1}, x);
    x = zoo_max_pool_ceil(z, "maxpool2", halve, x);
    for (size_t s = 0; s < sizeof STAGES / sizeof STAGES[0]; s++) {
        const stage *stage = &STAGES[s];
        for (int m = 0; m < 5 && stage->modules[m].name; m++) x = build_inception(z, &stage->modules[m], x);
        if (stage->pool) x = zoo_max_pool_ceil(z, stage->pool, (zoo_window){stage->kernel, 2, 0}, x);
    }
    x = zoo_dropout(z, "dropout", 0.2f, zoo_global_pool(z, "avgpool", x));
    zoo_classify(z, "fc", x);
}
