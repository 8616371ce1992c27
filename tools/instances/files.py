# SPDX-License-Identifier: MIT
"""The instances' table, and their files: a graph and its facts, the same on every machine."""

from __future__ import annotations

import csv
import hashlib
import json
import os
import subprocess
import tempfile
from dataclasses import dataclass
from typing import Any, Iterable

import made

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
EXPORTED = "rules:relu=mask;*=compress(zvc)"  # its codecs are those that the facts have


class Trouble(Exception):
    """A failure for people: one line that says what, where, and what to do."""


@dataclass
class Instance:
    """A row of instances.csv."""

    name: str
    source: str  # "net:NET", or "made:KEY" of made.MADE
    batch: int  # of a network
    machine: str  # of a network: a GPU's name or a machine file below tools/facts
    pinned_bytes: int | None  # limit of host memory; None: none
    graph_sha256: str
    facts_sha256: str


@dataclass
class Cell:
    """A row of best.csv: an instance in a budget. Times in ns."""

    instance: str
    budget_bytes: int
    bound_ns: int  # no plan is faster
    bound_by: str
    best_ns: int
    best_by: str  # the policy of mm whose plan was proved and simulated


def _rows(path: str) -> Iterable[dict[str, str]]:
    try:
        with open(path, newline="", encoding="utf-8") as file:
            yield from csv.DictReader(file)
    except OSError as error:
        raise Trouble(f"{path}: {error.strerror}") from None


def read_instances(path: str) -> dict[str, Instance]:
    """The table, by name, in its order. Trouble: it cannot be read, or a row is not one."""
    found = {}
    for line, row in enumerate(_rows(path), 2):
        try:
            found[row["name"]] = Instance(
                row["name"], row["source"], int(row["batch"] or 0), row["machine"],
                int(row["pinned_bytes"]) if row["pinned_bytes"] else None, row["graph_sha256"], row["facts_sha256"])
        except (KeyError, TypeError, ValueError):
            raise Trouble(f"{path}, line {line}: is no instance: name,source,batch,machine,pinned_bytes,"
                          "graph_sha256,facts_sha256") from None
    return found


def read_best(path: str) -> dict[tuple[str, int], Cell]:
    """The best plans, by instance and budget, in their order; Trouble as above."""
    found = {}
    for line, row in enumerate(_rows(path), 2):
        try:
            cell = Cell(row["instance"], int(row["budget_bytes"]), int(row["bound_ns"]), row["bound_by"],
                        int(row["best_ns"]), row["best_by"])
        except (KeyError, TypeError, ValueError):
            raise Trouble(f"{path}, line {line}: is no cell: instance,budget_bytes,bound_ns,bound_by,best_ns,"
                          "best_by") from None
        found[cell.instance, cell.budget_bytes] = cell
    return found


def write_table(path: str, rows: list[Any]) -> None:
    """Writes dataclasses as CSV, atomically."""
    handle, temporary = tempfile.mkstemp(dir=os.path.dirname(path) or ".")
    with os.fdopen(handle, "w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(vars(rows[0]))
        for row in rows:
            writer.writerow("" if value is None else value for value in vars(row).values())
    os.chmod(temporary, 0o644)
    os.replace(temporary, path)


# ---------------------------------------------------------------- files


def _plain(graphs: dict[str, Any], facts: dict[str, Any]) -> None:
    """Removes what differs from one machine to the next: workspaces of the host's library, and codes that its steps
    read and write themselves; also codes of what is never moved."""
    for graph in graphs["graphs"]:
        managed = {t["name"] for t in graph["tensors"] if t["ownership"] == "managed"}
        for step in graph["steps"]:
            step["workspace_bytes"] = 0
            step.pop("less_workspace_bytes", None)
            step.pop("codes", None)
        for codec in facts["codecs"]:
            codec["codes"] = {name: code for name, code in codec["codes"].items() if name in managed}
    for step in facts["steps"]:
        step["variants"] = [{**step["variants"][0], "workspace_bytes": 0}]


def _machine(name: str) -> str:
    path = os.path.join(ROOT, "tools", "facts", name)
    return path if name.endswith(".json") else name


def _write_net(mm: str, instance: Instance, graph_path: str, facts_path: str) -> None:
    net = instance.source.partition(":")[2]
    command = [mm, "plan", "--net", net, "--batch", str(instance.batch), "--fuse", "on", "--threads", "1", "--facts",
               _machine(instance.machine), "--budget", "1TiB", "--policy", EXPORTED, "--save-graph", graph_path,
               "--save-facts", facts_path]
    run = subprocess.run(command, capture_output=True, text=True, check=False)
    if run.returncode != 0:
        raise Trouble(f"{instance.name}: {(run.stderr.strip() or 'mm plan failed').splitlines()[-1]}")
    with open(graph_path, encoding="utf-8") as graph_file, open(facts_path, encoding="utf-8") as facts_file:
        graphs, facts = json.load(graph_file), json.load(facts_file)
    _plain(graphs, facts)
    for path, content in ((graph_path, graphs), (facts_path, facts)):
        with open(path, "w", encoding="utf-8") as file:
            json.dump(content, file, indent=1)


def _sha256(path: str) -> str:
    with open(path, "rb") as file:
        return hashlib.sha256(file.read()).hexdigest()


def export(mm: str, instance: Instance, folder: str, renew: bool = False) -> tuple[str, str]:
    """Writes NAME.graph.json and NAME.facts.json into the folder; returns their paths. Trouble: they are not those of
    the table's checksums; renew: sets these instead."""
    paths = tuple(os.path.join(folder, f"{instance.name}.{part}.json") for part in ("graph", "facts"))
    kind, _, key = instance.source.partition(":")
    if kind == "made" and key in made.MADE:
        made.write(key, *paths)
    elif kind == "net":
        _write_net(mm, instance, *paths)
    else:
        raise Trouble(f"{instance.name}: source {instance.source}: must be net:NET, or made: and one of "
                      + ", ".join(made.MADE))
    sums = tuple(_sha256(path) for path in paths)
    if renew:
        instance.graph_sha256, instance.facts_sha256 = sums
    elif sums != (instance.graph_sha256, instance.facts_sha256):
        raise Trouble(f"{instance.name}: its files are not those of instances.csv: this mm lowers or times it "
                      "otherwise; score --renew makes it anew, and its best plans with it")
    return paths
