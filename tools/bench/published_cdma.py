#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""cDMA's figures (M. Rhu et al., Compressing DMA Engine, HPCA 2018) beside ours:

  4, 6, 11, 12   zeros by layer, what zvc, rle and zlib make of them in three layouts, and what crosses the link: on
                 maps that are drawn with the shares of zeros that the paper prints
  13             step against vdnn-all and a free link, on the two GPUs of the paper with its engine, by the simulator
                 (tools/facts/titanx-cdma.json, titanxp-cdma.json)
  4, 7, 11, 12   the same as a network trains, on CIFAR-10, if DATA says where it is; judged by order only

Exits with 1 if an order is not theirs, or a figure is more than 15 % from theirs (the most that a network gains: with
one assumption changed, which is printed).

    tools/bench/published_cdma.py [--quick] [MM [DATA]]

--quick: smaller samples, and two of the six networks, which are judged by order only. DATA: as --data of mm has it,
cifar10:DIR.
"""
import json
import os
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.realpath(__file__))

# Network, its batch (Table II), and the share of zeros. AlexNet's 49.4 % is printed, and 62 % on average of the six; so
# the other five have 64.5 % on average, and here each.
NETS = [("alexnet-2012", 256, 0.494), ("overfeat", 256, 0.645), ("nin", 128, 0.645), ("vgg16", 128, 0.645),
        ("squeezenet1_0", 512, 0.645), ("googlenet", 256, 0.645)]
LAYOUTS = ["nchw", "nhwc", "chwn"]
NEAR = 0.15
# A network that learns CIFAR-10's images in some hundred iterations on a CPU, and has no batch norms: theirs have none.
TRAINED, TRAINED_AT, TRAINED_RATE = "nin-cifar,thin=4", [1, 100, 300], "0.01"

failed = []


def run(mm, *arguments):
    done = subprocess.run([mm, *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE, universal_newlines=True)
    if done.returncode != 0:
        sys.exit("tools/bench/published_cdma.py: mm %s: %s" % (" ".join(arguments), done.stderr.strip() or done.stdout.strip()))
    return done.stdout


def rows_of(mm, folder, *arguments):
    path = os.path.join(folder, "rows.json")
    run(mm, *arguments, "--quiet", "--json", path)
    with open(path) as file:
        return json.load(file)


def mean(values):
    values = list(values)
    return sum(values) / len(values)


def in_order(what, *named):
    """named: pairs of name and value, of which each must be at least the next."""
    for (a, x), (b, y) in zip(named, named[1:]):
        if x < y:
            failed.append("not in order: %s: %s %.4g < %s %.4g" % (what, a, x, b, y))


def near(what, ours, theirs):
    if abs(ours / theirs - 1) > NEAR:
        failed.append("not within 15 %%: %s: %.3g, published %.3g" % (what, ours, theirs))


def is_near(ours, theirs):
    return abs(ours / theirs - 1) <= NEAR


def without_batch_norms(mm, folder):
    """Caffe's GoogLeNet, which the paper has, is from before batch norms; ours is torchvision's. A convolution takes a
    bias instead."""
    net = json.loads(run(mm, "nets", "--net", "googlenet", "--json"))
    before = {layer["name"]: layer["inputs"][0] for layer in net["layers"] if layer["op"] == "batch_norm"}
    net["layers"] = [layer for layer in net["layers"] if layer["op"] != "batch_norm"]
    for layer in net["layers"]:
        layer["inputs"] = [before.get(name, name) for name in layer["inputs"]]
        if layer["op"] == "conv":
            layer["bias"] = True
    path = os.path.join(folder, "googlenet.json")
    with open(path, "w") as file:
        json.dump(net, file)
    return "file:" + path


# ---------------------------------------------------------------- figures 4, 6, 11 and 12: maps


def show_layers(rows):
    """Figures 4 and 6: zeros of some of the layers, in order."""
    relus = [row for row in rows if row["kind"] == "relu"]
    shown = [relus[round(i * (len(relus) - 1) / 5)] for i in range(6)]
    print("    " + "  ".join("%s %.2f" % (row["layer"][-18:], row["density"]) for row in shown))


def ratio(row, codec, layout, key="ratio"):
    return row[key][codec][layout]


def judge_ratios(what, totals):
    """Figures 11 and 12, of one network or on average."""
    average = {c: {l: mean(ratio(t, c, l) for t in totals) for l in LAYOUTS} for c in ("zvc", "rle", "deflate")}
    for layout in LAYOUTS:
        in_order("%s, %s" % (what, layout), ("zvc", average["zvc"][layout]), ("rle", average["rle"][layout]))
    in_order("%s, nchw" % what, ("zlib", average["deflate"]["nchw"]), ("zvc", average["zvc"]["nchw"]))
    for layout in ("nhwc", "chwn"):
        in_order("%s, %s" % (what, layout), ("zvc", average["zvc"][layout]), ("zlib", average["deflate"][layout]))
        for codec in ("rle", "deflate"):
            in_order("%s, %s" % (what, codec), ("nchw", average[codec]["nchw"]), (layout, average[codec][layout]))
    return average


def show_ratios(name, total, key="ratio"):
    print("%-24s %7s" % (name, "%.2f" % total["density"] if key == "ratio" else ""), end="")
    for codec in ("zvc", "rle", "deflate"):
        print("  %7.2f %7.2f %7.2f" % tuple(ratio(total, codec, layout, key) for layout in LAYOUTS), end="")
    print()


def heading(text):
    print("\n%s\n%-24s %7s  %-23s  %-23s  %-23s" % (text, "", "density", "zvc: nchw, nhwc, chwn", "rle", "zlib"))


def draw(mm, folder, nets, batch, windows):
    studies = {}
    heading("Figure 11: ratios on drawn maps, in windows of 4 KiB; the second line of each: the best map")
    for name, net, _, zeros in nets:
        rows = rows_of(mm, folder, "codecs", "--study", "--net", net, "--batch", str(batch), "--draw", str(zeros),
                       "--windows", str(windows))
        studies[name] = rows
        show_ratios(name, rows[-1])
        show_ratios("", rows[-1], "largest_ratio")
    totals = [rows[-1] for rows in studies.values()]
    average = judge_ratios("Figure 11", totals)
    largest = max(ratio(t, "zvc", "nchw", "largest_ratio") for t in totals)
    whole = len(nets) == len(NETS)
    print("%-24s         zvc %.2f on average (published 2.6), %.1f at most (13.8); zlib in nchw %.2f (2.76)" %
          ("", average["zvc"]["nchw"], largest, average["deflate"]["nchw"]))
    if whole:
        for layout in LAYOUTS:
            near("Figure 11, zvc in %s" % layout, average["zvc"][layout], 2.6)
        near("Figure 11, zvc at most", largest, 13.8)
        near("Figure 11, zlib in nchw", average["deflate"]["nchw"], 2.76)
    print("\nFigures 4 and 6: density of ReLUs, from the first to the last (the first published: within 0.02 of 0.5 in"
          "\nAlexNet; later ones sparser, pooled maps denser)")
    for name, rows in studies.items():
        print("  " + name)
        show_layers(rows)
        relus = [row for row in rows if row["kind"] == "relu"]
        in_order("Figure 6, %s" % name, ("first ReLU", relus[0]["density"]), ("last ReLU", relus[-1]["density"]))
        for before, row in zip(rows, rows[1:]):
            if row["kind"] == "max_pool" and before["kind"] == "relu":
                in_order("Figure 6, %s" % name, (row["layer"], row["density"]), (before["layer"], before["density"]))
    if whole:
        zeros = mean(1 - t["density"] for t in totals)
        print("  zeros on average: %.3f (published 0.62)" % zeros)
        near("zeros of six networks", zeros, 0.62)
    print("\nFigure 12: bytes over the link, of vdnn-all's, in nchw")
    for name, rows in studies.items():
        shares = {codec: 1 / ratio(rows[-1], codec, "nchw") for codec in ("rle", "zvc", "deflate")}
        print("  %-22s rle %.3f, zvc %.3f, zlib %.3f" % (name, shares["rle"], shares["zvc"], shares["deflate"]))
        in_order("Figure 12, %s" % name, *shares.items())
    return studies


# ---------------------------------------------------------------- figure 13: speed

# What the paper's text says of Figure 13: the mean and the largest gain of zvc on vdnn-all.
GPUS = [("Maxwell Titan X", "titanx-cdma.json", 1.32, 1.61), ("Pascal Titan Xp", "titanxp-cdma.json", 1.53, 1.79)]
POLICIES = ["liveness", "vdnn-all:when=always"] + [
    "cdma:codec=%s,signs=whole,when=always" % codec for codec in ("rle", "zvc", "deflate")]
COLUMNS = ["vdnn", "rle", "zvc", "zlib", "zvc 3x"]


def speeds(mm, folder, machine, net, batch, study, policies):
    rows = rows_of(mm, folder, "bench", "--simulate", machine, "--study", study + ",nchw", "--fuse", "off", "--net", net,
                   "--batch", str(batch), "--budgets", "own", "--policies", ",".join(policies))
    return [row["images_per_second"] for row in rows]


def changed(folder, path, change):
    with open(path) as file:
        machine = json.load(file)
    change(machine)
    copy = os.path.join(folder, "machine.json")
    with open(copy, "w") as file:
        json.dump(machine, file)
    return copy


def throttle(machine):
    """Bandwidth-aware: the engine reads memory at most three times as fast as the link (section V-D)."""
    for rates in machine["codecs"].values():
        for way in rates:
            rates[way] = 3 * machine["link"]["out_bytes_per_s"]


def simulate(mm, folder, nets, studies, machine, change=None):
    """For each network: shares of a free link's speed, in the order of COLUMNS."""
    shares = {}
    for name, net, batch, _ in nets:
        study = os.path.join(folder, "study.json")
        with open(study, "w") as file:
            json.dump(studies[name], file)
        both = lambda m: (change(m, name) if change else None)
        found = speeds(mm, folder, changed(folder, machine, both), net, batch, study, POLICIES)
        paced = changed(folder, machine, lambda m: (both(m), throttle(m)))
        found += speeds(mm, folder, paced, net, batch, study, [POLICIES[3]])
        shares[name] = [x / found[0] for x in found[1:]]
    return shares


def show_speeds(shares):
    for name, each in shares.items():
        print("  %-22s" % name + "".join("%9.3f" % x for x in each) + "   zvc %.2f of vdnn" % (each[2] / each[0]))
    gains = [each[2] / each[0] for each in shares.values()]
    paced = mean(each[4] / max(each[1:4]) for each in shares.values())
    return mean(gains), max(gains), paced


def judge_speeds(what, shares):
    for name, each in shares.items():
        vdnn, rle, zvc, zlib, paced = each
        in_order("%s, %s" % (what, name), ("free link", 1.0001), ("zlib", zlib), ("zvc", zvc), ("rle", rle), ("vdnn", vdnn))
        in_order("%s, %s" % (what, name), ("zvc", zvc), ("zvc 3x", paced), ("vdnn", vdnn))


def small_convolutions(machine, name):
    """GoogLeNet takes 65.7 ms a batch of 16 on a Maxwell Titan X (jcjohnson/cnn-benchmarks, cuDNN 5.0), by the
    machine's rates 38.6: its convolutions are too small for the rates of AlexNet's and VGG's. With half of them it
    takes 64.4. So does SqueezeNet here, whose convolutions are of that kind."""
    if name in ("googlenet", "squeezenet1_0"):
        for rate in ("conv_flops_per_s", "winograd_flops_per_s"):
            machine[rate] /= 2


def figure_13(mm, folder, nets, studies):
    whole = len(nets) == len(NETS)
    for gpu, file, gain, most in GPUS:
        machine = os.path.join(HERE, "..", "facts", file)
        print("\nFigure 13, %s: speed as a share of a free link's; zvc 3x: bandwidth-aware\n  %-22s" % (gpu, "") +
              "".join("%9s" % c for c in COLUMNS))
        shares = simulate(mm, folder, nets, studies, machine)
        judge_speeds("Figure 13, " + gpu, shares)
        ours = show_speeds(shares)
        told = "  zvc gains %.0f %% on average (published %.0f), %.0f at most (%.0f); zvc 3x has %.2f of the best (0.94)"
        say = lambda found: print(told % (100 * found[0] - 100, 100 * gain - 100, 100 * found[1] - 100, 100 * most - 100,
                                          found[2]))
        say(ours)
        print("  vdnn-all loses %.0f %% on average" % (100 - 100 * mean(each[0] for each in shares.values())) +
              (" (published 51)" if "Pascal" in gpu else ""))
        if not whole:
            continue
        near("Figure 13, %s: zvc of vdnn on average" % gpu, ours[0], gain)
        near("Figure 13, %s: zvc 3x of the best" % gpu, ours[2], 0.94)
        if not is_near(ours[1], most):
            print("  At most: SqueezeNet, which these rates compute too fast. With the convolutions of GoogLeNet and"
                  " SqueezeNet\n  at half of the rate, as GoogLeNet's were measured:")
            ours = show_speeds(simulate(mm, folder, nets, studies, machine, small_convolutions))
            say(ours)
            near("Figure 13, %s: zvc of vdnn at most, small convolutions at half of the rate" % gpu, ours[1], most)


# ---------------------------------------------------------------- in training


def in_training(mm, folder, data, at):
    rows = rows_of(mm, folder, "codecs", "--study", "--net", TRAINED, "--data", data, "--batch", "64", "--iterations",
                   ",".join(map(str, at)), "--lr", TRAINED_RATE, "--windows", "100")
    totals = [row for row in rows if row["layer"] is None]
    heading("Figures 7 and 11 in training: %s on %s; orders only" % (TRAINED, data))
    for total in totals:
        show_ratios("iteration %d, loss %.2f" % (total["iteration"], total["loss"]), total)
    print("\nFigure 4: density of ReLUs, from the first to the last")
    for iteration in at:
        print("  iteration %d" % iteration)
        show_layers([row for row in rows if row["layer"] and row["iteration"] == iteration])
    in_order("Figure 7", ("density at first", totals[0]["density"]), ("when trained", totals[-1]["density"]))
    for iteration in at:
        first = next(row for row in rows if row["iteration"] == iteration and row["kind"] == "relu")
        if abs(first["density"] - 0.5) > 0.1:
            failed.append("not as published: Figure 4: density %.2f of %s, iteration %d: must be near a half" %
                          (first["density"], first["layer"], iteration))
    for total in totals[1:]:
        judge_ratios("Figure 11, iteration %d" % total["iteration"], [total])
    print("\nWhat needs more training is not shown: that density rises again late (the U of Figures 4 to 7).")


def main():
    arguments = sys.argv[1:]
    if "-h" in arguments or "--help" in arguments:
        print(__doc__.strip())
        return 0
    if "--version" in arguments:
        os.execv(os.path.join(HERE, "..", "version"), ["version"])
    quick = "--quick" in arguments
    unknown = [a for a in arguments if a.startswith("-") and a != "--quick"]
    if unknown:
        print("tools/bench/published_cdma.py: no option %s; --help tells what it takes" % unknown[0], file=sys.stderr)
        return 2
    places = [a for a in arguments if not a.startswith("-")]
    mm = places[0] if places else os.path.join(HERE, "..", "..", "bazel-bin", "tools", "mm")
    with tempfile.TemporaryDirectory() as folder:
        nets = [(name, name, batch, zeros) for name, batch, zeros in (NETS[:1] + NETS[2:3] if quick else NETS)]
        nets = [(name, without_batch_norms(mm, folder) if name == "googlenet" else net, batch, zeros)
                for name, net, batch, zeros in nets]
        studies = draw(mm, folder, nets, 2 if quick else 4, 60 if quick else 300)
        figure_13(mm, folder, nets, studies)
        if len(places) > 1:
            in_training(mm, folder, places[1], TRAINED_AT)
    print()
    for line in failed:
        print(line)
    if not failed:
        print("in order: zvc ahead of rle in every layout, of zlib in all but nchw; all of vdnn-all, and none of a free link")
    return 1 if failed else 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except OSError as e:  # such as a program that is not there
        sys.exit("tools/bench/published_cdma.py: %s" % e)
    except KeyboardInterrupt:
        sys.exit(130)
