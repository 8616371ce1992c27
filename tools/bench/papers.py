# SPDX-License-Identifier: MIT
"""Shared by the papers of tools/bench/published: runs mm and reads its rows, changes machines, reads published
figures."""
import csv
import json
import os
import subprocess
import sys

HERE = os.path.dirname(os.path.realpath(__file__))
NEAR = 1.15  # figures are near each other if neither is more than 15 % above the other


def add_places(parser, machine="titanx.json"):
    """Adds the arguments MM and MACHINE; machine=None: no MACHINE."""
    parser.add_argument("mm", nargs="?", default=os.path.join(HERE, "..", "..", "bazel-bin", "tools", "mm"))
    if machine:
        parser.add_argument("machine", nargs="?", default=facts(machine))


def facts(name):
    return os.path.join(HERE, "..", "facts", name)


def mean(values):
    values = list(values)
    return sum(values) / len(values)


def is_near(ours, theirs):
    return max(ours / theirs, theirs / ours) <= NEAR


def figures_of(paper):
    with open(os.path.join(HERE, "published.csv"), newline="", encoding="utf-8") as file:
        return {row["what"]: float(row["published"]) for row in csv.DictReader(file) if row["paper"] == paper}


class Paper:
    def __init__(self, options, folder):
        self.name, self.mm, self.folder, self.failed, self.copies = options.paper, options.mm, folder, [], 0
        self.figures = figures_of(self.name)
        self.machine = getattr(options, "machine", None)
        self.rates = self.read_machine(self.machine) if self.machine else None

    # ---- mm

    @staticmethod
    def read_machine(path):
        try:
            with open(path, encoding="utf-8") as file:
                rates = json.load(file)
        except (OSError, ValueError) as e:
            sys.exit("%s: %s" % (path, e))
        if not isinstance(rates, dict) or "conv_flops_per_s" not in rates:
            sys.exit("%s: not a file of a machine's rates, such as tools/facts/titanx.json" % path)
        return rates

    def changed(self, change, machine=None):
        """Copies the machine (a path; None: self.machine), calls change(rates) on the copy, and returns its path."""
        rates = self.read_machine(machine) if machine else json.loads(json.dumps(self.rates))
        change(rates)
        self.copies += 1
        return self.save("machine%d.json" % self.copies, rates)

    def save(self, name, values):
        path = os.path.join(self.folder, name)
        with open(path, "w", encoding="utf-8") as file:
            json.dump(values, file)
        return path

    def run(self, *arguments, program=None, may_misfit=False):
        """Runs mm (or `program`), and returns what it prints. may_misfit: exit status 1 is allowed: something does not
        fit."""
        command = [program or self.mm, *arguments]
        done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, check=False)
        if done.returncode != 0 and not (may_misfit and done.returncode == 1):
            sys.exit("%s: %s" % (" ".join(command), done.stderr.strip() or done.stdout.strip()))
        return done.stdout

    def rows(self, *arguments, **how):
        """Runs mm, and returns the rows that it writes with --json."""
        path = os.path.join(self.folder, "rows.json")
        if os.path.exists(path):
            os.remove(path)
        self.run(*arguments, *([] if arguments[0] == "plan" else ["--quiet"]), "--json", path, **how)
        with open(path, encoding="utf-8") as file:
            return json.load(file)

    def plan(self, net, batch, policies, *arguments):
        return self.rows("plan", "--net", net, "--batch", str(batch), "--policy", ",".join(policies), *arguments,
                         may_misfit=True)

    def simulate(self, net, batches, policies, *arguments, machine=None, budgets="own"):
        return self.rows("bench", "--simulate", machine or self.machine, "--fuse", "off", "--net", net, "--batch",
                         ",".join(map(str, batches)), "--budgets", budgets, "--policies", ",".join(policies), *arguments)

    def without_batch_norms(self, biases):
        """GoogLeNet as first published, without batch norms; the zoo has torchvision's. biases: convolutions have
        biases instead."""
        net = json.loads(self.run("nets", "--net", "googlenet", "--json"))
        before = {layer["name"]: layer["inputs"][0] for layer in net["layers"] if layer["op"] == "batch_norm"}
        net["layers"] = [layer for layer in net["layers"] if layer["op"] != "batch_norm"]
        for layer in net["layers"]:
            layer["inputs"] = [before.get(name, name) for name in layer["inputs"]]
            if biases and layer["op"] == "conv":
                layer["bias"] = True
        return "file:" + self.save("googlenet.json", net)

    # ---- judging

    def order(self, what, right):
        if not right:
            self.failed.append("not in order: " + what)

    def falling(self, what, *named):
        """named: pairs (name, value); each value must be at least the next."""
        for (a, x), (b, y) in zip(named, named[1:]):
            self.order("%s: %s %.4g < %s %.4g" % (what, a, x, b, y), x >= y)

    def rising(self, what, *values):
        """Each value must be larger than the one before."""
        for x, y in zip(values, values[1:]):
            self.order("%s (%.6g < %.6g)" % (what, x, y), x < y)

    def near(self, what, ours):
        theirs = self.figures[what]
        if not is_near(ours, theirs):
            self.failed.append("not within 15 %%: %s: %.3g, published %.3g" % (what, ours, theirs))
