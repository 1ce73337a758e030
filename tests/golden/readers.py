#!/usr/bin/env python3
"""Writes tests/golden/data/readers: the same records as JSONL, Parquet and Arrow, by pyarrow; in odd/, other tables; in keys/,
records with the fields that are read beside their columns.

    python tests/golden/readers.py tests/golden/data/readers
"""
import json
import os
import sys

import pyarrow as pa
import pyarrow.feather as feather
import pyarrow.parquet as pq

out = sys.argv[1] if len(sys.argv) > 1 else "."
os.makedirs(f"{out}/odd", exist_ok=True)
os.makedirs(f"{out}/same", exist_ok=True)
os.makedirs(f"{out}/keys", exist_ok=True)

# Every type that has a form in JSON. A missing member is a null in the table.
rows = []
for i in range(23):
    row = {
        "text": ["The wheel turns.", "Zwölf \U0001f98a \"quoted\"\\ \n\t\x01", "", "a" * (40 + i)][i % 4],
        "kind": ["left", "right", "left"][i % 3],  # dictionary
        "label": i % 2 == 0,
        "small": i - 11,
        "large": 2**63 + i,
        "real": [0.1, -1.5e300, 1.0, 12345678901234567.0, 1e-7, 123456.789][i % 6],
        "single": [0.5, 1.25, -3.0][i % 3],
        "ids": list(range(i % 4)),
        "messages": [
            {"role": "user", "content": f"question {i}"},
            {"role": "assistant", "content": f"answer {i}", "score": i / 4},
        ][: 1 + i % 2],
    }
    if i % 5 == 3:
        del row["label"], row["real"]
    if i % 7 == 6:
        del row["messages"]
    rows.append(row)

message = pa.struct([("role", pa.string()), ("content", pa.large_string()), ("score", pa.float64())])
schema = pa.schema([
    ("text", pa.string()), ("kind", pa.dictionary(pa.int8(), pa.string())), ("label", pa.bool_()), ("small", pa.int16()),
    ("large", pa.uint64()), ("real", pa.float64()), ("single", pa.float32()), ("ids", pa.large_list(pa.int32())),
    ("messages", pa.list_(message)),
])
table = pa.Table.from_pylist(rows, schema)

with open(f"{out}/same/records.jsonl", "w", encoding="utf-8") as file:
    for row in rows:
        file.write(json.dumps(row, ensure_ascii=False) + "\n")
# Row groups of 7 rows: the last one is not full.
pq.write_table(table, f"{out}/same/snappy.parquet", row_group_size=7, compression="snappy")
pq.write_table(table, f"{out}/same/zstd.parquet", row_group_size=10, compression="zstd", data_page_version="2.0",
               use_dictionary=False)
feather.write_feather(table, f"{out}/same/file.arrow", compression="uncompressed", chunksize=8)
with pa.ipc.new_stream(f"{out}/same/stream.arrow", schema, options=pa.ipc.IpcWriteOptions(compression="zstd")) as writer:
    for batch in table.to_batches(max_chunksize=9):
        writer.write_batch(batch)
# Fields beside the columns, by the stage that reads them.
ask, answer = {"role": "user", "content": "q"}, {"role": "assistant", "content": "a"}
beside = {"system": "be kind", "tools": '[{"type": "function", "function": {"name": "get"}}]',
          "documents": [{"title": "t", "text": "source"}], "chat_template_kwargs": {"mood": "merry"}}
for name, record in {
    "pretrain": {"messages": [ask, answer], **beside},
    "sft": {"messages": [ask, answer], **beside},
    "sft_alpaca": {"instruction": "do", "input": "it", "output": "done", "history": [["q", "a"]], **beside},
    "dpo": {"prompt": [ask], "chosen": [answer], "rejected": [ask | {"role": "assistant"}], **beside},
    "dpo_alpaca": {"instruction": "do", "chosen": "well", "rejected": "badly", "history": [["q", "a"]], **beside},
    "kto": {"prompt": [ask], "completion": [answer], "label": True, **beside},
    "kto_messages": {"messages": [ask, answer], "label": True, **beside},
    "kto_alpaca": {"instruction": "do", "output": "done", "kto_tag": True, "history": [["q", "a"]], **beside},
    "ppo": {"prompt": [ask], **beside},
}.items():
    with open(f"{out}/keys/{name}.jsonl", "w", encoding="utf-8") as file:
        file.write(json.dumps(record) + "\n")
    pq.write_table(pa.Table.from_pylist([record]), f"{out}/keys/{name}.parquet")
# Types without a form in JSON beside one with it, a NaN, an infinity, and a text that is not UTF-8.
odd = pa.table({
    "text": pa.array(["one", None, "three"]),
    "image": pa.array([b"\x00", b"\x01", b"\x02"], pa.binary()),
    "day": pa.array([0, 1, 2], pa.date32()),
    "score": pa.array([1.0, float("nan"), float("inf")], pa.float64()),
    "price": pa.array([1, 2, 3]).cast(pa.decimal128(21, 2)),
})
pq.write_table(odd, f"{out}/odd/odd.parquet", compression="none")
pq.write_table(odd.slice(0, 0), f"{out}/odd/empty.parquet")
