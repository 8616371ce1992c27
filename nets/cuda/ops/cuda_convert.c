/* SPDX-License-Identifier: MIT */
/* Conversions between f32 and bf16: glue to op_convert_kernels.cu. */
#include "nets/cuda/cuda_ops.h"

mm_status nets_cuda_convert_step(nets_backend *backend, mm_dtype from_type, const void *from, mm_dtype to_type,
                                 void *to, int64_t elems, mm_stream *stream) {
    (void)backend;
    nets_cuda_convert(from_type, from, to_type, to, elems, mm_cuda_stream(stream));
    return nets_cuda_launched("a conversion");
}
