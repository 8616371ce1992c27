# SPDX-License-Identifier: MIT
"""mm's LoRA against peft's in float64, on transformers' Llama: loss and gradients of one step, the adapters after it.

    lora_peer.py MM [freeze]

transformers makes a small Llama with random weights, which mm takes as --base, and peft's adapters, with random A and
B, as a state that peft itself has saved (--load). mm trains for one iteration of SGD on all rows of a file of tokens;
its momentum after it is the gradient. peft then loads the adapters that mm has saved, under its own names, and says
what the loss is with them. freeze: no adapters; all but the last layer's MLP is frozen."""

import json
import subprocess
import sys

import torch
from peft import LoraConfig, get_peft_model, get_peft_model_state_dict, set_peft_model_state_dict
from safetensors.torch import load_file, save_file

import llama_peer as llama
from networks import expect_near

RANK, ALPHA, LR, TARGETS = 4, 12, 0.5, ["q_proj", "v_proj", "o_proj", "down_proj"]
NET = (f"llama-15m,layers={llama.LAYERS},width={llama.WIDTH},heads={llama.HEADS},kv_heads={llama.KV_HEADS},"
       f"hidden={llama.HIDDEN},context={llama.CONTEXT},vocabulary={llama.VOCABULARY}")


def train(mm, *options):
    done = subprocess.run([mm, "train", "--net", NET, "--base", "llama.safetensors", "--data", "tokens:tokens", "--batch",
                           str(llama.ROWS), "--iterations", "1", "--lr", str(LR), "--momentum", "0.9", "--weight-decay",
                           "0", "--save", "state", "--json", "rows.json", "--quiet", *options],
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    if done.returncode:
        raise SystemExit(done.stdout)
    with open("rows.json", encoding="ascii") as file:
        return json.load(file)[0]["loss_first"]


def loss_of(model, tokens):
    count = llama.ROWS * llama.CONTEXT
    scores = model(tokens[:count].reshape(llama.ROWS, llama.CONTEXT)).logits
    return torch.nn.functional.cross_entropy(scores.reshape(-1, llama.VOCABULARY), tokens[1:count + 1])


def expect_names(state, trained):
    saved = {name for name in state if not name.startswith(("momentum.", "rng"))}
    if saved != set(trained):
        raise SystemExit(f"saved {sorted(saved ^ set(trained))} or not, against peft")


def adapters(mm, model, tokens):
    torch.manual_seed(7)
    model = get_peft_model(model, LoraConfig(r=RANK, lora_alpha=ALPHA, target_modules=TARGETS))
    for name, parameter in model.named_parameters():
        if "lora_" in name:
            torch.nn.init.normal_(parameter, 0.0, 0.1)
    before = {k: v.clone().contiguous() for k, v in get_peft_model_state_dict(model).items()}
    save_file(before, "adapters.safetensors")
    got = train(mm, "--lora", f"rank={RANK},alpha={ALPHA},layers={','.join(TARGETS)}", "--load", "adapters.safetensors")
    model = model.double()
    loss = loss_of(model, tokens)
    loss.backward()
    expect_near("loss", torch.tensor(got).double(), loss.detach(), 1e-5, 0)
    state = load_file("state")
    expect_names(state, before)
    trained = {k.replace(".default", ""): v for k, v in model.named_parameters() if v.requires_grad}
    for name, parameter in trained.items():
        own = name[len("base_model.model.model."):]
        expect_near("gradient of " + name, state["momentum." + own].double(), parameter.grad, 1e-5, 0)
        expect_near(name, state[name].double(), parameter.detach() - LR * parameter.grad, 1e-5, 0)
        with torch.no_grad():
            parameter -= LR * parameter.grad
    after = loss_of(model, tokens).detach()
    set_peft_model_state_dict(model, state)
    expect_near("loss with mm's adapters", loss_of(model, tokens).detach(), after, 1e-5, 0)
    print(f"loss {got:.6f} to {after:.6f} and {len(trained)} adapters' gradients are those of float64")


def frozen(mm, model, tokens):
    last = f"layers.{llama.LAYERS - 1}.mlp"
    got = train(mm, "--freeze", f"*,!{last}")
    model = model.double()
    loss = loss_of(model, tokens)
    loss.backward()
    expect_near("loss", torch.tensor(got).double(), loss.detach(), 1e-5, 0)
    trained = {k[len("model."):]: v for k, v in model.named_parameters() if f".{last}." in k}
    state = load_file("state")
    expect_names(state, trained)
    for name, parameter in trained.items():
        expect_near("gradient of " + name, state["momentum." + name].double(), parameter.grad, 1e-5, 0)
        expect_near(name, state[name].double(), parameter.detach() - LR * parameter.grad, 1e-5, 0)
    print(f"loss {got:.6f} and {len(trained)} gradients are those of float64")


def main(mm, *options):
    model = llama.model_of(True)
    weights = {k: v.contiguous() for k, v in model.state_dict().items() if k != "lm_head.weight"}
    save_file(weights, "llama.safetensors")
    tokens = llama.write_tokens()
    (frozen if "freeze" in options else adapters)(mm, model, tokens)


main(*sys.argv[1:])
