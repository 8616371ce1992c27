# SPDX-License-Identifier: MIT
"""Networks of torchvision and transformers, exported to ONNX by torch, imported by mm: scores as onnxruntime's.

    onnx_networks.py SCORES NET [EXPORTER]

SCORES: the program //tests/nets_io:onnx_scores. EXPORTER: older (the default), newer, or open (newer, with an open
batch). Weights are random, and none is zero or one, so that no exporter leaves any out.
"""
import logging
import os
import subprocess
import sys
import tempfile
import warnings

import numpy
import onnxruntime
import torch
import torchvision
import transformers

warnings.filterwarnings("ignore")
logging.disable(logging.WARNING)
BATCH = 2


class Scores(torch.nn.Module):
    """Of transformers' outputs, the scores."""

    def __init__(self, model):
        super().__init__()
        self.model = model

    def forward(self, tokens):
        return self.model(tokens, use_cache=False).logits


def model_of(name):
    """The model, and inputs for it."""
    images = torch.randn(BATCH, 3, 64, 64)
    models = torchvision.models
    if name == "gpt2":
        config = transformers.GPT2Config(n_layer=2, n_embd=48, n_head=4, n_positions=32, vocab_size=96, use_cache=False)
        return Scores(transformers.GPT2LMHeadModel(config)), torch.randint(0, 96, (BATCH, 32))
    if name == "vit":
        model = models.VisionTransformer(image_size=32, patch_size=8, num_layers=2, num_heads=4, hidden_dim=32,
                                         mlp_dim=64, num_classes=10)
        return model, torch.randn(BATCH, 3, 32, 32)
    if name == "vgg11":  # at its own size, with a smaller head: 500 MB otherwise
        model = models.vgg11(num_classes=10)
        for at, (inputs, outputs) in {0: (25088, 64), 3: (64, 64), 6: (64, 10)}.items():
            model.classifier[at] = torch.nn.Linear(inputs, outputs)
        return model, torch.randn(BATCH, 3, 224, 224)
    if name == "googlenet":
        return models.googlenet(num_classes=10, aux_logits=False, init_weights=False), images
    return getattr(models, name)(num_classes=10), images


def fill(model):
    with torch.no_grad():
        for name, tensor in list(model.named_parameters()) + list(model.named_buffers()):
            if not tensor.is_floating_point():
                continue
            if tensor.dim() < 2:
                positive = not name.endswith(("bias", "mean"))
                tensor.copy_(torch.rand_like(tensor) / 2 + 0.5 if positive else torch.randn_like(tensor) / 10)
            elif tensor.abs().max() == 0:
                tensor.normal_(std=0.1)


def export(model, inputs, exporter, path):
    if exporter == "older":
        torch.onnx.export(model, (inputs,), path, dynamo=False)
        return
    batch = ({0: torch.export.Dim("batch")},) if exporter == "open" else None
    torch.onnx.export(model, (inputs,), path, dynamo=True, verbose=False, dynamic_shapes=batch)


def log_softmax(scores):
    scores = scores - scores.max(axis=1, keepdims=True)
    return scores - numpy.log(numpy.exp(scores).sum(axis=1, keepdims=True))


def main(program, name, exporter="older"):
    torch.manual_seed(3)
    model, inputs = model_of(name)
    fill(model)
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, name + ".onnx")
        export(model.eval(), inputs, exporter, path)
        session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
        expected = session.run(None, {session.get_inputs()[0].name: inputs.numpy()})[0]
        done = subprocess.run([program, "onnx:" + path, str(BATCH)], input=inputs.float().numpy().tobytes(),
                              stdout=subprocess.PIPE, check=True)
    expected = expected.reshape(-1, expected.shape[-1]).astype(float)
    got = numpy.frombuffer(done.stdout, numpy.float32).reshape(expected.shape).astype(float)
    difference = abs(log_softmax(got) - log_softmax(expected)).max()
    print("%s, %s: %d scores, greatest difference %.1e" % (name, exporter, got.size, difference))
    if not difference < 1e-4 * max(1, abs(log_softmax(expected)).max()):
        raise SystemExit(1)


if __name__ == "__main__":
    main(*sys.argv[1:])
