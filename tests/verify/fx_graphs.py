# SPDX-License-Identifier: MIT
"""Graphs of torch.compile for fx_to_log.py, without torch: fx_graphs.py IMPORT MM VERIFY.PY GRAPHS.

GRAPHS is what import_fx.py recorded of torch 2.13: it is proved. Without any one of its waits it is refused: a missing
wait of the forward pass reuses bytes too early, one of the backward pass reads too early."""
import json
import os
import subprocess
import sys


def judged(graphs, importer, mm, second):
    """The rule that both checkers name of graphs, lines; None if they are proved."""
    sys.path.insert(0, importer)
    from fx_to_log import to_log
    from log_to_plan import convert
    convert([json.dumps(event) for event in to_log(graphs)]).save("fx.plan")
    rules = []
    for command in ([mm, "verify", "--quiet", "--json", "-"], [sys.executable, second, "--json"]):
        result = subprocess.run([*command, "fx.plan"], stdout=subprocess.PIPE, check=False)
        rules.append(json.loads(result.stdout)[0].get("rule"))
    assert rules[0] == rules[1], rules
    os.remove("fx.plan")
    return rules[0]


def waits(graphs):
    return [node["node"] for node in map(json.loads, graphs) if node.get("target") == "ao.wait_tensor.default"]


def without(graphs, wait):
    """The graphs without that node: who used it uses what it waited for."""
    nodes = [json.loads(line) for line in graphs]
    [gone] = [n for n in nodes if n.get("node") == wait and n["is"] == "call"]
    of, is_forward = gone["args"]["tensor"], gone["graph"] == "forward"
    return [json.dumps(n).replace(f'"{wait}"', f'"{of}"') if is_forward or n.get("graph") == "backward"
            else json.dumps(n) for n in nodes if n is not gone]


def each_wait_is_needed(graphs, judge):
    """Proves the graphs, and that each lacks a wait without one. Returns the number of waits."""
    forward = {node["node"] for node in map(json.loads, graphs) if node.get("graph") == "forward"}
    assert judge(graphs) is None, judge(graphs)
    for wait in waits(graphs):
        rule = judge(without(graphs, wait))
        assert rule == ("8.1" if wait in forward else "6.2"), (wait, rule)
    return len(waits(graphs))


def refusals(importer, graphs):
    """What is no file of graphs is refused in one line."""
    cases = {
        "no header": (graphs[1:], "is no file of graphs"),
        "another version": ([graphs[0].replace('"version": 1', '"version": 2'), *graphs[1:]], "of version 1"),
        "a wait for nothing": ([line for line in graphs if "async_cpu_offload_addmm_1" not in line or
                                "ao.offload" not in line], "is not known"),
        "two waits": ([copy for line in graphs for copy in (
            [line, line.replace('"node": "gpu', '"node": "again_gpu')]
            if '"node": "gpu_reload_addmm"' in line else [line])], "no transfer is pending"),
        "no output": ([line for line in graphs if '"output"' not in line], "a graph has no output"),
    }
    for name, (lines, says) in cases.items():
        with open("wrong.fx", "w", encoding="utf-8") as file:
            file.writelines(line + "\n" for line in lines)
        result = subprocess.run([sys.executable, f"{importer}/fx_to_log.py", "wrong.fx", "-o", "wrong.log"],
                                stderr=subprocess.PIPE, text=True, check=False)
        assert result.returncode == 1 and len(result.stderr.splitlines()) == 1, (name, result.stderr)
        assert result.stderr.startswith("fx_to_log.py: wrong.fx: ") and says in result.stderr, (name, result.stderr)
        assert not os.path.exists("wrong.log")
    os.remove("wrong.fx")


def main():
    importer, mm, second, path = sys.argv[1:]
    with open(path, encoding="utf-8") as file:
        graphs = file.read().splitlines()
    number = each_wait_is_needed(graphs, lambda lines: judged(lines, importer, mm, second))
    assert number == 6, number
    refusals(importer, graphs)
    subprocess.run([sys.executable, f"{importer}/fx_to_log.py", path, "-o", "fx.log"], check=True)
    with open("fx.log", encoding="utf-8") as file:
        assert json.loads(file.readline())["format"] == "mm events"
    os.remove("fx.log")
    print(number, "waits, each of which is needed")


if __name__ == "__main__":
    main()
