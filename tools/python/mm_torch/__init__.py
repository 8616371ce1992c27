# SPDX-License-Identifier: MIT
"""A PyTorch loop inside a byte budget: `with mm_torch.budget("6GiB", policy="freelunch:rate=4") as m: ...`"""

from . import library
from .compiled import backend
from .library import Infeasible
from .session import budget, plan

library.get()  # an import without libmm.so, or with one of another version, fails
__version__ = library.version()
__all__ = ["Infeasible", "backend", "budget", "plan"]
