# SPDX-License-Identifier: MIT
"""python3 -m mm_torch.plan MODULE:FUNCTION: what a training step needs, without running it.

FUNCTION of MODULE (a module of Python, or a file) takes no argument, and returns a net and what mm.plan takes after it,
as a tuple (net, loss, x, y, optimizer), of which the last ones may be left out, or as a dict. `with
torch.device("meta")` makes a net without its memory:

    def llama():
        with torch.device("meta"):
            net = LlamaForCausalLM(LlamaConfig())
            tokens = torch.zeros(1, 2048, dtype=torch.long)
        return dict(net=net, loss=None, x=dict(input_ids=tokens, labels=tokens), optimizer="AdamW")

Exits with 1 if nothing fits the budget, with 2 if the arguments make no sense."""

import argparse
import importlib
import importlib.util
import json
import os
import sys

if __name__ != "__main__":
    raise ImportError("mm_torch.plan is a program, python3 -m mm_torch.plan; 'import mm_torch' has the function")

from mm_torch import planned  # noqa: E402


def _module(name):
    if name.endswith(".py"):
        spec = importlib.util.spec_from_file_location(os.path.basename(name)[:-3], name)
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        return module
    sys.path.insert(0, os.getcwd())
    return importlib.import_module(name)


def _given(target):
    """What the function returns, as arguments of plan()."""
    name, colon, function = target.rpartition(":")
    if not colon:
        raise ValueError(f"{target!r}: must be MODULE:FUNCTION, such as train:net or train.py:net")
    try:
        made = getattr(_module(name), function)()
    except (ImportError, OSError, AttributeError) as error:
        raise ValueError(f"{target}: {error}") from error
    if isinstance(made, dict):
        return made
    if not isinstance(made, tuple) or not 3 <= len(made) <= 5:
        raise ValueError(f"{target} returned {type(made).__name__}: must return (net, loss, x, y, optimizer), or a dict")
    return dict(zip(("net", "loss", "x", "y", "optimizer"), made))


def main(arguments):
    parser = argparse.ArgumentParser(prog="python3 -m mm_torch.plan", description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("target", metavar="MODULE:FUNCTION")
    parser.add_argument("--budget", metavar="SIZE", help="plan for this budget (the GPU's memory)")
    parser.add_argument("--gpu", default="H100", metavar="GPU", help="a GPU by name, a machine file, or host (H100)")
    parser.add_argument("--policy", default=",".join(planned.POLICIES), metavar="POLICY;..",
                        help="policies, separated by ; or, if they have no options, by , (%(default)s)")
    parser.add_argument("--host", metavar="SIZE", help="host memory for moved tensors (no limit)")
    parser.add_argument("--no-largest", action="store_true", help="do not search the largest batch")
    for name, what in (("json", "the figures (-: to standard output)"), ("svg", "a picture of memory over the step"),
                       ("html", "a page of picture and figures"), ("graph", "the graph, for 'mm plan --graph'")):
        parser.add_argument(f"--{name}", metavar="FILE", help=f"write {what}")
    args = parser.parse_args(arguments)
    try:
        policies = args.policy.split(";" if ";" in args.policy or ":" in args.policy else ",")
        made = planned.plan(**_given(args.target), budget=args.budget, gpu=None if args.gpu == "host" else args.gpu,
                            policies=policies, largest=not args.no_largest, host=args.host,
                            file=sys.stderr if args.json == "-" else sys.stdout)
        if args.json == "-":
            print(json.dumps(made.figures(), indent=1))
        elif args.json:
            with open(args.json, "w", encoding="utf-8") as file:
                json.dump(made.figures(), file, indent=1)
        for name, write in (("svg", made.svg), ("html", made.html), ("graph", made.graph.save)):
            if getattr(args, name):
                write(getattr(args, name))
    except (ValueError, OSError, TypeError) as error:
        print(f"mm_torch.plan: {error}", file=sys.stderr)
        return 2
    return 0 if made.fits() or any(made.fits(policy) for policy in made.needs) else 1


sys.exit(main(sys.argv[1:]))
