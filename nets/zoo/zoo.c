/* SPDX-License-Identifier: MIT */
#include "nets/zoo/zoo.h"

#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include "mm/core/nearest.h"
#include "mm/core/number.h"
#include "mm/core/text.h"
#include "nets/zoo/layers.h"

/* ",name=number" behind a name, at most once. */
typedef struct zoo_option {
    const char *name, *metavar;
    size_t offset; /* in struct zoo */
    long least, most;
    bool real; /* a real number from `least` to below `most`; else a whole one from `least` to `most` */
} zoo_option;

typedef struct zoo_entry {
    const char *name, *summary;
    zoo_builder *build;
    int numbers[ZOO_NUMBERS];
    /* size: the input's height and width; 0: a network of tokens, whose layers, width, heads, context and vocabulary
     * are `numbers`; behind them, a Llama's kv_heads and hidden. */
    int64_t size, classes;
    /* For a family: reads what follows the name up to its '<'. */
    bool (*parse)(const char *rest, int numbers_out[ZOO_NUMBERS]);
} zoo_entry;

enum { MAX_DEPTH = 12002, MAX_BLOCKS = 4096, MAX_SIZE = 1 << 16, MAX_THIN = 4096, MAX_CLASSES = 1 << 24 };
enum { MAX_TOKEN_LAYERS = 1024, MAX_WIDTH = 1 << 16, MAX_CONTEXT = 1 << 20 };

static const zoo_option IMAGE_OPTIONS[] = {{"classes", "K", offsetof(zoo, classes), 1, MAX_CLASSES, false},
                                           {"thin", "T", offsetof(zoo, thin), 1, MAX_THIN, false},
                                           {.name = NULL}};

static const zoo_option TOKEN_OPTIONS[] = {{"layers", "N", offsetof(zoo, layers), 1, MAX_TOKEN_LAYERS, false},
                                           {"width", "N", offsetof(zoo, tokens_width), 1, MAX_WIDTH, false},
                                           {"heads", "N", offsetof(zoo, heads), 1, MAX_WIDTH, false},
                                           {"context", "N", offsetof(zoo, context), 1, MAX_CONTEXT, false},
                                           {"vocabulary", "N", offsetof(zoo, vocabulary), 1, MAX_CLASSES, false},
                                           {"dropout", "P", offsetof(zoo, dropout), 0, 1, true},
                                           {.name = NULL}};

static const zoo_option LLAMA_OPTIONS[] = {{"layers", "N", offsetof(zoo, layers), 1, MAX_TOKEN_LAYERS, false},
                                           {"width", "N", offsetof(zoo, tokens_width), 1, MAX_WIDTH, false},
                                           {"heads", "N", offsetof(zoo, heads), 1, MAX_WIDTH, false},
                                           {"kv_heads", "N", offsetof(zoo, kv_heads), 1, MAX_WIDTH, false},
                                           {"hidden", "N", offsetof(zoo, hidden), 1, MAX_WIDTH, false},
                                           {"context", "N", offsetof(zoo, context), 1, MAX_CONTEXT, false},
                                           {"vocabulary", "N", offsetof(zoo, vocabulary), 1, MAX_CLASSES, false},
                                           {.name = NULL}};

/* Reads a number in [low, high], without sign or leading zeros, and moves `at` behind it; -1 if there is none. */
static long read_number(const char **at, long low, long high) {
    if (**at < '1' || **at > '9') return -1;
    long number = 0;
    for (; **at >= '0' && **at <= '9'; ++*at) {
        number = number * 10 + (**at - '0');
        if (number > high) return -1;
    }
    return number < low ? -1 : number;
}

/* Reads a depth of per_block * n + 2 as n. */
static bool parse_depth(const char *rest, int per_block, int numbers_out[ZOO_NUMBERS]) {
    long depth = read_number(&rest, per_block + 2, MAX_DEPTH);
    if (depth < 0 || *rest || (depth - 2) % per_block) return false;
    numbers_out[0] = (int)(depth - 2) / per_block;
    return true;
}

static bool parse_basic_depth(const char *rest, int numbers_out[ZOO_NUMBERS]) {
    return parse_depth(rest, 6, numbers_out);
}

static bool parse_bottleneck_depth(const char *rest, int numbers_out[ZOO_NUMBERS]) {
    return parse_depth(rest, 9, numbers_out);
}

/* Reads the blocks of one to six stages: "3,4,6,3", or "3-4-6-3" where commas separate networks. */
static bool parse_stages(const char *rest, int numbers_out[ZOO_NUMBERS]) {
    for (int stage = 0; stage < 6; stage++) {
        long blocks = read_number(&rest, 1, MAX_BLOCKS);
        if (blocks < 0) return false;
        numbers_out[stage] = (int)blocks;
        if (!*rest) return true;
        if (*rest != ',' && *rest != '-') return false;
        rest++;
    }
    return false;
}

static bool parse_three(const char *rest, int numbers_out[ZOO_NUMBERS]) {
    return parse_stages(rest, numbers_out) && numbers_out[2] && !numbers_out[3];
}

/* clang-format off */
static const zoo_entry ZOO[] = {
    {"alexnet", "torchvision's AlexNet; 224x224x3 and 1000 classes, if not said below",
     zoo_build_alexnet, {0}, 224, 1000, NULL},
    {"alexnet-2012", "AlexNet as first published: groups, LRN, 227x227", zoo_build_alexnet_2012, {0}, 227, 1000, NULL},
    {"vgg11", "VGG-11 (A)", zoo_build_vgg, {1, 1, 2, 2, 2}, 224, 1000, NULL},
    {"vgg13", "VGG-13 (B)", zoo_build_vgg, {2, 2, 2, 2, 2}, 224, 1000, NULL},
    {"vgg16", "VGG-16 (D)", zoo_build_vgg, {2, 2, 3, 3, 3}, 224, 1000, NULL},
    {"vgg19", "VGG-19 (E)", zoo_build_vgg, {2, 2, 4, 4, 4}, 224, 1000, NULL},
    {"vgg101", "VGG-16 with 17 more convolutions in each group", zoo_build_vgg, {19, 19, 20, 20, 20}, 224, 1000, NULL},
    {"resnet18", "ResNet-18", zoo_build_resnet, {2, 2, 2, 2}, 224, 1000, NULL},
    {"resnet34", "ResNet-34", zoo_build_resnet, {3, 4, 6, 3}, 224, 1000, NULL},
    {"resnet50", "ResNet-50", zoo_build_resnet_bottleneck, {3, 4, 6, 3}, 224, 1000, NULL},
    {"resnet101", "ResNet-101", zoo_build_resnet_bottleneck, {3, 4, 23, 3}, 224, 1000, NULL},
    {"resnet152", "ResNet-152", zoo_build_resnet_bottleneck, {3, 8, 36, 3}, 224, 1000, NULL},
    {"resnet256", "bottleneck stages of 3, 16, 62, 3", zoo_build_resnet_bottleneck, {3, 16, 62, 3}, 224, 1000, NULL},
    {"resnet-bottleneck:<a,b,c,d>", "a bottleneck ResNet of any blocks a stage, as 3,4,6,3 (or 3-4-6-3)",
     zoo_build_resnet_bottleneck, {0}, 224, 1000, parse_stages},
    {"nin", "Network in network", zoo_build_nin, {0}, 224, 1000, NULL},
    {"nin-cifar", "Network in network, 32x32x3, 10 classes", zoo_build_nin_cifar, {0}, 32, 10, NULL},
    {"overfeat", "OverFeat, the fast one, 231x231", zoo_build_overfeat, {0}, 231, 1000, NULL},
    {"googlenet", "GoogLeNet (Inception v1) with batch norm", zoo_build_googlenet, {0}, 224, 1000, NULL},
    {"inception-v4", "Inception-v4, 299x299", zoo_build_inception_v4, {4, 7, 3}, 299, 1000, NULL},
    {"inception-v4:<a,b,c>", "the same with this many blocks A, B and C, as 4,7,3", zoo_build_inception_v4, {0}, 299,
     1000, parse_three},
    {"squeezenet1_0", "SqueezeNet 1.0", zoo_build_squeezenet, {0}, 224, 1000, NULL},
    {"densenet121", "DenseNet-121", zoo_build_densenet, {6, 12, 24, 16}, 224, 1000, NULL},
    {"mobilenet_v2", "MobileNetV2", zoo_build_mobilenet_v2, {0}, 224, 1000, NULL},
    {"efficientnet_b0", "EfficientNet-B0", zoo_build_efficientnet_b0, {0}, 224, 1000, NULL},
    {"vit_b_16", "ViT-B/16, the vision transformer", zoo_build_vit, {12, 768, 12, 16}, 224, 1000, NULL},
    {"fcn8s-vgg16", "FCN-8s on VGG-16: 21 classes for each pixel", zoo_build_fcn8s, {0}, 224, 21, NULL},
    {"unet", "U-Net, 572x572x1: 2 classes for each of 388x388 pixels", zoo_build_unet, {0}, 572, 2, NULL},
    {"resnet20", "CIFAR ResNet of depth 20, 32x32x3, 10 classes", zoo_build_resnet_cifar, {3}, 32, 10, NULL},
    {"resnet32", "CIFAR ResNet of depth 32", zoo_build_resnet_cifar, {5}, 32, 10, NULL},
    {"resnet44", "CIFAR ResNet of depth 44", zoo_build_resnet_cifar, {7}, 32, 10, NULL},
    {"resnet56", "CIFAR ResNet of depth 56", zoo_build_resnet_cifar, {9}, 32, 10, NULL},
    {"resnet110", "CIFAR ResNet of depth 110", zoo_build_resnet_cifar, {18}, 32, 10, NULL},
    {"resnet1202", "CIFAR ResNet of depth 1202", zoo_build_resnet_cifar, {200}, 32, 10, NULL},
    {"resnet509", "CIFAR ResNet of 56 bottlenecks a stage: 9n + 5, projections counted",
     zoo_build_resnet_cifar_bottleneck, {56}, 32, 10, NULL},
    {"resnet851", "CIFAR ResNet of 94 bottlenecks a stage", zoo_build_resnet_cifar_bottleneck, {94}, 32, 10, NULL},
    {"cifar-resnet<6n+2>", "CIFAR ResNet of any depth 6n + 2 from 8 to 12002", zoo_build_resnet_cifar, {0}, 32, 10,
     parse_basic_depth},
    {"resnet<6n+2>", "the same, but for the names above", zoo_build_resnet_cifar, {0}, 32, 10, parse_basic_depth},
    {"cifar-resnet-bottleneck<9n+2>", "CIFAR ResNet of bottlenecks, of any depth 9n + 2",
     zoo_build_resnet_cifar_bottleneck, {0}, 32, 10, parse_bottleneck_depth},
    {"gpt", "4 layers of GPT-2, width 128, 4 heads, context 128, 256 tokens",
     zoo_build_gpt, {4, 128, 4, 128, 256}, 0, 0, NULL},
    {"gpt2", "GPT-2 as published: 12 layers, width 768, 12 heads, context 1024", zoo_build_gpt,
     {12, 768, 12, 1024, 50257}, 0, 0, NULL},
    {"llama-15m", "a small Llama: 6 layers, width 288, 6 heads, context 256, 32000 tokens", zoo_build_llama,
     {6, 288, 6, 256, 32000, 6, 768, 10000, true}, 0, 0, NULL},
    {"llama-110m", "12 layers, width 768, 12 heads, context 1024", zoo_build_llama,
     {12, 768, 12, 1024, 32000, 12, 2048, 10000, true}, 0, 0, NULL},
    {"llama-1b", "Llama 3.2 1B: 16 layers, width 2048, 32 heads, 8 of keys", zoo_build_llama,
     {16, 2048, 32, 2048, 128256, 8, 8192, 500000, true}, 0, 0, NULL},
    {"llama-3b", "Llama 3.2 3B: 28 layers, width 3072, 24 heads, 8 of keys", zoo_build_llama,
     {28, 3072, 24, 2048, 128256, 8, 8192, 500000, true}, 0, 0, NULL},
    {"llama-8b", "Llama 3 8B: 32 layers, width 4096, 32 heads, 8 of keys", zoo_build_llama,
     {32, 4096, 32, 2048, 128256, 8, 14336, 500000, false}, 0, 0, NULL},
    {"tiny", "a little of everything, 32x32x3, 10 classes", zoo_build_tiny, {0}, 32, 10, NULL},
};
/* clang-format on */

enum { ZOO_ENTRIES = sizeof ZOO / sizeof ZOO[0] };

const char *nets_zoo_list(size_t i, const char **summary_out) {
    if (i >= ZOO_ENTRIES) return NULL;
    if (summary_out) *summary_out = ZOO[i].summary;
    return ZOO[i].name;
}

/* The entry of that name, else the first family that has it. */
static const zoo_entry *find(const char *name, int numbers_out[ZOO_NUMBERS]) {
    for (size_t i = 0; i < ZOO_ENTRIES; i++) {
        if (ZOO[i].parse || strcmp(ZOO[i].name, name) != 0) continue;
        memcpy(numbers_out, ZOO[i].numbers, sizeof ZOO[i].numbers);
        return &ZOO[i];
    }
    for (size_t i = 0; i < ZOO_ENTRIES; i++) {
        size_t prefix = strcspn(ZOO[i].name, "<");
        memset(numbers_out, 0, sizeof ZOO[i].numbers);
        if (ZOO[i].parse && strncmp(ZOO[i].name, name, prefix) == 0 && ZOO[i].parse(name + prefix, numbers_out))
            return &ZOO[i];
    }
    return NULL;
}

/* With a name that may have been meant, the list of all is left out: it is long. */
static mm_status not_found(const char *name) {
    char list[1024];
    size_t at = 0;
    mm_nearest near = {.text = name, .length = strlen(name)};
    for (size_t i = 0; i < ZOO_ENTRIES; i++) {
        if (ZOO[i].parse) continue;
        int n = snprintf(list + at, sizeof list - at, "%s%s", i ? ", " : "", ZOO[i].name);
        if (n > 0 && at + (size_t)n < sizeof list) at += (size_t)n;
        mm_nearest_try(&near, ZOO[i].name);
    }
    return mm_fail(MM_ERR_NOT_FOUND, "no net %s%s; %s%s%s", MM_BRIEF(name), MM_DID_YOU_MEAN(&near),
                   near.found ? "'mm nets' lists them" : "there are ", near.found ? "" : list,
                   near.found ? "" : ", and families ('mm nets')");
}

/* ---------------------------------------------------------------- names */

/* Length of the part before '@' or the first ",key="; or before what stands there instead of the comma, as in
 * gpt:layers=2. */
static size_t base_length(const char *name) {
    size_t length = strcspn(name, "@=");
    if (name[length] != '=') return length;
    while (length > 0 && name[length] != ',') length--;
    return length > 0 ? length : strcspn(name, ": =");
}

static bool is_of_tokens(const zoo_entry *entry) { return entry->size == 0; }

static const zoo_option *options_of(const zoo_entry *entry) {
    return !is_of_tokens(entry) ? IMAGE_OPTIONS : entry->numbers[5] > 0 ? LLAMA_OPTIONS : TOKEN_OPTIONS;
}

static bool read_option(const zoo_option *option, const char **at, zoo *z) {
    char *place = (char *)z + option->offset, *end;
    if (!option->real) {
        const int64_t value = read_number(at, option->least, option->most);
        memcpy(place, &value, sizeof value);
        return value >= 0;
    }
    const double value = mm_number_parse(*at, &end);
    const bool read = end != *at;
    *at = end;
    memcpy(place, &value, sizeof value);
    return read && value >= (double)option->least && value < (double)option->most;
}

/* Reads the entry's options, each at most once, in any order. */
static bool parse_options(const zoo_entry *entry, const char *at, zoo *z) {
    const zoo_option *options = options_of(entry);
    uint32_t had = 0;
    while (*at) {
        int i = 0;
        size_t length = 0;
        if (*at++ != ',') return false;
        for (; options[i].name; i++) {
            length = strlen(options[i].name);
            if (strncmp(at, options[i].name, length) == 0 && at[length] == '=') break;
        }
        if (!options[i].name || had >> i & 1) return false;
        had |= 1u << i;
        at += length + 1;
        if (!read_option(&options[i], &at, z)) return false;
    }
    return true;
}

/* Reads what follows the base name. */
static bool parse_rest(const zoo_entry *entry, const char *at, zoo *z) {
    if (*at == '@' && !is_of_tokens(entry)) {
        at++;
        z->height = z->width = read_number(&at, 1, MAX_SIZE);
        if (z->height < 0) return false;
        if (*at == 'x') {
            at++;
            z->width = read_number(&at, 1, MAX_SIZE);
            if (z->width < 0) return false;
        }
    }
    return parse_options(entry, at, z);
}

static mm_status refuse_rest(const zoo_entry *entry, const char *base, const char *rest) {
    char expected[256];
    size_t n =
        is_of_tokens(entry) ? 0 : (size_t)snprintf(expected, sizeof expected, " @HEIGHTxWIDTH (to %d)", MAX_SIZE);
    for (const zoo_option *o = options_of(entry); o->name && n < sizeof expected; o++)
        n += (size_t)snprintf(expected + n, sizeof expected - n, "%s ,%s=%s (%s %ld)", n ? "," : "", o->name,
                              o->metavar, o->real ? "below" : "to", o->most);
    return mm_fail(MM_ERR_INVALID, "net %s: '%s' after its name; expected%s", base, rest, expected);
}

static zoo zoo_of(const zoo_entry *entry, const int numbers[ZOO_NUMBERS]) {
    if (!is_of_tokens(entry))
        return (zoo){.height = entry->size, .width = entry->size, .classes = entry->classes, .thin = 1};
    return (zoo){.thin = 1,
                 .layers = numbers[0],
                 .tokens_width = numbers[1],
                 .heads = numbers[2],
                 .context = numbers[3],
                 .vocabulary = numbers[4],
                 .kv_heads = numbers[5],
                 .hidden = numbers[6]};
}

mm_status nets_zoo_build(const char *name, nets_net **net_out) {
    char base[NETS_NAME_CAPACITY];
    int numbers[ZOO_NUMBERS];
    size_t length = base_length(name);
    if (length >= sizeof base) return not_found(name);
    memcpy(base, name, length);
    base[length] = '\0';
    const zoo_entry *entry = find(base, numbers);
    if (!entry) return not_found(base);

    zoo z = zoo_of(entry, numbers);
    if (!parse_rest(entry, name + length, &z)) return refuse_rest(entry, base, name + length);
    if (is_of_tokens(entry) && (z.heads < 1 || z.tokens_width % z.heads != 0))
        return mm_fail(MM_ERR_INVALID, "net %s: heads=%lld must divide width=%lld", base, (long long)z.heads,
                       (long long)z.tokens_width);
    const bool has_kv_heads = is_of_tokens(entry) && z.kv_heads > 0;
    if (has_kv_heads && (z.heads % z.kv_heads != 0 || z.tokens_width / z.heads % 2 != 0))
        return mm_fail(MM_ERR_INVALID, "net %s: kv_heads=%lld must divide heads=%lld, and width / heads be even", base,
                       (long long)z.kv_heads, (long long)z.heads);
    MM_TRY(nets_net_create(name, &z.net));
    entry->build(&z, numbers);
    mm_status status = nets_net_finish(z.net);
    if (status != MM_OK) {
        nets_net_destroy(z.net);
        return status;
    }
    *net_out = z.net;
    return MM_OK;
}
