#include "nets/zoo/zoo.h"

#include <stdio.h>
#include <string.h>

#include "nets/zoo/layers.h"

typedef struct zoo_entry {
    const char *name, *summary;
    zoo_builder *build;
    int numbers[ZOO_NUMBERS];
    int64_t size, classes; /* of the input, height and width */
    /* For a family: reads what follows the name up to its '<'. */
    bool (*parse)(const char *rest, int numbers_out[ZOO_NUMBERS]);
} zoo_entry;

enum { MAX_DEPTH = 12002, MAX_BLOCKS = 4096, MAX_SIZE = 1 << 16, MAX_THIN = 4096, MAX_CLASSES = 1 << 24 };

/* A number without sign or leading zeros in [low, high], moving `at` behind it; -1 if there is none. */
static long read_number(const char **at, long low, long high) {
    if (**at < '1' || **at > '9') return -1;
    long number = 0;
    for (; **at >= '0' && **at <= '9'; ++*at) {
        number = number * 10 + (**at - '0');
        if (number > high) return -1;
    }
    return number < low ? -1 : number;
}

/* Depth `per_block` * n + 2. */
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

/* Blocks of one to six stages, "3,4,6,3"; or "3-4-6-3", for where commas part networks. */
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

static mm_status not_found(const char *name) {
    char list[1024];
    size_t at = 0;
    for (size_t i = 0; i < ZOO_ENTRIES; i++) {
        int n = snprintf(list + at, sizeof list - at, "%s%s", i ? ", " : "", ZOO[i].name);
        if (n > 0 && at + (size_t)n < sizeof list) at += (size_t)n;
    }
    return mm_fail(MM_ERR_NOT_FOUND, "no net %s; there are %s", MM_BRIEF(name), list);
}

/* ---------------------------------------------------------------- names */

/* Length of the part before '@' or the first ",key=". */
static size_t base_length(const char *name) {
    size_t length = strcspn(name, "@=");
    if (name[length] != '=') return length;
    while (length > 0 && name[length] != ',') length--;
    return length;
}

/* ",classes=K" and ",thin=T", each at most once, in any order. */
static bool parse_options(const char *at, zoo *z) {
    static const char classes[] = ",classes=", thin[] = ",thin=";
    bool has_classes = false, has_thin = false;
    while (*at) {
        int64_t *value;
        long most;
        if (!has_classes && strncmp(at, classes, sizeof classes - 1) == 0) {
            has_classes = true;
            value = &z->classes;
            most = MAX_CLASSES;
            at += sizeof classes - 1;
        } else if (!has_thin && strncmp(at, thin, sizeof thin - 1) == 0) {
            has_thin = true;
            value = &z->thin;
            most = MAX_THIN;
            at += sizeof thin - 1;
        } else {
            return false;
        }
        *value = read_number(&at, 1, most);
        if (*value < 0) return false;
    }
    return true;
}

/* What follows the base name. */
static bool parse_size(const char *at, zoo *z) {
    if (*at == '@') {
        at++;
        z->height = z->width = read_number(&at, 1, MAX_SIZE);
        if (z->height < 0) return false;
        if (*at == 'x') {
            at++;
            z->width = read_number(&at, 1, MAX_SIZE);
            if (z->width < 0) return false;
        }
    }
    return parse_options(at, z);
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

    zoo z = {.height = entry->size, .width = entry->size, .classes = entry->classes, .thin = 1};
    if (!parse_size(name + length, &z))
        return mm_fail(MM_ERR_INVALID,
                       "net %s: '%s' after its name; expected @HEIGHTxWIDTH (to %d), ,classes=K, ,thin=T (to %d)", base,
                       name + length, MAX_SIZE, MAX_THIN);
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
