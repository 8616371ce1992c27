# SPDX-License-Identifier: MIT
"""mm.plan: what a training step needs, and what each policy would do with it, without running it."""

import collections
import sys
from typing import Any, Callable, Dict, List, Optional, Sequence, Tuple

import torch

from . import joint, machine, planner, session
from .picture import table

POLICIES = ("liveness", "recompute-swap", "swap-async", "auto")
_SHOWN = 8  # modules, or holders of a peak, that a text has at most


class Plan:
    """What plan() found out. str() is its text; figures() its content as a dict for JSON; svg(path) a picture of memory
    over the step; html(path) a page of all; graph.save(path) a file for `mm plan --graph`.

    step: joint.Step. needs: {policy: what planner.require returns}. largest: {"torch" or a policy: the largest batch
    that fits (None: not known)}; why_not: why these are not known."""

    def __init__(self, name: str, step: joint.Step, rates: machine.Machine, budget: int):
        self.name, self.step, self.machine, self.budget_bytes = name, step, rates, budget
        built = step.graph()
        self.graph, self._path, self._times = built.graph, built.path, built.times(rates)
        self.torch_ns = step.time_ns(rates)
        self.needs: Dict[str, Dict] = {}
        self.largest: Dict[str, Optional[int]] = {}
        self.why_not = ""

    # ------------------------------------------------------------ what it is made of

    def require(self, policy: str, budget: int, host: Optional[int], disk: Tuple[int, int] = (0, 0)) -> Dict:
        """planner.require for this step, with the machine's rates."""
        return planner.require(self.graph, policy, budget, host, self._times, _rates(self.machine, self._halves()),
                               disk=disk)

    def _halves(self) -> bool:
        """Whether most saved bytes are of bf16."""
        return 2 * sum(s.bytes for s in self.step.saved if s.dtype == "bf16") > self.step.saved_bytes

    def modules(self, policy: str) -> List[Dict]:
        """What a policy does with the maps that wait for the backward pass, by module path (numbers as *): dicts with
        "module", "bytes", and "actions", {action: bytes}; the largest first."""
        sums: Dict[str, collections.Counter] = collections.defaultdict(collections.Counter)
        for entry in self.needs[policy]["graphs"][0]["stashed"]:
            where = joint.pattern(self._path.get(entry["tensor"], "")) or "(outside modules)"
            sums[where]["+".join(entry["actions"])] += entry["bytes"]
        rows = [{"module": module, "bytes": sum(actions.values()), "actions": dict(actions.most_common())}
                for module, actions in sums.items()]
        return sorted(rows, key=lambda row: -row["bytes"])

    def fits(self, policy: str = "torch") -> bool:
        """Whether a policy's plan, or plain torch, fits the budget."""
        return self.step.peak_bytes <= self.budget_bytes if policy == "torch" else self.needs[policy]["fits"]

    def figures(self) -> Dict:
        """All as a dict for JSON. Bytes and ns."""
        step, peak = self.step, self.step.ops[self.step.peak_at]
        return {
            "format": "mm torch plan", "version": 1, "net": self.name, "batch": step.batch, "gpu": step.gpu,
            "machine": self.machine.name, "machine_estimated": self.machine.estimated, "budget_bytes": self.budget_bytes,
            "weight_bytes": step.bytes_of("weight"), "gradient_bytes": step.bytes_of("weight gradient"),
            "optimizer_bytes": step.bytes_of("optimizer state"), "state_bytes": step.bytes_of("state"),
            "saved_bytes": step.saved_bytes, "operators": len(step.ops), "kernels": step.kernels,
            "torch": {"fits": self.fits(), "peak_bytes": step.peak_bytes, "iteration_ns": self.torch_ns,
                      "largest_batch": self.largest.get("torch"),
                      "held_by": {"operator": peak.work.name, "phase": peak.phase, "module": peak.path},
                      "held": [{"kind": role, "module": path, "bytes": n} for role, path, n in step.holders()]},
            "policies": [{"policy": policy, "fits": needs["fits"], "least_bytes": needs["least_bytes"],
                          "planned_bytes": needs["planned_bytes"], "pinned_bytes": needs["pinned_bytes"],
                          "disk_bytes": needs["disk_bytes"],
                          "lossy": needs["lossy"], "iteration_ns": needs["iteration_ns"],
                          "steps_again": needs["graphs"][0]["steps_again"], "held_by": needs["graphs"][0]["held_by"],
                          "largest_batch": self.largest.get(policy), "modules": self.modules(policy)}
                         for policy, needs in self.needs.items()],
            "largest_unknown": self.why_not}

    def svg(self, path: str) -> None:
        """Draws memory over the step. OSError."""
        from . import plan_picture
        _write(path, plan_picture.svg(self))

    def html(self, path: str) -> None:
        """Writes a page with picture and figures. OSError."""
        from . import plan_picture
        _write(path, plan_picture.html(self))

    # ------------------------------------------------------------ text

    def __str__(self) -> str:
        return "\n".join([*self._head(), *self._peak(), *self._policies(), *self._actions(), *self._notes()])

    def _head(self):
        step, size = self.step, session.text_of
        source = f", rates {machine.ESTIMATED}" if self.machine.estimated else ""
        roles = (("weights", "weight"), ("gradients", "weight gradient"), ("optimizer", "optimizer state"),
                 ("other state", "state"))
        own = ", ".join(f"{words} {size(step.bytes_of(role))}" for words, role in roles if step.bytes_of(role))
        batch = f", batch {step.batch}" if step.batch is not None else ""
        return [f"{self.name}{batch}, {self.machine.name}{source}: plan for {size(self.budget_bytes)}",
                f"  {own}", f"  saved for the backward pass: {size(step.saved_bytes)} in {len(step.saved)} tensors"]

    def _peak(self):
        step, size = self.step, session.text_of
        op = step.ops[step.peak_at]
        lines = [f"  peak of plain torch: {size(step.peak_bytes)}, {'fits' if self.fits() else 'does not fit'}; at "
                 f"{op.path or op.phase} {op.work.name} ({op.phase}); of it"]
        rows = [(f"    {role}", path, size(n)) for role, path, n in step.holders()]
        return lines + table(rows[:_SHOWN], (2,)) + ([f"    and {len(rows) - _SHOWN} more"] if len(rows) > _SHOWN else [])

    def _policies(self):
        size, ms = session.text_of, lambda ns: f"{ns / 1e6:.1f}" if ns else "-"
        batch = lambda who: "-" if self.largest.get(who) is None else str(self.largest[who])
        rows = [("policy", "needs", "planned", "fits", "ms", "largest batch"),
                ("plain torch", size(self.step.peak_bytes), size(self.step.peak_bytes), "yes" if self.fits() else "no",
                 ms(self.torch_ns), batch("torch"))]
        for policy, needs in self.needs.items():
            rows.append((policy + (" (lossy)" if needs["lossy"] else ""), size(needs["least_bytes"]),
                         size(needs["planned_bytes"]), "yes" if needs["fits"] else "no", ms(needs["iteration_ns"]),
                         batch(policy)))
        least = min(self.needs.items(), key=lambda item: item[1]["least_bytes"], default=None)
        lines = ["", *table(rows, (1, 2, 4, 5))]
        if least is not None:
            lines.append(f"the minimum is {size(least[1]['least_bytes'])}, by {least[0]}; held by "
                         f"{least[1]['graphs'][0]['held_by']}")
        return lines + ([f"the largest batch is not known: {self.why_not}"] if self.why_not else [])

    def _actions(self):
        size, lines = session.text_of, []
        for policy, needs in self.needs.items():
            rows = self.modules(policy)
            if not rows or all(set(row["actions"]) == {"keep"} for row in rows):
                continue
            lines += ["", f"{policy}: what waits for the backward pass"]
            shown = [(f"  {row['module']}", size(row["bytes"]),
                      ", ".join(f"{action} {size(n)}" for action, n in row["actions"].items())) for row in rows]
            lines += table(shown[:_SHOWN], (1,)) + ([f"  and {len(shown) - _SHOWN} more modules"]
                                                    if len(shown) > _SHOWN else [])
        return lines

    def _notes(self):
        if not self.step.kernels:
            return []
        return ["", f"kernels of {self.machine.name} that differ from the CPU's, and are counted as"] + \
            [f"  {k['name']}: {k['differs']}" for k in self.step.kernels]


def _write(path, text):
    with open(path, "w", encoding="utf-8") as file:
        file.write(text)


def _rates(rates: machine.Machine, halves: bool) -> planner.Rates:
    """The machine's rates of copies and codecs."""
    root = rates.root
    return planner.Rates(**{key: int(value) for key, value in root.get("link", {}).items()},
                         issue_ns=int(root.get("issue_ns", 0)), launch_ns=int(rates.launch_ns),
                         contention_permille=int(root.get("contention_permille", 0)),
                         link_contention_permille=int(root.get("link_contention_permille", 0)), codecs=planner.codecs_of(root, halves))


# ---------------------------------------------------------------- the largest batch

class _Largest:
    """Searches the largest batch whose bytes fit a budget. needs(batch): bytes; they grow with the batch, nearly in
    proportion, so a line through two known points tells where to look next; what it tells is verified."""

    def __init__(self, needs: Callable[[int], int], budget: int, start: int):
        self._needs, self._budget = needs, budget
        self._known: Dict[int, int] = {}
        self._start = start

    def _at(self, batch):
        if batch not in self._known:
            self._known[batch] = self._needs(batch)
        return self._known[batch]

    def find(self) -> int:
        """0: not even one fits."""
        self._at(self._start), self._at(2 * self._start)
        low = max((b for b, n in self._known.items() if n <= self._budget), default=0)
        high = min((b for b, n in self._known.items() if n > self._budget), default=None)
        while high is None or high - low > 1:
            guess = self._guess(low, high)
            if self._at(guess) <= self._budget:
                low = guess
            else:
                high = guess
        return low

    def _guess(self, low, high):
        """A batch between the largest known that fits, and the least known that does not."""
        (b1, n1), (b2, n2) = sorted(self._known.items())[-2:]
        slope = (n2 - n1) / (b2 - b1)
        if slope <= 0:
            guess = 2 * b2 if high is None else (low + high) // 2
        else:
            guess = int(b2 + (self._budget - n2) // slope)
        most = high - 1 if high is not None else 64 * max(b2, 1)
        guess = min(max(guess, low + 1), most)
        return guess + 1 if guess in self._known and guess < most else guess


def _find_largest(made: Plan, trace: Callable[[int], Plan], host: Optional[int], disk: Tuple[int, int]) -> None:
    """Sets made.largest, by tracing at other sizes of the batch."""
    plans = {made.step.batch: made}

    def at(batch):
        if batch not in plans:
            plans[batch] = trace(batch)
        return plans[batch]

    try:
        made.largest["torch"] = _Largest(lambda b: at(b).step.peak_bytes, made.budget_bytes, made.step.batch).find()
        for policy in made.needs:
            made.largest[policy] = _Largest(lambda b, policy=policy: at(b).require(policy, 0, host, disk)["least_bytes"],
                                            made.budget_bytes, made.step.batch).find()
    except (ValueError, RuntimeError, TypeError, IndexError) as error:  # the net's own, at another size
        made.why_not = f"at another size of the batch, {type(error).__name__}: {str(error).splitlines()[0]}"


def plan(net: torch.nn.Module, loss: Optional[Callable], x: Any, y: Any = None, optimizer: Any = None,
         budget: Any = None, gpu: Optional[str] = "H100", policies: Sequence[str] = POLICIES, largest: bool = True, host: Any = None,
         autocast: Optional[torch.dtype] = None, file: Any = None, disk: Optional[tuple] = None) -> Plan:
    """Tells what a training step of loss(net(x), y) needs, what policies would do with it, and the largest batch,
    without running it: no memory of its tensors is reserved, no GPU is needed, and net, optimizer and random numbers
    stay as they are. All tensors may be on the meta device.

    loss None: the net returns it, or something with .loss. x: a tensor, a tuple or list of arguments, or a dict of
    them. optimizer: None; one of net's parameters; or to be made: a class, its name ("AdamW"), a function of
    parameters. budget: bytes, or "6GiB"; None: what the GPU has for training. gpu: a GPU's name (`mm gpus`), or a
    machine file, from whose rates times are predicted; None: this host, with the CPU's kernels. policies: as for the
    command mm. largest: search the largest batch, by tracing at other sizes. host: bytes of host memory for moved
    tensors (None: no limit). disk: as mm.budget; the folder need not exist. autocast: the type of torch.autocast around
    the forward pass. file: gets the text (standard output).

    The peaks are of tensors: what torch's allocator loses by rounding and gaps is not in them. ValueError: a budget, a
    GPU, a policy or an optimizer that makes no sense; a net that asks for values of tensors. One thread at a time."""
    rates = machine.named(gpu)
    sized = session.size(budget) if budget is not None else rates.budget_bytes
    pinned = session.size(host) if host is not None else None
    stored = session.disk_of(disk)[1:] if disk is not None else (0, 0)
    for name, given, parsed in (("budget", budget, sized), ("host", host, pinned)):
        if given is not None and (parsed is None or parsed <= 0):
            raise ValueError(f"{name} {given!r} is not understood: use \"6GiB\", \"1.5GB\" or a number of bytes")

    def traced(batch: Optional[int]) -> Plan:
        step = joint.trace(net, loss, x, y, optimizer, gpu, batch, autocast)
        return Plan(type(net).__name__, step, rates, sized if sized is not None else step.peak_bytes)

    made = traced(None)
    for policy in policies:
        made.needs[policy] = made.require(policy, made.budget_bytes, pinned, stored)
    if largest and made.step.batch and sized is not None:
        _find_largest(made, traced, pinned, stored)
    print(made, file=file or sys.stdout)
    return made
