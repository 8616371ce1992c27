#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Writes the published races of README.md as plan files: NAME.faulty.plan and NAME.repaired.plan.

    python3 tools/verify/races/races.py [DIR]

Each race is a function of `repaired`. The schedules are the smallest that show the cause.
"""
import os
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.dirname(HERE))
from schedule import Schedule  # noqa: E402

MAP = 1 << 20


def three_layers(name):
    """Three forward steps, whose maps lie one after the other. The map of the first is to be moved out and back."""
    s = Schedule("training", name)
    maps = [s.map(f"h{i}", MAP) for i in (1, 2, 3)]
    kept = [s.device(h, i * MAP) for i, h in enumerate(maps)]
    return s, maps, kept


def megatron_7398(repaired):
    """The backward pass fetches a map itself, and does not wait for the end of the copy that brought it out."""
    s, maps, kept = three_layers("Megatron-LM#7398")
    host, back = s.pinned(maps[0], 0), s.device(maps[0], 3 * MAP)
    first = s.step("layer1", "forward", writes=[kept[0]])
    out = s.offload(kept[0], host, after=[first])
    s.step("layer2", "forward", reads=[kept[0]], writes=[kept[1]])
    s.step("layer3", "forward", reads=[kept[1]], writes=[kept[2]])
    last = s.step("layer3", "backward", reads=[kept[1]], modifies=[kept[2]])
    reload = s.prefetch(host, back, after=[last] + ([out] if repaired else []))
    s.step("layer1", "backward", reads=[back, kept[2]], after=[reload])
    return s


def trl_7195_stream(repaired):
    """The stream to wait for was looked up once; the layer computes on another, so the copy waits for an earlier step.

    Here both are one stream, and the wait that reaches only the earlier step shows what is missing."""
    s, maps, kept = three_layers("trl#7195, the wrong stream")
    host, back = s.pinned(maps[1], 0), s.device(maps[1], 3 * MAP)
    first = s.step("layer1", "forward", writes=[kept[0]])
    second = s.step("layer2", "forward", reads=[kept[0]], writes=[kept[1]])
    out = s.offload(kept[1], host, after=[second if repaired else first])
    third = s.step("layer3", "forward", reads=[kept[1]], writes=[kept[2]])
    s.step("layer3", "backward", modifies=[kept[2]])
    reload = s.prefetch(host, back, after=[third, out])
    s.step("layer2", "backward", reads=[back, kept[2]], after=[reload])
    return s


def trl_7195_block(repaired):
    """A block of the transfer stream's pool is freed while the compute stream reads it; the next reload takes it."""
    s = Schedule("training", "trl#7195, the freed block")
    first, second = s.map("h1", MAP), s.map("h2", MAP)
    kept = [s.device(first, 0), s.device(second, MAP)]
    hosts = [s.pinned(first, 0), s.pinned(second, MAP)]
    block = [s.device(second, 2 * MAP), s.device(first, 2 * MAP)]  # the same bytes, one after the other
    one = s.step("layer1", "forward", writes=[kept[0]])
    outs = [s.offload(kept[0], hosts[0], after=[one])]
    two = s.step("layer2", "forward", reads=[kept[0]], writes=[kept[1]])
    outs.append(s.offload(kept[1], hosts[1], after=[two]))
    reload = s.prefetch(hosts[1], block[0], after=outs)
    reader = s.step("layer2", "backward", reads=[block[0]], after=[reload])
    again = s.prefetch(hosts[0], block[1], after=outs + ([reader] if repaired else []))
    s.step("layer1", "backward", reads=[block[1]], after=[again])
    return s


def torchtune_1867(repaired):
    """A map is freed on the compute stream while the transfer stream still copies it out; the next map takes it."""
    s = Schedule("training", "torchtune#1867")
    first, second = s.map("h1", MAP), s.map("h2", MAP)
    kept, host = s.device(first, 0), s.pinned(first, 0)
    taken, back = s.device(second, 0), s.device(first, MAP)
    one = s.step("layer1", "forward", writes=[kept])
    out = s.offload(kept, host, after=[one])
    two = s.step("layer2", "forward", writes=[taken], after=[out] if repaired else [])
    reload = s.prefetch(host, back, after=[out, two])
    s.step("layer2", "backward", reads=[taken])
    s.step("layer1", "backward", reads=[back], after=[reload])
    return s


def torchtitan_2581(repaired):
    """A stream waits for itself, which waits for nothing: a copy out overwrites a slot of the pinned pool that the copy
    of the step before still reads."""
    s = Schedule("training", "torchtitan#2581")
    first, second = s.map("h1", MAP), s.map("h2", MAP)
    kept, back = [s.device(first, 0), s.device(second, MAP)], [s.device(first, 2 * MAP), s.device(second, 3 * MAP)]
    slot = [s.pinned(first, 0), s.pinned(second, 0)]  # one slot of the pool, used twice
    one = s.step("layer1", "forward", writes=[kept[0]])
    out = s.offload(kept[0], slot[0], after=[one])
    two = s.step("layer2", "forward", writes=[kept[1]])
    reload = s.prefetch(slot[0], back[0], after=[out, two])
    again = s.offload(kept[1], slot[1], after=[two] + ([reload] if repaired else []))
    s.step("layer1", "backward", reads=[back[0]], after=[reload])
    second_reload = s.prefetch(slot[1], back[1], after=[again])
    s.step("layer2", "backward", reads=[back[1]], after=[second_reload])
    return s


def diffusers_13502(repaired):
    """Weights are brought in on a transfer stream, and the compute stream does not wait for it."""
    s = Schedule("inference", "diffusers#13502")
    home = s.persistent("weight", MAP, pinned=True)
    visit = s.device("weight", 0)
    image, result = s.device(s.map("h1", MAP), MAP), s.device(s.map("h2", MAP), 2 * MAP)
    one = s.step("embed", "forward", writes=[image])
    fetch = s.prefetch(home, visit, after=[one])
    s.step("block", "forward", reads=[visit, image], writes=[result], after=[fetch] if repaired else [])
    return s


RACES = {
    "megatron-lm-7398": megatron_7398,
    "trl-7195-stream": trl_7195_stream,
    "trl-7195-block": trl_7195_block,
    "torchtune-1867": torchtune_1867,
    "torchtitan-2581": torchtitan_2581,
    "diffusers-13502": diffusers_13502,
}


def main():
    folder = sys.argv[1] if len(sys.argv) > 1 else HERE
    for name, race in RACES.items():
        race(False).save(os.path.join(folder, f"{name}.faulty.plan"))
        race(True).save(os.path.join(folder, f"{name}.repaired.plan"))


if __name__ == "__main__":
    main()
