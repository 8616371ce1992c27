#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""The figures of Jin et al. (error-bounded compression) beside what was published; and whether they come in the
published order. Exits with 1 if one does not.

    published_comet.py [MM [MACHINE]] [--data SPEC] [--iterations N] [--every W]

Trains short runs of small networks: their figures are judged by order only, because the paper's are of ImageNet. Figure
8: predicted and measured deviation of weights' gradients. Figure 6: the share of errors within it, and what zeros that
are kept make of it. Figure 9: larger deviations. Figure 10: the ratio as training goes on. Then the overhead and larger
batches, simulated on MACHINE (tools/facts/titanx.json).

Table 1, whose networks train for hours: tools/bench/published_accuracy.py --policies comet.
"""
import argparse
import json
import math
import os
import statistics
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.realpath(__file__))
LIVENESS = "liveness:inplace=off"  # a framework's allocator, which writes nothing in place
NEAR = 0.15
SHARE = 0.682  # of a normal distribution within its deviation
NETS = ("resnet20", "vgg16@32x32,classes=10,thin=4")


class Bench:
    def __init__(self, options, machine):
        self.mm, self.gradients, self.options, self.machine = options.mm, options.gradients, options, machine
        self.failed = False

    def run(self, program, *arguments):
        done = subprocess.run([program, *arguments], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
        if done.returncode != 0:
            sys.exit("%s %s: %s" % (program, " ".join(arguments), done.stderr.strip()))

    def rows(self, program, *arguments):
        with tempfile.NamedTemporaryFile(suffix=".json") as rows:
            self.run(program, *arguments, "--json", rows.name, "--quiet")
            with open(rows.name) as f:
                return json.load(f)

    def simulate(self, net, batches, policies):
        with tempfile.NamedTemporaryFile("w", suffix=".json") as f:
            json.dump(self.machine, f)
            f.flush()
            return self.rows(self.mm, "bench", "--simulate", f.name, "--fuse", "off", "--net", net, "--batch",
                             ",".join(map(str, batches)), "--budgets", "own", "--policies", ",".join(policies))

    def train(self, net, policy):
        """The row of a run, and the lines of the codecs' log; none of a policy that does not sample."""
        o = self.options
        with tempfile.NamedTemporaryFile(suffix=".log") as log:
            logs = ["--codec-log", log.name] if policy.startswith("comet") else []
            row = self.rows(self.mm, "train", "--net", net, "--data", o.data, "--batch", "64", "--iterations",
                            str(o.iterations), "--policy", policy, "--no-measure", *logs)[0]
            with open(log.name) as f:
                return row, [json.loads(line) for line in f]

    def judge(self, what, right):
        if not right:
            print("not in order: " + what)
            self.failed = True


def comet(options, **changed):
    return "comet:" + ",".join("%s=%s" % c for c in dict(every=options.every, when="always", **changed).items())


def measured_layers(lines):
    """Layers of the lines in which gradients were compared."""
    return [(line["iteration"], layer) for line in lines for layer in line["layers"] if layer["measured_sigma"]]


# ---------------------------------------------------------------- Figures 6, 8, 10


def figure_8(bench, net, lines):
    print("Figure 8, %s: deviation of the error of a weight's gradient, at the last iteration that samples" % net)
    print("  %-24s %10s  %10s  %9s  %9s  %5s  %s" % ("layer", "measured", "predicted", "predicted", "zeros not", "ratio",
                                                   "guard"))
    print("  %-24s %10s  %10s  %9s  %9s" % ("", "", "(sum)", "/ measured", "kept"))
    found = measured_layers(lines)
    for iteration, layer in found:
        if iteration != found[-1][0]:
            continue
        off = layer["predicted_sigma"] / layer["measured_sigma"]
        print("  %-24s %10.3g  %10.3g  %9.2f  %9.2f  %5.1f  %s" %
              (layer["layer"], layer["measured_sigma"], layer["predicted_sigma"], off,
               off / math.sqrt(layer["nonzero_share"]), layer["ratio"], layer["guard"]))
    off = [abs(l["predicted_sigma"] / l["measured_sigma"] - 1) for _, l in found]
    near = sum(o <= NEAR for o in off) / len(off)
    print("  sum: %.0f %% of %d are within %.0f %%; the median is %.1f %% off" %
          (100 * near, len(off), 100 * NEAR, 100 * statistics.median(off)))
    print("    (others: of maps whose values nearly all lie below the bound, so that errors are not uniform)")
    off = sorted(l["measured_sigma"] / l["eq9_sigma"] for _, l in found)
    print("  eq9, L the largest |g| of the batch: measured / predicted %.2f to %.2f, median %.2f (published: near 1)" %
          (off[0], off[-1], statistics.median(off)))
    off = [abs(l["predicted_sigma"] / l["measured_sigma"] - 1) for _, l in found]
    bench.judge("%s: predictions are more than %.0f %% off" % (net, 100 * NEAR), statistics.median(off) <= NEAR)
    print("Figure 6, %s: as predicted, errors of zeros would make it %.2f times as wide" %
          (net, statistics.median(1 / math.sqrt(l["nonzero_share"]) for _, l in found)))
    bench.judge("%s: keeping zeros does not narrow the errors" % net, all(l["nonzero_share"] < 1 for _, l in found))


def figure_6(bench, net):
    rows = bench.rows(bench.gradients, "--net", net, "--data", bench.options.data, "--batch", "64", "--iterations", "30",
                      "--policies", "rules:conv-in=compress(eb:abs=0.02),when=always")
    found = [r for r in rows if r["kind"] == "conv" and r["sigma"] > 0]
    within = [r["within_sigma"] for r in found]
    print("Figure 6, %s: %.1f %% of errors within their output channel's deviation, %.1f to %.1f by layer (published: %.1f)" %
          (net, 100 * statistics.mean(within), 100 * min(within), 100 * max(within), 100 * SHARE))
    bench.judge("%s: errors are not normal" % net, abs(statistics.mean(within) - SHARE) <= 0.05)


def figure_10(bench, net, row, exact, lines):
    print("Figure 10, %s: the ratio of maps to codes, by iteration (published: about 13 on AlexNet)" % net)
    ratios = [(l["iteration"], l["ratio"]) for l in lines if l["ratio"]]
    print("  " + "  ".join("%d: %.1f" % r for r in ratios))
    print("  loss at the end %.3f, under liveness %.3f" % (row["loss_last"], exact["loss_last"]))
    bench.judge("%s: maps are not compressed to a fifth" % net, ratios[-1][1] >= 5)


def short_runs(bench):
    for net in NETS:
        exact, _ = bench.train(net, "liveness")
        row, lines = bench.train(net, comet(bench.options))
        figure_8(bench, net, lines)
        figure_10(bench, net, row, exact, lines)
    figure_6(bench, NETS[0])


def figure_9(bench):
    net = NETS[0]
    print("Figure 9, %s: deviations of 1, 2 and 5 %% of mean |momentum| (published: 5 %% loses accuracy, 1 %% does not)" % net)
    ratios = []
    for sigma in ("0.01", "0.02", "0.05"):
        row, lines = bench.train(net, comet(bench.options, sigma=sigma))
        ratios.append(lines[-1]["ratio"])
        print("  sigma %s  ratio %5.1f  loss at the end %.3f" % (sigma, ratios[-1], row["loss_last"]))
    bench.judge("a larger deviation does not give a larger ratio", ratios[0] < ratios[1] < ratios[2])


# ---------------------------------------------------------------- Figure 11 and the overhead


def with_eb(machine):
    """The machine with rates of eb, if it has none: those of zfp at 4 bits a value, which takes a map to an eighth."""
    codecs = dict(machine["codecs"])
    codecs.setdefault("eb", codecs["zfp:rate=4"])
    return dict(machine, codecs=codecs)


def overhead(bench):
    rates = bench.machine["codecs"]["eb"]
    print("Overhead, simulated, eb at %.0f and %.0f GB/s: a step under comet against liveness (published: 17 %% on average)" %
          (rates["encode_bytes_per_s"] / 1e9, rates["decode_bytes_per_s"] / 1e9))
    found = []
    for net, batch in (("alexnet-2012", 256), ("vgg16", 32), ("resnet18", 128), ("resnet50", 32)):
        rows = bench.simulate(net, [batch], [LIVENESS, "comet:when=always"])
        exact, ours = (r["images_per_second"] for r in rows)
        found.append(exact / ours - 1)
        print("  %-14s batch %4d  %5.1f %%  memory %.2f of liveness" %
              (net, batch, 100 * found[-1], rows[1]["predicted_peak_bytes"] / rows[0]["predicted_peak_bytes"]))
        bench.judge("%s takes more memory under comet" % net,
                    rows[1]["predicted_peak_bytes"] < rows[0]["predicted_peak_bytes"])
    print("  %-14s             %5.1f %%" % ("mean", 100 * statistics.mean(found)))
    bench.judge("the overhead is above a half", statistics.mean(found) <= 0.5)


def larger_batches(bench):
    batches = (32, 64, 128)
    print("Figure 11, simulated, resnet50: images/s by batch (published: up to 1.27 times)")
    rows = bench.simulate("resnet50", batches, ["comet:when=always"])
    speeds = [r["images_per_second"] for r in rows]
    print("  %s  largest / smallest %.2f" %
          ("  ".join("%d: %.1f" % s for s in zip(batches, speeds)), speeds[-1] / speeds[0]))
    bench.judge("a larger batch is slower", speeds[-1] >= speeds[0] * 0.999)


def main():
    if "--version" in sys.argv[1:]:
        sys.exit(subprocess.run([os.path.join(HERE, "..", "version")]).returncode)
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    bin_dir = os.path.join(HERE, "../../bazel-bin/tools")
    parser.add_argument("mm", nargs="?", default=os.path.join(bin_dir, "mm"))
    parser.add_argument("machine", nargs="?", default=os.path.join(HERE, "../facts/titanx.json"))
    parser.add_argument("--gradients", default=os.path.join(bin_dir, "bench/gradients"), help="the bench of that name")
    parser.add_argument("--data", default="synthetic", help="as mm train takes it (synthetic)")
    parser.add_argument("--iterations", type=int, default=61, help="of each short run (61)")
    parser.add_argument("--every", type=int, default=20, help="iterations from one that samples to the next (20)")
    parser.add_argument("--version", action="store_true", help="the version")
    options = parser.parse_args()
    try:
        with open(options.machine) as f:
            machine = with_eb(json.load(f))
    except (OSError, ValueError) as e:
        sys.exit("%s: %s" % (options.machine, e))
    except (KeyError, TypeError):
        sys.exit("%s: names no rates of codecs, as tools/facts/titanx.json does" % options.machine)
    bench = Bench(options, machine)
    short_runs(bench)
    figure_9(bench)
    overhead(bench)
    larger_batches(bench)
    if not bench.failed:
        print("in order: as published")
    return 1 if bench.failed else 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except OSError as e:  # such as a program that is not there
        sys.exit("tools/bench/published_comet.py: %s" % e)
    except KeyboardInterrupt:
        sys.exit(130)
