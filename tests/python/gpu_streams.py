# SPDX-License-Identifier: MIT
"""gpu_streams: the order of streams between a program, the bridge and the stash. There is no GPU: libmm has emulated
CUDA, whose streams are threads (MM_LIBRARY=libmm_streams.so, and GLIBC_TUNABLES as in gpu_streams_test.sh). Operations
here are tasks of these threads, many of them after a random delay; tensors lie in emulated device memory, which the CPU
cannot touch but in a task. The allocator gives a block to the next operation on its stream as soon as Python has freed
it, as torch's does. Work that does not wait for what it needs gets other bytes, sooner or later: a case checks that
this is seen."""

import ctypes
import itertools
import os
import random
import threading
import time
import unittest.mock

import torch

import checks
import mm_torch as mm
from checks import expect
from mm_torch import session

ELEMS, LAYERS, ITERATIONS, DELAY_SECONDS = 4096, 10, 6, 0.002
BYTES = 4 * ELEMS
TASK = ctypes.CFUNCTYPE(None, ctypes.c_int64)


LIBRARY = ctypes.CDLL(os.environ["MM_LIBRARY"])  # with the functions of torch_streams.c
LIBRARY.streams_create.restype = LIBRARY.streams_alloc.restype = ctypes.c_void_p
for name, kinds in (("run", [ctypes.c_void_p, TASK, ctypes.c_int64]), ("wait", [ctypes.c_void_p, ctypes.c_void_p]),
                    ("sync", [ctypes.c_void_p]), ("capture", [ctypes.c_void_p, ctypes.c_int]),
                    ("alloc", [ctypes.c_size_t])):
    getattr(LIBRARY, "streams_" + name).argtypes = kinds

numbers, tasks, failures = itertools.count(1), {}, []


@TASK
def perform(number):
    time.sleep(random.choice((0, random.random() * DELAY_SECONDS)))
    try:
        tasks.pop(number)()
    except BaseException as error:
        failures.append(error)


class Stream:
    """unused: addresses of its free blocks; the one that was freed last is taken first."""

    def __init__(self):
        self.handle, self.unused = LIBRARY.streams_create(), []

    def run(self, task):
        number = next(numbers)
        tasks[number] = task
        LIBRARY.streams_run(self.handle, perform, number)

    def wait_stream(self, other):
        if other is not self:
            LIBRARY.streams_wait(self.handle, other.handle)

    def synchronize(self):
        LIBRARY.streams_sync(self.handle)


STREAMS = [Stream(), Stream()]
current = STREAMS[0]


class on:
    """A context with another current stream."""

    def __init__(self, stream):
        self.stream = stream

    def __enter__(self):
        global current
        self.before, current = current, self.stream

    def __exit__(self, *error):
        global current
        current = self.before


class Block(ctypes.c_ubyte * BYTES):
    """The memory of a tensor. users: streams that used it beside the one that it belongs to (record_stream)."""

    def __del__(self):
        for stream in self.users:
            self.home.wait_stream(stream)
        self.home.unused.append(self.address)


blocks = {}  # address: a function that returns its block's users


def empty():
    """A tensor of ELEMS floats, from the current stream's blocks."""
    address = current.unused.pop() if current.unused else LIBRARY.streams_alloc(BYTES)
    block = Block.from_address(address)
    block.address, block.home, block.users = address, current, set()
    blocks[address] = block.users
    return torch.frombuffer(block, dtype=torch.float32)


def at(address):
    return torch.frombuffer((ctypes.c_ubyte * BYTES).from_address(address), dtype=torch.float32)


def launch(function, *inputs):
    """Enqueues out = function(*inputs) on the current stream, as a kernel: it knows addresses, and holds nothing.
    Programs call record_stream for tensors that they use on another stream; it reaches theirs, not results of mm."""
    out = empty()
    for x in inputs:
        if x.data_ptr() in blocks:
            blocks[x.data_ptr()].add(current)
    addresses, result = [x.data_ptr() for x in inputs], out.data_ptr()
    current.run(lambda: at(result).copy_(function(*map(at, addresses))))
    return out


def uploaded(x):
    out = empty()
    address, x = out.data_ptr(), x.clone()
    current.run(lambda: at(address).copy_(x))
    return out


def downloaded(x):
    host, address = torch.empty(ELEMS), x.data_ptr()
    current.run(lambda: host.copy_(at(address)))
    current.synchronize()
    return host


last = None  # the stream of the node that ran last; autograd has the next node's stream wait for it


def enter_node(ctx):
    global last
    ctx.stream.wait_stream(last)
    last = ctx.stream
    return on(ctx.stream)


class Square(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.stream = current
        ctx.save_for_backward(x)
        return launch(lambda x: x * x * 0.75, x)

    @staticmethod
    def backward(ctx, g):
        with enter_node(ctx):
            x, = ctx.saved_tensors
            found = launch(lambda g, x: g * x * 1.5, g, x)
            leave(x)
            return found


class Sine(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.stream = current
        ctx.save_for_backward(x)
        return launch(torch.sin, x)

    @staticmethod
    def backward(ctx, g):
        with enter_node(ctx):
            x, = ctx.saved_tensors
            found = launch(lambda g, x: g * torch.cos(x), g, x)
            leave(x)
            return found


def leave(_x):
    """What becomes of a saved tensor after its use: nothing holds it longer. Cases replace this."""


def iterate(m, seed):
    """A forward and a backward pass over streams chosen by chance. Returns the gradient."""
    global current, last
    chosen = random.Random(seed)
    current = STREAMS[0]
    with torch.no_grad():
        start = uploaded(torch.linspace(0.5, 1.5, ELEMS))
    start.requires_grad_()
    with m:
        h = start
        for i in range(LAYERS):
            stream = chosen.choice(STREAMS)
            stream.wait_stream(current)
            current = stream
            h = (Square if i % 2 else Sine).apply(h)
    last = current
    gradient, = torch.autograd.grad(h, start, uploaded(torch.ones(ELEMS)))
    del h
    current = last
    return downloaded(gradient)


def plain(seed):
    """The gradient without a budget, where each task has run before the next is enqueued."""
    def run(stream, task):
        number = next(numbers)
        tasks[number] = task
        LIBRARY.streams_run(stream.handle, perform, number)
        stream.synchronize()

    with unittest.mock.patch.object(Stream, "run", run):
        return iterate(Nothing(), seed)


class Nothing:
    def __enter__(self):
        return self

    def __exit__(self, *error):
        return None


def budget(policy="swap-async", maps=4):
    """A budget on emulated CUDA for tensors that torch takes for the CPU's."""
    with unittest.mock.patch.object(session, "_device", lambda device: (torch.device("cpu"), "cuda:0")):
        m = mm.budget(maps * BYTES, policy, host=2 * LAYERS * BYTES, log=lambda text: None)
    m._core.on_cuda, m._core.stream = True, lambda: current.handle
    return m


def differing(m, seeds):
    """The number of iterations whose gradients are not plain's."""
    found = 0
    for seed in seeds:
        found += not torch.equal(iterate(m, seed), plain(seed))
        m.settle()
    return found


def gradients_are_plain_torchs():
    for policy, maps in (("swap-async", 4), ("freelunch:codec=zvc,eligible=all,when=always", 14), ("liveness", 16)):
        m = budget(policy, maps)
        found = differing(m, [5] * ITERATIONS + [6] * ITERATIONS)
        stats = m.stats
        expect(f"{policy}: gradients", found == 0, found)
        expect(f"{policy}: planned", stats.planned >= ITERATIONS - 1 and stats.entries == 0, stats)
        expect(f"{policy}: saved", stats.puts == (LAYERS - 1) * 2 * ITERATIONS, stats)
        expect(f"{policy}: copied", policy != "swap-async" or stats.out_bytes > 0 and stats.in_bytes > 0, stats)


def results_are_freed_by_other_threads():
    """A garbage collector frees a result on its own thread, later, with another current stream."""
    held, expected = [], plain(7)

    def later(x):
        held.append(x)
        if len(held) > 1:
            thread = threading.Thread(target=held.pop, args=(0,))
            thread.start()
            del x
            thread.join()

    m = budget(maps=5)
    with unittest.mock.patch.dict(globals(), {"leave": later}):
        for _ in range(ITERATIONS):
            found = iterate(m, 7)
            held.clear()
            expect("the gradient", torch.equal(found, expected))
            m.settle()
    expect("nothing is left", m.stats.entries == 0, m.stats)


def a_second_stream_is_waited_for_by_the_program():
    """record_stream does nothing for a result of mm. A program that uses one on a further stream has the stream of its
    node wait for that one before the result is freed (README, Memory beside the stash)."""
    side, sums = Stream(), []

    def use_aside(x):
        side.wait_stream(current)
        with on(side):
            sums.append(launch(lambda x: x + 1, x))
        current.wait_stream(side)

    m = budget()
    for _ in range(ITERATIONS):
        results = []
        for run in (lambda: iterate(m, 8), lambda: plain(8)):
            with unittest.mock.patch.dict(globals(), {"leave": use_aside}):
                gradient = run()
            with on(side):
                results.append([gradient] + [downloaded(x) for x in sums])
            sums.clear()
        expect("gradients and sums", all(map(torch.equal, *results)))
        m.settle()
    LIBRARY.streams_sync(side.handle)


def captures_are_refused_by_name():
    m = budget()
    for _ in range(2):
        LIBRARY.streams_capture(STREAMS[0].handle, 1)
        try:
            with on(STREAMS[0]), m:
                Probe.apply(Alias.apply(empty().requires_grad_()))
            expect("it is refused", False)
        except RuntimeError as error:
            expect("by name", "is being captured into a CUDA graph" in str(error), error)
        LIBRARY.streams_capture(STREAMS[0].handle, 0)
        expect("the next iteration works", differing(m, [9, 9]) == 0)
    expect("nothing is left", m.stats.entries == 0, m.stats)


class Alias(torch.autograd.Function):
    """A tensor with a gradient, and no work on the stream."""

    @staticmethod
    def forward(ctx, x):
        return empty()

    @staticmethod
    def backward(ctx, g):
        return g


class Probe(torch.autograd.Function):
    """Saves its input, with no work on the stream."""

    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return empty()

    @staticmethod
    def backward(ctx, g):
        return g


def a_wrong_stream_is_seen():
    """The power of this test: a bridge that names another stream in puts, or in gets and releases, gives other
    gradients."""
    wrong = Stream()
    for where, in_backward in (("puts", False), ("gets and releases", True)):
        m = budget()
        core = m._core
        core.stream = lambda core=core, in_backward=in_backward: (wrong if core.backward is in_backward else current).handle
        found = differing(m, [10] * 2 * ITERATIONS)
        expect(f"{where}: gradients differ", found > 0)


def all_tasks_ran():
    expect("no task failed", not failures, failures[:1])


if __name__ == "__main__":
    random.seed(3)
    checks.run(gradients_are_plain_torchs, results_are_freed_by_other_threads, a_second_stream_is_waited_for_by_the_program,
               captures_are_refused_by_name, a_wrong_stream_is_seen, all_tasks_ran)
