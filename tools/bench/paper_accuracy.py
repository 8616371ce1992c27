# SPDX-License-Identifier: MIT
"""Test accuracies under policies with lossy codecs, beside those under liveness:

Prints a table of the finished runs in accuracy.csv: means over seeds, standard errors of differences, and a verdict:

  within 0.3 points   no more than that below liveness, and two standard errors of the difference are below 0.3
  worse               below liveness by more than 0.3 points and by more than two standard errors
  undecided           neither: two standard errors are above 0.3
  no claim            one seed

What is not finished is named as not finished. It fails if a verdict is `worse`.

    published accuracy                                                only the table
    published accuracy --train cifar10:DIR --work FOLDER [--jobs N]   the missing runs first

Without --nets, --policies and --seeds the runs are those of the three papers: ResNet-20, three seeds, under liveness,
freelunch:ratio=8, comet and gist:lossy=fp8; ResNet-32, one seed, under liveness and freelunch:ratio=8; 20 epochs of
CIFAR-10, cosine schedule. That takes about 12 hours of two cores. Each run has one thread, so its result depends on no
number of cores. It saves its state in FOLDER at each epoch, and goes on from there: stop the script at any time
(Ctrl-C), and start it again. A row is written when a run has finished, with its command.
"""
import collections
import csv
import json
import math
import os
import re
import signal
import statistics
import subprocess
import sys
import time

from papers import HERE

EXACT = "liveness"
POINTS = 0.3
LOSSY = ("freelunch:ratio=8,when=always", "comet:when=always", "gist:lossy=fp8,when=always")
RUNS = [("resnet20", 3, LOSSY), ("resnet32", 1, LOSSY[:1])]  # network, seeds, policies beside liveness
COLUMNS = ("net", "policy", "seed", "data", "epochs", "batch", "lr", "test_accuracy", "test_loss", "ratio", "version",
           "command")
WHAT = COLUMNS[:7]  # what tells runs apart

Run = collections.namedtuple("Run", WHAT)


def runs_of(options):
    study = RUNS
    if options.nets or options.policies:
        study = [(net, options.seeds or 1, options.policies or LOSSY) for net in options.nets or ["resnet20"]]
    data = (options.train or options.data).split(":")[0]
    for net, seeds, policies in study:
        for policy in [EXACT] + [p for p in policies if p != EXACT]:
            for seed in range(1, (options.seeds or seeds) + 1):
                yield Run(net, policy, str(seed), data, str(options.epochs), str(options.batch), options.lr)


def read_rows(path):
    """{run: row}; of runs that are there twice, the last."""
    if not os.path.exists(path):
        return {}
    with open(path, newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    try:
        return {Run(*(row[key] for key in WHAT)): dict(row, test_accuracy=float(row["test_accuracy"])) for row in rows}
    except (KeyError, TypeError, ValueError) as e:
        sys.exit("%s: not a table of runs: %s" % (path, e))


def add_row(path, row):
    is_new = not os.path.exists(path) or os.path.getsize(path) == 0
    with open(path, "a", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, COLUMNS, lineterminator="\n")
        if is_new:
            writer.writeheader()
        writer.writerow(row)


# ---------------------------------------------------------------- training


class Training:
    """A run of mm train, in a process of its own."""

    def __init__(self, options, run):
        self.run, self.data = run, options.train
        self.at = os.path.join(options.work, re.sub("[^A-Za-z0-9.=-]", "_", "-".join(run[:3])))
        self.command = [options.mm, "train", "--net", run.net, "--data", options.train, "--batch", run.batch, "--epochs",
                        run.epochs, "--lr-schedule", "cosine", "--seed", run.seed, "--threads", "1", "--policy",
                        run.policy, "--eval"] + (["--lr", run.lr] if run.lr else [])
        state, goes_on = self.at + ".state", os.path.exists(self.at + ".state")
        self.logs = [self.at + ".%d.log" % i for i in range(1, 1000)]
        log = next(path for path in self.logs if not os.path.exists(path))
        extra = ["--no-measure", "--quiet", "--json", self.at + ".json", "--save", state, "--save-every",
                 str(options.save_every)] + (["--load", state] if goes_on else [])
        if run.policy.split(":")[0] == "comet":
            extra += ["--codec-log", log]
        print("%s %s under %s, seed %s" % ("going on with" if goes_on else "training", *run[:3]), flush=True)
        with open(self.at + ".err", "w", encoding="utf-8") as errors:
            # a group of its own, so that Ctrl-C reaches this script alone, which then stops the runs
            self.process = subprocess.Popen(self.command + extra, stdout=subprocess.DEVNULL, stderr=errors,
                                            stdin=subprocess.DEVNULL, start_new_session=True)

    def ratio(self, row):
        """Maps over codes; of comet, the last that its log has."""
        found = None
        for path in self.logs:
            if not os.path.exists(path):
                break
            with open(path, encoding="utf-8") as file:
                found = next((l["ratio"] for l in reversed(list(map(json.loads, file))) if l["ratio"]), found)
        if found is None and row.get("coded_bytes"):
            found = row["encoded_bytes"] / row["coded_bytes"]
        return "%.4g" % found if found else ""

    def end(self, version):
        """The row of accuracy.csv."""
        if self.process.returncode != 0:
            with open(self.at + ".err", encoding="utf-8") as errors:
                sys.exit("%s: %s" % (" ".join(self.command), errors.read().strip()))
        with open(self.at + ".json", encoding="utf-8") as file:
            row = json.load(file)[0]
        if row["status"] != "ok":
            sys.exit("%s: ended with status %s" % (" ".join(self.command), row["status"]))
        print("finished %s under %s, seed %s: %.2f %%" % (*self.run[:3], 100 * row["test_accuracy"]), flush=True)
        command = " ".join(["mm"] + self.command[1:]).replace(self.data, re.sub(":.*", ":DIR", self.data))
        return dict(zip(WHAT, self.run), test_accuracy="%.4f" % row["test_accuracy"], test_loss="%.5g" % row["test_loss"],
                    ratio=self.ratio(row), version=version, command=command)


def interrupted(number, frame):
    raise KeyboardInterrupt


def train(options, missing, version):
    os.makedirs(options.work, exist_ok=True)
    signal.signal(signal.SIGTERM, interrupted)
    going = []
    try:
        while missing or going:
            while missing and len(going) < options.jobs:
                going.append(Training(options, missing.pop(0)))
            time.sleep(0.2)
            for training in [t for t in going if t.process.poll() is not None]:
                add_row(options.table, training.end(version))
                going.remove(training)
    finally:  # each finishes its iteration, and saves
        for training in going:
            training.process.terminate()
        for training in going:
            training.process.wait()


# ---------------------------------------------------------------- the table


def verdict(exact, ours):
    """Of accuracies in points, by seed: the difference, its standard error (None: one seed), and what follows."""
    difference = statistics.mean(ours) - statistics.mean(exact)
    if min(len(exact), len(ours)) < 2:
        return difference, None, "no claim"
    error = math.sqrt(sum(statistics.variance(a) / len(a) for a in (exact, ours)))
    if -difference > max(POINTS, 2 * error):
        return difference, error, "worse"
    return difference, error, "undecided" if 2 * error > POINTS else "within %g points" % POINTS


def compare(paper, runs, rows):
    print("%-10s %-32s %5s  %7s  %10s  %8s  %6s  %s" %
          ("net", "policy", "seeds", "mean, %", "difference", "error", "ratio", "verdict"))
    cases = list(dict.fromkeys((r.net, r.policy) for r in runs))
    for net, policy in cases:
        exact, ours = ([run for run in runs if (run.net, run.policy) == (net, p)] for p in (EXACT, policy))
        done = [rows[run] for run in ours if run in rows]
        found = [100 * row["test_accuracy"] for row in done]
        at = "%-10s %-32s %d/%d  " % (net, policy, len(done), len(ours))
        if len(done) < len(ours) or any(run not in rows for run in exact):
            print(at + ("%7.2f" % statistics.mean(found) if found else "      -") + "  not finished")
            continue
        if policy == EXACT:
            print(at + "%7.2f" % statistics.mean(found))
            continue
        difference, error, said = verdict([100 * rows[run]["test_accuracy"] for run in exact], found)
        ratios = [float(row["ratio"]) for row in done if row["ratio"]]
        print(at + "%7.2f  %+10.2f  %8s  %6s  %s" %
              (statistics.mean(found), difference, "%.2f" % error if error is not None else "-",
               "%.1f" % statistics.mean(ratios) if ratios else "-", said))
        paper.order("%s under %s: %.2f points worse than %s" % (net, policy, -difference, EXACT), said != "worse")


def add_options(parser):
    add = parser.add_argument
    add("--mm", default=os.path.join(HERE, "../../bazel-bin/tools/mm"), help="the command mm")
    add("--table", default=os.path.join(HERE, "accuracy.csv"), help="the finished runs (tools/bench/accuracy.csv)")
    add("--train", metavar="DATA", help="train the missing runs on these data, as mm train takes them")
    add("--data", default="cifar10", help="without --train: the kind of data whose runs are shown (cifar10)")
    add("--work", metavar="FOLDER", help="with --train: keeps states of runs")
    add("--jobs", type=int, default=2, help="runs at a time (2)")
    add("--nets", nargs="+", metavar="NET", help="instead of the papers'")
    add("--policies", nargs="+", metavar="POLICY", help="instead of the papers'")
    add("--seeds", type=int, help="of each network and policy")
    add("--epochs", type=int, default=20)
    add("--batch", type=int, default=128)
    add("--lr", metavar="RATE", default="", help="first learning rate (that of mm train)")
    add("--save-every", type=int, default=391, metavar="N", help="iterations (391: an epoch of CIFAR-10)")


def run(paper, options):
    if options.jobs < 1 or (options.seeds is not None and options.seeds < 1):
        sys.exit("published accuracy: --jobs and --seeds are at least 1")
    if options.train and not options.work:
        sys.exit("published accuracy: --train needs --work FOLDER")
    runs = list(runs_of(options))
    if options.train:
        rows = read_rows(options.table)
        train(options, [run for run in runs if run not in rows], paper.run("--version").strip())
    rows = read_rows(options.table)
    compare(paper, runs, rows)
    done = sum(run in rows for run in runs)
    if done < len(runs):
        return "not finished: %d of %d runs" % (len(runs) - done, len(runs))
    return "no policy is found to be less accurate than %s" % EXACT
