"""An event file as TensorBoard's own writer makes it, and a look at Lathe's by TensorBoard's own reader.

  python tests/golden/event_files.py              writes data/tensorboard.tfevents: brain.Event:2, SessionLog
                                                  START at step 3, three scalars of step 300; wall time 1.5
  python tests/golden/event_files.py check DIR    reads DIR/tensorboard of a run, prints tags, steps and last
                                                  values, and compares each with DIR/metrics.jsonl

Made with tensorboard 2.21.0.
"""
import json
import pathlib
import sys

from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from tensorboard.compat.proto.event_pb2 import Event, SessionLog
from tensorboard.compat.proto.summary_pb2 import Summary
from tensorboard.summary.writer.record_writer import RecordWriter


def make(path):
    values = [("train/loss", 2.5), ("eval/loss", 2.25), ("rewards/margins", -1.0)]
    summary = Summary(value=[Summary.Value(tag=tag, simple_value=x) for tag, x in values])
    with open(path, "wb") as f:
        writer = RecordWriter(f)
        for event in [Event(wall_time=1.5, file_version="brain.Event:2"),
                      Event(wall_time=1.5, step=3, session_log=SessionLog(status=SessionLog.START)),
                      Event(wall_time=1.5, step=300, summary=summary)]:
            writer.write(event.SerializeToString())


def check(run):
    events = EventAccumulator(str(run / "tensorboard"), size_guidance={"scalars": 0})
    events.Reload()
    lines = [json.loads(x) for x in (run / "metrics.jsonl").read_text().splitlines()]
    n = 0
    for tag in sorted(events.Tags()["scalars"]):
        group, _, key = tag.partition("/")
        key = "eval_" + key if group == "eval" else key
        want = {x["step"]: x[key] for x in lines if x.get(key) is not None}
        got = {e.step: e.value for e in events.Scalars(tag)}
        assert len(got) == len(events.Scalars(tag)), f"{tag}: a step twice"
        assert set(want) <= set(got), f"{tag}: steps {sorted(set(want) ^ set(got))}"
        assert all(abs(got[s] - want[s]) <= 1e-6 * abs(want[s]) for s in want), tag
        n += len(got)
        print(f"{tag}: {len(got)} steps, last {max(got)}: {got[max(got)]:.6g}")
    print(f"{n} scalars agree with metrics.jsonl")


if len(sys.argv) == 3 and sys.argv[1] == "check":
    check(pathlib.Path(sys.argv[2]))
else:
    make(pathlib.Path(__file__).parent / "data" / "tensorboard.tfevents")
