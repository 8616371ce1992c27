# SPDX-License-Identifier: MIT
"""Logs of PyTorch programs: import_torch.py IMPORT MM VERIFY.PY. Run by tests/python/with_torch.

torch's save_on_cpu and an offloader of hooks and streams are proved; without any one wait the latter is refused. The
training step computes the same as without a recording."""
import os
import subprocess
import sys

import torch

IMPORT, MM, SECOND = sys.argv[1:]
sys.path[:0] = [IMPORT, os.path.dirname(os.path.abspath(__file__))]
from log_to_plan import convert  # noqa: E402
from offloader import FAULTS, Offloader  # noqa: E402
from record_torch import Recording  # noqa: E402


def train(offloader=None):
    """The weights after a step, and the recording of it."""
    torch.manual_seed(1)
    layers = [layer for _ in range(3) for layer in (torch.nn.Linear(64, 64), torch.nn.GELU())]
    model, x = torch.nn.Sequential(*layers), torch.randn(8, 64)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)

    def step(offload):
        with offload:
            loss = model(x).square().sum()
        loss.backward()
        optimizer.step()
        return loss

    if offloader is None:
        step(torch.enable_grad())
        return list(model.parameters()), None
    with Recording() as log:
        assert x.is_cuda and torch.zeros(4).device.type == "cpu" and x.cpu().is_pinned()
        step(offloader(model)).item()
    assert not x.is_cuda and not isinstance(torch.cuda.Stream, type(log.stream))
    return list(model.parameters()), log


def judged(log, name):
    """The rule that both checkers name, or None."""
    log.save(f"{name}.log")
    with open(f"{name}.log", encoding="utf-8") as file:
        convert(file).save(f"{name}.plan")
    mm, second = (subprocess.run([*command, f"{name}.plan"], stdout=subprocess.PIPE, text=True, check=False)
                  for command in ([MM, "verify"], [sys.executable, SECOND]))
    rules = [None if r.returncode == 0 else r.stdout.split("refused by rule ")[1].split(":")[0] for r in (mm, second)]
    assert rules[0] == rules[1], (name, rules, mm.stdout, second.stdout)
    return rules[0]


def main():
    plain, _ = train()
    cases = {
        "save_on_cpu": (lambda model: torch.autograd.graph.save_on_cpu(), None),
        "save_on_cpu, pinned": (lambda model: torch.autograd.graph.save_on_cpu(pin_memory=True), None),
        "offloader": (Offloader, None),
        **{f"offloader without {fault}": (lambda model, fault=fault: Offloader(model, fault), rule)
           for fault, rule in FAULTS.items()},
    }
    for name, (offloader, expected) in cases.items():
        weights, log = train(offloader)
        assert all(map(torch.equal, plain, weights)), name
        copies = [event for event in log.events if event.get("do") == "copy"]
        hooks = [event["text"].split()[0] for event in log.events if event.get("do") == "note"]
        assert len(copies) > 8 and hooks.count("pack") == hooks.count("unpack") > 6, (name, len(copies), hooks)
        rule = judged(log, name)
        assert rule == expected, (name, rule)
        print(f"{name}: {len(copies)} copies, {rule or 'proved'}")


main()
