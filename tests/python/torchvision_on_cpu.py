# SPDX-License-Identifier: MIT
"""Lets torchvision's wheel for GPUs be imported beside torch's for CPUs. Its own operators cannot be loaded there, and
it registers two of them nevertheless, which fails: "operator torchvision::nms does not exist". This declares these two
before. 'tools/deps python' installs it, with torchvision_on_cpu.pth, which imports it whenever Python starts."""

import glob
import importlib.abc
import importlib.machinery
import os
import sys

_SCHEMAS = ("nms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor",
            "qnms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")


class _Finder(importlib.abc.MetaPathFinder):
    library = None  # torch forgets the operators when it is deleted

    def find_spec(self, name, path, target=None):
        """Finds nothing itself: declares the operators when torchvision is about to be imported."""
        if name == "torchvision" and self.library is None:
            found = importlib.machinery.PathFinder.find_spec(name, path)
            if found and found.origin and not _loads(os.path.dirname(found.origin)):
                import torch  # pylint: disable=import-outside-toplevel
                _Finder.library = torch.library.Library("torchvision", "FRAGMENT")
                for schema in _SCHEMAS:
                    self.library.define(schema)
        return None


def _loads(folder):
    """Whether torchvision's library of operators can be loaded; if so, it is."""
    import torch  # pylint: disable=import-outside-toplevel
    try:
        for file in glob.glob(os.path.join(folder, "_C*.so")):
            torch.ops.load_library(file)
    except OSError:
        return False
    return True


sys.meta_path.insert(0, _Finder())
