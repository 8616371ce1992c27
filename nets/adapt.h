/* SPDX-License-Identifier: MIT */
/* Training a part of a network: layers that are frozen, and LoRA (Hu et al. 2021, "LoRA: Low-Rank Adaptation of Large
 * Language Models").
 *
 * An adapter is of ordinary layers. A linear layer L of x (operation linear or project) becomes
 *
 *   x ─┬─► L ───────────────────────────────────► L.lora_add ─►      y = L(x) + alpha / rank B A x
 *      └─► L.lora_A ─► L.lora_scale ─► L.lora_B ─►┘
 *
 * with A [rank, in] and B [out, rank], as peft has them, and the scale on A's output, unless it is 1. B begins as zero,
 * A as random numbers of variance 1 / (3 in). Parameters are L's name without ".weight", then ".lora_A.weight" and
 * ".lora_B.weight". */
#ifndef NETS_ADAPT_H
#define NETS_ADAPT_H

#include "nets/net.h"

typedef struct nets_lora {
    int64_t rank; /* 0: no adapters */
    double alpha;
    char layers[256]; /* which, separated by commas */
} nets_lora;

/* Reads "rank=R[,alpha=A][,layers=LAYERS]". LAYERS are separated by commas: "attention" are the linear layers before
 * and behind attention, "mlp" all others but the one that gives the scores, "all" both; else a name, with * for any
 * text and ? for one character, of a layer or of the end of its name behind a dot ("q_proj"). Defaults: alpha is R,
 * layers attention. MM_ERR_INVALID. */
MM_CHECKED mm_status nets_lora_parse(const char *text, nets_lora *lora_out);

/* Gives *net adapters, and freezes all that it had. It replaces *net, also with its given values, and destroys the old
 * net; on failure *net is as it was. MM_ERR_INVALID: a name is no linear layer's, with the nearest one; the rank is
 * larger than a layer's input or output. MM_ERR_NOMEM. */
MM_CHECKED mm_status nets_lora_add(const nets_lora *lora, nets_net **net);

/* Freezes layers by name: as above, but of a layer or of the beginning of its name before a dot ("layer1"). A name
 * that begins with ! leaves layers out: "*,!fc" freezes all but fc. MM_ERR_INVALID: a name is that of no layer with
 * parameters, or all are frozen. */
MM_CHECKED mm_status nets_freeze_layers(nets_net *net, const char *layers);

#endif
