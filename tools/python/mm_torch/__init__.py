# SPDX-License-Identifier: MIT
"""A PyTorch loop inside a byte budget: `with mm_torch.budget("6GiB", policy="freelunch:rate=4") as m: ...`"""

from . import library
from .library import Infeasible
from .session import budget

library.get()  # an import without libmm.so, or with one of another version, fails
__version__ = library.version()
__all__ = ["Infeasible", "budget", "plan"]


def __getattr__(name):
    if name != "plan":
        raise AttributeError(f"module {__name__} has no attribute {name!r}")
    from .planned import plan  # only when it is used: it imports the parts of torch that trace
    globals()["plan"] = plan
    return plan
