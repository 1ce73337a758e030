/* Records the origin of a run for the manifests of its checkpoints: the folders that its models
 * come from, and its data, each with hashes. lineage.h reads it back.
 *
 *   "parents":    [{"roles": ["model", "reference"], "path": "/...", "manifest": "<SHA-256>",
 *                   "files": {"model.safetensors": {"bytes", "sha256"}, ...}}]
 *   "resumed":    {"path": "/...", "step": 4, "manifest": "<SHA-256>"}, after resuming
 *   "data":       {"content": "<hash of the tokens>", "tokens": 512,
 *                  "files": [{"path": "/...", "bytes": 9, "sha256": "..."}], "n_files": 1}
 *   "validation": the same of the data for evaluation, if there are any
 *   "programs":   the programs of rewards (reward_programs.h), if there are any
 *
 * Other roles are "adapter", "teacher" and "reward". "files" of a parent are its weights and
 * config.json; "manifest" is the hash in the last line of its manifest.json, if it is a checkpoint.
 * Data files are hashed if all of them together have at most 1 GiB; at most 256 are listed.
 */
#ifndef LATHE_CHECKPOINT_PARENTS_H
#define LATHE_CHECKPOINT_PARENTS_H

#include <jansson.h>

#include "checkpoint/state/saved_state.h"
#include "data/rows/shards.h"

/** Hashes the parents and the data once, for the manifests of all checkpoints of the run. resumed:
 * the checkpoint that the run went on from; its parents are those of the run, except models that
 * checkpoint.allow_changed lets be others; NULL: none. */
lathe_status lathe__checkpoint_know_parents(const lathe_saved_state *saved, const char *resumed);

/** Appends the members above, without braces; "" if there are none. */
lathe_status lathe__checkpoint_put_parents(const lathe_saved_state *saved, lathe_buffer *out);

/** Appends one folder as a member of "parents", with the hashes of its files. roles: JSON strings,
 * separated by commas. */
lathe_status lathe__parent_put(const char *path, const char *roles, lathe_arena *arena,
                               lathe_buffer *out);

/** The first of the recorded parents with a role, such as "model"; NULL: none. */
json_t *lathe__parent_of(const json_t *parents, const char *role);

/** The absolute path that a folder will have under the name `path`, in the arena; NULL: unknown.
 * The folder itself need not exist. */
const char *lathe__parents_place(const char *path, lathe_arena *arena);

/** Appends the member "folder": the absolute path of a folder that is being written and will have
 * the name `path`. With it a reader finds parents that moved together with the folder. */
void lathe__parents_put_place(const char *path, lathe_arena *arena, lathe_buffer *out);

/** Appends the member `name` with data as above; nothing without shards. more: further members of
 * the object, each with a comma before it. */
lathe_status lathe__parents_put_data(const char *name, const lathe_shards *shards, const char *more,
                                     lathe_arena *arena, lathe_buffer *out);

/** Whether a file name is that of weights or of their configuration. */
int32_t lathe__is_weight_file(const char *name);

/** The folder whose manifest covers `dir`: `dir` itself, or the checkpoint that this average/ is
 * in. NULL: there is no manifest. */
lathe_status lathe__manifest_folder(const char *dir, lathe_arena *arena, const char **out);

/** The two parts of lathe__checkpoint_check_base: the model at `path`, and the folders of the other
 * models (a reward model only if the run trains). */
lathe_status lathe__checkpoint_check_model(const json_t *meta, const char *path);
lathe_status lathe__checkpoint_check_others(const lathe_saved_state *saved, const json_t *meta,
                                            const char **out_section, const char **out_key);

/** Checks that the frozen weights that a run reads are those that the run of a checkpoint began
 * with: model.path under an adapter or as the reference, and the folders of a teacher and of a
 * reward model, unless checkpoint.allow_changed names their keys. `meta`: of the checkpoint.
 * LATHE_E_CONFIG names the file that changed; *out_section and *out_key are then the key that names
 * its folder. */
lathe_status lathe__checkpoint_check_base(const lathe_saved_state *saved, const json_t *meta,
                                          const char **out_section, const char **out_key);

#endif
