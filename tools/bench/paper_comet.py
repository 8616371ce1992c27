# SPDX-License-Identifier: MIT
"""The figures of Jin et al. (error-bounded compression):

Trains short runs of small networks, which must learn: their loss falls to half, with comet as without. Figure
8: predicted and measured deviation of errors of weight gradients. Figure 6: the share of errors within the deviation,
and how keeping zeros narrows it. Figure 9: larger deviations. Figure 10: the ratio as training goes on. Figure 11 and
the overhead are simulated on MACHINE (tools/facts/titanx.json); they do not count, because the codec's speed there is
assumed, and a small batch is computed as fast as a large one.

Recorded figures are those of the default options; with others only orders are judged.

    published comet [MM [MACHINE]] [--data SPEC] [--iterations N] [--every W]

Table 1, whose networks train for hours: published accuracy --policies comet.
"""
import csv
import json
import math
import os
import statistics
import sys

from papers import HERE, add_places

LIVENESS = "liveness:inplace=off"  # as a framework's allocator, without in-place writes
NEAR = 0.15
NETS = {"resnet20": "0.1", "alexnet@64x64,classes=10,thin=4": "0.02"}  # and their learning rates
SAMPLES, ITERATIONS, EVERY = "synthetic", 61, 20


def losses_of(path):
    """The first loss, and the mean of the last ten."""
    with open(path, newline="", encoding="utf-8") as f:
        losses = [float(row["loss"]) for row in csv.DictReader(f)]
    return losses[0], statistics.mean(losses[-10:])


def train(paper, options, net, policy):
    """Trains; returns the losses, and the lines of the codec log (none if the policy does not sample)."""
    log, table = os.path.join(paper.folder, "codecs.log"), os.path.join(paper.folder, "losses.csv")
    logs = ["--log", table] + (["--codec-log", log] if policy.startswith("comet") else [])
    paper.rows("train", "--net", net, "--data", options.data, "--batch", "64", "--iterations",
                     str(options.iterations), "--lr", NETS[net], "--policy", policy, "--no-measure", *logs)
    if "--codec-log" not in logs:
        return losses_of(table), []
    with open(log, encoding="utf-8") as f:
        return losses_of(table), [json.loads(line) for line in f]


def comet(options, **changed):
    return "comet:" + ",".join("%s=%s" % c for c in dict(every=options.every, when="always", **changed).items())


def tell(paper, options, what, ours):
    """Judges a figure of the default options."""
    if options.data == SAMPLES and options.iterations == ITERATIONS and options.every == EVERY:
        paper.tell(what, ours)
    else:
        print("  %s: %.3g" % (what, ours))


def measured_layers(lines):
    """(iteration, layer) for all layers whose gradients were compared."""
    return [(line["iteration"], layer) for line in lines for layer in line["layers"] if layer["measured_sigma"]]


# ---------------------------------------------------------------- Figures 6, 8, 10


def figure_8(paper, options, net, lines):
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
    print("    (the others: nearly all values of their maps lie below the bound, so errors are not uniform)")
    off = sorted(l["measured_sigma"] / l["eq9_sigma"] for _, l in found)
    print("  eq9, L the largest |g| of the batch: measured / predicted %.2f to %.2f, median %.2f (published: near 1)" %
          (off[0], off[-1], statistics.median(off)))
    off = [abs(l["predicted_sigma"] / l["measured_sigma"] - 1) for _, l in found]
    paper.order("%s: predictions are more than %.0f %% off" % (net, 100 * NEAR), statistics.median(off) <= NEAR)
    if net == "resnet20":
        tell(paper, options, "measured over predicted deviation (sum), resnet20",
             statistics.median(l["measured_sigma"] / l["predicted_sigma"] for _, l in found))
    print("Figure 6, %s: predicted: if zeros had errors, the distribution would be %.2f times as wide" %
          (net, statistics.median(1 / math.sqrt(l["nonzero_share"]) for _, l in found)))
    paper.order("%s: keeping zeros does not narrow the errors" % net, all(l["nonzero_share"] < 1 for _, l in found))


def figure_6(paper, options, net):
    rows = paper.rows("--net", net, "--data", options.data, "--batch", "64", "--iterations", "30",
                      "--policies", "rules:conv-in=compress(eb:abs=0.02),when=always", program=options.gradients)
    found = [r for r in rows if r["kind"] == "conv" and r["sigma"] > 0]
    within = [r["within_sigma"] for r in found]
    print("Figure 6, %s: errors within their output channel's deviation: %.1f to %.1f %% by layer" %
          (net, 100 * min(within), 100 * max(within)))
    tell(paper, options, "share of errors within a deviation, resnet20", 100 * statistics.mean(within))


def figure_10(paper, options, net, losses, exact, lines):
    print("Figure 10, %s: the ratio of maps to codes, by iteration" % net)
    ratios = [(l["iteration"], l["ratio"]) for l in lines if l["ratio"]]
    print("  " + "  ".join("%d: %.1f" % r for r in ratios))
    print("  loss at first %.3f, mean of the last ten %.3f, under liveness %.3f" % (*losses, exact[1]))
    paper.order("%s does not learn" % net, exact[1] <= exact[0] / 2)
    paper.order("%s does not learn under comet" % net, losses[1] <= losses[0] / 2)
    if net.startswith("alexnet"):
        tell(paper, options, "ratio of maps to codes at the end, AlexNet", ratios[-1][1])


def short_runs(paper, options):
    for net in NETS:
        exact, _ = train(paper, options, net, "liveness")
        losses, lines = train(paper, options, net, comet(options))
        figure_8(paper, options, net, lines)
        figure_10(paper, options, net, losses, exact, lines)
    figure_6(paper, options, "resnet20")


def figure_9(paper, options):
    net = "resnet20"
    print("Figure 9, %s: deviations of 1, 2 and 5 %% of mean |momentum| (published: 5 %% loses accuracy, 1 %% does not)" % net)
    ratios = []
    for sigma in ("0.01", "0.02", "0.05"):
        losses, lines = train(paper, options, net, comet(options, sigma=sigma))
        ratios.append(lines[-1]["ratio"])
        print("  sigma %s  ratio %5.1f  mean of the last ten losses %.3f" % (sigma, ratios[-1], losses[1]))
    paper.order("a larger deviation does not give a larger ratio", ratios[0] < ratios[1] < ratios[2])


# ---------------------------------------------------------------- Figure 11 and the overhead


def overhead(paper):
    rates = paper.rates["codecs"]["eb"]
    print("Overhead, simulated, eb at an assumed %.0f and %.0f GB/s: a step under comet against liveness" %
          (rates["encode_bytes_per_s"] / 1e9, rates["decode_bytes_per_s"] / 1e9))
    found = []
    for net, batch in (("alexnet-2012", 256), ("vgg16", 32), ("resnet18", 128), ("resnet50", 32)):
        rows = paper.simulate(net, [batch], [LIVENESS, "comet:when=always"])
        exact, ours = (r["images_per_second"] for r in rows)
        found.append(exact / ours)
        print("  %-14s batch %4d  %5.1f %%  memory %.2f of liveness" %
              (net, batch, 100 * (found[-1] - 1), rows[1]["predicted_peak_bytes"] / rows[0]["predicted_peak_bytes"]))
        paper.order("%s takes more memory under comet" % net,
                    rows[1]["predicted_peak_bytes"] < rows[0]["predicted_peak_bytes"])
        paper.order("%s: compressing takes no time" % net, found[-1] >= 1)
    paper.tell("overhead, mean of four networks", statistics.mean(found))


def larger_batches(paper):
    batches = (32, 64, 128)
    print("Figure 11, simulated, resnet50: images/s by batch")
    rows = paper.simulate("resnet50", batches, ["comet:when=always"])
    speeds = [r["images_per_second"] for r in rows]
    print("  " + "  ".join("%d: %.1f" % s for s in zip(batches, speeds)))
    paper.tell("largest over smallest batch, resnet50", speeds[-1] / speeds[0])


def add_options(parser):
    add_places(parser)
    parser.add_argument("--gradients", default=os.path.join(HERE, "../../bazel-bin/tools/bench/gradients"),
                        help="the program //tools/bench:gradients")
    parser.add_argument("--data", default=SAMPLES, help="as mm train takes it (synthetic)")
    parser.add_argument("--iterations", type=int, default=ITERATIONS, help="of each short run (61)")
    parser.add_argument("--every", type=int, default=EVERY, help="sample every so many iterations (20)")


def run(paper, options):
    if "eb" not in paper.rates.get("codecs", {}):
        sys.exit("%s: has no rates of the codec eb, as tools/facts/titanx.json has" % paper.machine)
    overhead(paper)
    larger_batches(paper)
    short_runs(paper, options)
    figure_9(paper, options)
    return "in order: networks learn, larger deviations compress more, predictions are near what is measured"
