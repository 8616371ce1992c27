# SPDX-License-Identifier: MIT
"""Small networks for the package's programs and tests, with views, in-place operations and shared weights."""

import math

import torch
from torch import nn
from torch.nn import functional as F


class Block(nn.Module):
    """Two convolutions and a shortcut. inplace: ReLUs overwrite the output of batch norm."""

    def __init__(self, n_in, n_out, stride, inplace):
        super().__init__()
        self.conv1 = nn.Conv2d(n_in, n_out, 3, stride, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(n_out)
        self.conv2 = nn.Conv2d(n_out, n_out, 3, 1, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(n_out)
        self.relu = nn.ReLU(inplace)
        self.shortcut = nn.Identity() if stride == 1 and n_in == n_out else nn.Sequential(
            nn.Conv2d(n_in, n_out, 1, stride, bias=False), nn.BatchNorm2d(n_out))

    def forward(self, x):
        h = self.relu(self.bn1(self.conv1(x)))
        h = self.bn2(self.conv2(h))
        h += self.shortcut(x)
        return self.relu(h)


class ResNet(nn.Module):
    """A ResNet of basic blocks. widths, blocks: of each stage. stem: kernel and stride of the first convolution, and
    whether a pool follows."""

    def __init__(self, widths, blocks, stem, inplace, classes=10):
        super().__init__()
        kernel, stride, pool = stem
        layers = [nn.Conv2d(3, widths[0], kernel, stride, kernel // 2, bias=False), nn.BatchNorm2d(widths[0]),
                  nn.ReLU(inplace)] + ([nn.MaxPool2d(3, 2, 1)] if pool else [])
        before = widths[0]
        for i, (width, n) in enumerate(zip(widths, blocks)):
            for j in range(n):
                layers.append(Block(before, width, 2 if i > 0 and j == 0 else 1, inplace))
                before = width
        self.features = nn.Sequential(*layers)
        self.head = nn.Linear(before, classes)

    def forward(self, x):
        return self.head(F.adaptive_avg_pool2d(self.features(x), 1).flatten(1))


class Attention(nn.Module):
    def __init__(self, width, heads, length):
        super().__init__()
        self.heads = heads
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.register_buffer("later", torch.ones(length, length).triu(1).bool())

    def forward(self, x):
        n, t, c = x.shape
        q, k, v = (a.view(n, t, self.heads, c // self.heads).transpose(1, 2) for a in self.qkv(x).split(c, 2))
        scores = (q @ k.transpose(2, 3)) / math.sqrt(c // self.heads)
        scores = scores.masked_fill(self.later[:t, :t], float("-inf"))
        return self.out((F.softmax(scores, -1) @ v).transpose(1, 2).reshape(n, t, c))


class GPT(nn.Module):
    """A pre-norm transformer. The head shares the embedding's weight; q, k and v are views of one tensor."""

    def __init__(self, width=128, blocks=4, heads=4, length=64, words=256):
        super().__init__()
        self.words, self.places = nn.Embedding(words, width), nn.Embedding(length, width)
        self.blocks = nn.ModuleList(nn.ModuleDict({
            "norm1": nn.LayerNorm(width), "attention": Attention(width, heads, length), "norm2": nn.LayerNorm(width),
            "mlp": nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width), nn.Dropout(0.1)),
        }) for _ in range(blocks))
        self.norm = nn.LayerNorm(width)
        nn.init.normal_(self.words.weight, std=0.02)

    def forward(self, x):
        h = self.words(x) + self.places.weight[:x.shape[1]]
        for block in self.blocks:
            h = h + block["attention"](block["norm1"](h))
            h = h + block["mlp"](block["norm2"](h))
        return F.linear(self.norm(h), self.words.weight)


def _images(size):
    def batch(n, generator):
        y = torch.randint(10, (n,), generator=generator)
        return torch.randn(n, 3, size, size, generator=generator) + y.view(n, 1, 1, 1) * 0.1, y
    return batch


def _text(n, generator):
    start, step = torch.randint(256, (2, n, 1), generator=generator)
    words = (start + step % 7 * torch.arange(65)) % 256
    return words[:, :-1].contiguous(), words[:, 1:].contiguous()


# name: constructor, function that makes batches, batch size
NETS = {
    "resnet20": (lambda: ResNet((16, 32, 64), (3, 3, 3), (3, 1, False), False), _images(32), 16),
    "resnet18": (lambda: ResNet((64, 128, 256, 512), (2, 2, 2, 2), (7, 2, True), True), _images(64), 8),
    "gpt": (GPT, _text, 4),
}


def make(name, seed=1):
    """Returns the net, the same for the same seed, and a function batches(n, generator) that returns x and y."""
    torch.manual_seed(seed)
    build, batches, _ = NETS[name]
    return build(), batches


def loss(output, y):
    return F.cross_entropy(output.flatten(0, -2).float(), y.flatten())
