# SPDX-License-Identifier: MIT
"""Weights as torchvision and transformers name them, in files that safetensors' own library writes, load into mm.

    published.py MM NET TYPE [PREFIX]

Makes NET's model with random weights, saves them with elements of TYPE (float32, float16, bfloat16) and PREFIX before
names, trains one iteration with the least learning rate, and compares the saved state with the file. NET is one of
torchvision's models, or gpt2.
"""
import os
import subprocess
import sys

import safetensors.torch
import torch
import torchvision
import transformers

NETS = {"gpt2": "gpt2,layers=2,width=48,heads=4,context=32,vocabulary=96", "vit_b_16": "vit_b_16@32,classes=10",
        "vgg11": "vgg11,classes=10"}


def model_of(name):
    torch.manual_seed(3)
    if name == "gpt2":
        config = transformers.GPT2Config(n_layer=2, n_embd=48, n_head=4, n_positions=32, vocab_size=96)
        return transformers.GPT2LMHeadModel(config)
    sized = {"image_size": 32} if name.startswith("vit") else {}
    return getattr(torchvision.models, name)(num_classes=10, **sized)


def main(mm, name, kind, prefix=""):
    state = {k: v for k, v in model_of(name).state_dict().items() if k != "lm_head.weight"}  # tied to wte
    kinds = {"float32": torch.float32, "float16": torch.float16, "bfloat16": torch.bfloat16}
    state = {prefix + k: v.to(kinds[kind]) if v.is_floating_point() else v for k, v in state.items()}
    safetensors.torch.save_file(state, "published", metadata={"format": "pt"})
    net = NETS.get(name, name + "@64,classes=10")
    command = [mm, "train", "--net", net, "--batch", "2", "--iterations", "1", "--lr", "1e-9", "--momentum", "0",
               "--weight-decay", "0", "--quiet", "--load", "published", "--save", "trained"]
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False)
    if done.returncode:
        raise SystemExit(done.stdout.decode())
    trained = safetensors.torch.load_file("trained")
    compared = 0
    for key, value in state.items():
        if "running_" in key or not value.is_floating_point():
            continue  # an iteration changes running statistics
        got = trained[key[len(prefix):] if name != "gpt2" else key[len(prefix + "transformer."):]]
        if got.shape != value.shape or not torch.allclose(got, value.float(), rtol=1e-6, atol=1e-6):
            raise SystemExit("%s: other values than in the file" % key)
        compared += 1
    os.remove("published")
    os.remove("trained")
    print("%s: %d tensors of %s" % (name, compared, kind))


if __name__ == "__main__":
    main(*sys.argv[1:])
