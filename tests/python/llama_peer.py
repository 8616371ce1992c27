# SPDX-License-Identifier: MIT
"""mm's Llama against transformers' in float64: loss and gradients of one step, from transformers' weights.

    llama_peer.py MM [tied]

transformers makes a small Llama with random weights, and safetensors' own library writes them under transformers'
names. mm loads the file and trains for one iteration with the least learning rate, 1e-9, on all rows of a file of
tokens; so SGD's momentum after it is the gradient."""

import json
import struct
import subprocess
import sys

import torch
from safetensors.torch import save_file
from transformers import LlamaConfig, LlamaForCausalLM

from networks import expect_near, load_state

LAYERS, WIDTH, HEADS, KV_HEADS, HIDDEN, CONTEXT, VOCABULARY, ROWS = 2, 64, 4, 2, 96, 32, 97, 4


def model_of(tied):
    config = LlamaConfig(hidden_size=WIDTH, num_hidden_layers=LAYERS, num_attention_heads=HEADS,
                         num_key_value_heads=KV_HEADS, intermediate_size=HIDDEN, vocab_size=VOCABULARY,
                         max_position_embeddings=CONTEXT, rms_norm_eps=1e-5, tie_word_embeddings=tied,
                         attn_implementation="eager", rope_theta=10000.0)
    torch.manual_seed(3)
    model = LlamaForCausalLM(config).float()
    for parameter in model.parameters():  # larger than initial weights, so that all parts count
        torch.nn.init.normal_(parameter, 1.0 if parameter.dim() == 1 else 0.0, 0.1)
    return model


def write_tokens():
    """Of a file's tokens, a tenth is for evaluation."""
    count = ROWS * CONTEXT + 1
    tokens = torch.randint(0, VOCABULARY, (count + count // 9 + 1,), generator=torch.Generator().manual_seed(5))
    with open("tokens", "wb") as file:
        file.write(struct.pack("<%dH" % len(tokens), *tokens.tolist()))
    return tokens


def train(mm, tied):
    name = (f"llama-15m,layers={LAYERS},width={WIDTH},heads={HEADS},kv_heads={KV_HEADS},hidden={HIDDEN},"
            f"context={CONTEXT},vocabulary={VOCABULARY}")
    net = json.loads(subprocess.run([mm, "nets", "--net", name, "--json"], check=True, stdout=subprocess.PIPE).stdout)
    if not tied:
        net["layers"][-1].pop("tied")
    with open("net.json", "w", encoding="ascii") as file:
        json.dump(net, file)
    done = subprocess.run([mm, "train", "--net", "file:net.json", "--load", "llama.safetensors", "--data", "tokens:tokens",
                           "--batch", str(ROWS), "--iterations", "1", "--lr", "1e-9", "--momentum", "0.9",
                           "--weight-decay", "0", "--save", "state", "--json", "rows.json", "--quiet"],
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    if done.returncode:
        raise SystemExit(done.stdout)
    with open("rows.json", encoding="ascii") as file:
        return json.load(file)[0]["loss_first"]


def main(mm, *options):
    tied = "tied" in options
    model = model_of(tied)
    weights = {k: v.contiguous() for k, v in model.state_dict().items() if not (tied and k == "lm_head.weight")}
    save_file(weights, "llama.safetensors")
    tokens = write_tokens()
    got = train(mm, tied)
    model = model.double()
    rows = tokens[:ROWS * CONTEXT].reshape(ROWS, CONTEXT)
    labels = tokens[1:ROWS * CONTEXT + 1].reshape(ROWS, CONTEXT)
    scores = model(rows).logits
    loss = torch.nn.functional.cross_entropy(scores.reshape(-1, VOCABULARY), labels.reshape(-1))
    loss.backward()
    expect_near("loss", torch.tensor(got).double(), loss.detach(), 1e-5, 0)
    state, compared = load_state("state"), 0
    for name, parameter in model.named_parameters():
        gradient = state["momentum." + (name[len("model."):] if name.startswith("model.") else name)]
        expect_near("gradient of " + name, gradient, parameter.grad, 1e-4, 0)
        compared += 1
    print(f"loss {got:.6f} and {compared} gradients are those of float64")


if __name__ == "__main__":
    main(*sys.argv[1:])
