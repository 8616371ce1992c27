# SPDX-License-Identifier: MIT
"""Plans that break rules which no random mutant breaks alone, each beside the right plan: rule-5.5-0.plan."""
import copy
import json
import sys

sys.path.insert(0, sys.argv[1])
from schedule import Schedule  # noqa: E402

SIZE = 1024


def write(path, lines):
    with open(path, "w", encoding="utf-8") as file:
        file.writelines(json.dumps(line) + "\n" for line in lines)


def save(folder, rule, right, wrong):
    write(f"{folder}/right-{rule}.plan", right)
    write(f"{folder}/rule-{rule}-by-hand-0.plan", wrong)


def of(lines, kind):
    return [line for line in lines if line.get("is") == kind]


def there_and_back():
    s = Schedule("training", "by hand")
    h = s.map("h", SIZE)
    kept, host, back = s.device(h, 0), s.pinned(h, 0), s.device(h, SIZE)
    made = s.step("layer", "forward", writes=[kept])
    out = s.offload(kept, host, after=[made])
    reload = s.prefetch(host, back, after=[out])
    s.step("layer", "backward", reads=[back], after=[reload])
    return list(s.lines())


def cut_copy(folder):
    """5.5: a copy of elements is cut into two pieces."""
    right = there_and_back()
    wrong = copy.deepcopy(right)
    at = next(i for i, line in enumerate(wrong) if line.get("is") == "piece" and line["node"] == 1)
    half = SIZE // 2
    wrong[at].update(rows=half, stored_bytes=half)
    wrong.insert(at + 1, {"is": "piece", "node": 1, "number": 1, "first_row": half, "rows": half, "map_offset": half,
                          "stored_offset": half, "stored_bytes": half, "waits": {}})
    of(wrong, "plan")[0]["pieces"] += 1
    for line in of(wrong, "piece"):
        if line["node"] == 2:
            line["waits"] = {"out": 1}
    save(folder, "5.5", right, wrong)


def homes_overlap(folder):
    """7.3: two weights have one home."""
    s = Schedule("inference", "by hand")
    homes = [s.persistent(f"w{i}", SIZE) for i in (1, 2)]
    s.step("layer", "forward", reads=homes, writes=[s.device(s.map("h", SIZE), 0)])
    right = list(s.lines())
    wrong = copy.deepcopy(right)
    of(wrong, "home")[1]["offset"] = of(wrong, "segment")[1]["offset"] = 0
    save(folder, "7.3", right, wrong)


def recompute_after_update(folder):
    """6.10: a step runs again after the weight that it reads has changed."""
    def plan(update_first):
        s = Schedule("training", "by hand")
        w, h = s.persistent("w", SIZE), s.map("h", SIZE)
        kept, again = s.device(h, 0), s.device(h, SIZE)
        s.step("layer", "forward", reads=[w], writes=[kept])
        s.step("loss", "forward", reads=[kept])

        def recompute():
            node = s.step("layer", "forward", reads=[w], writes=[again])
            s.steps.pop()
            node.update(kind="recompute", step=0)

        def update():
            s.step("update", "update", modifies=[w])

        for act in (update, recompute) if update_first else (recompute, update):
            act()
        s.step("layer", "backward", reads=[again])
        lines = list(s.lines())
        for layer in of(lines, "graph")[0]["graphs"][0]["layers"]:
            layer["repeatable"] = True
        return lines
    save(folder, "6.10", plan(False), plan(True))


def output_elsewhere(folder):
    """6.7: an output that shares its input's storage is in another segment than the input."""
    def plan(apart):
        s = Schedule("training", "by hand")
        h, y, copied = s.map("h", SIZE), s.map("y", SIZE), s.map("z", SIZE)
        kept, host, back = s.device(h, 0), s.pinned(h, 0), s.device(h, SIZE)
        made = s.step("layer", "forward", writes=[kept])
        out = s.offload(kept, host, after=[made])
        reload = s.prefetch(host, back, after=[out])
        shared = back if apart else kept
        step = s.step("same", "forward", reads=[kept], writes=[shared], after=[reload])
        s.steps[-1]["uses"][1]["tensor"] = y
        s.steps[-1]["pairs"] = [{"allow": "alias", "input": h, "output": y}]
        step["segments"] = [kept, shared]
        s.step("reader", "forward", reads=[shared], writes=[s.device(copied, 2 * SIZE)])
        s.steps[-1]["uses"][0]["tensor"] = y
        s.step("end", "forward", reads=[back])
        lines = list(s.lines())
        plan_at = next(i for i, line in enumerate(lines) if line.get("is") == "plan")
        lines.insert(plan_at + 1, {"is": "alias", "tensor": y, "shares": h})
        return lines
    save(folder, "6.7", plan(False), plan(True))


def home_without_a_step(folder):
    """7.4: a weight is copied out before any step: the iteration before may still change it."""
    def plan(waits):
        s = Schedule("training", "by hand")
        w = s.persistent("w", SIZE)
        host = s.pinned("w", 0)
        first = s.step("begin", "forward", writes=[s.device(s.map("h", SIZE), 0)])
        out = s.offload(w, host, after=[first] if waits else [])
        back = s.prefetch(host, w, after=[out])
        s.step("update", "update", modifies=[w], after=[back])
        return list(s.lines())
    save(folder, "7.4", plan(True), plan(False))


for make in (cut_copy, homes_overlap, recompute_after_update, output_elsewhere, home_without_a_step):
    make(sys.argv[2])
