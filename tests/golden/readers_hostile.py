#!/usr/bin/env python3
"""Writes tests/golden/data/readers/hostile: small files that stand for very much, by pyarrow.

    python tests/golden/readers_hostile.py tests/golden/data/readers/hostile
"""
import os
import sys

import pyarrow as pa
import pyarrow.parquet as pq

out = sys.argv[1] if len(sys.argv) > 1 else "."
os.makedirs(out, exist_ok=True)
phrase = ("the wheel turns and the tool holds. " * 30000)[: 1 << 20]


def repeated(text, n):
    """A dictionary of one text, n times."""
    return pa.DictionaryArray.from_arrays(pa.array([0] * n, pa.int32()), pa.array([text]))


def parquet(name, **columns):
    pq.write_table(pa.table(columns), f"{out}/{name}.parquet", compression="zstd", row_group_size=1 << 30)


def arrow(name, compression=None, **columns):
    table = pa.table(columns)
    with pa.ipc.new_file(f"{out}/{name}.arrow", table.schema,
                         options=pa.ipc.IpcWriteOptions(compression=compression)) as writer:
        writer.write_table(table)


# 24 MiB of equal texts in one group of rows: they are read. 4 GB: they are not.
parquet("equal_24", text=repeated(phrase, 24))
parquet("equal_4000", text=repeated(phrase, 4000))
# Small values, and then large ones in the same group: more than a batch of as many rows may take.
mixed = pa.array([0] * 8000 + [1] * 80 + [0] * 320, pa.int32())
parquet("mixed", text=pa.DictionaryArray.from_arrays(mixed, pa.array(["a", phrase])),
        number=pa.array(range(8400), pa.int32()))
# One row whose list has twenty million equal numbers.
parquet("long_list", text=pa.array(["a"]),
        ids=pa.ListArray.from_arrays(pa.array([0, 20000000], pa.int32()), pa.nulls(20000000, pa.int64()).fill_null(7)))
# A text of 100 MB, compressed.
arrow("long_text", compression="zstd", text=pa.array(["a" * 100000000]))
# One row whose list has a million equal texts of a hundred bytes.
arrow("long_record", compression="zstd", text=pa.array(["a"]),
      ids=pa.ListArray.from_arrays(pa.array([0, 1000000], pa.int32()), repeated("a" * 100, 1000000)))
# A list of two thousand million nulls, which take no memory.
arrow("nulls", text=pa.array(["a"]),
      ids=pa.FixedSizeListArray.from_arrays(pa.nulls(2000000000), 2000000000))
# Twenty lists in each other, each of ten times the next: ten to the power of twenty values.
views = pa.array([1], pa.int8())
for _ in range(20):
    views = pa.ListViewArray.from_arrays(pa.array([0] * 10, pa.int32()), pa.array([len(views)] * 10, pa.int32()), views)
arrow("views", text=pa.array(["a"] * 10), ids=views)
# Lists that overlap, of maps whose values are all null: much to look at and no text.
n = 2500
maps = pa.MapArray.from_arrays(pa.array([0, n], pa.int32()), pa.array(["k"] * n), pa.nulls(n, pa.int32()))
many = pa.ListViewArray.from_arrays(pa.array([0] * n, pa.int32()), pa.array([1] * n, pa.int32()), maps)
arrow("maps", compression="zstd", text=pa.array(["a"]),
      ids=pa.ListArray.from_arrays(pa.array([0, n], pa.int32()), many))
