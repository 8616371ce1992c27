# SPDX-License-Identifier: MIT
"""Nets for joint_plans.py, small and of real size, and what real steps of them take on the CPU."""

import importlib.util
import weakref

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from mm_torch import joint, models, operators


# ---------------------------------------------------------------- nets

def resnet50(small):
    import torchvision
    net = torchvision.models.resnet50(num_classes=10) if not small else torchvision.models.ResNet(
        torchvision.models.resnet.Bottleneck, [1, 1, 1, 1], num_classes=10, width_per_group=16)
    size = 64 if small else 224
    return net, torch.nn.functional.cross_entropy, torch.randn(2, 3, size, size), torch.tensor([1, 2])


def vit(small):
    import torchvision
    net = torchvision.models.VisionTransformer(
        image_size=32 if small else 224, patch_size=8 if small else 16, num_layers=2 if small else 12,
        num_heads=4 if small else 12, hidden_dim=64 if small else 768, mlp_dim=128 if small else 3072, num_classes=10)
    size = 32 if small else 224
    return net, torch.nn.functional.cross_entropy, torch.randn(2, 3, size, size), torch.tensor([1, 2])


def gpt2(small):
    from transformers import GPT2Config, GPT2LMHeadModel
    config = GPT2Config(n_layer=2, n_embd=64, n_head=4, vocab_size=512, use_cache=False) if small else GPT2Config(
        n_layer=6, use_cache=False)
    tokens = torch.randint(0, 500, (2, 64 if small else 256))
    return GPT2LMHeadModel(config), None, {"input_ids": tokens, "labels": tokens}, None


def llama(small):
    from transformers import LlamaConfig, LlamaForCausalLM
    config = LlamaConfig(num_hidden_layers=2, hidden_size=64, intermediate_size=160, num_attention_heads=4, vocab_size=512,
                         num_key_value_heads=2, use_cache=False) if small else LlamaConfig(
        num_hidden_layers=4, hidden_size=512, intermediate_size=1376, num_attention_heads=8, vocab_size=8000,
        use_cache=False)
    tokens = torch.randint(0, 500, (2, 64 if small else 256))
    return LlamaForCausalLM(config), None, {"input_ids": tokens, "labels": tokens}, None


class Lstm(torch.nn.Module):
    def __init__(self, width):
        super().__init__()
        self.embedding, self.lstm = torch.nn.Embedding(100, width), torch.nn.LSTM(width, width, 2, batch_first=True)
        self.head = torch.nn.Linear(width, 100)

    def forward(self, x):
        return self.head(self.lstm(self.embedding(x))[0]).transpose(1, 2)


def lstm(small):
    tokens = torch.randint(0, 100, (4, 16 if small else 64))
    return Lstm(32 if small else 512), torch.nn.functional.cross_entropy, tokens, tokens


def mixed(small):
    """Dropout, a GRU (single steps on a CPU), attention with dropout, a checkpoint, operators in place, tied
    weights."""
    class Net(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.embedding, self.gru = torch.nn.Embedding(50, 32), torch.nn.GRU(32, 32)
            self.layer = torch.nn.TransformerEncoderLayer(32, 4, 64, dropout=0.1)
            self.inner = torch.nn.Sequential(torch.nn.Linear(32, 96), torch.nn.ReLU(inplace=True), torch.nn.Linear(96, 32))
            self.head = torch.nn.Linear(32, 50, bias=False)
            self.head.weight = self.embedding.weight

        def forward(self, x):
            h = self.layer(self.gru(self.embedding(x))[0])
            h = h + torch.utils.checkpoint.checkpoint(self.inner, h, use_reentrant=False)
            return self.head(h).flatten(0, 1)

    tokens = torch.randint(0, 50, (12, 4))
    return Net(), torch.nn.functional.cross_entropy, tokens, tokens.flatten()


def resnet20(small):
    net, batches = models.make("resnet20")
    x, y = batches(4, torch.Generator().manual_seed(1))
    return net, models.loss, x, y


NETS = {f.__name__: f for f in (resnet50, vit, gpt2, llama, lstm, mixed, resnet20)}
NEEDS = {"resnet50": "torchvision", "vit": "torchvision", "gpt2": "transformers", "llama": "transformers"}


def nets():
    """Names of the nets whose packages are here."""
    return [name for name in NETS if name not in NEEDS or importlib.util.find_spec(NEEDS[name])]


# ---------------------------------------------------------------- real steps

class Counter(TorchDispatchMode):
    """Bytes of all storages that operators return, while they live."""

    def __init__(self):
        super().__init__()
        self.live, self.peak, self.known = 0, 0, set()

    def count(self, tensor):
        storage = tensor.untyped_storage()
        if storage._cdata not in self.known:
            self.known.add(storage._cdata)
            self.live += storage.nbytes()
            weakref.finalize(storage, self._gone, storage._cdata, storage.nbytes()).atexit = False
            self.peak = max(self.peak, self.live)

    def _gone(self, key, size):
        self.known.discard(key)
        self.live -= size

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        out = func(*args, **(kwargs or {}))
        for tensor in operators.tensors_of(out):
            self.count(tensor)
        return out


def real_step(net, loss, x, y, optimizer):
    value = joint._loss_of(loss, joint._call(net, x), y)
    value.backward()
    if optimizer is not None:
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)


def counted_peak(net, loss, x, y, optimizer):
    counter = Counter()
    states = [t for s in optimizer.state.values() for t in operators.tensors_of(s)] if optimizer else []
    for tensor in (*net.parameters(), *net.buffers(), *operators.tensors_of((x, y)), *states):
        counter.count(tensor)
    del states
    with counter:
        real_step(net, loss, x, y, optimizer)
    return counter.peak


def profiled_peak(net, loss, x, y, optimizer):
    """What torch's allocator had at most above what there was before: with kernels' workspaces, and no mode."""
    with torch.profiler.profile(profile_memory=True, activities=[torch.profiler.ProfilerActivity.CPU]) as prof:
        real_step(net, loss, x, y, optimizer)
    live = peak = 0
    events = [e for e in prof.profiler.kineto_results.events() if e.name() == "[memory]"]
    for event in sorted(events, key=lambda e: e.start_ns()):
        live += event.nbytes()
        peak = max(peak, live)
    return peak


def saved_bytes(net, loss, x, y):
    """Bytes of all storages that autograd saves, without parameters, buffers and the batch."""
    known = {t.untyped_storage()._cdata for t in (*net.parameters(), *net.buffers(), *operators.tensors_of((x, y)))}
    seen = {}

    def pack(tensor):
        storage = tensor.untyped_storage()
        if storage._cdata not in known:
            seen[storage._cdata] = storage
        return tensor.detach()

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        value = joint._loss_of(loss, joint._call(net, x), y)
    total = sum(s.nbytes() for s in seen.values())
    del value
    return total
