# SPDX-License-Identifier: MIT
"""Rates of machines: of a GPU by its name (gpus.csv, assumptions.csv), of a machine file, or of this host.

The rules are those of tools/facts/README.md, and the result of gpu_json is the machine file that `mm gpus NAME --json`
writes. Nothing here touches a GPU."""

import difflib
import functools
import json
import os
import re
import time
from typing import Dict, List, Optional

_GENERATIONS = ("Kepler", "Maxwell", "Pascal", "Volta", "Turing", "Ampere", "Ada", "Hopper", "Blackwell")
ESTIMATED = "estimated from data sheet and assumptions"
_VENDOR = ("nvidia", "geforce", "tesla")
_TEXT = ("name", "aliases", "generation", "source")


# ---------------------------------------------------------------- the tables

def _table(name: str) -> List[Dict]:
    """Rows of a table, which lies beside this file in a wheel, and in tools/facts in a tree of mm. Numbers are floats;
    0: not known."""
    here = os.path.dirname(os.path.abspath(__file__))
    for folder in (here, os.path.join(here, "../../facts")):
        try:
            with open(os.path.join(folder, name), encoding="utf-8") as file:
                lines = [line.rstrip("\n") for line in file if not line.startswith("#")]
            break
        except OSError:
            continue
    else:
        raise ImportError(f"mm_torch: {here} has no file {name}, and is not in a tree of mm: install mm_torch again")
    columns = lines[0].split(",")
    return [{column: value if column in _TEXT else float(value or 0)
             for column, value in zip(columns, line.split(","))} for line in lines[1:]]


@functools.lru_cache(maxsize=None)
def _gpus():
    return _table("gpus.csv")


@functools.lru_cache(maxsize=None)
def _assumptions():
    return {row["name"]: row for row in _table("assumptions.csv")}


def names() -> List[str]:
    """Names of all known GPUs, in the order of their years."""
    return [gpu["name"] for gpu in _gpus()]


def _key(name):
    key = re.sub("[^a-z0-9]", "", name.lower())
    for word in _VENDOR:
        if key.startswith(word) and len(key) > len(word):
            key = key[len(word):]
    return key


def _find(name):
    key = _key(name)
    spellings = {gpu["name"]: [_key(n) for n in (gpu["name"], *gpu["aliases"].split(";")) if n] for gpu in _gpus()}
    found = [gpu for gpu in _gpus() if key in spellings[gpu["name"]]]
    found = found or [gpu for gpu in _gpus() if key and any(s.startswith(key) for s in spellings[gpu["name"]])]
    if len(found) == 1:
        return found[0]
    if found:
        raise ValueError(f"GPU {name!r} may be {', '.join(gpu['name'] for gpu in found)}: name one of them")
    near = difflib.get_close_matches(key, [s for own in spellings.values() for s in own], 1)
    hint = next((f" (did you mean {known}?)" for known, own in spellings.items() if near and near[0] in own), "")
    raise ValueError(f"no GPU is called {name!r}{hint}; 'mm gpus' and mm_torch.machine.names() list them")


# ---------------------------------------------------------------- a GPU as a machine file

def _assumed(gpu, name):
    return _assumptions()[name][gpu["generation"]]


def _rate(gpu, product, units):
    return _assumed(gpu, f"{product}_{units}") * gpu[f"{units}_tflops"] * 1e12 if gpu[f"{units}_tflops"] else 0.0


def _codecs(gpu, bf16):
    codecs = {}
    for name, row in _assumptions().items():
        found = re.fullmatch("(encode|decode) (bf16 )?(.+)", name)
        if found and bool(found.group(2)) == bf16:
            rate = row[gpu["generation"]] * gpu["bandwidth_gb_per_s"] * 1e9
            codecs.setdefault(found.group(3), {})[f"{found.group(1)}_bytes_per_s"] = rate
    return codecs


def _contention(gpu):
    steps, codec, link = (_assumed(gpu, n) for n in ("steps_beside_codec", "codec_beside_steps", "beside_link"))
    step = {"encode": steps, "decode": steps, "link": link}
    return {"dear": step, "cheap": dict(step),
            "encode": {"dear": codec, "cheap": codec, "decode": codec, "link": link},
            "decode": {"dear": codec, "cheap": codec, "encode": codec, "link": link},
            "link": {"dear": 0, "cheap": 0, "encode": 0, "decode": 0}}


def generation(gpu: str) -> str:
    """The generation of the GPU of that name, such as "Hopper"."""
    return _find(gpu)["generation"]


def memory_bytes(gpu: str) -> int:
    """What programs find free on a GPU of that name, in bytes: as sold, less error correction and the driver."""
    row = _find(gpu)
    ecc = 1 - _assumed(row, "memory_ecc") if row["ecc_in_memory"] > 0 else 1
    return int(row["memory_gib"] * 2.0**30 * ecc * _assumed(row, "memory_usable"))


def budget_bytes(gpu: str) -> int:
    """What is left of memory_bytes for training: less the CUDA context and the libraries."""
    return memory_bytes(gpu) - int(_assumed(_find(gpu), "context_bytes"))


def gpu_json(name: str) -> Dict:
    """The machine file (tools/facts/machine.h) of the GPU of that name, as `mm gpus NAME --json` writes it. Case,
    spaces and punctuation of the name do not count. ValueError: no GPU, or several, have the name."""
    gpu = _find(name)
    both = _assumed(gpu, "link") * gpu["link_gb_per_s"] * 1e9
    link = {"out_bytes_per_s": both, "in_bytes_per_s": both}
    both *= _assumed(gpu, "link_both")
    link.update(out_both_bytes_per_s=both, in_both_bytes_per_s=both)
    products = ("conv", "winograd", "linear")
    root = {"format": "mm machine", "version": 1, "name": f"{gpu['name']}-est.", "memory_bytes": memory_bytes(name)}
    root.update({f"{p}_flops_per_s": max(_rate(gpu, p, "fp32"), _rate(gpu, p, "tf32")) for p in products})
    root["memory_bytes_per_s"] = _assumed(gpu, "bandwidth") * gpu["bandwidth_gb_per_s"] * 1e9
    root["launch_ns"] = _assumed(gpu, "launch_ns")
    root["passes"] = {"bn": _assumed(gpu, "passes_bn"), "lrn": _assumed(gpu, "passes_lrn")}
    root["link"] = link
    root.update({key: _assumed(gpu, key) for key in ("host_sum_bytes_per_s", "contention_permille",
                                                     "link_contention_permille")})
    if _assumed(gpu, "steps_beside_codec") > 0:
        root["contention"] = _contention(gpu)
    root.update({key: _assumed(gpu, key) for key in ("issue_ns", "alloc_ns")})
    root["codecs"] = _codecs(gpu, False)
    if gpu["bf16_tflops"]:
        root["types"] = {"bf16": {**{f"{p}_flops_per_s": _rate(gpu, p, "bf16") for p in products},
                                  "attention_flops_per_s": _rate(gpu, "attention", "bf16"),
                                  "codecs": _codecs(gpu, True)}}
    else:
        root["lacks"] = ["bf16"]
    return root


# ---------------------------------------------------------------- rates that operators ask for

class Machine:
    """Rates from a machine file's content. name; budget_bytes: what training may take (None: not known);
    memory_bytes_per_s; launch_ns; step_ns (of a framework, added to each operator); link_bytes_per_s (to host memory);
    estimated: from a data sheet. Any thread may read it."""

    def __init__(self, root: Dict, budget: Optional[int] = None, estimated: bool = False):
        self.root, self.name, self.estimated = root, root["name"], estimated
        self.budget_bytes = budget if budget is not None else root.get("memory_bytes")
        self.memory_bytes_per_s = float(root["memory_bytes_per_s"])
        self.launch_ns = float(root.get("launch_ns", 0))
        self.step_ns = float(root.get("step_ns", 0))
        self.link_bytes_per_s = int(root.get("link", {}).get("out_bytes_per_s", 0))

    def lacks(self, dtype: str) -> bool:
        """Whether it does not multiply maps of this type ("f32", "bf16", "f16")."""
        return dtype in self.root.get("lacks", ())

    def flops_per_s(self, product: str, dtype: str = "f32") -> float:
        """Operations (multiplications and additions) a second. product: "conv", "winograd", "linear" or "attention".
        dtype: "f32", "bf16", "f16" (at bf16's rates), "f64" (at half of f32's)."""
        rates = self.root.get("types", {}).get("bf16" if dtype == "f16" else dtype, {})
        keys = [f"{product}_flops_per_s"] + {"attention": ["linear_flops_per_s"],
                                             "winograd": ["conv_flops_per_s"]}.get(product, [])
        found = next((own[key] for own in (rates, self.root) for key in keys if own.get(key)), None)
        if found is None:
            raise ValueError(f"machine {self.name} has no {keys[0]}")
        return float(found) * (0.5 if dtype == "f64" else 1.0)

    def passes(self, kind: str) -> float:
        """How often a layer of a kind ("bn", ...) passes over its maps."""
        return float(self.root.get("passes", {}).get(kind, 1.0))


@functools.lru_cache(maxsize=1)
def host() -> Machine:
    """This host's rates, measured once a process with torch, in about 50 ms: a product of 384 x 384 in f32, a
    copy of 32 MiB, and the least time of an operation. The link is a copy, too: both lie in the same memory."""
    import torch

    def best(call, times):
        measured = []
        for _ in range(times):
            start = time.perf_counter_ns()
            call()
            measured.append(time.perf_counter_ns() - start)
        return max(1, sorted(measured)[times // 2])

    with torch.no_grad():
        a, copied, small = torch.ones(384, 384), torch.ones(8 << 20), torch.ones(1)
        to = torch.empty_like(copied)
        to.copy_(copied)
        flops = 2 * 384**3 * 1e9 / best(lambda: a @ a, 5)
        rate = 2 * 4 * copied.numel() * 1e9 / best(lambda: to.copy_(copied), 5)
        launch = best(lambda: small + small, 21)
    return Machine({"name": "this host", "conv_flops_per_s": flops, "linear_flops_per_s": flops,
                    "memory_bytes_per_s": rate, "launch_ns": launch,
                    "link": {"out_bytes_per_s": rate / 2, "in_bytes_per_s": rate / 2}})


def named(name: Optional[str]) -> Machine:
    """The machine of that name: None or "host": this host; a path that ends in .json: a machine file; else a GPU.
    ValueError: there is none, or the file is not one."""
    if name is None or name == "host":
        return host()
    if name.endswith(".json"):
        try:
            with open(name, encoding="utf-8") as file:
                root = json.load(file)
            if root.get("format") != "mm machine":
                raise ValueError("it is not of the format 'mm machine'")
            return Machine(root)
        except (OSError, ValueError, AttributeError, KeyError) as error:
            raise ValueError(f"machine file {name}: {error}") from None
    return Machine(gpu_json(name), budget_bytes(name), True)
