/* Operations of transformers: none yet. Networks with them are refused by name. */
#include "nets/cuda/cuda_ops.h"

const nets_op_impl nets_cuda_op_embedding = {0}, nets_cuda_op_position = {0}, nets_cuda_op_layer_norm = {0},
                   nets_cuda_op_gelu = {0}, nets_cuda_op_project = {0}, nets_cuda_op_attention = {0},
                   nets_cuda_op_token_loss = {0};
