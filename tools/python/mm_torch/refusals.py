# SPDX-License-Identifier: MIT
"""When an iteration that does not fit is refused: once it has ended, so that the minimum is of all that it saves.

The stash takes what finds no room, and names the least budget for an order when it is complete (mm_stash.h,
MM_STASH_REFUSE_LATER). Orders change for reasons that the first iteration shows: tensors that seemed to be the
program's are moved from the next one on (coverage.py), and several backward passes may be one iteration. Then a refusal
waits for an iteration of the new kind."""

from . import coverage, library

WAITS_MOST = 3  # passes that leave entries (chosen): a step of several passes is found out by then


class Refusals:
    """Those of a Core, which the methods get. say: takes a message. beside: bytes of the budget that are not the
    stash's."""

    def __init__(self):
        self.say, self.beside = None, 0
        self.minimum = self.waits = 0
        self.known, self.changed = (frozenset(), False), -1  # the kind of iterations; the last of another kind

    def backward_ended(self, core):
        """A backward pass has ended. Raises Infeasible if the iteration, too, has ended, and is refused."""
        now = core.let_go, core.joins
        if now != self.known:
            self.known, self.changed = now, core.stats().iterations - (not core.entries)
        if not core.entries and core.stats().beyond_bytes:
            self.settle(core)

    def settle(self, core):
        """Waits until orders are planned. Raises Infeasible if the last one is refused."""
        try:
            library.check(core.lib, core.lib.mm_stash_wait_planned(core.stash), core.stash)
        except library.Infeasible as error:
            self.judge(core, error)

    def judge(self, core, error):
        """Raises a refusal of the iteration that ended last, or waits for another one's."""
        if core.share is not None:
            if not core.share.needs:
                return  # orders are planned again in what the stash gets when the budget is divided
            core.share.explain(error)
        if self.beside:
            error.minimum += self.beside
            error.args = (f"{error}; with {self.beside} bytes beside what moves, a budget of {error.minimum}",)
        if self.minimum > (error.minimum or 0):
            error.args = (f"{error}; {self.minimum} bytes for the iterations before",)
        error.minimum = self.minimum = max(error.minimum or 0, self.minimum)
        if core.entries and self.waits < WAITS_MOST:
            self.waits += 1
        elif core.stats().iterations - 1 > self.changed:
            self.minimum = 0
            hint = coverage.whole(core.region_bytes, error.minimum)
            if hint:
                error.args = (f"{error}; {hint}",)
            raise error
        if self.say is not None:
            self.say(f"the budget is too small; how much is enough, another iteration shows: {error}")
