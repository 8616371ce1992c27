# SPDX-License-Identifier: MIT
"""A PyTorch loop inside a byte budget: `with mm_torch.budget("6GiB", policy="freelunch:rate=4,eligible=all") as m: ...`"""

from . import library
from .library import Infeasible
from .session import budget, plan
from .trainers import accelerate, hf, lightning

library.get()  # an import without libmm.so, or with one of another version, fails
__version__ = library.version()
__all__ = ["Infeasible", "accelerate", "budget", "hf", "lightning", "plan"]
