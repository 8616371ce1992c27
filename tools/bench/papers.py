# SPDX-License-Identifier: MIT
"""Shared by the papers of tools/bench/published: runs mm and reads its rows, changes machines, and judges figures.

published.csv has a row for each figure that is compared:

  paper, figure, what   what names the row in the scripts
  published, ours       the paper's, and what the script found when it was recorded (--record)
  as                    how the error is counted: `ratio`: ours over published, in per cent; `gain`: of factors such
                        as 1.03, in points of the gain; `points`: of percentages, in points
  status                `predicted` figures count; not `calibrated` ones, on which a rate was fitted, nor `assumed`
                        ones, which follow from an assumption made for them, or from a rate that nobody measured
  why                   what differs

A predicted figure fails if its error is larger than that of the recorded one by more than SLACK, or if a gain has the
other sign.
"""
import csv
import json
import os
import subprocess
import sys

HERE = os.path.dirname(os.path.realpath(__file__))
TABLE = os.path.join(HERE, "published.csv")
COLUMNS = ("paper", "figure", "what", "published", "ours", "as", "status", "why")
STATUS = ("predicted", "calibrated", "assumed")
# By kind of error: what is added to the recorded error before it fails (rounding, and small changes of plans), what
# counts as near, and the unit.
SLACK = {"ratio": 1.0, "gain": 0.5, "points": 0.5}
NEAR = {"ratio": 15, "gain": 5, "points": 5}
UNIT = {"ratio": "%", "gain": "points", "points": "points"}


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


class Figure:
    """A row of published.csv."""

    def __init__(self, row):
        self.row = row
        self.paper, self.figure, self.what, self.kind, self.status, self.why = (
            row[key] for key in ("paper", "figure", "what", "as", "status", "why"))
        self.published = float(row["published"])
        self.ours = float(row["ours"]) if row["ours"] else None
        if self.kind not in SLACK or self.status not in STATUS:
            raise ValueError("%s: %s: %s, %s: not a kind and a status" % (TABLE, self.what, self.kind, self.status))

    def error(self, ours):
        """What `ours` differs by: per cent or points, as `kind` says. Positive: ours is larger."""
        if self.kind == "ratio":
            return 100 * (ours / self.published - 1)
        return (100 if self.kind == "gain" else 1) * (ours - self.published)

    def is_near(self, ours):
        return abs(self.error(ours)) <= NEAR[self.kind]

    def has_other_sign(self, ours):
        return self.kind == "gain" and (ours - 1) * (self.published - 1) < 0


def read_table():
    with open(TABLE, newline="", encoding="utf-8") as file:
        return [Figure(row) for row in csv.DictReader(file)]


def write_table(figures):
    with open(TABLE, "w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, COLUMNS, lineterminator="\n")
        writer.writeheader()
        writer.writerows(f.row for f in figures)


class Paper:
    def __init__(self, options, folder):
        self.name, self.mm, self.folder, self.failed, self.copies = options.paper, options.mm, folder, [], 0
        self.figures = {f.what: f for f in read_table() if f.paper == self.name}
        self.found, self.is_recorded_anew = {}, options.record
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

    def tell(self, what, ours, changed=None):
        """Prints our figure beside the published one, and judges it. changed: pair (assumption, the figure with it
        changed), which is printed below."""
        figure = self.figures[what]
        error = figure.error(ours)
        self.found[what] = ours
        print("  %-58s %9.4g  published %7.4g  %+6.1f %s%s" %
              (what, ours, figure.published, error, UNIT[figure.kind],
               "" if figure.status == "predicted" else " (%s: not counted)" % figure.status))
        if figure.why and not figure.is_near(ours):
            print("      " + figure.why)
        if changed:
            print("      with %s: %.4g" % changed)
        if figure.status != "predicted" or self.is_recorded_anew:
            return
        if figure.ours is None:
            self.failed.append("%s: no recorded figure; --record records it" % what)
            return
        recorded = abs(figure.error(figure.ours))
        if abs(error) > recorded + SLACK[figure.kind]:
            self.failed.append("farther off than recorded: %s: %.4g, published %.4g: %+.1f %s, recorded %.1f" %
                               (what, ours, figure.published, error, UNIT[figure.kind], recorded))
        if figure.has_other_sign(ours) and not figure.has_other_sign(figure.ours):
            self.failed.append("a loss instead of a gain, or the reverse: %s: %.4g" % (what, ours))

    def summary(self):
        """Prints how many figures there are of each status, and how many are near."""
        kinds = {status: [w for w in self.found if self.figures[w].status == status] for status in STATUS}
        if not self.found:
            return
        near = sum(self.figures[w].is_near(self.found[w]) for w in kinds["predicted"])
        print("%d figures are predicted: %d within 15 %%, or 5 points of a gain, %d farther off. Not counted: %d calibrated,"
              " %d assumed" % (len(kinds["predicted"]), near, len(kinds["predicted"]) - near, len(kinds["calibrated"]),
                               len(kinds["assumed"])))

    def record(self):
        """Writes what was found to published.csv."""
        table = read_table()
        for figure in table:
            if figure.paper == self.name and figure.what in self.found:
                figure.row["ours"] = "%.5g" % self.found[figure.what]
        write_table(table)
