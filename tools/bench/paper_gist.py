# SPDX-License-Identifier: MIT
"""Gist's figures (Jain et al., ISCA 2018), by plans and by the simulator:

It fails if an order differs from the paper's, or if a figure is farther off than recorded. Figures are judged by the
numbers in the paper's text. Times are those of tools/facts/titanx-gist.json: titanx.json with the time of the paper's
framework (`step_ns`), which is calibrated on Figure 16's ResNet-1202; that figure does not count.

As published, layers are not fused, and weights and the batch do not count. The baseline is CNTK's
(liveness:inplace=gradients,layout=groups): figures 10 and 13 imply that a ReLU writes its gradient in place. Figure 8
also shows inplace=off. The investigation baseline adds stash=apart. For sparse rows (csr), plans reserve what the
densities below give. Figure 14 is measured, on generated data or on DATA.

    published gist [--fast] [MM [MACHINE [DATA]]]
"""
import re

from papers import add_places, mean

BATCH = "64"
# For each network: the smallest format that trained it as well (V-D1; NiN's is not printed, so AlexNet's), and the
# density of maps that convolutions read, in per cent. AlexNet's 50.6 and the six networks' average of 38 are cDMA's
# (IV). VGG-16's is Gist's (III-A). OverFeat's is assumed: chosen for its ratio of 7 (Figure 11), since sparse rows take
# 5 bytes a value and 4 / (5 * 0.114) = 7. So that ratio does not count. Inception is GoogLeNet without batch norms, as
# first published.
FORMAT = {"alexnet": "fp8", "nin": "fp8", "overfeat": "fp8", "vgg16": "fp16", "inception": "fp10"}
DENSITY = {"alexnet": 50.6, "nin": 38, "overfeat": 11.4, "vgg16": 20, "inception": 38}
VALUE_BYTES = {None: 4, "fp16": 2, "fp10": 4 / 3, "fp8": 1}
NETS = list(FORMAT)

# ---------------------------------------------------------------- policies

GROUPS = "layout=groups,when=always,depth=0"
BASELINE, BASELINE_OFF = "liveness:inplace=gradients,layout=groups", "liveness:inplace=off,layout=groups"
APART, GRADIENTS = "stash=apart", "inplace=gradients"
BINARIZE = "relu&pool-in=mask"


def reserve(net, form=None, density=DENSITY):
    """The reserve option for sparse rows at the net's density: a value and a byte for each non-zero."""
    share = density[net] * (VALUE_BYTES[form] + 1) / 4
    return "reserve=%d" % (100 if share > 99 else share + 0.999)


def ssdc(net):
    return "relu&conv-in=compress(csr:{0});pool&conv-in=compress(csr:{0})".format(reserve(net))


def lossless(net, density=DENSITY):
    return "gist:lossless," + reserve(net, density=density)


def lossy(net):
    return "gist:lossy=%s,%s" % (FORMAT[net], reserve(net, FORMAT[net]))


# ---------------------------------------------------------------- plans


class Planned:
    """The plan of a policy: bytes of maps as placed, allocated dynamically, and without decoded maps; bytes of classes
    of maps, and what is held of them; bytes of weights and their gradients; predicted seconds."""

    def __init__(self, row):
        maps, kinds = row["maps"], row["kinds"]
        self.placed, self.dynamic, self.undecoded = (maps[k + "_bytes"] for k in ("placed", "dynamic", "undecoded"))
        names = ("ReLU to pool", "ReLU to convolution", "pool to convolution", "other maps", "indices and statistics")
        self.of = [maps[name]["bytes"] for name in names]
        self.held_of = [maps[name]["held_bytes"] for name in names]
        self.held = sum(self.held_of)
        self.weights = sum(kinds[name]["declared_bytes"] for name in ("weights", "weight gradients"))
        self.seconds = row["iteration_seconds_predicted"]


def plan(paper, net, *policies):
    name = paper.inception if net == "inception" else net
    return [Planned(row) for row in paper.plan(name, BATCH, policies, "--fuse", "off", "--facts", paper.machine,
                                               "--explain")]


# ---------------------------------------------------------------- what memory holds


def figure_1(paper):
    print("Figure 1: the share of maps in memory, in per cent (weights with their gradients are the rest)")
    for net in ("vgg16", "inception"):
        base, = plan(paper, net, BASELINE)
        paper.tell("maps of " + net, 100 * base.placed / (base.placed + base.weights))


def figure_3(paper):
    print("Figure 3: VGG-16's stashed maps, in per cent")
    base, = plan(paper, "vgg16", BASELINE)
    for i, what in enumerate(("ReLU to pool", "ReLU to convolution")):
        paper.tell(what, 100 * base.of[i] / sum(base.of[:4]))


# ---------------------------------------------------------------- how much less memory


def figure_8(paper):
    print("Figure 8: the baseline's maps over Gist's, placed in groups")
    plain, some, plain_off, some_off = [], [], [], []
    for net in NETS:
        base, exact, small, off = plan(paper, net, BASELINE, "%s,%s" % (lossless(net), GROUPS),
                                       "%s,%s" % (lossy(net), GROUPS), BASELINE_OFF)
        plain.append(base.placed / exact.placed)
        some.append(base.placed / small.placed)
        plain_off.append(off.placed / exact.placed)
        some_off.append(off.placed / small.placed)
        print("  %-12s lossless %5.2f, lossy=%-4s %5.2f" % (net, plain[-1], FORMAT[net], some[-1]))
        paper.order("%s: lossless takes less than the baseline" % net, plain[-1] > 1)
        paper.order("%s: lossy takes less than lossless" % net, some[-1] >= plain[-1])
    print("  over %s, on average: lossless %.2f, lossy %.2f" % (BASELINE_OFF, mean(plain_off), mean(some_off)))
    paper.tell("lossless, average", mean(plain))
    paper.tell("lossless, AlexNet", plain[0])
    paper.tell("lossless, VGG-16", plain[3])
    paper.tell("lossy, average", mean(some))
    paper.tell("lossy, AlexNet", some[0])


def figure_10(paper):
    print("Figure 10: AlexNet, encodings added one by one; no stashed map shares its place")
    places = ",".join((GROUPS, APART))
    base, *encoded = plan(paper, "alexnet", BASELINE + "," + APART,
                          "rules:%s,%s,%s" % (ssdc("alexnet"), places, GRADIENTS),
                          "rules:%s,%s,%s" % (BINARIZE, places, GRADIENTS),
                          "%s,%s,%s" % (lossless("alexnet"), places, GRADIENTS), "%s,%s" % (lossless("alexnet"), places))
    ratios = [base.placed / each.placed for each in encoded]
    for what, ratio in zip(("SSDC", "Binarize", "both", "both, ReLU in place"), ratios):
        paper.tell(what, ratio)
    both, in_place = encoded[2:]
    paper.tell("ReLU in place, on what is consumed at once",
               (both.placed - both.held) / (in_place.placed - in_place.held))
    paper.rising("AlexNet: SSDC, Binarize, both, in place", *ratios)


def figure_11(paper):
    """Ratios of encodings on their own maps. Binarize holds signs and, for the pool, its index map of 4 bits an
    element."""
    print("Figure 11: the ratio of each encoding on its own maps")
    binarized, sparse = [], []
    for net in NETS:
        made, = plan(paper, net, "%s,%s,%s" % (lossless(net), GROUPS, GRADIENTS))
        binarized.append(made.of[0] / (made.held_of[0] + made.of[4]))
        sparse.append(sum(made.of[1:3]) / sum(made.held_of[1:3]))
        print("  %-12s Binarize %5.1f, SSDC %4.2f" % (net, binarized[-1], sparse[-1]))
        paper.order("%s: Binarize takes less than SSDC" % net, binarized[-1] > sparse[-1])
    paper.tell("Binarize, VGG-16 (close to)", binarized[3])
    paper.tell("SSDC, OverFeat (up to)", sparse[2])


def figure_13(paper):
    print("Figure 13: AlexNet, fewer bits for all maps; no stashed map shares its place")
    base, *small = plan(paper, "alexnet", BASELINE + "," + APART,
                        *("rules:*=compress(dpr:fp%d),%s,%s,%s" % (bits, GROUPS, APART, GRADIENTS) for bits in (16, 8)))
    for bits, each in zip((16, 8), small):
        paper.tell("FP%d" % bits, base.placed / each.placed,
                   ("maps that are read by sign alone in %d bits, not one" % bits,
                    base.placed / (each.placed + each.of[0] * (bits - 1) / 32)))
    paper.rising("AlexNet: FP16, FP8", *(base.placed / each.placed for each in small))


def figure_17(paper):
    print("Figure 17: the baseline's maps, placed in groups, over maps that are allocated dynamically")
    columns = ("dynamic", "lossless", "lossy", "no decoded map")
    found, dense = {name: [] for name in columns}, []
    for net in NETS:
        place = "%s,%s" % (GROUPS, GRADIENTS)
        base, exact, small = plan(paper, net, BASELINE, "%s,%s" % (lossless(net), place), "%s,%s" % (lossy(net), place))
        for name, size in zip(columns, (base.dynamic, exact.dynamic, small.dynamic, small.undecoded)):
            found[name].append(base.placed / size)
        base, exact = plan(paper, net, BASELINE, "%s,%s" % (lossless(net, dict(DENSITY, **{net: 70})), place))
        dense.append(base.placed / exact.dynamic)
        print("  %-12s " % net + ", ".join("%s %5.2f" % (name, found[name][-1]) for name in columns))
    for name in columns[:3]:
        changed = ("a density of 70 per cent everywhere", mean(dense)) if name == "lossless" else None
        paper.tell("%s of Figure 17, average" % name, mean(found[name]), changed)
    paper.tell("no decoded map, average", mean(found["no decoded map"]))
    paper.rising("on average: dynamic, lossless, lossy, no decoded map", *map(mean, found.values()))
    off, small = plan(paper, "alexnet", BASELINE_OFF, "%s,%s" % (lossy("alexnet"), GROUPS))
    paper.tell("no decoded map, AlexNet (up to)", found["no decoded map"][0],
               ("a baseline without any in-place gradient, Gist with ReLUs in place", off.placed / small.undecoded))


# ---------------------------------------------------------------- time


def figure_9_and_15(paper):
    print("Figures 9 and 15: the step over the baseline's")
    steps = []
    for net in NETS:
        base, *rest = plan(paper, net, "liveness", "gist:lossless,when=always",
                           "gist:lossy=%s,when=always" % FORMAT[net], "vdnn-conv:when=always",
                           "rules:conv-in=swap,when=always,depth=0", "rules:conv-in=swap,when=always,depth=1")
        step = [each.seconds / base.seconds for each in rest]
        steps.append(step)
        print("  %-12s overhead %%: lossless %5.1f, lossy %5.1f, vDNN %5.1f, naive swapping %5.1f" %
              (net, *(100 * (each - 1) for each in step[:4])))
        paper.rising("%s: Gist, vDNN, naive swapping" % net, *step[1:4])
    exact, small, vdnn, naive, ahead = zip(*steps)
    paper.tell("Gist lossless, average step", mean(exact))
    paper.tell("Gist lossy, average step", mean(small))
    paper.tell("Gist lossy, longest step", max(small))
    paper.tell("vDNN, average step", mean(vdnn))
    paper.tell("vDNN, Inception's step", vdnn[4], ("a map ahead, without waiting for the layer between", ahead[4]))
    paper.tell("naive swapping, average step", mean(naive))


def largest(paper, net):
    """The largest batch in 12 GiB, and images/s, each for the baseline and for Gist."""
    told = paper.run("plan", "--net", net, "--fuse", "off", "--facts", paper.machine, "--budget", "12GiB", "--max-batch",
                     "--policy", BASELINE + ",gist:lossy=fp16,when=always,layout=groups")
    columns = [re.findall(pattern, told, re.M) for pattern in
               (r"^ *largest batch +(\d+)", r"^ *predicted step .* ([\d.]+) images/s")]
    return [tuple(map(float, each)) for each in zip(*columns)]


def figure_16(paper):
    """Gist gains by a larger batch as much as a step takes time that does not grow with the batch: step_ns."""
    print("Figure 16: the largest batches in 12 GiB, and Gist's images/s over the baseline's")
    gains = []
    for net in ("resnet509", "resnet851", "resnet1202"):
        base, gist = largest(paper, net)
        gains.append(gist[1] / base[1])
        print("  %-12s batches %4d and %4d, images/s %4.2f" % (net, base[0], gist[0], gains[-1]))
        paper.order("%s: Gist has the larger batch" % net, gist[0] > base[0])
    paper.rising("Gist's gain by depth", *gains)
    paper.tell("ResNet-1202, images/s", gains[-1])


# ---------------------------------------------------------------- over training


def figure_14(paper, data):
    """Measured on a thin network: the ratio of sparse rows on maps that convolutions read; other maps go to a pool or a
    linear layer."""
    print("Figure 14: SSDC's ratio by layer, VGG-16 in small, as training goes on (published: above 1 but at the start)")
    told = paper.run("codecs", "--study", "--net", "vgg16@32x32,classes=10,thin=8", "--data", data, "--batch", "32",
                     "--iterations", "1,100", "--quiet")
    first, last = [{int(layer): float(ratio) for layer, ratio in re.findall(r"^ *features\.(\d+) .* ([\d.]+)$", part, re.M)
                    if int(layer) not in (3, 8, 15, 22, 29, 30)} for part in re.split(" iteration .*\n", told)[1:]]
    for layer, ratio in first.items():
        print("  %-12s %6.2f at first, %6.2f after 100 iterations" % ("features.%d" % layer, ratio, last[layer]))
    more = sum(last[layer] > ratio for layer, ratio in first.items())
    paper.order("Figure 14: every layer above 1 after training, most of them more than at first",
                first and min(last.values()) > 1 and more > len(first) / 2)


def add_options(parser):
    add_places(parser, "titanx-gist.json")
    parser.add_argument("data", nargs="?", default="synthetic", help="Figure 14's, as mm train takes it (synthetic)")
    parser.add_argument("--fast", action="store_true", help="only what takes a few seconds")


def run(paper, options):
    paper.inception = paper.without_batch_norms(False)
    for figure in (figure_1, figure_3, figure_10, figure_11, figure_13):
        figure(paper)
    figure_14(paper, options.data)
    for figure in () if options.fast else (figure_8, figure_17, figure_9_and_15, figure_16):
        figure(paper)
    return "in order: Binarize ahead of SSDC, both of each, lossy of lossless, Gist of vDNN, vDNN of naive swapping"
