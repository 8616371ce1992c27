# SPDX-License-Identifier: MIT
"""A PyTorch loop inside a byte budget: `with mm_torch.budget("6GiB", policy="freelunch:rate=4") as m: ...`"""

import platform
import warnings

import torch

from . import library

library.get()  # an import without libmm.so, or with one of another version, fails

from . import bridge, classify, records  # noqa: E402
from .active import aside  # noqa: E402
from .coverage import CoverageWarning, Uncovered  # noqa: E402
from .library import Infeasible  # noqa: E402
from .session import budget, plan  # noqa: E402

__version__ = library.version()
__all__ = ["CoverageWarning", "Infeasible", "Uncovered", "aside", "backend", "budget", "plan"]


def __getattr__(name):
    """backend is imported when it is first used: torch's compilers take seconds to import."""
    if name == "backend":
        from .compiled import backend
        return backend
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


for _fault in classify.faults(bridge.Core, records.Entry):
    warnings.warn(f"mm_torch {__version__} with torch {torch.__version__} and Python {platform.python_version()}: {_fault}; "
                  "budgets may manage less than they should", RuntimeWarning, stacklevel=2)
