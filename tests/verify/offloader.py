# SPDX-License-Identifier: MIT
"""An offloader of saved tensors by hooks and a side stream, as trainers have them, right or with one wait left out."""
import torch

# What is left out, and the rule that refuses it.
FAULTS = {
    "reload": "6.2",  # the compute stream does not wait for the copy back
    "producer": "6.2",  # the copy out does not wait for the kernel that makes the map
    "freed": "8.1",  # the map is freed while the copy out reads it, and another takes its bytes
}


class Offloader(torch.autograd.graph.saved_tensors_hooks):
    """Maps that autograd saves are copied to pinned memory on a side stream, and back when they are needed. Parameters
    and what is small stay."""

    def __init__(self, model, without=None, least_bytes=1024):
        self.without, self.least_bytes = without, least_bytes
        self.weights = {p.untyped_storage().data_ptr() for p in model.parameters()}
        self.compute, self.side = torch.cuda.current_stream(), torch.cuda.Stream()
        self.leaving = None  # the map that the side stream copies out, and the event behind the copy
        super().__init__(self.pack, self.unpack)

    def pack(self, saved):
        if saved.nbytes < self.least_bytes or saved.untyped_storage().data_ptr() in self.weights:
            return saved
        self.let_go()
        if self.without != "producer":
            self.side.wait_stream(self.compute)
        kept = torch.empty(saved.shape, dtype=saved.dtype, pin_memory=True)
        with torch.cuda.stream(self.side):
            kept.copy_(saved, non_blocking=True)
        self.leaving = saved, self.side.record_event()
        return (kept,)

    def let_go(self):
        """Frees the map that was copied out last. Its bytes are the compute stream's."""
        if self.leaving and self.without != "freed":
            self.compute.wait_event(self.leaving[1])
        self.leaving = None

    def unpack(self, packed):
        if isinstance(packed, torch.Tensor):
            return packed
        self.let_go()
        back = torch.empty(packed[0].shape, dtype=packed[0].dtype, device="cuda")
        self.side.wait_stream(self.compute)  # the bytes may be those of a map that the compute stream still reads
        with torch.cuda.stream(self.side):
            back.copy_(packed[0], non_blocking=True)
        if self.without != "reload":
            self.compute.wait_event(self.side.record_event())
        return back
