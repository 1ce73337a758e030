/* The data files of a run in its checkpoints, so that a resumed run can name the one that
 * changed. */
#ifndef LATHE_DATA_DATA_SOURCES_H
#define LATHE_DATA_DATA_SOURCES_H

#include <jansson.h>

#include "base/buffer.h"
#include "data/shards.h"

/** "sources": [{"path", "bytes", "modified"}, ...] of at most 4096 files; "[]" without shards
 *  (NULL). */
void lathe_data_sources_json(const lathe_shards *shards, lathe_buffer *out);

/** After the loader refused the cursor of a checkpoint because the data are others: LATHE_E_CONFIG
 *  with a message that names the first file that changed, came or went since, by `root`, the
 *  checkpoint's run.json. When none did, or they are not known, the loader's status and message
 *  stay. */
lathe_status lathe_data_sources_explain(const lathe_shards *shards, const json_t *root,
                                        const char *path, lathe_status status);

#endif
