/* SPDX-License-Identifier: MIT */
#include "nets/contract/op.h"

#include <stdio.h>
#include <string.h>

#include "nets/backends/op_through_f32.h"
#include "nets/host/host_ops.h"

/* The table of backends. A backend that not every build can have is an entry behind a define, NETS_BACKEND_<NAME>,
 * which BUILD sets when its flag is on. */
#ifdef NETS_BACKEND_CUDA
extern const nets_backend_ops nets_cuda_backend_ops;
#endif

static const nets_backend_ops *const BACKENDS[] = {
    &nets_host_backend_ops,
#ifdef NETS_BACKEND_CUDA
    &nets_cuda_backend_ops,
#endif
};

static mm_status open_on(const nets_backend_ops *ops, int ordinal, const nets_backend_config *config,
                         nets_backend **backend_out) {
    if (config->threads != 0 && ops != &nets_host_backend_ops)
        return mm_fail(MM_ERR_INVALID, "%d threads: device %s does not compute on this machine's CPUs, as host does",
                       config->threads, ops->name);
    MM_TRY(ops->open(ordinal, config, backend_out));
    (*backend_out)->ordinal = ordinal;
    (*backend_out)->maps = config->precision == NETS_BF16 ? MM_BF16 : MM_F32;
    return MM_OK;
}

mm_status nets_backend_open(const char *device, const nets_backend_config *config, nets_backend **backend_out) {
    const nets_backend_config defaults = {0};
    const mm_device_ops *kind;
    int ordinal;
    MM_TRY(mm_device_find(device, &kind, &ordinal));
    for (size_t i = 0; i < sizeof BACKENDS / sizeof BACKENDS[0]; i++)
        if (strcmp(BACKENDS[i]->name, kind->name) == 0)
            return open_on(BACKENDS[i], ordinal, config ? config : &defaults, backend_out);
    return mm_fail(MM_ERR_NOT_FOUND, "no network operations for device %s", device);
}

void nets_backend_close(nets_backend *backend) {
    if (backend) backend->ops->close(backend);
}

mm_status nets_backend_open_bound(const nets_backend *backend, nets_backend **bound_out) {
    const nets_backend_config *timed = backend->ops->config ? backend->ops->config(backend) : NULL;
    if (!timed) return mm_fail(MM_ERR_UNSUPPORTED, "device %s times no network operations", backend->ops->name);
    nets_backend_config config = *timed;
    config.untimed = true;
    config.workspace_limit_bytes = 1;
    config.algorithms_path = NULL;
    return open_on(backend->ops, backend->ordinal, &config, bound_out);
}

/* The names of the types in `dtypes`: "f32, bf16". Returns text_out. */
static const char *list_dtypes(uint32_t dtypes, char text_out[64]) {
    size_t at = 0;
    text_out[0] = '\0';
    for (int d = 0; d < MM_DTYPES && at < 64; d++)
        if (dtypes & NETS_DTYPE_BIT(d))
            at += (size_t)snprintf(text_out + at, 64 - at, "%s%s", at ? ", " : "", mm_dtype_name((mm_dtype)d));
    return text_out;
}

static bool takes(const nets_op_impl *impl, const nets_op_desc *desc) {
    return impl->maps & NETS_DTYPE_BIT(desc->maps) &&
           (desc->maps == MM_F32 || !desc->f32_inputs || impl->maps & NETS_MIXED);
}

static bool is_widened(const nets_backend *backend, const nets_op_desc *desc) {
    return desc->maps == MM_BF16 && backend->ops->convert;
}

static mm_status find_impl(const nets_backend *backend, const nets_op_desc *desc, const nets_op_impl **impl_out) {
    const nets_op_impl *impl = (unsigned)desc->kind < NETS_OP_KINDS ? backend->ops->impls[desc->kind] : NULL;
    char has[64];
    if (!impl || !impl->create)
        return mm_fail(MM_ERR_UNSUPPORTED, "device %s has no operation %s", backend->ops->name,
                       nets_op_name(desc->kind));
    const bool known = (unsigned)desc->maps < MM_DTYPES, taken = known && takes(impl, desc);
    if (!taken && !is_widened(backend, desc))
        return mm_fail(MM_ERR_UNSUPPORTED, "device %s has no operation %s for %s maps, only for %s", backend->ops->name,
                       nets_op_name(desc->kind), mm_dtype_name(desc->maps), list_dtypes(impl->maps, has));
    *impl_out = taken ? impl : &nets_op_through_f32;
    return MM_OK;
}

mm_status nets_op_create(nets_backend *backend, const nets_op_desc *desc, nets_op **op_out) {
    const nets_op_impl *impl;
    MM_TRY(find_impl(backend, desc, &impl));
    bool entered = false;
    if (backend->ops->enter) MM_TRY(backend->ops->enter(backend, &entered));
    mm_status status = impl->create(backend, desc, op_out);
    /* An implementation may support bf16 maps only of some shapes, or only on some CPUs: then its f32 form is used. */
    if (status == MM_ERR_UNSUPPORTED && impl != &nets_op_through_f32 && is_widened(backend, desc))
        status = nets_op_through_f32.create(backend, desc, op_out);
    if (entered) backend->ops->leave(backend);
    return status;
}

void nets_op_destroy(nets_op *op) {
    if (op) op->impl->destroy(op);
}

mm_status nets_op_enqueue_parts(nets_backend *backend, nets_op *op, nets_op_kind kind, const nets_part_args *args,
                                mm_stream *stream) {
    bool entered;
    MM_TRY(mm_device_enter(stream->device, &entered));
    mm_status status = backend->ops->parts[kind](op, args, stream);
    mm_device_leave(stream->device, entered);
    return status;
}

mm_status nets_op_enqueue(nets_op *op, mm_phase phase, const nets_op_args *args, mm_stream *stream) {
    bool entered;
    MM_TRY(mm_device_enter(stream->device, &entered));
    mm_status status = phase == MM_FORWARD ? op->impl->forward(op, args, stream) : op->impl->backward(op, args, stream);
    mm_device_leave(stream->device, entered);
    return status;
}
