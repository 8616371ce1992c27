# SPDX-License-Identifier: MIT
"""minimum_runs: a budget that is too small is refused once; the minimum that is named then runs, with equal bits."""

import contextlib
import random

import torch
from torch import nn

import accepted
import checks
import mm_torch as mm
from checks import expect
from mm_torch import models

STEPS = 5


def trained(make, m=None, settles=True):
    """Trains a net of make(), which returns the net and a function that runs a step's forward and backward passes."""
    torch.manual_seed(3)
    random.seed(3)
    net, step = make()
    torch.manual_seed(4)
    optimizer = torch.optim.SGD(net.parameters(), lr=1e-3, momentum=0.9)
    for _ in range(STEPS):
        with m if m is not None else contextlib.nullcontext():
            step()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        if m is not None and settles:
            m.settle()
    return [p.detach().clone() for p in net.parameters()]


def simple(run, *shape):
    """A net of one weight."""
    def make():
        net = nn.ParameterList([nn.Parameter(torch.randn(*shape))])
        return net, lambda: run(net[0]).sum().backward()
    return make


def resnet20():
    net, batches = models.make("resnet20")
    x, y = batches(2, torch.Generator().manual_seed(1))
    return net, lambda: models.loss(net(x), y).backward()


def gpt():
    net, batches = models.make("gpt")
    x, y = batches(1, torch.Generator().manual_seed(1))
    return net, lambda: models.loss(net(x), y).backward()


def of_accepted(name):
    def make():
        net, loss, batch = accepted.NETS[name]()
        return net, lambda: loss(net, batch).backward()
    return make


def retained():
    net, kept = nn.Sequential(*(nn.Sequential(nn.Linear(64, 64), nn.Tanh()) for _ in range(4))), []
    x = torch.randn(32, 64)

    def step():
        kept[:] = [net(x).square().sum()]
        kept[0].backward(retain_graph=True)
    return net, step


def sizes_that_change():
    net = nn.Sequential(*(nn.Sequential(nn.Linear(64, 64), nn.Tanh()) for _ in range(4)))
    return net, lambda: net(torch.randn(random.choice((16, 32, 48)), 64)).square().sum().backward()


def masked(w):
    """Masks seem to be the program's, and are moved from the second iteration on."""
    h = w
    for _ in range(6):
        mask = torch.rand_like(h) > 0.5
        h = (h * mask.float()).sin()
    return h


def fragmented(w):
    """Pieces of many sizes, several of which are held at once."""
    parts = [w.narrow(0, 0, n).exp() * w.narrow(0, 0, n).sin() for n in (64, 24, 8, 56, 16, 40)]
    return torch.cat(parts).tanh() * torch.cat([p.cos() for p in reversed(parts)])


LOOPS = {
    "two held at once": simple(lambda w: w.repeat(3, 1).exp() * w.repeat(3, 1).sin(), 64, 64),
    "one that is larger": simple(lambda w: w.exp().repeat(9, 1).tanh().sin(), 64, 64),
    "pieces of many sizes": simple(fragmented, 64, 64),
    "masks": simple(masked, 128, 64),
    "second gradients": simple(lambda w: torch.autograd.grad(w.tanh().exp().sin().sum(), w, create_graph=True)[0].square(), 96, 64),
    "retained": retained,
    "sizes that change": sizes_that_change,
    "resnet20": resnet20,
    "gpt": gpt,
    "lstm": of_accepted("lstm"),
    "gan": of_accepted("gan"),
}


def refusal(make, bytes, policy, settles=True):
    """Trains within a budget. Returns the refusal and the weights; one of them is None."""
    m = mm.budget(bytes, policy, host="256MiB", device="cpu", log=lambda text: None)
    try:
        return None, trained(make, m, settles)
    except mm.Infeasible as error:
        expect("the budget is in the message", str(bytes) in str(error), error)
        expect("and so is what would be enough", str(error.minimum) in str(error) and error.minimum > bytes, error)
        return error.minimum, None


def a_minimum_runs():
    for name, make in LOOPS.items():
        plain = trained(make)
        roomy = mm.budget("1GiB", "liveness", device="cpu", log=lambda text: None)
        trained(make, roomy)
        refused = 0
        for policy, share, settles in (("swap-async", 0.02, True), ("swap-async", 0.1, False), ("swap-async", 0.25, True),
                                       ("liveness", 0.3, True), ("auto", 0.02, True),
                                       ("freelunch:codec=zvc,eligible=all,when=always", 0.2, True)):
            bytes = max(256, int(share * roomy.stats.peak_bytes) // 256 * 256)
            minimum, found = refusal(make, bytes, policy, settles)
            words = f"{name}, {policy} in {bytes}, settles {settles}"
            if minimum is not None:
                refused += 1
                words += f", refused; in {minimum}"
                minimum, found = refusal(make, minimum, policy, settles)
            expect(f"{words}: it runs", minimum is None, minimum)
            expect(f"{words}: equal bits", minimum is not None or all(map(torch.equal, plain, found)))
        expect(f"{name}: some budgets are refused", refused > 1, refused)


if __name__ == "__main__":
    torch.set_num_threads(1)
    checks.run(a_minimum_runs)
