# SPDX-License-Identifier: MIT
"""What kernels of a GPU save and need where they differ from those of the CPU, on which a step is traced.

KERNELS lists them. `stand_ins` gives functions that take the place of torch's while a step is traced: they compute
nothing, but make, save and free what the GPU's kernel does. `workspace` tells what others take beside their tensors."""

import dataclasses
from typing import Any, Callable, Dict, List, Optional, Tuple

import torch
from torch.nn import functional as F

from . import machine, operators


@dataclasses.dataclass(frozen=True)
class Kernel:
    """name: what it replaces. differs: what it saves and needs on a GPU. source: where that is from."""
    name: str
    differs: str
    source: str


KERNELS = {k.name: k for k in (
    Kernel("attention", "flash attention: saves its inputs, its output and a logarithm of a sum for each row, also with "
           "dropout and with fewer heads of keys; its backward pass takes a gradient of the queries in f32 (bf16, f16)",
           "pytorch aten/native/transformers/cuda: flash_attn (dq_accum, softmax_d), mem_eff_attention (f32: sums of rows, "
           "padded to 32)"),
    Kernel("dropout", "native_dropout: saves a mask of one byte an element; on a CPU it is of the map's type",
           "pytorch aten/native/Dropout.cpp"),
    Kernel("rnn", "cuDNN: saves a reserve space, estimated as the gates, the cell and its tanh of each step; on a CPU "
           "oneDNN's workspace, or maps of each step", "estimated: cuDNN does not tell its formula"),
    Kernel("convolution", "cuDNN: a workspace for maps and filters in channels-last order where they are not so; "
           "estimated", "estimated: kernels nchwToNhwc in profiles; algorithms are chosen when it runs"),
    Kernel("batch norm", "cuDNN: saves mean and inverse deviation as a CPU does; no reserve space but for channels-last "
           "f16, which is not counted", "pytorch aten/native/cudnn/BatchNorm.cpp"),
    Kernel("rms norm", "one kernel: saves its input and one inverse for each row; on a CPU what each part saves",
           "pytorch aten/native/layer_norm.cpp"),
    Kernel("linear", "cuBLAS: one workspace for the process, of 32 MiB from Hopper on, else 8.1 MiB",
           "pytorch aten/cuda/CublasHandlePool.cpp"),
    Kernel("optimizer", "foreach: all parameters at once, with intermediate values of all", "pytorch torch/optim"))}


def cublas_workspace_bytes(gpu: str) -> int:
    """What cuBLAS keeps of torch's memory on a GPU of that name; of a machine file, as from Hopper on."""
    large = gpu.endswith(".json") or machine.generation(gpu) in ("Hopper", "Blackwell")
    return 32 << 20 if large else (4096 * 2 + 16 * 8) << 10


def workspace(op) -> Tuple[str, int]:
    """(name of a kernel, bytes that it takes beside the tensors of an operator's Work); ("", 0): none is known."""
    if op.kind not in ("conv", "winograd"):
        return "", 0
    maps = [t for t in [*op.inputs, *op.outputs] if t.dim() >= 4]
    if op.dtype == "f64" or all(t.is_contiguous(memory_format=torch.channels_last) for t in maps if t.dim() == 4):
        return "", 0
    return "convolution", sum(operators.bytes_of(t) for t in maps)


def _up(n: int, unit: int) -> int:
    return -(-n // unit) * unit


def _autocast(*tensors):
    """The tensors as autocast would give them to a product of matrices."""
    if not torch.is_autocast_enabled("cpu"):
        return tensors
    dtype = torch.get_autocast_dtype("cpu")
    return tuple(t.to(dtype) if t is not None and t.dtype == torch.float32 else t for t in tensors)


# ---------------------------------------------------------------- attention

class _Attention(torch.autograd.Function):
    """Flash attention (16 bits), or memory-efficient attention (32 bits)."""

    @staticmethod
    def forward(ctx, q, k, v, mask, causal, tracer):
        half = q.dtype in (torch.bfloat16, torch.float16)
        *batch, heads, rows, width = q.shape
        with tracer.kernel("attention", "attention", _attention_flops(q, k, v, causal, (1, 1)), (q, k, v, mask)):
            out = q.new_empty(*batch, rows, heads, v.shape[-1]).transpose(-2, -3)
            sums = q.new_empty(*batch, heads, rows if half else _up(rows, 32), dtype=torch.float32)
            random = q.new_empty(2, dtype=torch.int64)
        ctx.save_for_backward(q, k, v, out, sums, random, mask)
        ctx.causal, ctx.tracer = causal, tracer
        return out

    @staticmethod
    def backward(ctx, grad):
        q, k, v, out, sums, _, mask = ctx.saved_tensors
        *batch, heads, rows, width = q.shape
        with ctx.tracer.kernel("attention backward", "attention", _attention_flops(q, k, v, ctx.causal, (3, 2)),
                               (grad, q, k, v, out, sums, mask)):
            inner = q.new_empty(*batch, heads, _up(rows, 128), _up(width, 32) + 1, dtype=torch.float32)
            grads = [torch.empty_like(t) for t in (q, k, v)]
            of_mask = torch.empty_like(mask) if ctx.needs_input_grad[3] else None
            # With fewer heads of keys, the kernel makes gradients for all heads, and adds them up.
            expanded = [t.new_empty(*t.shape[:-3], heads, *t.shape[-2:]) for t in (k, v) if t.shape[-3] != heads]
        del inner, expanded
        return (*grads, of_mask, None, None)


def _attention_flops(q, k, v, causal, products):
    full = operators.attention_flops(q, k, v, products)
    return full / 2 if causal else full


def _attention(tracer, used):
    def scaled_dot_product_attention(query, key, value, attn_mask=None, dropout_p=0.0, is_causal=False, scale=None,
                                     enable_gqa=False):
        used.add("attention")
        query, key, value = _autocast(query, key, value)
        if query.dim() == 3:
            return _Attention.apply(query[:, None], key[:, None], value[:, None], attn_mask, is_causal, tracer)[:, 0]
        return _Attention.apply(query, key, value, attn_mask, is_causal, tracer)
    return scaled_dot_product_attention


# ---------------------------------------------------------------- dropout

def _dropout(used):
    def dropout(input, p=0.5, training=True, inplace=False):
        if not training or p == 0:
            return input
        used.add("dropout")
        out = torch.native_dropout(input, p, True)[0]
        return input.copy_(out) if inplace else out

    def torch_dropout(input, p, train):
        return dropout(input, p, train)
    return dropout, torch_dropout


# ---------------------------------------------------------------- recurrent layers

_GATES = {"lstm": 4, "gru": 3, "rnn_tanh": 1, "rnn_relu": 1}


class _Recurrent(torch.autograd.Function):
    """A stack of recurrent layers in one kernel of cuDNN. x: time first."""

    @staticmethod
    def forward(ctx, x, hx, cx, mode, layers, ways, dropout, tracer, *weights):
        steps, batch = x.shape[0], x.shape[1]
        width = hx.shape[-1]
        cell = width if cx is None else cx.shape[-1]
        flops = 2 * steps * batch * sum(w.numel() for w in weights if w.dim() == 2)
        parts = _GATES[mode] + (2 if mode == "lstm" else 1) + (1 if dropout else 0)
        with tracer.kernel(mode, "rnn", flops, (x, hx, cx, *weights)):
            out = x.new_empty(steps, batch, width * ways)
            state = [torch.empty_like(t) for t in (hx, cx) if t is not None]
            reserve = x.new_empty(layers * ways * steps * batch * cell * parts * x.element_size(), dtype=torch.uint8)
        ctx.save_for_backward(x, hx, cx, out, reserve, *weights)
        ctx.flops, ctx.tracer, ctx.mode = flops, tracer, mode
        return (out, *state)

    @staticmethod
    def backward(ctx, *grads):
        x, hx, cx, out, reserve, *weights = ctx.saved_tensors
        reads = (*grads, x, hx, cx, out, reserve, *weights)
        with ctx.tracer.kernel(f"{ctx.mode} backward", "rnn", 2 * ctx.flops, reads):
            made = [torch.empty_like(t) if t is not None else None for t in (x, hx, cx)]
            of_weights = [torch.empty_like(w) for w in weights]
        return (*made, None, None, None, None, None, *of_weights)


def _recurrent(mode, tracer, used, own):
    """A function with the arguments of torch._VF.lstm, gru, rnn_tanh or rnn_relu; own: torch's, for packed
    sequences."""
    def call(x, *args):
        if isinstance(args[1], torch.Tensor):
            return own(x, *args)
        hx, weights, _, layers, dropout, train, both, batch_first = args
        used.add("rnn")
        hidden, cell = hx if mode == "lstm" else (hx, None)
        x, hidden, cell, *weights = _autocast(x, hidden, cell, *weights)
        out, *state = _Recurrent.apply(x.transpose(0, 1) if batch_first else x, hidden, cell, mode, layers,
                                       2 if both else 1, dropout if train else 0, tracer, *weights)
        return (out.transpose(0, 1) if batch_first else out, *state)
    return call


# ---------------------------------------------------------------- others

class _RmsNorm(torch.autograd.Function):
    """From torch 2.9 on, a GPU has one kernel for it; a CPU runs its parts."""

    @staticmethod
    def forward(ctx, x, weight, axes, tracer):
        with tracer.kernel("rms norm", "elementwise", 0, (x, weight)):
            out = torch.empty_like(x)
            inverse = x.new_empty(x.shape[:x.dim() - axes], dtype=torch.float32)
        ctx.save_for_backward(x, weight, inverse)
        ctx.tracer = tracer
        return out

    @staticmethod
    def backward(ctx, grad):
        x, weight, inverse = ctx.saved_tensors
        with ctx.tracer.kernel("rms norm backward", "elementwise", 0, (grad, x, weight, inverse)):
            grads = [torch.empty_like(t) if t is not None else None for t in (x, weight)]
        return (*grads, None, None)


def _rms_norm(tracer, used):
    def rms_norm(input, normalized_shape, weight=None, eps=None):
        used.add("rms norm")
        return _RmsNorm.apply(input, weight, len(normalized_shape), tracer)
    return rms_norm


def _autocast_of_gpu(own):
    """Autocast of a GPU, as that of the CPU, on which a step is traced."""
    def autocast(device_type, dtype=None, enabled=True, cache_enabled=None):
        return own("cpu", dtype or torch.get_autocast_dtype(device_type), enabled, cache_enabled)
    return autocast


def stand_ins(tracer: Any, used: set) -> Dict[Any, Dict[str, Callable]]:
    """{module: {name: function}}, for fakes.replaced. used: gets the names of KERNELS that ran."""
    vf = torch._VF
    dropout, torch_dropout = _dropout(used)
    functional = {"scaled_dot_product_attention": _attention(tracer, used), "dropout": dropout}
    if hasattr(torch.ops.aten, "_fused_rms_norm"):
        functional["rms_norm"] = _rms_norm(tracer, used)
    autocast = {"autocast": _autocast_of_gpu(torch.autocast)}
    return {F: functional, torch: {"dropout": torch_dropout, **autocast}, torch.amp: autocast,
            vf: {mode: _recurrent(mode, tracer, used, getattr(vf, mode)) for mode in _GATES}}


def listed(used: set) -> List[Dict]:
    """The kernels that were used, as dicts, in the table's order."""
    return [dataclasses.asdict(k) for name, k in KERNELS.items() if name in used]
