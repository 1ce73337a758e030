/* Reads from a folder's manifest whether its model was trained on raw bytes.
 *
 * A checkpoint has the tokenizer's files of its run; without a tokenizer.json among the files that
 * its manifest lists, the run read raw bytes. A model that a command made from others has
 * "tokenizer": "bytes" in "meta" if they read raw bytes. A folder without a manifest says nothing,
 * so raw bytes are never a guess. */
#ifndef LATHE_CHECKPOINT_FOLDER_TOKENIZER_H
#define LATHE_CHECKPOINT_FOLDER_TOKENIZER_H

#include "base/arena.h"
#include "lathe/status.h"

/** *out = 1: the manifest of `dir`, or of the checkpoint that this average/ is in, says that the
 *  model reads raw bytes. 0: it says otherwise, cannot be read, or there is none. Only for a folder
 *  without a tokenizer.json. LATHE_E_NOMEM. */
lathe_status lathe_folder_reads_bytes(const char *dir, lathe_arena *arena, int *out);

#endif
