# SPDX-License-Identifier: MIT
"""on_disk: saved tensors that host memory has no room for go on to a disk (disk=), with plain torch's bits; a disk that
is full, and one that is not there, are errors by name, after which training goes on."""

import contextlib
import resource
import tempfile

import torch

import checks
import fitted
import mm_torch as mm
from checks import expect
from mm_torch import planner

STEPS = 4


def same(a, b):
    return all(torch.equal(x, y) for x, y in zip(a, b, strict=True))


def learned(net):
    return [t.detach().clone() for t in net.state_dict().values()]


def train(name, m=None, steps=STEPS):
    """Weights and buffers after some steps."""
    net, loss, x, y = fitted.make(name)
    if callable(m):
        m = m(net, loss, x, y)
    fitted.train(net, loss, x, y, m, steps)
    return learned(net), m


def saved_bytes(name):
    """What a step saves and a budget manages."""
    with_all = mm.budget("1GiB", "liveness", host=0, device="cpu")
    train(name, with_all, 1)
    return with_all.coverage.managed_bytes


def host_memory_overflows_to_the_disk():
    for name, part in (("encoder", 8),):
        plain, _ = train(name)
        saved = saved_bytes(name)
        budget, host = saved * 2 // 5, saved // part
        with tempfile.TemporaryDirectory() as folder:
            m = mm.budget(budget, "swap-async", host=host, device="cpu", disk=(folder, "256MiB"))
            found, _ = train(name, m)
            what = f"{name} in {budget} of {saved} bytes and {host} of the host"
            expect(f"{what}: plain torch's bits", same(found, plain))
            stats = m.stats
            expect(f"{what}: some is stored, and loaded", stats.store_bytes > 0 and stats.load_bytes > 0, stats)
            expect(f"{what}: none lies in ordinary memory", stats.host_bytes == 0, stats.host_bytes)
            expect(f"{what}: iterations run as planned", stats.planned > 0, stats)
            expect(f"{what}: the budget holds", stats.peak_bytes <= budget, stats.peak_bytes)
            expect(f"{what}: the report says it", "; to the disk " in m.report() and "stored on disk" in m.report(), m.report())
            with tempfile.NamedTemporaryFile() as file:
                m.snapshot(file.name)


def steps_are_fitted_with_a_disk():
    plain, _ = train("encoder")
    saved = saved_bytes("encoder")
    rules = {"layers.*.self_attn": "recompute", "*": "swap-async"}
    with tempfile.TemporaryDirectory() as folder:
        for more in ({"host": saved // 8, "disk": (folder, "256MiB", "1GB")}, {"disk": (folder, "256MiB")}):
            found, plan = train("encoder", lambda *given: mm.fit(*given, saved // 2, rules, device="cpu", **more))
            expect(f"fit {more}: plain torch's bits", same(found, plain))
            expect(f"fit {more}: some run again, some moves", plan.stats.out_bytes > 0 and
                   any(v.action == "recompute" for v in plan.verdicts), plan.stats)
            if "host" in more:
                expect(f"fit {more}: some is stored", plan.stats.store_bytes > 0 and plan.stats.host_bytes == 0, plan.stats)


def requirements_say_what_the_disk_takes():
    g = planner.Graph("maps")
    for i in range(6):
        g.tensor(f"m{i}", "feature map", 1 << 20)
        g.layer(f"l{i}")
        g.step(f"l{i}", "forward", reads=[f"m{i - 1}"] if i else [], writes=[f"m{i}"])
    for i in reversed(range(6)):
        g.step(f"l{i}", "backward", reads=[f"m{i}"])
    free = planner.require(g, "swap-async", budget=3 << 20, pinned=None)
    tight = {"policy": "swap-async", "budget": 3 << 20, "pinned": free["pinned_bytes"] // 2}
    without, with_disk = planner.require(g, **tight), planner.require(g, **tight, disk=(1 << 30, 0))
    expect("without a disk it does not fit", free["fits"] and not without["fits"] and without["disk_bytes"] == 0, without)
    expect("with one it does", with_disk["fits"] and with_disk["pinned_bytes"] <= tight["pinned"], with_disk)
    expect("what it takes is said", with_disk["disk_bytes"] >= 1 << 20 and with_disk["disk_limit_bytes"] == 1 << 30 and
           with_disk["graphs"][0]["stored_bytes"] >= 2 << 20, with_disk)
    expect("a limit holds", not planner.require(g, **tight, disk=(1 << 16, 0))["fits"])


@contextlib.contextmanager
def files_of(most):
    """Files of this process may have so many bytes: a write beyond fails, as on a full disk."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (most, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def a_full_disk_is_named_and_training_goes_on():
    saved = saved_bytes("encoder")
    plain, _ = train("encoder", steps=3)
    for planned in (False, True):
        with tempfile.TemporaryDirectory() as folder:
            m = mm.budget(saved * 2 // 5, "swap-async", host=saved // 8, device="cpu", disk=(folder, "256MiB"),
                          unplanned=not planned, log=lambda text: None)
            net, loss, x, y = fitted.make("encoder")
            torch.manual_seed(fitted.SEED + 1)
            optimizer = torch.optim.SGD(net.parameters(), lr=0.05, momentum=0.9)

            def step():
                with m:
                    value = loss(net(x), y)
                    value.backward()
                optimizer.step()
                optimizer.zero_grad(set_to_none=True)

            step()
            m.settle()
            before, random, told = learned(net), torch.get_rng_state(), None
            try:
                with files_of(1):
                    step()
            except OSError as error:
                told = str(error)
            expect(f"planned {planned}: a full disk is an error, and named", told and f"disk {folder}" in told, told)
            expect(f"planned {planned}: nothing was learned", same(learned(net), before))
            optimizer.zero_grad(set_to_none=True)
            torch.set_rng_state(random)
            step()
            step()
            expect(f"planned {planned}: training goes on with plain torch's bits", same(learned(net), plain))


def disks_that_make_no_sense_are_refused():
    with tempfile.TemporaryDirectory() as folder:
        for bad in (folder, (folder,), (folder, "much"), (folder, 0), (folder, "1GiB", "fast"), (folder, 1, 2, 3), (7, "1GiB"),
                    (f"{folder}/none", "1GiB"), ("/dev/null", "1GiB")):
            try:
                mm.budget("1MiB", device="cpu", disk=bad)
                expect(f"disk {bad!r} is refused", False)
            except ValueError as error:
                named = str(bad[0]) if isinstance(bad, tuple) else bad
                expect(f"disk {bad!r} is refused by name", "disk " in str(error) and named in str(error), error)


if __name__ == "__main__":
    checks.run(host_memory_overflows_to_the_disk, steps_are_fitted_with_a_disk, requirements_say_what_the_disk_takes,
               a_full_disk_is_named_and_training_goes_on, disks_that_make_no_sense_are_refused)
