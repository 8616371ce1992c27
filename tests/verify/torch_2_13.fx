{"format": "mm fx", "version": 1, "name": "chain", "torch": "2.13.0+cpu", "outputs": 1}
{"graph": "forward", "node": "primals_1", "is": "input", "bytes": [16384]}
{"graph": "forward", "node": "primals_2", "is": "input", "bytes": [256]}
{"graph": "forward", "node": "primals_3", "is": "input", "bytes": [16384]}
{"graph": "forward", "node": "primals_4", "is": "input", "bytes": [256]}
{"graph": "forward", "node": "primals_5", "is": "input", "bytes": [16384]}
{"graph": "forward", "node": "primals_6", "is": "input", "bytes": [256]}
{"graph": "forward", "node": "primals_7", "is": "input", "bytes": [2048]}
{"graph": "forward", "node": "t", "is": "call", "target": "aten.t.default", "args": {"self": "primals_1"}, "shares": "self", "bytes": [16384]}
{"graph": "forward", "node": "addmm", "is": "call", "target": "aten.addmm.default", "args": {"self": "primals_2", "mat1": "primals_7", "mat2": "t"}, "bytes": [2048]}
{"graph": "forward", "node": "gelu", "is": "call", "target": "aten.gelu.default", "args": {"self": "addmm"}, "bytes": [2048]}
{"graph": "forward", "node": "async_cpu_offload_addmm", "is": "call", "target": "ao.offload.default", "args": {"tensor": "addmm"}, "bytes": [2048]}
{"graph": "forward", "node": "cpu_offload_addmm", "is": "call", "target": "ao.wait_tensor.default", "args": {"tensor": "async_cpu_offload_addmm", "keepalive": "addmm"}, "shares": "tensor", "bytes": [2048]}
{"graph": "forward", "node": "t_1", "is": "call", "target": "aten.t.default", "args": {"self": "primals_3"}, "shares": "self", "bytes": [16384]}
{"graph": "forward", "node": "addmm_1", "is": "call", "target": "aten.addmm.default", "args": {"self": "primals_4", "mat1": "gelu", "mat2": "t_1"}, "bytes": [2048]}
{"graph": "forward", "node": "gelu_1", "is": "call", "target": "aten.gelu.default", "args": {"self": "addmm_1"}, "bytes": [2048]}
{"graph": "forward", "node": "async_cpu_offload_addmm_1", "is": "call", "target": "ao.offload.default", "args": {"tensor": "addmm_1"}, "bytes": [2048]}
{"graph": "forward", "node": "cpu_offload_addmm_1", "is": "call", "target": "ao.wait_tensor.default", "args": {"tensor": "async_cpu_offload_addmm_1", "keepalive": "addmm_1"}, "shares": "tensor", "bytes": [2048]}
{"graph": "forward", "node": "t_2", "is": "call", "target": "aten.t.default", "args": {"self": "primals_5"}, "shares": "self", "bytes": [16384]}
{"graph": "forward", "node": "addmm_2", "is": "call", "target": "aten.addmm.default", "args": {"self": "primals_6", "mat1": "gelu_1", "mat2": "t_2"}, "bytes": [2048]}
{"graph": "forward", "node": "gelu_2", "is": "call", "target": "aten.gelu.default", "args": {"self": "addmm_2"}, "bytes": [2048]}
{"graph": "forward", "node": "async_cpu_offload_addmm_2", "is": "call", "target": "ao.offload.default", "args": {"tensor": "addmm_2"}, "bytes": [2048]}
{"graph": "forward", "node": "cpu_offload_addmm_2", "is": "call", "target": "ao.wait_tensor.default", "args": {"tensor": "async_cpu_offload_addmm_2", "keepalive": "addmm_2"}, "shares": "tensor", "bytes": [2048]}
{"graph": "forward", "node": "output", "is": "output", "values": ["gelu_2", "primals_7", "cpu_offload_addmm", "gelu", "t_1", "cpu_offload_addmm_1", "gelu_1", "t_2", "cpu_offload_addmm_2"]}
{"graph": "backward", "node": "primals_7", "is": "input", "bytes": [2048]}
{"graph": "backward", "node": "cpu_offload_addmm", "is": "input", "bytes": [2048]}
{"graph": "backward", "node": "gelu", "is": "input", "bytes": [2048]}
{"graph": "backward", "node": "t_1", "is": "input", "bytes": [16384]}
{"graph": "backward", "node": "cpu_offload_addmm_1", "is": "input", "bytes": [2048]}
{"graph": "backward", "node": "gelu_1", "is": "input", "bytes": [2048]}
{"graph": "backward", "node": "t_2", "is": "input", "bytes": [16384]}
{"graph": "backward", "node": "cpu_offload_addmm_2", "is": "input", "bytes": [2048]}
{"graph": "backward", "node": "tangents_1", "is": "input", "bytes": [2048]}
{"graph": "backward", "node": "async_gpu_reload_addmm_2", "is": "call", "target": "ao.reload.default", "args": {"tensor": "cpu_offload_addmm_2"}, "bytes": [2048]}
{"graph": "backward", "node": "gpu_reload_addmm_2", "is": "call", "target": "ao.wait_tensor.default", "args": {"tensor": "async_gpu_reload_addmm_2", "keepalive": "cpu_offload_addmm_2"}, "shares": "tensor", "bytes": [2048]}
{"graph": "backward", "node": "gelu_backward", "is": "call", "target": "aten.gelu_backward.default", "args": {"grad_output": "tangents_1", "self": "gpu_reload_addmm_2"}, "bytes": [2048]}
{"graph": "backward", "node": "t_3", "is": "call", "target": "aten.t.default", "args": {"self": "t_2"}, "shares": "self", "bytes": [16384]}
{"graph": "backward", "node": "mm", "is": "call", "target": "aten.mm.default", "args": {"self": "gelu_backward", "mat2": "t_3"}, "bytes": [2048]}
{"graph": "backward", "node": "t_4", "is": "call", "target": "aten.t.default", "args": {"self": "gelu_backward"}, "shares": "self", "bytes": [2048]}
{"graph": "backward", "node": "mm_1", "is": "call", "target": "aten.mm.default", "args": {"self": "t_4", "mat2": "gelu_1"}, "bytes": [16384]}
{"graph": "backward", "node": "t_5", "is": "call", "target": "aten.t.default", "args": {"self": "mm_1"}, "shares": "self", "bytes": [16384]}
{"graph": "backward", "node": "sum_1", "is": "call", "target": "aten.sum.dim_IntList", "args": {"self": "gelu_backward"}, "bytes": [256]}
{"graph": "backward", "node": "view", "is": "call", "target": "aten.view.default", "args": {"self": "sum_1"}, "shares": "self", "bytes": [256]}
{"graph": "backward", "node": "t_6", "is": "call", "target": "aten.t.default", "args": {"self": "t_5"}, "shares": "self", "bytes": [16384]}
{"graph": "backward", "node": "async_gpu_reload_addmm_1", "is": "call", "target": "ao.reload.default", "args": {"tensor": "cpu_offload_addmm_1"}, "bytes": [2048]}
{"graph": "backward", "node": "gpu_reload_addmm_1", "is": "call", "target": "ao.wait_tensor.default", "args": {"tensor": "async_gpu_reload_addmm_1", "keepalive": "cpu_offload_addmm_1"}, "shares": "tensor", "bytes": [2048]}
{"graph": "backward", "node": "gelu_backward_1", "is": "call", "target": "aten.gelu_backward.default", "args": {"grad_output": "mm", "self": "gpu_reload_addmm_1"}, "bytes": [2048]}
{"graph": "backward", "node": "t_7", "is": "call", "target": "aten.t.default", "args": {"self": "t_1"}, "shares": "self", "bytes": [16384]}
{"graph": "backward", "node": "mm_2", "is": "call", "target": "aten.mm.default", "args": {"self": "gelu_backward_1", "mat2": "t_7"}, "bytes": [2048]}
{"graph": "backward", "node": "t_8", "is": "call", "target": "aten.t.default", "args": {"self": "gelu_backward_1"}, "shares": "self", "bytes": [2048]}
{"graph": "backward", "node": "mm_3", "is": "call", "target": "aten.mm.default", "args": {"self": "t_8", "mat2": "gelu"}, "bytes": [16384]}
{"graph": "backward", "node": "t_9", "is": "call", "target": "aten.t.default", "args": {"self": "mm_3"}, "shares": "self", "bytes": [16384]}
{"graph": "backward", "node": "sum_2", "is": "call", "target": "aten.sum.dim_IntList", "args": {"self": "gelu_backward_1"}, "bytes": [256]}
{"graph": "backward", "node": "view_1", "is": "call", "target": "aten.view.default", "args": {"self": "sum_2"}, "shares": "self", "bytes": [256]}
{"graph": "backward", "node": "t_10", "is": "call", "target": "aten.t.default", "args": {"self": "t_9"}, "shares": "self", "bytes": [16384]}
{"graph": "backward", "node": "async_gpu_reload_addmm", "is": "call", "target": "ao.reload.default", "args": {"tensor": "cpu_offload_addmm"}, "bytes": [2048]}
{"graph": "backward", "node": "gpu_reload_addmm", "is": "call", "target": "ao.wait_tensor.default", "args": {"tensor": "async_gpu_reload_addmm", "keepalive": "cpu_offload_addmm"}, "shares": "tensor", "bytes": [2048]}
{"graph": "backward", "node": "gelu_backward_2", "is": "call", "target": "aten.gelu_backward.default", "args": {"grad_output": "mm_2", "self": "gpu_reload_addmm"}, "bytes": [2048]}
{"graph": "backward", "node": "t_11", "is": "call", "target": "aten.t.default", "args": {"self": "gelu_backward_2"}, "shares": "self", "bytes": [2048]}
{"graph": "backward", "node": "mm_4", "is": "call", "target": "aten.mm.default", "args": {"self": "t_11", "mat2": "primals_7"}, "bytes": [16384]}
{"graph": "backward", "node": "t_12", "is": "call", "target": "aten.t.default", "args": {"self": "mm_4"}, "shares": "self", "bytes": [16384]}
{"graph": "backward", "node": "sum_3", "is": "call", "target": "aten.sum.dim_IntList", "args": {"self": "gelu_backward_2"}, "bytes": [256]}
{"graph": "backward", "node": "view_2", "is": "call", "target": "aten.view.default", "args": {"self": "sum_3"}, "shares": "self", "bytes": [256]}
{"graph": "backward", "node": "t_13", "is": "call", "target": "aten.t.default", "args": {"self": "t_12"}, "shares": "self", "bytes": [16384]}
{"graph": "backward", "node": "output", "is": "output", "values": ["t_13", "view_2", "t_10", "view_1", "t_6", "view", null]}
