/* The manifest of a model that a command made from others: `lathe merge`, `lathe quantize`.
 *
 *   "meta": {"lathe": "0.1.0", "time": ..., "made_by": "merge", "folder": "/...",
 *            "parents": [...],
 *            "renderer": {"name": "vicuna"},
 *            "tokenizer": "bytes",
 *            "calibration": {"content", "tokens", "files", "n_files", "rows": 128,
 *                            "row_tokens": 512}}
 *
 * "parents" as in parents.h; an adapter has the role "adapter". "renderer" is the one
 * that the adapters were trained with, or else the model (folder_renderer.h), if it was named and
 * they agree. "tokenizer" is there if they read raw bytes, and then it is "bytes". "calibration",
 * of a folder that was calibrated on texts, is as "data" there; its first rows were used. lineage.h
 * reads it back.
 */
#ifndef LATHE_CHECKPOINT_MADE_FOLDER_H
#define LATHE_CHECKPOINT_MADE_FOLDER_H

#include "data/rows/shards.h"
#include "lathe/status.h"

/** Data that a command calibrated on: the first `rows` rows of `row_tokens` tokens. */
typedef struct lathe_made_on {
    const lathe_shards *shards; /* NULL: none */
    int64_t rows, row_tokens;
} lathe_made_on;

typedef struct lathe_made_from {
    const char *role; /* "model", "adapter" */
    const char *path; /* the folder that was read */
} lathe_made_from;

/** Writes dir/manifest.json with the hashes of all files of `dir` and of those that it was made
 * from. To be called when all other files are written.
 *
 *   dir    the folder under its temporary name
 *   path   the name that it gets
 *   by     the command
 *   from   [n] models that the command read
 *   on     texts that it read; NULL: none */
lathe_status lathe__made_folder_describe(const char *dir, const char *path, const char *by,
                                         const lathe_made_from *from, int32_t n,
                                         const lathe_made_on *on);

#endif
