/* The chain from a model back to the first weights, from the manifests of its checkpoints
 * (parents.h). Needs no run.
 *
 * The result is a tree of nodes, JSON objects:
 *
 *   path      the folder, or a GGUF file
 *   kind      "checkpoint": a folder with a manifest, also a model that a command made;
 *             "adapter" or "model": a folder without one, or a GGUF file
 *   state     "whole", "damaged", or "unverified"
 *   damage    a message for each damaged file; []: none
 *   made_by   the command that made the model (made_folder.h); absent: a run did
 *   step, time, lathe, figures, seed, stage, adapter, quant, data, validation,
 *             calibration, resumed
 *             as in the manifest; the data also have "state" and "damage"
 *   parents   [{"roles", "path": as recorded, "state", "found": a folder or null, "damage",
 *             "node": what was found, or null}]
 *
 * A parent's state is "same", "changed" (other files than recorded), "missing", or "not recorded"
 * (there is no hash to compare with). Data are "same", "changed", "missing" or "not recorded".
 * A missing parent is no error: models are moved and removed. It is looked for at the recorded
 * path, at the place that it has if it moved together with the child, and by its hashes beside the
 * child.
 */
#ifndef LATHE_CHECKPOINT_LINEAGE_H
#define LATHE_CHECKPOINT_LINEAGE_H

#include <jansson.h>

#include "lathe/status.h"

/** Reads the chain of a model's folder, a GGUF file, a checkpoint, or the folder of a run (its
 * latest checkpoint). verify 1: compares the hashes of all files; 0: their sizes. *out_n_damaged:
 * number of damage messages. The caller releases *out. LATHE_E_NOT_FOUND: there is no model. Damage
 * and missing parents are no errors. */
lathe_status lathe_lineage_read(const char *path, int32_t verify, json_t **out,
                                int64_t *out_n_damaged);

#endif
