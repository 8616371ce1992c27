# SPDX-License-Identifier: MIT
"""A PyTorch loop inside a byte budget:

    with mm_torch.budget("6GiB", policy="freelunch:rate=4,eligible=all") as m: ...
"""

import importlib
import platform
import re
import warnings

import torch

from . import library

library.get()  # an import without libmm.so, or with one of another version, fails
__version__ = library.version()
if tuple(map(int, re.findall(r"\d+", torch.__version__)[:2])) < (2, 6):
    raise ImportError(f"mm_torch {__version__} needs torch 2.6 or later; this is torch {torch.__version__}")

from . import active, bridge, classify  # noqa: E402
from .active import aside  # noqa: E402
from .coverage import CoverageWarning, Uncovered  # noqa: E402
from .fit import fit  # noqa: E402
from .library import Infeasible  # noqa: E402
from .session import budget  # noqa: E402
from .trainers import accelerate, hf, lightning  # noqa: E402

__all__ = ["CoverageWarning", "Infeasible", "Uncovered", "accelerate", "aside", "backend", "budget", "fit", "hf",
           "lightning", "plan"]

# Imported when they are first used, with the parts of torch that trace and compile, which take seconds: name, module.
_LATER = {"backend": "compiled", "plan": "planned"}


def __getattr__(name: str):
    if name not in _LATER:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = globals()[name] = getattr(importlib.import_module(f".{_LATER[name]}", __name__), name)
    active.hide()
    return value


active.hide()
for _fault in classify.faults(bridge.Core):
    warnings.warn(f"mm_torch {__version__} with torch {torch.__version__} and Python {platform.python_version()}: "
                  f"{_fault}; budgets may manage less than they should", RuntimeWarning, stacklevel=2)
