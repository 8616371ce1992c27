# SPDX-License-Identifier: MIT
"""Nets that people train, inside budgets, against plain torch: weights bit for bit, and what share is managed.

    accepted.py [--compiled] [NET...]

For each net, small, with random weights: `swap-async` and `auto` in 0.5 and 0.3 of what is put in an iteration, and
lossless zvc in the least budget that it names. A budget that is refused is tried again with the minimum that the
refusal names, which has to run. --compiled: by mm.backend(inner="aot_eager"), beside plain "aot_eager", in shares of
what that saves. A GAN's nets are compiled each by itself; what torch does not compile, an LSTM, has to be told, and
runs in an mm.budget around.

Prints a line a run. Exits with 1 if weights differ, or less than 0.95 is managed from the second iteration on
(--compiled: if more is saved than the budget, and nothing moves). Nets whose packages are missing are left out, and
named."""

import contextlib
import importlib.util
import logging
import sys
import warnings

import torch
from torch import nn

import mm_torch as mm

STEPS, SHARES, LEAST_SHARE = 4, (0.5, 0.3), 0.95
POLICIES = ("swap-async", "auto")
ZVC = "freelunch:codec=zvc,eligible=all,when=always"


class Loop:
    """A net, its loss of a batch, and an optimizer."""

    def __init__(self, net, loss, batch, backend=None):
        self.net, self.loss, self.batch = net, loss, batch
        for part in (getattr(net, "parts", lambda: [net])() if backend else ()):
            part.compile(backend=backend)
        self.optimizer = torch.optim.SGD([p for p in net.parameters() if p.requires_grad], lr=1e-3, momentum=0.9)

    def step(self):
        self.loss(self.net, self.batch).backward()
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)


def images(net, size=32, batch=4, classes=1000):
    x, y = torch.randn(batch, 3, size, size), torch.randint(0, classes, (batch,))
    return net, lambda run, b: nn.functional.cross_entropy(run(b[0]), b[1]), (x, y)


def torchvision_net(name, size, **options):
    import torchvision
    return images(getattr(torchvision.models, name)(**options), size)


def convnext():
    import timm
    return images(timm.create_model("convnext_atto"), 64)


def lstm():
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.lstm, self.head = nn.LSTM(64, 128, 2, batch_first=True), nn.Linear(128, 10)

        def forward(self, x):
            return self.head(self.lstm(x)[0][:, -1])

    x, y = torch.randn(16, 48, 64), torch.randint(0, 10, (16,))
    return Net(), lambda run, b: nn.functional.cross_entropy(run(b[0]), b[1]), (x, y)


def tokens(net, labels=True):
    ids = torch.randint(0, 256, (4, 96))
    if labels:
        return net, lambda run, b: run(input_ids=b, labels=b).loss, ids
    return net, lambda run, b: run(input_ids=b).last_hidden_state.square().mean(), ids


def gpt2():
    from transformers import GPT2Config, GPT2LMHeadModel
    return tokens(GPT2LMHeadModel(GPT2Config(vocab_size=256, n_positions=128, n_embd=128, n_layer=3, n_head=4)))


def llama(attention="sdpa"):
    from transformers import LlamaConfig, LlamaForCausalLM
    return tokens(LlamaForCausalLM(LlamaConfig(vocab_size=256, hidden_size=128, intermediate_size=256, num_hidden_layers=3,
                                               num_attention_heads=4, num_key_value_heads=2,
                                               attn_implementation=attention)))


def bert():
    from transformers import BertConfig, BertModel
    return tokens(BertModel(BertConfig(vocab_size=256, hidden_size=128, num_hidden_layers=3, num_attention_heads=4,
                                       intermediate_size=256), add_pooling_layer=False), labels=False)


def lora():
    import peft
    net, loss, batch = llama()
    config = peft.LoraConfig(r=8, target_modules=["q_proj", "v_proj"], lora_dropout=0.1)
    return peft.get_peft_model(net, config), loss, batch


class Part(nn.Sequential):
    """torch.compile skips the forward function of nn.Sequential itself."""

    def forward(self, x):
        for module in self:
            x = module(x)
        return x


class Gan(nn.Module):
    """Both nets of PyTorch's tutorial, small; one backward pass of the sum of their losses for each."""

    def __init__(self):
        super().__init__()
        self.make = Part(nn.ConvTranspose2d(32, 64, 4), nn.BatchNorm2d(64), nn.ReLU(),
                         nn.ConvTranspose2d(64, 3, 4, 4), nn.Tanh())
        self.judge = Part(nn.Conv2d(3, 64, 4, 2, 1), nn.LeakyReLU(0.2), nn.Conv2d(64, 128, 4, 2, 1),
                          nn.BatchNorm2d(128), nn.LeakyReLU(0.2), nn.Conv2d(128, 1, 4))

    def parts(self):
        return self.make, self.judge

    def forward(self, real, noise):
        return self.judge(real), self.judge(self.make(noise).detach()), self.make(noise)


def gan():
    bce = nn.functional.binary_cross_entropy_with_logits

    def loss(run, batch):
        good, bad, fake = run(*batch)
        (bce(good, torch.ones_like(good)) + bce(bad, torch.zeros_like(bad))).backward()
        judged = run.judge(fake)
        return bce(judged, torch.ones_like(judged))

    return Gan(), loss, (torch.randn(8, 3, 16, 16), torch.randn(8, 32, 1, 1))


NETS = {"resnet50": lambda: torchvision_net("resnet50", 64), "efficientnet_b0": lambda: torchvision_net("efficientnet_b0", 64),
        "vit_b_16": lambda: torchvision_net("vit_b_16", 32, image_size=32), "lstm": lstm, "gpt2": gpt2, "llama": llama,
        "bert": bert, "convnext": convnext, "gan": gan, "lora": lora}
UNCOMPILED = "lstm",  # torch.compile does not trace nn.LSTM
NEEDS = {"resnet50": "torchvision", "efficientnet_b0": "torchvision", "vit_b_16": "torchvision", "gpt2": "transformers",
         "llama": "transformers", "bert": "transformers", "convnext": "timm", "lora": "peft"}


def trained(name, m=None, backend=None):
    """Trains, inside the mm.budget m and compiled by the backend, and returns the state."""
    torch.manual_seed(3)
    loop = Loop(*NETS[name](), backend)
    torch.manual_seed(4)
    for _ in range(STEPS):
        with m if m is not None else contextlib.nullcontext():
            loop.step()
        if m is not None:
            m.settle()
    return {k: v.clone() for k, v in loop.net.state_dict().items()}


def inside(name, bytes, policy):
    """Returns the state, what is told of the budget, and whether that is right."""
    m = mm.budget(bytes, policy, host="2GiB", device="cpu")
    state = trained(name, m)
    stats, found = m.stats, m.coverage
    share = (found.managed_bytes + found.let_go_bytes) / found.counted_bytes
    return state, f"planned {stats.planned}/{stats.iterations}, share {share:.3f}", share >= LEAST_SHARE and not stats.entries


def inside_backend(name, bytes, policy):
    torch._dynamo.reset()
    told = []
    made = mm.backend(bytes, policy, inner="aot_eager", host="2GiB", device="cpu", log=told.append)
    if name in UNCOMPILED:
        m = mm.budget(bytes, policy, host="2GiB", device="cpu")
        state = trained(name, m, made)
        words = f"left to torch: {made.left}, in an mm.budget: peak {m.stats.peak_bytes}"
        return state, words, len(told) == 1 and "mm.budget" in told[0] and 0 < m.stats.peak_bytes <= bytes
    state = trained(name, backend=made)
    stats = made.session.stats
    words = f"saves {made.saved_bytes}, moved {stats.out_bytes}, peak {stats.peak_bytes}, encoded {stats.encoded_bytes}"
    fits = made.saved_bytes <= bytes or stats.out_bytes + stats.encoded_bytes > 0
    return state, words, fits and stats.peak_bytes <= bytes and not stats.entries and not made.left


def tried(name, run, bytes, policy, plain):
    """Trains within a budget, or within the minimum of its refusal. Returns a line, and whether it is right."""
    words = f"{name}, {policy}, {bytes} bytes"
    for _ in range(2):
        try:
            state, told, right = run(name, bytes, policy)
        except mm.Infeasible as error:
            if not error.minimum:
                return f"{words}: refused without a minimum: {error}", False
            bytes, words = error.minimum, f"{words}, refused; {error.minimum} bytes"
            continue
        equal = all(torch.equal(value, state[key]) for key, value in plain.items())
        return f"{words}: {'bit-equal' if equal else 'DIFFERENT'}, {told}", equal and right
    return f"{words}: refused again", False


def most_of(name, compiled):
    """What is saved at a time where nothing is short, in bytes."""
    if compiled and name not in UNCOMPILED:
        torch._dynamo.reset()
        made = mm.backend("2GiB", None, inner="aot_eager", device="cpu")
        trained(name, backend=made)
        return made.saved_bytes
    m = mm.budget("2GiB", "liveness", device="cpu")
    trained(name, m)
    return m.stats.peak_bytes


def main():
    compiled = "--compiled" in sys.argv
    wanted = [a for a in sys.argv[1:] if not a.startswith("-")] or list(NETS)
    torch.set_num_threads(1)
    logging.getLogger("mm_torch").setLevel(logging.ERROR)
    warnings.simplefilter("ignore")
    wrong = 0
    for name in wanted:
        package = NEEDS.get(name, "torch")
        if importlib.util.find_spec(package) is None:
            print(f"{name}: left out, no {package}", flush=True)
            continue
        backend = "aot_eager" if compiled else None
        plain = trained(name, backend=backend)
        if not all(torch.equal(v, w) for v, w in zip(plain.values(), trained(name, backend=backend).values())):
            print(f"{name}: left out, plain torch's weights are not the same twice", flush=True)
            continue
        most = max(1, most_of(name, compiled))
        runs = [(int(share * most), policy) for policy in POLICIES for share in SHARES] + [(int(0.3 * most), ZVC)]
        for bytes, policy in runs:
            told, right = tried(name, inside_backend if compiled else inside, bytes, policy, plain)
            wrong += not right
            print(told + ("" if right else "  <-- WRONG"), flush=True)
    print(f"{wrong} runs are wrong" if wrong else "all runs are right")
    sys.exit(wrong > 0)


if __name__ == "__main__":
    main()
