#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""weights.py OLD NEW TYPE PREFIX [LAYER]: writes the weights of a safetensors file OLD to NEW: as elements of TYPE
(F32, F16, BF16, F64, I32; rounded-to-F16, rounded-to-BF16: F32 with such values), with PREFIX before each name, without
metadata. LAYER.weight and LAYER.bias get 7 outputs. Needs no library: github.com/huggingface/safetensors describes the
format."""
import json
import struct
import sys


def bf16(value):
    """Returns the bits of a value without the lower half of its float's bits."""
    return struct.unpack("<I", struct.pack("<f", value))[0] >> 16


def f16(value):
    return struct.unpack("<e", struct.pack("<e", value))[0]


ROUND = {"rounded-to-F16": f16, "rounded-to-BF16": lambda v: struct.unpack("<f", struct.pack("<I", bf16(v) << 16))[0]}
PACK = {"F32": lambda v: struct.pack("<f", v), "F16": lambda v: struct.pack("<e", v),
        "BF16": lambda v: struct.pack("<H", bf16(v)), "F64": lambda v: struct.pack("<d", v),
        "I32": lambda v: struct.pack("<i", int(v))}


def main(old, new, kind, prefix, layer=None):
    data = open(old, "rb").read()
    length = struct.unpack("<Q", data[:8])[0]
    header, head, body = json.loads(data[8:8 + length]), {}, b""
    pack = PACK.get(kind, PACK["F32"])
    for name, tensor in header.items():
        if name == "__metadata__" or tensor["dtype"] != "F32" or name.startswith("momentum."):
            continue
        begin, end = tensor["data_offsets"]
        values = struct.unpack("<%df" % ((end - begin) // 4), data[8 + length + begin:8 + length + end])
        shape = tensor["shape"]
        if layer and name in (layer + ".weight", layer + ".bias"):
            values, shape = values[:len(values) // shape[0] * 7], [7] + shape[1:]
        raw = b"".join(pack(ROUND.get(kind, float)(value)) for value in values)
        head[prefix + name] = {"dtype": kind if kind in PACK else "F32", "shape": shape,
                               "data_offsets": [len(body), len(body) + len(raw)]}
        body += raw
    text = json.dumps(head).encode()
    text += b" " * (-len(text) % 8)
    with open(new, "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text + body)


main(*sys.argv[1:])
