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


def chain():
    layers = [layer for _ in range(3) for layer in (torch.nn.Linear(64, 64), torch.nn.GELU())]
    return torch.nn.Sequential(*layers), torch.randn(8, 64)


def attention():
    """Saves queries, keys and values, which are parts of one buffer."""
    return torch.nn.TransformerEncoderLayer(32, 2, 64, dropout=0, batch_first=True), torch.randn(2, 8, 32)


def train(net=chain, offloader=None):
    """The weights after a step, and the recording of it."""
    torch.manual_seed(1)
    model, x = net()
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.1)

    def step(offload):
        with offload:
            loss = model(x).square().sum()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        return loss

    if offloader is None:
        step(torch.enable_grad())
        return list(model.parameters()), None
    with Recording() as log:
        assert x.is_cuda and torch.empty(4).device.type == "cpu" and x.cpu().is_pinned()
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


def details():
    """What the log says of single operations."""
    with Recording() as log:
        def events(do, since=0):
            return [event for event in log.events[since:] if event.get("do") == do]

        a, side = torch.ones(256, device="cuda"), torch.cuda.Stream()
        torch._foreach_mul_([a], 2.0)
        assert (events("kernel")[-1]["reads"], events("kernel")[-1]["writes"]) == (["ones.0"], ["ones.0"])
        assert a[0].item() == 2 and a.view(16, 16).shape[0] == 16
        assert [event["blocking"] for event in events("kernel")] == [False, False, True]
        a[:8].zero_()
        assert events("kernel")[-1]["reads"] == ["ones.0"]  # a part is written
        a.zero_()
        assert events("kernel")[-1]["reads"] == []
        address = events("alloc")[0]["address"]
        del a
        with torch.cuda.stream(side):
            b = torch.ones(256, device="cuda")
        c, d = torch.ones(256, device="cuda"), torch.ones(64, device="cuda")
        addresses = [event["address"] for event in events("alloc")]
        assert addresses[2] == address not in (addresses[1], addresses[3])  # freed bytes stay with their stream
        c.record_stream(side)
        del c, d
        c, d = torch.ones(256, device="cuda"), torch.ones(64, device="cuda")
        assert events("alloc")[4]["address"] not in addresses and events("alloc")[5]["address"] == addresses[3]
        at, event = len(log.events), torch.cuda.Event()
        side.wait_event(event)  # holds nothing up
        event.record(side)
        event.synchronize()
        waits, record = events("wait", at), events("record", at)[0]
        assert waits[0]["event"] != record["event"] == waits[1]["event"] and "stream" not in waits[1]
        at = len(log.events)
        half = b.to("cpu", torch.float16)
        assert half.is_pinned() and [e["do"] for e in log.events[at:]] == ["alloc", "kernel", "alloc", "copy"]


def main():
    details()
    cases = {
        "save_on_cpu": (lambda model: torch.autograd.graph.save_on_cpu(), None),
        "save_on_cpu, pinned": (lambda model: torch.autograd.graph.save_on_cpu(pin_memory=True), None),
        "offloader": (Offloader, None),
        **{f"offloader without {fault}": (lambda model, fault=fault: Offloader(model, fault), rule)
           for fault, rule in FAULTS.items()},
    }
    runs = [(chain, *case) for case in cases.items()] + [(attention, *case) for case in list(cases.items())[:3]]
    plain = {net: train(net)[0] for net in (chain, attention)}
    for net, name, (offloader, expected) in runs:
        name = f"{net.__name__}, {name}"
        weights, log = train(net, offloader)
        assert all(map(torch.equal, plain[net], weights)), name
        copies = [event for event in log.events if event.get("do") == "copy"]
        hooks = [event["text"].split()[0] for event in log.events if event.get("do") == "note"]
        assert len(copies) > 8 and hooks.count("pack") == hooks.count("unpack") > 6, (name, len(copies), hooks)
        rule = judged(log, name)
        assert rule == expected, (name, rule)
        print(f"{name}: {len(copies)} copies, {rule or 'proved'}")


main()
