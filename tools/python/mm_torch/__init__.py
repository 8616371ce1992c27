# SPDX-License-Identifier: MIT
"""A PyTorch loop inside a byte budget: `with mm_torch.budget("6GiB", policy="freelunch:rate=4") as m: ...`"""

import importlib
import platform
import warnings

import torch

from . import library

library.get()  # an import without libmm.so, or with one of another version, fails

from . import bridge, classify, records  # noqa: E402
from .active import aside  # noqa: E402
from .coverage import CoverageWarning, Uncovered  # noqa: E402
from .fit import fit  # noqa: E402
from .library import Infeasible  # noqa: E402
from .session import budget  # noqa: E402

__version__ = library.version()
__all__ = ["CoverageWarning", "Infeasible", "Uncovered", "aside", "budget", "fit", "plan"]

# Imported when they are first used, with the parts of torch that trace and compile, which take seconds: name, module.
_LATER = {"plan": "planned"}


def __getattr__(name: str):
    if name not in _LATER:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = globals()[name] = getattr(importlib.import_module(f".{_LATER[name]}", __name__), name)
    return value


for _fault in classify.faults(bridge.Core, records.Entry):
    warnings.warn(f"mm_torch {__version__} with torch {torch.__version__} and Python {platform.python_version()}: "
                  f"{_fault}; budgets may manage less than they should", RuntimeWarning, stacklevel=2)
