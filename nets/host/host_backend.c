/* SPDX-License-Identifier: MIT */
/* The host backend: its table of ops. */
#include <stdio.h>
#include <stdlib.h>

#include "nets/host/host_ops.h"

static mm_status init_host(const nets_backend_config *config, nets_host_backend *host) {
    host->base.ops = &nets_host_backend_ops;
    host->base.threads = config->threads > 0 ? config->threads : mm_host_cpus();
    MM_TRY(mm_host_pool_create(host->base.threads, "mm-compute", &host->pool));
    return nets_dnn_init(&host->dnn, host->pool, config->plans_only);
}

static void close_host(nets_backend *backend) {
    nets_host_backend *host = (nets_host_backend *)backend;
    nets_dnn_fini(&host->dnn);
    mm_host_pool_destroy(host->pool);
    free(host);
}

/* The host multiplies in float32 and times nothing, so only the options for threads and bf16 maps matter. */
static mm_status open_host(int ordinal, const nets_backend_config *config, nets_backend **backend_out) {
    (void)ordinal;
    nets_host_backend *host = calloc(1, sizeof *host);
    if (!host) return mm_fail(MM_ERR_NOMEM, "no memory for the host's network operations");
    mm_status status = init_host(config, host);
    if (status != MM_OK) {
        close_host(&host->base);
        return status;
    }
    *backend_out = &host->base;
    return MM_OK;
}

static void library(char text[NETS_LIBRARY_CAPACITY]) {
    const dnnl_version_t *v = dnnl_version();
    snprintf(text, NETS_LIBRARY_CAPACITY, "oneDNN %d.%d.%d", v->major, v->minor, v->patch);
}

const nets_backend_ops nets_host_backend_ops = {
    .name = "host",
    .open = open_host,
    .close = close_host,
    .update = nets_host_update,
    .update_now = nets_host_update_now,
    .check = nets_host_check,
    .pass_on = nets_host_pass_on,
    .add = nets_host_add,
    .convert = nets_host_convert,
    .library = library,
    .impls =
        {
#define IMPL(NAME, name) [NETS_##NAME] = &nets_host_op_##name.base,
            NETS_OPS(IMPL)
#undef IMPL
        },
    .parts =
        {
            [NETS_EMBEDDING] = nets_host_embedding_parts,
            [NETS_PROJECT] = nets_host_project_parts,
            [NETS_TOKEN_LOSS] = nets_host_token_loss_parts,
        },
};
