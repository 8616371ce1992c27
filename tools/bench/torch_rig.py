# SPDX-License-Identifier: MIT
"""Measures PyTorch: each run in a process of its own, so that its peak is its own, and after warm-up steps."""
import contextlib
import importlib
import json
import os
import re
import select
import signal
import subprocess
import sys
import tempfile
import time

WARM_UP, LEAST_ITERATIONS = 8, 3

# An environment in which the allocator's segments can grow: otherwise fragments would count against a cap. The second
# name is that of newer torch.
EXPANDABLE = dict.fromkeys(("PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_ALLOC_CONF"), "expandable_segments:True")

# ---------------------------------------------------------------- steps


def step_seconds(torch, cuda, iterate, n):
    """Seconds of each of n iterations. On a GPU they are enqueued without waiting, and timed by events."""
    if not cuda:
        times = []
        for i in range(n):
            begin = time.perf_counter()
            iterate(i)
            times.append(time.perf_counter() - begin)
        return times
    events = [torch.cuda.Event(enable_timing=True) for _ in range(n + 1)]
    events[0].record()
    for i in range(n):
        iterate(i)
        events[i + 1].record()
    torch.cuda.synchronize()
    return [a.elapsed_time(b) * 1e-3 for a, b in zip(events, events[1:])]


def warm_up(torch, cuda, iterate, seconds):
    """Runs unmeasured iterations, and returns how many iterations fit into `seconds`. The first ones choose algorithms,
    compile, and fill the allocator's cache; the next one shows how long an iteration takes."""
    def sync():
        if cuda:
            torch.cuda.synchronize()

    for i in range(2 if cuda else 1):
        iterate(i)
    sync()
    begin = time.perf_counter()
    iterate(0)
    sync()
    each = time.perf_counter() - begin
    fit = max(LEAST_ITERATIONS, int(seconds / each))
    for i in range(min(WARM_UP, fit // 4) if cuda else 0):
        iterate(i)
    sync()
    return fit


# ---------------------------------------------------------------- processes


def reason(stderr, code):
    """The last line that names an error; lines after it are advice."""
    lines = [line.strip() for line in stderr.splitlines() if line.strip()]
    errors = [line for line in lines if re.match(r"[\w.]*(Error|Exception|Interrupt)\b", line)]
    return ((errors or lines or ["exit %d" % code])[-1])[:300]


class Apart:
    """A process group that makes rows: module.function(*arguments) yields None once it is warm, then a row whenever
    asked. A failure becomes the row's status, and ends the group. limit: seconds for the warm-up, and for each row."""

    def __init__(self, module, function, arguments, limit, **environment):
        self.limit, self.err = limit, tempfile.TemporaryFile("w+")
        what = json.dumps([module, function, arguments])
        self.child = subprocess.Popen([sys.executable, "-W", "ignore", os.path.abspath(__file__), what],
                                      stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self.err,
                                      env={**os.environ, **environment}, start_new_session=True)
        try:
            self.status = self.answer()["status"]
        except BaseException:  # such as an interrupt, which does not reach the child's group
            self.close()
            raise

    def answer(self):
        """The next line that the child writes; after `limit` seconds the child is closed."""
        end, line = time.monotonic() + self.limit, b""
        while not line.endswith(b"\n"):
            left = end - time.monotonic()
            if left <= 0 or not select.select([self.child.stdout], [], [], left)[0]:
                return self.close("took more than %g s" % self.limit)
            piece = os.read(self.child.stdout.fileno(), 1 << 16)
            if not piece:
                self.child.wait()
                self.err.seek(0)
                return self.close(reason(self.err.read(), self.child.returncode))
            line += piece
        return json.loads(line)

    def row(self):
        told = {"status": self.status}
        if self.status == "ok":
            with contextlib.suppress(OSError):  # the child has ended: answer() says why
                self.child.stdin.write(b"\n")
                self.child.stdin.flush()
            told = self.answer()
        return told

    def close(self, status="closed"):
        if self.child.poll() is None:
            os.killpg(self.child.pid, signal.SIGKILL)
            self.child.wait()
        for file in (self.child.stdin, self.child.stdout):
            with contextlib.suppress(OSError):
                file.close()
        self.status = status
        return {"status": status}


def row_apart(*what, **environment):
    apart = Apart(*what, **environment)
    try:
        return apart.row()
    finally:
        apart.close()


def serve(module, function, arguments):
    out, sys.stdout = sys.stdout, sys.stderr  # so that a library that prints does not corrupt a row
    rows = getattr(importlib.import_module(module), function)(*arguments)
    next(rows)
    print(json.dumps({"status": "ok"}), file=out, flush=True)
    for _ in sys.stdin:
        print(json.dumps(next(rows)), file=out, flush=True)


if __name__ == "__main__":
    serve(*json.loads(sys.argv[1]))
