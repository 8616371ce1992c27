# SPDX-License-Identifier: MIT
"""A PyTorch loop inside a byte budget:

    with mm_torch.budget("6GiB", policy="freelunch:rate=4,eligible=all") as m: ...
"""

import re

import torch

from . import library

library.get()  # an import without libmm.so, or with one of another version, fails
__version__ = library.version()
if tuple(map(int, re.findall(r"\d+", torch.__version__)[:2])) < (2, 6):
    raise ImportError(f"mm_torch {__version__} needs torch 2.6 or later; this is torch {torch.__version__}")

from .library import Infeasible  # noqa: E402
from .session import budget, plan  # noqa: E402
from .trainers import accelerate, hf, lightning  # noqa: E402

__all__ = ["Infeasible", "accelerate", "budget", "hf", "lightning", "plan"]
