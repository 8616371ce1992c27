# SPDX-License-Identifier: MIT
"""moDNN's figures (Chen et al., IEEE TPDS 2019), by plans and by the simulator on a K40 given as rates:

  9        the least memory of an iteration (equation 7), one image at a time, beside ideal's
  10, 11   in 12 GiB: the iteration beside ideal's and vDNN's, and bytes over the link
  12       the iteration beside that of vDNN+, in budgets from the least on
  13, 14   sub-batches, offloading and algorithms, each alone: the least memory, and the time then

Figures 15 and 16, power and energy, are left out: no rate of a machine says what it draws. Ideal keeps everything,
with the fastest algorithms. vDNN is the fastest of vdnn-all and vdnn-conv that fits, with the fastest algorithms or
the least workspaces, acting on every map as published. vDNN+ is vdnn-all in sub-batches of its own choice.

  17, 18, 19   only these with --ranks: four GPUs whose gradients are added up on the host beside the backward pass, in
           budgets of each GPU; compared with one GPU, and with GPU 0 adding up after the backward pass

Training is plain gradient descent without momentum (equations 3 to 5). Two numbers of k40.json are calibrated on
figures of one GPU: half_rate_elems on Figure 14's sub-batches alone, the link's rate on Figure 12 and on Figure 14's
offloading alone. Figures of four GPUs are predictions. Our sub-batches are chosen by moDNN's rule first, then by
predicted time.

It fails if an order differs from the paper's. Figures 10 to 12: moDNN at least as good as the other on each network;
13: sub-batches ahead of offloading, offloading of algorithms; 14: sub-batches longest, then algorithms, then
offloading; or if an average is farther off than recorded.

    published modnn [--quick] [--ranks] [--policy NAME] [MM [MACHINE]]

MACHINE: tools/facts/k40.json. A machine without `algorithms` has one for each layer, and the third technique is left
out. Without half_rate_elems one image is computed as efficiently as many, and figure 14 is not judged.
"""
import sys

from papers import add_places, mean

NETS = [("vgg16", 256), ("vgg19", 256), ("resnet34", 256), ("resnet152", 256), ("vgg101", 128), ("fcn8s-vgg16", 128)]
OPTIMIZER = "sgd,momentum=0"  # equations 3 to 5
BUDGET = 12 << 30
AS_GOOD = 1.001  # times within a thousandth count as equal


class Bench:
    """Plans and judges with moDNN, or with the policy of --policy instead."""

    def __init__(self, paper, policy, whole):
        self.paper, self.policy, self.whole = paper, policy, whole

    def plan(self, net, batch, policies, *arguments, machine=None):
        """A row for each policy. With a budget, those that do not fit it are infeasible."""
        return self.paper.plan(net, batch, policies, "--facts", machine or self.paper.machine, "--optimizer", OPTIMIZER,
                               *arguments)


def without_workspace(algorithms):
    return {name: algorithm for name, algorithm in algorithms.items() if "workspace" not in algorithm}


def seconds(row):
    return row["iteration_seconds_predicted"]


def fitting(rows):
    return [row for row in rows if row["status"] == "ok"]


def gib(count):
    return "%.2f GiB" % (count / 2 ** 30)


def tell(bench, what, ours, changed=None):
    """Prints our figure beside the published one, and judges it, unless some networks are left out. changed(): pair
    (assumption, the figure with it changed), asked for if the figure is not near."""
    figure = bench.paper.figures[what]
    if bench.whole:
        bench.paper.tell(what, ours, changed() if changed and not figure.is_near(ours) else None)
    else:
        print("  %-66s %8.2f  published %.2f of six networks" % (what, ours, figure.published))


# ---------------------------------------------------------------- figure 9: memory


def ideal_of(bench, net, batch):
    return bench.plan(net, batch, ["naive"], "--explain")[0]


def as_counted_there(ideal, one):
    """What ideal needs divided by each of the two bounds. Maps of ReLUs and their gradients are left out, since the
    paper counts an activation as part of its layer. ideal, one: rows of the whole batch and of one image."""
    maps = ideal["maps"]
    relus = maps["ReLU to pool"]["bytes"] + maps["ReLU to convolution"]["bytes"]
    left = ideal["minimum_bytes"] - 2 * relus
    return left / one["batch_lower_bound_bytes"], left / one["batch_lower_bound_offloaded_bytes"]


def figure_9(bench, ideals):
    """Returns {network: bound}."""
    print("Figure 9: what is needed, ideal beside the bound at one image, weights kept and offloaded")
    bounds, ratios, counted = {}, {}, []
    for (net, batch), ideal in ideals.items():
        one = bench.plan(net, 1, ["naive"], "--explain")[0]
        bounds[net] = one["batch_lower_bound_bytes"]
        both = bounds[net], one["batch_lower_bound_offloaded_bytes"]
        ratios[net] = [ideal["minimum_bytes"] / least for least in both]
        counted.append(as_counted_there(ideal, one))
        print("  %-12s at %d  ideal %10s, bound %9s, %9s: %4.0f and %4.0f times less" % (
            net, batch, gib(ideal["minimum_bytes"]), gib(both[0]), gib(both[1]), *ratios[net]))
        bench.paper.order("Figure 9: %s saves more with the weights offloaded" % net, ratios[net][1] > ratios[net][0])
    for less, more in (("vgg16", "vgg19"), ("vgg19", "vgg101"), ("resnet34", "resnet152")):
        if less in ratios and more in ratios:
            bench.paper.order("Figure 9: %s saves more than %s" % (more, less), ratios[less][0] < ratios[more][0])
    for i, what in enumerate(("kept", "offloaded")):
        there = "activations in their layers, as published", mean(c[i] for c in counted)
        tell(bench, "ideal over the bound, weights %s, average" % what, mean(r[i] for r in ratios.values()), lambda: there)
    if "vgg101" in ratios:
        print("  VGG-101: published from nearly 100 GB to 1.4 GB. Only the name of theirs is known. 1.4 GB hold weights\n"
              "  and gradients of at most 175 M parameters; ours has 231.8 M: 1.8 GiB")
    return bounds


# ---------------------------------------------------------------- figures 10 and 11: 12 GiB

VDNN = ["vdnn-%s:algorithms=%s,when=always" % (which, algorithms)
        for which in ("conv", "all") for algorithms in ("fastest", "least")]


def figure_10_and_11(bench, ideals):
    print("Figures 10 and 11: in 12 GiB, the iteration over ideal's, and bytes over the link")
    ours, theirs, moved = {}, {}, []
    for net, batch in ideals:
        ideal = seconds(ideals[net, batch])
        budget = ["--budget", str(BUDGET)]
        row = bench.plan(net, batch, [bench.policy], "--sub-batch", "auto", *budget)[0]
        vdnn = fitting(bench.plan(net, batch, VDNN, *budget))
        best = min(vdnn, key=seconds) if vdnn else None
        fits = bool(fitting([row]))
        bench.paper.order("Figure 10: %s fits 12 GiB" % net, fits)
        ours[net] = seconds(row) / ideal
        text = "does not fit"
        if best:
            theirs[net] = seconds(best) / ideal
            policy = best["policy"].replace(",when=always", "")
            text = "%.3f, %10s (%s)" % (theirs[net], gib(best["moved_bytes"]), policy)
            bench.paper.order("Figure 10: %s: moDNN %.4f, vDNN %.4f" % (net, ours[net], theirs[net]),
                  ours[net] <= AS_GOOD * theirs[net])
            bench.paper.order("Figure 11: %s: moDNN moves %s, vDNN %s" % (net, gib(row["moved_bytes"]), gib(best["moved_bytes"])),
                  row["moved_bytes"] <= best["moved_bytes"])
            if row["moved_bytes"] > 0:
                moved.append(best["moved_bytes"] / row["moved_bytes"])
        print("  %-12s moDNN %.3f, %10s (sub-batch %3d);  vDNN %s" % (net, ours[net], gib(row["moved_bytes"]),
                                                                  row["sub_batch"], text))
    tell(bench, "moDNN over ideal, average", mean(ours.values()))
    if theirs:
        tell(bench, "vDNN over ideal, average", mean(theirs.values()))
    if moved:
        tell(bench, "bytes of vDNN over moDNN's, average", mean(moved))
    else:
        print("  moDNN moves nothing here, so there is no ratio (published: 378 times less)")


# ---------------------------------------------------------------- figure 12: budgets


def budgets(bound, n):
    """n budgets from just above the bound to 12 GiB, each larger than the one before by the same factor."""
    least = bound * 1.02
    return [int(least * (BUDGET / least) ** (i / (n - 1))) for i in range(n)] if least < BUDGET else [BUDGET]


def figure_12(bench, ideals, bounds, n):
    print("Figure 12: the iteration over ideal's, budgets from the bound to 12 GiB: moDNN, vDNN+ (sub-batches)")
    gains = []
    for net, batch in ideals:
        ideal = seconds(ideals[net, batch])
        for budget in budgets(bounds[net], n):
            policies = [bench.policy, "vdnn-all:when=always"]
            row, vdnn = (bench.plan(net, batch, [p], "--sub-batch", "auto", "--budget", str(budget))[0]
                         for p in policies)
            told = ["%.3f (%3d)" % (seconds(r) / ideal, r["sub_batch"]) if fitting([r]) else "does not fit"
                    for r in (row, vdnn)]
            print("  %-12s %10s  moDNN %-12s  vDNN+ %s" % (net, gib(budget), *told))
            bench.paper.order("Figure 12: %s fits %s" % (net, gib(budget)), bool(fitting([row])))
            bench.paper.order("Figure 12: %s holds more than %s" % (net, gib(budget)), row["predicted_peak_bytes"] <= budget)
            if fitting([row]) and fitting([vdnn]):
                gains.append(seconds(vdnn) / seconds(row))
                bench.paper.order("Figure 12: %s, %s: moDNN %s, vDNN+ %s" % (net, gib(budget), *told), gains[-1] * AS_GOOD >= 1)
    if gains:
        tell(bench, "vDNN+ over moDNN, average", mean(gains))


# ---------------------------------------------------------------- figures 13 and 14: each technique


def figure_13_and_14(bench, ideals):
    print("Figures 13 and 14: each technique alone: how many times less memory than ideal, and its time over ideal's")
    memory, time = {}, {}
    for net, batch in ideals:
        ideal = ideals[net, batch]
        alone = {"sub-batches": bench.plan(net, batch, ["naive"], "--sub-batch", "1")[0]}
        offload = bench.policy + ":subbatch=off,algorithms=fastest" if bench.policy == "modnn" else bench.policy
        alone["offloading"] = bench.plan(net, batch, [offload])[0]
        if "algorithms" in bench.paper.rates:
            least = bench.paper.changed(lambda m: m.update(algorithms=without_workspace(m["algorithms"])))
            alone["algorithms"] = bench.plan(net, batch, ["naive"], machine=least)[0]
        told = []
        for technique, row in alone.items():
            memory.setdefault(technique, []).append(ideal["minimum_bytes"] / row["minimum_bytes"])
            time.setdefault(technique, []).append(seconds(row) / seconds(ideal))
            told.append("%s %6.2f, %5.2f" % (technique, memory[technique][-1], time[technique][-1]))
        print("  %-12s %s" % (net, ";  ".join(told)))
    memory = {technique: mean(values) for technique, values in memory.items()}
    time = {technique: mean(values) for technique, values in time.items()}
    falling(bench, "Figure 13", memory, ("sub-batches", "offloading", "algorithms"))
    if "half_rate_elems" in bench.paper.rates:
        falling(bench, "Figure 14", time, ("sub-batches", "algorithms", "offloading"))
    else:
        print("  Figure 14 is not judged: this machine is as fast for one image as for many")
    judge_13_and_14(bench, ideals, memory, time)


def falling(bench, figure, values, names):
    names = [name for name in names if name in values]
    for more, less in zip(names, names[1:]):
        bench.paper.order("%s: %s %.3f, %s %.3f" % (figure, more, values[more], less, values[less]), values[more] > values[less])


def alone_changed(bench, ideals, change, *arguments):
    """The average time over ideal's on a changed machine."""
    machine = bench.paper.changed(change)
    return mean(seconds(bench.plan(net, batch, ["naive"], *arguments, machine=machine)[0]) / seconds(ideal)
                for (net, batch), ideal in ideals.items())


def small_work(bench, ideals):
    if "half_rate_elems" not in bench.paper.rates:
        return None
    twice = lambda m: m.update(half_rate_elems=2 * m["half_rate_elems"])
    return "twice the half_rate_elems", alone_changed(bench, ideals, twice, "--sub-batch", "1")


def slow_algorithms(bench, ideals):
    def change(m):
        m["algorithms"] = without_workspace(m["algorithms"])
        for algorithm in m["algorithms"].values():
            algorithm["flops_per_s"] /= 1.5
    return "two thirds of implicit GEMM's rate", alone_changed(bench, ideals, change)


def judge_13_and_14(bench, ideals, memory, time):
    for technique, value in memory.items():
        tell(bench, "%s alone: times less memory, average" % technique, value)
    changes = {"sub-batches": lambda: small_work(bench, ideals), "algorithms": lambda: slow_algorithms(bench, ideals)}
    for technique, value in time.items():
        tell(bench, "%s alone: time over ideal's, average" % technique, value, changes.get(technique))


# ---------------------------------------------------------------- figures 17 to 19: four GPUs

RANKS = ["--ranks", "4"]
ON_HOST = RANKS + ["--sum-at", "root"]
ON_GPU_0 = RANKS + ["--sum", "end", "--sum-at", "device"]
CORES_20 = 2.5  # times as fast as one core: "by up to 2-3x"
# Each: figure, what, policy ("": the bench's), options, whether 20 cores add up, what it is compared with.
FOUR = [
    (17, "12 GiB, overlapped, one core adding", "", ON_HOST + ["--budget", "12GiB"], False, "ideal"),
    (17, "all kept, GPU 0 adding at the end", "naive", ON_GPU_0, False, "ideal"),
    (18, "6 GiB, overlapped", "", ON_HOST + ["--budget", "6GiB"], False, "ideal"),
    (18, "6 GiB, at the end", "", ON_GPU_0 + ["--budget", "6GiB"], False, "ideal"),
    (18, "3 GiB, overlapped", "", ON_HOST + ["--budget", "3GiB"], False, "ideal"),
    (18, "3 GiB, at the end", "", ON_GPU_0 + ["--budget", "3GiB"], False, "ideal"),
    (18, "3 GiB, overlapped, 20 cores adding", "", ON_HOST + ["--budget", "3GiB"], True, "ideal"),
    (19, "4 x 3 GiB, overlapped, beside 12 GiB", "", ON_HOST + ["--budget", "3GiB"], False, "12 GiB"),
    (19, "4 x 3 GiB, overlapped, 20 cores, beside 12 GiB", "", ON_HOST + ["--budget", "3GiB"], True, "12 GiB"),
]


def speedups(bench, nets, row, alone, machine):
    _, what, policy, options, _, beside = row
    found = []
    for net, batch in nets:
        ran = fitting(bench.plan(net, batch, [policy or bench.policy], *options, machine=machine))
        if not ran:
            bench.paper.failed.append("%s: %s does not fit" % (what, net))
            continue
        found.append(alone[net, beside] / seconds(ran[0]))
    return found


def figures_17_to_19(bench, nets):
    if "link_sharers" not in bench.paper.rates or "host_sum_bytes_per_s" not in bench.paper.rates:
        sys.exit("published modnn: --ranks: %s has no link_sharers or host_sum_bytes_per_s" % bench.paper.machine)
    faster = bench.paper.changed(lambda m: m.update(host_sum_bytes_per_s=CORES_20 * m["host_sum_bytes_per_s"]))
    alone = {}
    for net, batch in nets:
        alone[net, "ideal"] = seconds(bench.plan(net, batch, ["naive"])[0])
        alone[net, "12 GiB"] = seconds(bench.plan(net, batch, [bench.policy], "--budget", "12GiB")[0])
    print("Figures 17 to 19: four GPUs, times as fast as one; a budget is each GPU's. " + ", ".join(n for n, _ in nets))
    both = []
    for row in FOUR:
        what = "%d: %s" % row[:2]
        found = speedups(bench, nets, row, alone, faster if row[4] else None)
        ours = mean(found or [0])
        both.append((ours, bench.paper.figures[what].published))
        tell(bench, what, ours)
        print("      " + " ".join("%.2f" % each for each in found))
    for better, (ours, theirs) in zip(FOUR, both):
        for worse, (slower, published) in zip(FOUR, both):
            if better[0] == worse[0] and theirs > published:
                bench.paper.order("figure %d: %s is faster than %s" % (better[0], better[1], worse[1]),
                                  ours >= slower / AS_GOOD)


def add_options(parser):
    add_places(parser, "k40.json")
    parser.add_argument("--quick", action="store_true", help="two of the six networks, and fewer budgets")
    parser.add_argument("--ranks", action="store_true", help="figures 17 to 19, and no others")
    parser.add_argument("--policy", metavar="NAME", default="modnn", help="policy instead of modnn")


def run(paper, options):
    whole = not options.quick and options.policy == "modnn"
    bench, nets = Bench(paper, options.policy, whole), NETS[:1] + NETS[2:3] if options.quick else NETS
    if options.ranks:
        figures_17_to_19(bench, nets)
        return "in order, and no average farther off than recorded"
    ideals = {n: ideal_of(bench, *n) for n in nets}
    bounds = figure_9(bench, ideals)
    figure_10_and_11(bench, ideals)
    figure_12(bench, ideals, bounds, 3 if options.quick else 6)
    figure_13_and_14(bench, ideals)
    print("Figures 15 and 16, power and energy, are left out: rates do not say what a machine draws")
    return "in order: moDNN at least as good as vDNN and vDNN+; sub-batches save most memory, and take longest"
