/* SPDX-License-Identifier: MIT */
/* Inception-v4, Szegedy et al. 2016, figures 3 to 9: 299x299. Layers are named as in the widespread port of its
 * published weights (timm's inception_v4): features.0 to features.21, last_linear. Dropout of 0.2 before the classifier
 * is the paper's ("keep 0.8"). */
#include "nets/zoo/layers.h"

/* VALID: no padding. SAME: padded to keep the map's size. HALVE: VALID with stride 2. */
typedef enum fit { VALID, SAME, HALVE } fit;

/* A convolution with batch norm and ReLU. */
typedef struct unit {
    int64_t channels, height, width; /* of the kernel */
    fit fit;
} unit;

static int add_unit(const zoo *z, const char *name, unit u, int input) {
    int64_t stride = u.fit == HALVE ? 2 : 1;
    const nets_attrs attrs = {.out_channels = u.channels,
                              .kernel = {u.height, u.width},
                              .stride = {stride, stride},
                              .pad = {u.fit == SAME ? u.height / 2 : 0, u.fit == SAME ? u.width / 2 : 0}};
    int x = zoo_layer(z, zoo_namef("%s.conv", name).text, NETS_CONV, attrs, input);
    x = nets_add1(z->net, zoo_namef("%s.bn", name).text, NETS_BATCH_NORM, &(nets_attrs){.eps = 1e-3f}, x);
    return zoo_relu(z, zoo_namef("%s.relu", name).text, x);
}

enum { UNITS = 6 };

/* A chain of units, called <block>.branch<i>.<at>, .<at + 1>, ...; a unit of no channels ends the list. */
static int chain(const zoo *z, const char *block, int i, int at, const unit units[UNITS], int input) {
    int x = input;
    for (int k = 0; k < UNITS && units[k].channels; k++)
        x = add_unit(z, zoo_namef("%s.branch%d.%d", block, i, at + k).text, units[k], x);
    return x;
}

static int narrow(const zoo *z, const char *name, int input) {
    return zoo_max_pool(z, name, (zoo_window){3, 2, 0}, input);
}

/* The branch with an average pool over 3x3 and a 1x1 convolution. */
static int averaged(const zoo *z, const char *block, int64_t channels, int input) {
    const nets_attrs attrs = {.kernel = {3, 3}, .stride = {1, 1}, .pad = {1, 1}, .exclude_pad = true};
    int x = nets_add1(z->net, zoo_namef("%s.branch3.0", block).text, NETS_AVG_POOL, &attrs, input);
    return add_unit(z, zoo_namef("%s.branch3.1", block).text, (unit){channels, 1, 1, VALID}, x);
}

static int join(const zoo *z, const char *block, const int *branches, int n) {
    return zoo_concat(z, zoo_namef("%s.cat", block).text, branches, n);
}

static int stem(const zoo *z, int x) {
    x = add_unit(z, "features.0", (unit){32, 3, 3, HALVE}, x);
    x = add_unit(z, "features.1", (unit){32, 3, 3, VALID}, x);
    x = add_unit(z, "features.2", (unit){64, 3, 3, SAME}, x);
    const int mixed3[] = {narrow(z, "features.3.maxpool", x),
                          add_unit(z, "features.3.conv", (unit){96, 3, 3, HALVE}, x)};
    x = join(z, "features.3", mixed3, 2);
    const int mixed4[] = {
        chain(z, "features.4", 0, 0, (const unit[UNITS]){{64, 1, 1, VALID}, {96, 3, 3, VALID}}, x),
        chain(z, "features.4", 1, 0,
              (const unit[UNITS]){{64, 1, 1, VALID}, {64, 1, 7, SAME}, {64, 7, 1, SAME}, {96, 3, 3, VALID}}, x)};
    x = join(z, "features.4", mixed4, 2);
    const int mixed5[] = {add_unit(z, "features.5.conv", (unit){192, 3, 3, HALVE}, x),
                          narrow(z, "features.5.maxpool", x)};
    return join(z, "features.5", mixed5, 2);
}

static int inception_a(const zoo *z, const char *name, int x) {
    const unit three = {96, 3, 3, SAME};
    const int branches[] = {add_unit(z, zoo_namef("%s.branch0", name).text, (unit){96, 1, 1, VALID}, x),
                            chain(z, name, 1, 0, (const unit[UNITS]){{64, 1, 1, VALID}, three}, x),
                            chain(z, name, 2, 0, (const unit[UNITS]){{64, 1, 1, VALID}, three, three}, x),
                            averaged(z, name, 96, x)};
    return join(z, name, branches, 4);
}

static int reduction_a(const zoo *z, const char *name, int x) {
    const int branches[] = {
        add_unit(z, zoo_namef("%s.branch0", name).text, (unit){384, 3, 3, HALVE}, x),
        chain(z, name, 1, 0, (const unit[UNITS]){{192, 1, 1, VALID}, {224, 3, 3, SAME}, {256, 3, 3, HALVE}}, x),
        narrow(z, zoo_namef("%s.branch2", name).text, x)};
    return join(z, name, branches, 3);
}

static int inception_b(const zoo *z, const char *name, int x) {
    const int branches[] = {
        add_unit(z, zoo_namef("%s.branch0", name).text, (unit){384, 1, 1, VALID}, x),
        chain(z, name, 1, 0, (const unit[UNITS]){{192, 1, 1, VALID}, {224, 1, 7, SAME}, {256, 7, 1, SAME}}, x),
        chain(z, name, 2, 0,
              (const unit[UNITS]){
                  {192, 1, 1, VALID}, {192, 7, 1, SAME}, {224, 1, 7, SAME}, {224, 7, 1, SAME}, {256, 1, 7, SAME}},
              x),
        averaged(z, name, 128, x)};
    return join(z, name, branches, 4);
}

static int reduction_b(const zoo *z, const char *name, int x) {
    const int branches[] = {
        chain(z, name, 0, 0, (const unit[UNITS]){{192, 1, 1, VALID}, {192, 3, 3, HALVE}}, x),
        chain(z, name, 1, 0,
              (const unit[UNITS]){{256, 1, 1, VALID}, {256, 1, 7, SAME}, {320, 7, 1, SAME}, {320, 3, 3, HALVE}}, x),
        narrow(z, zoo_namef("%s.branch2", name).text, x)};
    return join(z, name, branches, 3);
}

/* The end of two branches of inception_c, which part into a 1x3 and a 3x1 convolution. */
static int parted(const zoo *z, const char *branch, int at, int x) {
    const int parts[] = {add_unit(z, zoo_namef("%s_%da", branch, at).text, (unit){256, 1, 3, SAME}, x),
                         add_unit(z, zoo_namef("%s_%db", branch, at).text, (unit){256, 3, 1, SAME}, x)};
    return join(z, branch, parts, 2);
}

static int inception_c(const zoo *z, const char *name, int x) {
    int branches[4] = {add_unit(z, zoo_namef("%s.branch0", name).text, (unit){256, 1, 1, VALID}, x)};
    int first = add_unit(z, zoo_namef("%s.branch1_0", name).text, (unit){384, 1, 1, VALID}, x);
    branches[1] = parted(z, zoo_namef("%s.branch1", name).text, 1, first);
    int second = add_unit(z, zoo_namef("%s.branch2_0", name).text, (unit){384, 1, 1, VALID}, x);
    second = add_unit(z, zoo_namef("%s.branch2_1", name).text, (unit){448, 3, 1, SAME}, second);
    second = add_unit(z, zoo_namef("%s.branch2_2", name).text, (unit){512, 1, 3, SAME}, second);
    branches[2] = parted(z, zoo_namef("%s.branch2", name).text, 3, second);
    branches[3] = averaged(z, name, 256, x);
    return join(z, name, branches, 4);
}

void zoo_build_inception_v4(const zoo *z, const int numbers[ZOO_NUMBERS]) {
    const struct {
        int (*build)(const zoo *z, const char *name, int x);
        int times;
    } blocks[] = {{inception_a, numbers[0]},
                  {reduction_a, 1},
                  {inception_b, numbers[1]},
                  {reduction_b, 1},
                  {inception_c, numbers[2]}};
    int x = stem(z, zoo_data(z, 3)), at = 6;
    for (size_t b = 0; b < sizeof blocks / sizeof blocks[0]; b++)
        for (int i = 0; i < blocks[b].times; i++) x = blocks[b].build(z, zoo_namef("features.%d", at++).text, x);
    x = zoo_dropout(z, "head_drop", 0.2f, zoo_global_pool(z, "global_pool", x));
    zoo_classify(z, "last_linear", x);
}
