/* Records a run's data files in its checkpoints, so that a resumed run can name a file that
 * changed. */
#ifndef LATHE_DATA_DATA_SOURCES_H
#define LATHE_DATA_DATA_SOURCES_H

#include <jansson.h>

#include "base/buffer.h"
#include "data/rows/shards.h"

/** Appends "sources": [{"path", "bytes", "modified"}, ...], at most 4096 files; "[]" if shards is
 *  NULL. */
void lathe_data_sources_json(const lathe_shards *shards, lathe_buffer *out);

/** Call it after the loader has refused the cursor of a checkpoint because the data changed.
 *  Compares the files with those in `root`, the checkpoint's run.json. Returns LATHE_E_CONFIG with
 *  a message that names the first file that changed, appeared or disappeared. If no file did, or
 *  the checkpoint does not list them, returns `status` and keeps the loader's message. */
lathe_status lathe_data_sources_explain(const lathe_shards *shards, const json_t *root,
                                        const char *path, lathe_status status);

#endif
