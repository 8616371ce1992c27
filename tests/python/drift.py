# SPDX-License-Identifier: MIT
"""drift [CASE...]: loops whose iterations differ, in plain torch and inside a budget, under a policy that moves all
that it can. Gradients must be bit-equal, iterations leave their plans as often as expected, nothing is left behind, and
the budget holds."""

import gc
import sys

import torch
import torch.utils.checkpoint
from torch import nn

import mm_torch as mm

BUDGET, POLICY = 600_000, "swap-async:when=always"


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = nn.Conv2d(3, 8, 3, padding=1)
        self.blocks = nn.ModuleList(nn.Sequential(nn.BatchNorm2d(8), nn.ReLU(), nn.Conv2d(8, 8, 3, padding=1)) for _ in range(4))
        self.last = nn.Linear(8, 10)

    def forward(self, x, dropped=(), run=lambda block, h: block(h)):
        h = self.first(x)
        for i, block in enumerate(self.blocks):
            if i not in dropped:
                h = h + run(block, h)
        return self.last(torch.relu(h).mean((2, 3)))


class Loop:
    """One run of a case: with a budget, or plain."""

    def __init__(self, m):
        torch.manual_seed(3)
        self.net, self.m, self.found = Net(), m, []
        self.optimizer = torch.optim.SGD(self.net.parameters(), lr=0.01, momentum=0.9)
        self.generator = torch.Generator().manual_seed(5)

    def __enter__(self):
        if self.m:
            self.m.__enter__()
        return self

    def __exit__(self, *error):
        if self.m:
            self.m.__exit__(*error)

    def batch(self, n=8):
        return torch.randn(n, 3, 16, 16, generator=self.generator), torch.randint(10, (n,), generator=self.generator)

    def loss(self, n=8, **how):
        x, y = self.batch(n)
        return nn.functional.cross_entropy(self.net(x, **how), y)

    def settle(self):
        """Waits until planning has ended, so that results do not depend on the machine's speed."""
        if self.m:
            self.m.settle()

    def update(self):
        self.settle()
        self.found += [p.grad.clone() for p in self.net.parameters() if p.grad is not None]
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)

    def step(self, n=8, **how):
        with self:
            loss = self.loss(n, **how)
            loss.backward()
        self.found.append(loss.detach().clone())
        self.update()
        del loss


def epochs(a):
    for n in (8, 8, 8, 5, 8, 8, 8, 5):
        a.step(n)


def dropped_block(a):
    for dropped in ((), (), (2,), (), (2,), (1, 3), ()):
        a.step(dropped=dropped)


def two_forwards(a):
    for i in range(4):
        with a:
            first, second = a.loss(), a.loss()
            (first.backward(), second.backward()) if i % 2 else (second.backward(), first.backward())
        a.update()
        del first, second
    a.step()


def one_weights_gradient(a):
    a.step()
    for weight in (a.net.last.weight, a.net.blocks[2][2].weight, a.net.first.bias):
        with a:
            a.found += torch.autograd.grad(a.loss(), weight)
        a.step()


def retained(a):
    for _ in range(3):
        with a:
            loss = a.loss()
            loss.backward(retain_graph=True)
            loss.backward(retain_graph=True)
        a.update()  # torch's graph lives until the next loss replaces it
    del loss
    a.settle()
    a.step()


def double_backward(a):
    for _ in range(3):
        with a:
            x, y = a.batch()
            x.requires_grad_()
            loss = nn.functional.cross_entropy(a.net(x), y)
            slope, = torch.autograd.grad(loss, x, create_graph=True)
            (loss + (slope ** 2).sum()).backward()
        del loss, slope
        a.update()
    a.step()


def looked_at(a):
    """Reads what a grad_fn has saved outside of any backward pass, as programs may."""
    for _ in range(4):
        with a:
            x, y = a.batch()
            h = torch.sigmoid(x @ a.net.last.weight.new_ones(16, 16).requires_grad_())
            a.found.append(h.grad_fn._saved_result.detach().clone())
            (h.mean() + nn.functional.cross_entropy(a.net(x * h), y)).backward()
        del h
        a.update()


def checkpoint_inside(a):
    for reentrant in (True, False, False, True):
        a.step(run=lambda block, h: torch.utils.checkpoint.checkpoint(block, h, use_reentrant=reentrant))


def checkpoint_outside(a):
    def run(block, h):
        with a:
            return block(h)

    for reentrant in (False, True, False):
        x, y = a.batch()
        loss = nn.functional.cross_entropy(a.net(x, run=lambda block, h: torch.utils.checkpoint.checkpoint(
            run, block, h, use_reentrant=reentrant)), y)
        loss.backward()
        a.update()
        del loss
    a.step()


def abandoned(a):
    a.step()
    for _ in range(3):
        with a:
            loss = a.loss()
        a.found.append(loss.detach().clone())
        del loss
        a.step()


def evaluation(a):
    for i in range(3):
        a.step()
        with a:
            if i % 2:
                with torch.no_grad():
                    a.found.append(a.loss(16))
            else:
                out = a.loss(16)  # by mistake with gradients: its graph lives until the next one
                a.found.append(out.detach().clone())
    del out
    a.step()


def exception(a):
    a.step()

    def fails(gradient):
        raise ArithmeticError("planted")

    for _ in range(2):
        with a:
            loss = a.loss()
            handle = a.net.blocks[1][2].weight.register_hook(fails)
            try:
                loss.backward()
            except ArithmeticError:
                pass
            handle.remove()
            a.optimizer.zero_grad(set_to_none=True)
            del loss
        a.step()


def left_before_backward(a):
    for _ in range(3):
        with a:
            loss = a.loss()
        loss.backward()
        a.update()
        del loss
    a.step()


# For each case: how many of its iterations at least run as planned (not all do: a step of several parts does not wait
# for each plan); how many leave a plan, which happens when an iteration begins like the one before and then differs;
# and the budget, if it is not BUDGET. An iteration that leaves entries (of a graph that is retained until the next
# iteration) is not learned. Policies cannot move all that a double backward saves: with too little budget it runs
# unplanned.
CASES = ((epochs, 6, 0), (dropped_block, 2, 4), (two_forwards, 1, 3), (one_weights_gradient, 6, 0), (retained, 1, 0),
         (double_backward, 0, 0), (double_backward, 2, 1, 700_000), (looked_at, 3, 0), (checkpoint_inside, 1, 2),
         (checkpoint_outside, 1, 1), (abandoned, 6, 0), (evaluation, 2, 0), (exception, 2, 2), (left_before_backward, 3, 0))


def faults(case, planned, off_plan, budget=BUDGET):
    plain = Loop(None)
    case(plain)
    m = mm.budget(budget, POLICY, host="64MiB", device="cpu", log=lambda text: None)
    run = Loop(m)
    case(run)
    if len(run.found) != len(plain.found) or not all(torch.equal(p, q) for p, q in zip(run.found, plain.found)):
        yield "its results are not plain torch's"
    # A budget inside a checkpoint saves what the checkpoint would have run again. In plain torch batch norms count that
    # second run, so here their buffers differ and are not compared.
    state = dict(run.net.named_parameters() if case is checkpoint_outside else run.net.state_dict())
    if not all(torch.equal(value, state[key]) for key, value in plain.net.state_dict().items() if key in state):
        yield "its weights or buffers are not plain torch's"
    gc.collect()
    stats = m.stats
    if stats.entries or stats.kept_bytes:
        yield f"{stats.entries} entries and {stats.kept_bytes} kept bytes are left"
    if stats.peak_bytes > budget:
        yield f"{stats.peak_bytes} bytes in a budget of {budget}"
    if stats.planned < planned or stats.off_plan != off_plan:
        yield f"{stats.planned} iterations as planned, {stats.off_plan} left their plan; expected {planned} and {off_plan}"
    if not stats.puts or not stats.gets:
        yield "nothing was put"
    if "-v" in sys.argv:
        print(case.__name__, stats)


def main():
    failed = 0
    for case, *expected in CASES:
        if any(not name.startswith("-") for name in sys.argv[1:]) and case.__name__ not in sys.argv[1:]:
            continue
        found = list(faults(case, *expected))
        failed += bool(found)
        print(f"{case.__name__}: {'; '.join(found) or 'ok'}", flush=True)
    sys.exit(failed > 0)


if __name__ == "__main__":
    main()
