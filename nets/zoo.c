#include "nets/zoo.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct zoo_entry {
    const char *name, *summary;
    void (*build)(nets_net *net);
    int blocks; /* CIFAR ResNets without a builder of their own: blocks a stage */
} zoo_entry;

enum { MAX_RESNET_DEPTH = 12002 };

#define FAMILY "cifar-resnet"

static const zoo_entry ZOO[] = {
    {"resnet20", "CIFAR ResNet of depth 20, 32x32x3, 10 classes", NULL, 3},
    {"resnet32", "CIFAR ResNet of depth 32", NULL, 5},
    {"resnet44", "CIFAR ResNet of depth 44", NULL, 7},
    {"resnet56", "CIFAR ResNet of depth 56", NULL, 9},
    {"resnet110", "CIFAR ResNet of depth 110", NULL, 18},
    {"resnet1202", "CIFAR ResNet of depth 1202", NULL, 200},
    {"tiny", "a small net of every kind of layer, 32x32x3, 10 classes", nets_build_tiny, 0},
    {FAMILY "<6n+2>", "CIFAR ResNet of any depth 6n + 2 from 8 to 12002; resnet<6n+2> too, but for ImageNet's names",
     NULL, 0},
};

enum { ZOO_ENTRIES = sizeof ZOO / sizeof ZOO[0] };

const char *nets_zoo_list(size_t i, const char **summary_out) {
    if (i >= ZOO_ENTRIES) return NULL;
    if (summary_out) *summary_out = ZOO[i].summary;
    return ZOO[i].name;
}

/* Depths that mean ImageNet's network when the name is a bare "resnetN". */
static bool is_imagenet_depth(long depth) { return depth == 50 || depth == 152; }

/* Blocks a stage of "resnetN" or "cifar-resnetN", 0 if the name is not of that form. */
static int family_blocks(const char *name) {
    bool bare = strncmp(name, "resnet", 6) == 0;
    if (!bare && strncmp(name, FAMILY, sizeof FAMILY - 1) != 0) return 0;
    const char *digits = name + (bare ? 6 : sizeof FAMILY - 1);
    if (*digits < '1' || *digits > '9' || strlen(digits) > 5) return 0;
    char *end;
    long depth = strtol(digits, &end, 10);
    if (*end || depth < 8 || depth > MAX_RESNET_DEPTH || (depth - 2) % 6 || (bare && is_imagenet_depth(depth)))
        return 0;
    return (int)(depth - 2) / 6;
}

static mm_status not_found(const char *name) {
    char list[512];
    size_t at = 0;
    for (size_t i = 0; i < ZOO_ENTRIES; i++) {
        int n = snprintf(list + at, sizeof list - at, "%s%s", i ? ", " : "", ZOO[i].name);
        if (n > 0 && at + (size_t)n < sizeof list) at += (size_t)n;
    }
    return mm_fail(MM_ERR_NOT_FOUND, "no net %s; there are %s", name, list);
}

mm_status nets_zoo_build(const char *name, nets_net **net_out) {
    const zoo_entry *entry = NULL;
    for (size_t i = 0; i < ZOO_ENTRIES && !entry; i++)
        if (strcmp(ZOO[i].name, name) == 0) entry = &ZOO[i];
    int blocks = entry ? entry->blocks : family_blocks(name);
    if (blocks == 0 && (!entry || !entry->build)) return not_found(name);

    nets_net *net;
    MM_TRY(nets_net_create(name, &net));
    if (blocks)
        nets_build_resnet_cifar(net, blocks);
    else
        entry->build(net);
    mm_status status = nets_net_finish(net);
    if (status != MM_OK) {
        nets_net_destroy(net);
        return status;
    }
    *net_out = net;
    return MM_OK;
}
