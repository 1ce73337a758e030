/* The programs that a run starts, for the manifests of its checkpoints: the files that the words of
 * reward.command name, with their hashes, as they are when the run starts.
 *
 *   "programs": [{"reward": "command", "key": "command", "word": 1, "path": "/x/reward.py",
 *                 "bytes": 210, "sha256": "..."}]
 *
 * Files among the words are recorded; if none of them is one, the program itself is, which a shell
 * finds in PATH. What a program reads or imports is not known. Files above 1 GiB have no hash.
 */
#ifndef LATHE_CHECKPOINT_REWARD_PROGRAMS_H
#define LATHE_CHECKPOINT_REWARD_PROGRAMS_H

#include <jansson.h>

#include "base/buffer.h"
#include "config/config.h"

/** Appends the member above, with a comma before it; nothing if the run starts no program. */
lathe_status lathe__programs_put(const lathe_config *config, lathe_buffer *out);

/** Compares the programs with those of a checkpoint. Appends a text for each file that is another
 *  one: "reward.py has changed (SHA-256 12345678... then, 9abcdef0... now)"; nothing if all are the
 *  same, or the checkpoint has no record. A file of another name is not compared: then the
 *  setting has changed. */
lathe_status lathe__programs_compare(const lathe_config *config, const json_t *meta,
                                     lathe_buffer *out);

#endif
