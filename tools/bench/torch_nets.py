# SPDX-License-Identifier: MIT
"""Builds in PyTorch the networks of mm's zoo, layer by layer, with their optimizers and batches."""

RATE, MOMENTUM, WEIGHT_DECAY = 0.1, 0.9, 1e-4  # of SGD
GPT_RATE = 6e-4  # of AdamW

# ---------------------------------------------------------------- images


def bottleneck(nn, cin, width, stride):
    class Bottleneck(nn.Module):
        def __init__(self):
            super().__init__()
            cout = 4 * width
            self.main = nn.Sequential(
                nn.Conv2d(cin, width, 1, bias=False), nn.BatchNorm2d(width), nn.ReLU(inplace=True),
                nn.Conv2d(width, width, 3, stride, 1, bias=False), nn.BatchNorm2d(width), nn.ReLU(inplace=True),
                nn.Conv2d(width, cout, 1, bias=False), nn.BatchNorm2d(cout))
            self.past = None
            if stride != 1 or cin != cout:
                self.past = nn.Sequential(nn.Conv2d(cin, cout, 1, stride, bias=False), nn.BatchNorm2d(cout))
            self.relu = nn.ReLU(inplace=True)

        def forward(self, x):
            return self.relu(self.main(x) + (x if self.past is None else self.past(x)))

    return Bottleneck()


def resnet(nn, stages):
    blocks = [nn.Sequential(nn.Conv2d(3, 64, 7, 2, 3, bias=False), nn.BatchNorm2d(64), nn.ReLU(inplace=True),
                            nn.MaxPool2d(3, 2, 1))]
    cin = 64
    for stage, n in enumerate(stages):
        width = 64 << stage
        for i in range(n):
            blocks.append(bottleneck(nn, cin, width, 2 if stage and not i else 1))
            cin = 4 * width
    blocks.append(nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(cin, 1000)))
    return blocks


def resnet_cifar(nn, n):
    """A ResNet of basic blocks for 32x32 images, with projections where the shape changes."""
    def block(cin, cout, stride):
        class Basic(nn.Module):
            def __init__(self):
                super().__init__()
                self.main = nn.Sequential(nn.Conv2d(cin, cout, 3, stride, 1, bias=False), nn.BatchNorm2d(cout),
                                          nn.ReLU(inplace=True), nn.Conv2d(cout, cout, 3, 1, 1, bias=False),
                                          nn.BatchNorm2d(cout))
                self.past = nn.Identity() if cin == cout else nn.Sequential(
                    nn.Conv2d(cin, cout, 1, stride, bias=False), nn.BatchNorm2d(cout))
                self.relu = nn.ReLU(inplace=True)

            def forward(self, x):
                return self.relu(self.main(x) + self.past(x))

        return Basic()

    blocks = [nn.Sequential(nn.Conv2d(3, 16, 3, 1, 1, bias=False), nn.BatchNorm2d(16), nn.ReLU(inplace=True))]
    for stage in range(3):
        for i in range(n):
            first = stage and not i
            blocks.append(block(16 << (stage - 1) if first else 16 << stage, 16 << stage, 2 if first else 1))
    blocks.append(nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(64, 10)))
    return blocks


def segments_of(nn, layers, n=4):
    """Cuts a network without blocks into n parts of about as many layers. No part begins with a ReLU: it works in
    place, and a part's input must not change, so that the part can run again."""
    at = [len(layers) * i // n for i in range(n + 1)]
    for i in range(1, n):
        while isinstance(layers[at[i]], nn.ReLU):
            at[i] += 1
    return [nn.Sequential(*layers[a:b]) for a, b in zip(at, at[1:])]


def vgg(nn, groups):
    layers, cin = [], 3
    for group, n in enumerate(groups):
        cout = min(64 << group, 512)
        for _ in range(n):
            layers += [nn.Conv2d(cin, cout, 3, padding=1), nn.ReLU(inplace=True)]
            cin = cout
        layers.append(nn.MaxPool2d(2))
    layers += [nn.Flatten(), nn.Linear(512 * 7 * 7, 4096), nn.ReLU(inplace=True), nn.Dropout(),
               nn.Linear(4096, 4096), nn.ReLU(inplace=True), nn.Dropout(), nn.Linear(4096, 1000)]
    return segments_of(nn, layers)


def alexnet(nn):
    def conv(cin, cout, kernel, stride=1, pad=1):
        return [nn.Conv2d(cin, cout, kernel, stride, pad), nn.ReLU(inplace=True)]

    layers = conv(3, 64, 11, 4, 2) + [nn.MaxPool2d(3, 2)] + conv(64, 192, 5, 1, 2) + [nn.MaxPool2d(3, 2)]
    layers += conv(192, 384, 3) + conv(384, 256, 3) + conv(256, 256, 3) + [nn.MaxPool2d(3, 2), nn.Flatten()]
    layers += [nn.Dropout(), nn.Linear(256 * 6 * 6, 4096), nn.ReLU(inplace=True), nn.Dropout(),
               nn.Linear(4096, 4096), nn.ReLU(inplace=True), nn.Linear(4096, 1000)]
    return segments_of(nn, layers)


def mobilenet_v2(nn):
    """Inverted residuals: expanded, filtered channel by channel, projected (Sandler et al. 2018)."""
    def conv(cin, cout, kernel=1, stride=1, groups=1):
        return [nn.Conv2d(cin, cout, kernel, stride, kernel // 2, groups=groups, bias=False), nn.BatchNorm2d(cout)]

    class Inverted(nn.Module):
        def __init__(self, cin, cout, stride, expand):
            super().__init__()
            wide = cin * expand
            layers = [*conv(cin, wide), nn.ReLU6(inplace=True)] if expand > 1 else []
            self.main = nn.Sequential(*layers, *conv(wide, wide, 3, stride, wide), nn.ReLU6(inplace=True),
                                      *conv(wide, cout))
            self.adds = stride == 1 and cin == cout

        def forward(self, x):
            return x + self.main(x) if self.adds else self.main(x)

    blocks, cin = [nn.Sequential(*conv(3, 32, 3, 2), nn.ReLU6(inplace=True))], 32
    for expand, cout, n, stride in ((1, 16, 1, 1), (6, 24, 2, 2), (6, 32, 3, 2), (6, 64, 4, 2), (6, 96, 3, 1),
                                    (6, 160, 3, 2), (6, 320, 1, 1)):
        for i in range(n):
            blocks.append(Inverted(cin, cout, stride if i == 0 else 1, expand))
            cin = cout
    blocks.append(nn.Sequential(*conv(cin, 1280), nn.ReLU6(inplace=True), nn.AdaptiveAvgPool2d(1), nn.Flatten(),
                                nn.Dropout(0.2), nn.Linear(1280, 1000)))
    return blocks


NETS = {
    "alexnet": alexnet,
    "mobilenet_v2": mobilenet_v2,
    "vgg11": lambda nn: vgg(nn, [1, 1, 2, 2, 2]),
    "vgg16": lambda nn: vgg(nn, [2, 2, 3, 3, 3]),
    "resnet20": lambda nn: resnet_cifar(nn, 3),
    "resnet32": lambda nn: resnet_cifar(nn, 5),
    "resnet50": lambda nn: resnet(nn, [3, 4, 6, 3]),
    "resnet101": lambda nn: resnet(nn, [3, 4, 23, 3]),
    "resnet152": lambda nn: resnet(nn, [3, 8, 36, 3]),
}

CIFAR = ("resnet20", "resnet32")  # images of 32x32 in 10 classes


# ---------------------------------------------------------------- tokens

FAMILIES = {  # as in the zoo
    "gpt": {"layers": 4, "width": 128, "heads": 4, "context": 128, "vocabulary": 256, "dropout": 0},
    "gpt2": {"layers": 12, "width": 768, "heads": 12, "context": 1024, "vocabulary": 50257, "dropout": 0},
}


def sizes_of(net):
    """The sizes of a GPT by mm's name, such as "gpt,layers=2,width=64"; None: not a GPT that can be built here."""
    family, *options = net.split(",")
    sizes = dict(FAMILIES.get(family, {}))
    for option in options:
        key, _, value = option.partition("=")
        if key not in sizes or not value.isdecimal():
            return None
        sizes[key] = int(value)
    if not sizes or sizes.pop("dropout") or not all(sizes.values()) or sizes["width"] % sizes["heads"]:
        return None
    return sizes


def parts_of(torch, sizes):
    """The network as a sequence of modules: the embedding, each block, and the scores of the next token."""
    nn, functional = torch.nn, torch.nn.functional
    layers, width, heads, context, vocabulary = sizes.values()
    fused = hasattr(functional, "scaled_dot_product_attention")  # since PyTorch 2.0; it holds no context x context map

    class Embedding(nn.Module):
        def __init__(self):
            super().__init__()
            self.wte, self.wpe = nn.Embedding(vocabulary, width), nn.Embedding(context, width)

        def forward(self, tokens):
            return self.wte(tokens) + self.wpe.weight

    class Block(nn.Module):
        def __init__(self):
            super().__init__()
            self.ln_1, self.ln_2 = nn.LayerNorm(width), nn.LayerNorm(width)
            self.attn, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
            self.fc, self.proj = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
            if not fused:
                self.register_buffer("hidden", torch.ones(context, context).triu(1).bool(), persistent=False)

        def attend(self, q, k, v):
            if fused:
                return functional.scaled_dot_product_attention(q, k, v, is_causal=True)
            scores = (q @ k.transpose(-1, -2) / (width // heads) ** 0.5).masked_fill(self.hidden, float("-inf"))
            return torch.softmax(scores, -1) @ v

        def forward(self, x):
            n, t, w = x.shape
            q, k, v = (part.reshape(n, t, heads, -1).transpose(1, 2) for part in self.attn(self.ln_1(x)).chunk(3, dim=-1))
            x = x + self.out(self.attend(q, k, v).transpose(1, 2).reshape(n, t, w))
            return x + self.proj(functional.gelu(self.fc(self.ln_2(x)), approximate="tanh"))

    class Scores(nn.Module):
        def __init__(self, wte):
            super().__init__()
            self.wte, self.ln_f = wte, nn.LayerNorm(width)

        def forward(self, x):
            return functional.linear(self.ln_f(x), self.wte.weight)

    embedding = Embedding()
    parts = [embedding, *(Block() for _ in range(layers)), Scores(embedding.wte)]
    for values in nn.ModuleList(parts).parameters():
        if values.dim() == 2:
            nn.init.normal_(values, std=0.02)
    return parts


# ---------------------------------------------------------------- to train

NAMES = ", ".join([*NETS, *FAMILIES])


def is_known(net):
    return net in NETS or sizes_of(net) is not None


def build(torch, name, mode):
    nn, sizes = torch.nn, sizes_of(name)
    parts = nn.ModuleList(parts_of(torch, sizes) if sizes else NETS[name](nn))
    again = len(parts) - 1 if mode.endswith("checkpoint") else 0  # not the last part, whose backward pass comes at once

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.parts = parts

        def forward(self, x):
            for i, part in enumerate(self.parts):
                if i < again:
                    x = torch.utils.checkpoint.checkpoint(part, x, use_reentrant=False)
                else:
                    x = part(x)
            return x

    return Net()


def batch_of(torch, net, batch, image_size):
    """Random samples and labels on the host."""
    sizes = sizes_of(net)
    if sizes:
        tokens = torch.randint(sizes["vocabulary"], (batch, sizes["context"] + 1))
        return tokens[:, :-1].contiguous(), tokens[:, 1:].contiguous()
    image_size, classes = (32, 10) if net in CIFAR else (image_size, 1000)
    return torch.randn(batch, 3, image_size, image_size), torch.randint(classes, (batch,))


def optimizer_of(torch, net, model):
    """SGD; for a GPT AdamW with weight decay on matrices only, as mm's. Both in torch's fused form, the
    fastest on GPUs and CPUs."""
    values = list(model.parameters())
    if not sizes_of(net):
        return torch.optim.SGD(values, RATE, MOMENTUM, weight_decay=WEIGHT_DECAY, fused=True)
    return torch.optim.AdamW([{"params": [p for p in values if p.dim() == 2]},
                              {"params": [p for p in values if p.dim() != 2], "weight_decay": 0}],
                             lr=GPT_RATE, fused=True)
