# SPDX-License-Identifier: MIT
"""planned_graphs: what the library's planner answers about graphs made in Python, and what is refused."""

import os
import tempfile
import threading

import checks
from checks import expect
from mm_torch import planner
from mm_torch.planner import Graph, Rates, require

MIB = 1 << 20


def chain(layers=6, elems=MIB // 4):
    """A chain of layers; the backward step of each reads its input. Maps of `elems` f32."""
    g = Graph("chain")
    g.tensor("x", "input", elems, "f32")
    g.layer("data", "data")
    g.step("data", "forward", writes=["x"])
    before = "x"
    for i in range(layers):
        g.tensor(f"w{i}", "weight", 1024, "f32", "persistent")
        g.tensor(f"w{i}.grad", "weight gradient", 1024, "f32", "persistent", weight=f"w{i}")
        g.tensor(f"h{i}", "feature map", elems, "f32")
        g.layer(f"l{i}", "linear", "expensive", repeatable=True)
        g.step(f"l{i}", "forward", reads=[before, f"w{i}"], writes=[f"h{i}"], workspace=1024)
        before = f"h{i}"
    for i in reversed(range(layers)):
        below = "x" if i == 0 else f"h{i - 1}"
        grads = [] if i == layers - 1 else [f"g{i}"]
        writes = [f"w{i}.grad"]
        if i > 0:
            writes.append(g.tensor(f"g{i - 1}", "gradient map", elems, "f32"))
        g.step(f"l{i}", "backward", reads=[below, f"w{i}", *grads] + ([f"h{i}"] if i == layers - 1 else []), writes=writes)
    return g


def times_of(g, ns=100000):
    return {(g.layers[s["layer"]]["name"], s["phase"]): ns for s in g.steps}


def refused(words, function, *arguments, **named):
    try:
        function(*arguments, **named)
        expect(f"refused with {words!r}", False, "nothing raised")
    except ValueError as error:
        expect(f"refused with {words!r}", words in str(error), str(error))


def actions_and_bytes():
    g = chain()
    keep = require(g)
    maps = keep["graphs"][0]["stashed"]
    names = sorted(m["tensor"] for m in maps)
    expect("the stash has x and the maps", names == ["h0", "h1", "h2", "h3", "h4", "h5", "x"], names)
    expect("liveness keeps all", all(m["actions"] == ["keep"] and m["bytes"] == MIB for m in maps), maps)
    expect("it needs the maps and more", keep["least_bytes"] > 7 * MIB, keep["least_bytes"])
    budget = keep["least_bytes"] - 2 * MIB
    rates = Rates(out_bytes_per_s=10**9, in_bytes_per_s=10**9, codecs={"zvc": (1e9, 1e9)})
    for policy, action in (("swap-async", "swap"), ("recompute:mode=sqrt", "recompute")):
        made = require(g, policy, budget=budget, times=times_of(g), rates=rates)
        did = [m["actions"] for m in made["graphs"][0]["stashed"]]
        expect(f"{policy} fits", made["fits"] and made["planned_bytes"] <= budget, made["refusal"])
        expect(f"{policy} acts", [action] in did, did)
        expect(f"{policy} has a time", made["iteration_ns"] >= 13 * 100000, made["iteration_ns"])
    small = require(g, "liveness", budget=budget)
    expect("liveness does not fit", not small["fits"] and "needs at least" in small["refusal"], small["refusal"])


def auto_takes_what_the_times_make_cheap():
    g = chain()
    budget = require(g)["least_bytes"] - 2 * MIB
    slow_link = Rates(out_bytes_per_s=10**7, in_bytes_per_s=10**7)
    fast_link = Rates(out_bytes_per_s=10**11, in_bytes_per_s=10**11)
    again = require(g, "auto", budget=budget, times=times_of(g, 10**6), rates=slow_link)
    moved = require(g, "auto", budget=budget, times=times_of(g, 10**8), rates=fast_link)
    expect("a slow link is not used", again["graphs"][0]["moved_bytes"] == 0 and again["graphs"][0]["steps_again"] > 0, again)
    expect("dear steps do not run again", moved["graphs"][0]["moved_bytes"] > 0 and moved["graphs"][0]["steps_again"] == 0, moved)
    kept = require(g, "auto", budget=budget, times=times_of(g, 10**8), rates=fast_link, recompute=False)
    expect("no recomputation where there is none", not kept["needs_recompute_set"], kept)


def steps_without_a_time_are_known():
    g = chain()
    budget = require(g)["least_bytes"] - 2 * MIB
    some = {("l0", "forward"): 10**6}
    fast_link = Rates(out_bytes_per_s=10**11, in_bytes_per_s=10**11)
    expect("auto plans", require(g, "auto", budget=budget, times=some, rates=fast_link)["fits"])


def codecs_have_the_times_of_their_rates():
    g = chain()
    budget = require(g)["least_bytes"] - 2 * MIB
    slow, fast = (require(g, "freelunch:codec=zvc,eligible=all,when=always", times=times_of(g),
                          rates=Rates(out_bytes_per_s=10**9, in_bytes_per_s=10**9, codecs={"zvc": (r, r)}))
                  for r in (1e8, 1e11))
    expect("both times are known", slow["iteration_ns"] and fast["iteration_ns"])
    expect("a slow codec costs", slow["iteration_ns"] > fast["iteration_ns"] * 2, (slow["iteration_ns"], fast["iteration_ns"]))
    unknown = require(g, "freelunch:codec=zvc,eligible=all,when=always", budget=budget + 64 * MIB, times=times_of(g),
                      rates=Rates(out_bytes_per_s=10**9, in_bytes_per_s=10**9))
    expect("without rates it is not known", unknown["iteration_ns"] is None, unknown["iteration_ns"])


def what_makes_no_sense_is_refused():
    g = chain()
    refused("declared twice", g.tensor, "x", "input", 4)
    refused("declared twice", g.layer, "l0")
    refused("not declared", g.step, "l0", "update", reads=["nothing"])
    refused("no layer", g.step, "nothing", "forward", reads=["x"])
    refused("must have 1 to 200", g.tensor, "x" * 201, "input", 4)
    refused("nonsense", require, chain(), "nonsense")
    odd = chain()
    odd.tensor("unused", "feature map", 4)
    refused("unused", require, odd)
    wrong = chain()
    wrong.step("l0", "sideways", reads=["x"])
    refused("phase", require, wrong)


def many_threads_plan_at_once():
    answers = []
    threads = [threading.Thread(target=lambda: answers.append(require(chain(), "swap-async")["least_bytes"])) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    expect("equal answers", len(answers) == 4 and len(set(answers)) == 1, answers)


def files_are_for_the_command_too():
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "graph.json")
        chain().save(path)
        with open(path, encoding="utf-8") as file:
            expect("it is a file of graphs", '"mm graph"' in file.read(), path)
    expect("no limit is the library's", planner.NO_LIMIT == 2**63 - 1, planner.NO_LIMIT)


checks.run(actions_and_bytes, auto_takes_what_the_times_make_cheap, steps_without_a_time_are_known,
           codecs_have_the_times_of_their_rates, what_makes_no_sense_is_refused, many_threads_plan_at_once, files_are_for_the_command_too)
