# SPDX-License-Identifier: MIT
"""Test accuracies under policies with lossy codecs, beside those under liveness:

A policy fails if it is below liveness by more than 0.3 points and by more than two standard errors of the difference.
Comet must also compress convolutions' inputs to an eighth.

    published accuracy --data cifar10:DIR --rows FOLDER --nets NET... --policies POLICY... [--seeds N]

Trains each network under each policy, and under liveness, with seeds 1 to N. FOLDER keeps a row of each run, and runs
in it are not repeated. Eight epochs of resnet20 take half an hour on a core.

    Jin et al., Table 1       --policies comet
                              --nets 'vgg16@32x32,classes=10,thin=4' 'resnet18@32x32,classes=10,thin=2' resnet20
    FreeLunch, Figure 3       --policies freelunch:ratio=8,when=always --nets resnet32 --seeds 3
    Gist, lossy               --policies gist:lossy=fp16 --nets resnet20 --seeds 3
"""
import json
import math
import os
import re
import statistics
import subprocess
import sys

from papers import HERE

EXACT = "liveness"
POINTS = 0.3
COMET_RATIO = 8.0
# Networks of Jin et al., Table 1 (ImageNet). published.csv has their ratios of convolutions' inputs.
TABLE_1 = {"alexnet": "AlexNet", "vgg16": "VGG-16", "resnet18": "ResNet-18", "resnet50": "ResNet-50"}


def is_comet(policy):
    """Only comet samples, and so writes a codec log."""
    return policy.split(":")[0] == "comet"


def train(options, net, policy, seed, path):
    print("training %s under %s, seed %d" % (net, policy, seed), flush=True)
    logs = ["--codec-log", path + ".log"] if is_comet(policy) else []
    command = [options.mm, "train", "--net", net, "--data", options.data, "--batch", str(options.batch), "--threads",
               str(options.threads), "--epochs", str(options.epochs), "--eval", "--lr-schedule", "cosine", "--seed",
               str(seed), "--policy", policy, "--no-measure", "--quiet", "--json", path + ".tmp", *logs]
    if options.lr:
        command += ["--lr", options.lr]
    done = subprocess.run(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    if done.returncode != 0:
        sys.exit("%s: %s" % (" ".join(command), done.stderr.strip()))
    os.rename(path + ".tmp", path)


def row_of(options, net, policy, seed):
    """Test accuracy in points, and ratio of maps to codes (None: no codes), of a run in FOLDER, which is trained if it
    is not there."""
    name = "%s-%s-%d%s" % (net, policy, seed, "-lr" + options.lr if options.lr else "")
    path = os.path.join(options.rows, re.sub("[^A-Za-z0-9.=-]", "_", name) + ".json")
    if not os.path.exists(path):
        train(options, net, policy, seed, path)
    try:
        with open(path) as f:
            row = json.load(f)[0]
        if row["status"] != "ok":
            sys.exit("%s: the run's status must be ok, but is: %s" % (path, row["status"]))
        ratio = row["encoded_bytes"] / row["coded_bytes"] if row.get("coded_bytes") else None
        if is_comet(policy):
            with open(path + ".log") as f:
                ratio = [line["ratio"] for line in map(json.loads, f) if line["ratio"]][-1]
        return 100 * row["test_accuracy"], ratio
    except (ValueError, KeyError, IndexError, TypeError) as e:
        sys.exit("%s: not a row of mm train, or a log without a ratio (%s); remove it to train again" % (path, e))


def binomial_variance(points, images, runs):
    share = points / 100
    return 100**2 * share * (1 - share) / images / runs


def standard_error(options, exact, ours):
    """The standard error of the difference of two means, and a text about it. With one seed, only the error by the
    number of test images is known."""
    images = math.sqrt(sum(binomial_variance(statistics.mean(a), options.test_images, len(a)) for a in (exact, ours)))
    if options.seeds == 1:
        return images, "%.2f by %d test images, one seed" % (images, options.test_images)
    seeds = math.sqrt(sum(statistics.variance(a) / len(a) for a in (exact, ours)))
    return seeds, "%.2f by %d seeds (%.2f by %d test images)" % (seeds, options.seeds, images, options.test_images)


def compare(paper, options, net):
    """Prints a network's rows. Returns what is wrong with them."""
    print("%s, %d epochs of %s: test accuracy in %%" % (net, options.epochs, options.data))
    print("  %-32s %7s  %10s  %6s  %s" % ("policy", "mean", "difference", "ratio", "by seed; error of the difference"))
    wrong, exact = [], None
    for policy in [EXACT] + [p for p in options.policies if p != EXACT]:
        runs = [row_of(options, net, policy, seed) for seed in range(1, options.seeds + 1)]
        found = [accuracy for accuracy, _ in runs]
        ratio = statistics.mean(r for _, r in runs) if runs[0][1] else None
        by_seed = ", ".join("%.2f" % a for a in found)
        if exact is None:
            exact = found
            print("  %-32s %7.2f  %10s  %6s  %s" % (policy, statistics.mean(found), "", "", by_seed))
            continue
        difference = statistics.mean(found) - statistics.mean(exact)
        error, said = standard_error(options, exact, found)
        print("  %-32s %7.2f  %+10.2f  %6s  %s; %s" %
              (policy, statistics.mean(found), difference, "%.1f" % ratio if ratio else "-", by_seed, said))
        if difference < -max(POINTS, 2 * error):
            wrong.append("%s under %s: %.2f points worse than %s" % (net, policy, -difference, EXACT))
        if is_comet(policy):
            for name, theirs in TABLE_1.items():
                if re.split("[@,]", net)[0].startswith(name):
                    print("    published (Table 1, ImageNet): %s, ratio %.1f, at most 0.31 points worse" %
                          (theirs, paper.figures[name]))
            if ratio < COMET_RATIO:
                wrong.append("%s under %s: convolutions' inputs are compressed %.1f times, not %.0f" %
                             (net, policy, ratio, COMET_RATIO))
    return wrong


def add_options(parser):
    add = parser.add_argument
    add("--mm", default=os.path.join(HERE, "../../bazel-bin/tools/mm"), help="the command mm")
    add("--data", required=True, help="as mm train takes it")
    add("--rows", required=True, metavar="FOLDER",
        help="keeps the rows: NET-POLICY-SEED.json, -lrRATE before .json with --lr")
    add("--nets", required=True, nargs="+", metavar="NET")
    add("--policies", required=True, nargs="+", metavar="POLICY")
    add("--seeds", type=int, default=1, help="of each network and policy (1)")
    add("--epochs", type=int, default=8)
    add("--batch", type=int, default=128)
    add("--lr", metavar="RATE", help="first learning rate, as mm train takes it; networks without batch norms need less"
        " than its default, such as 0.02")
    add("--threads", type=int, default=1, help="that compute (1)")
    add("--test-images", type=int, default=10000, metavar="N", help="that the data have (10000, as CIFAR-10)")


def run(paper, options):
    if options.seeds < 1 or options.test_images < 1:
        sys.exit("published accuracy: --seeds and --test-images are at least 1")
    os.makedirs(options.rows, exist_ok=True)
    paper.failed = ["not in order: " + wrong for net in options.nets for wrong in compare(paper, options, net)]
    return "in order: no policy is less accurate than %s" % EXACT
