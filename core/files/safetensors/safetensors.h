/* Reads safetensors: one file, or a folder's model.safetensors or sharded index, memory-mapped.
 *
 * A file is a u64 (little-endian) with the size of the header (<= 100,000,000), a JSON object, then
 * the tensors without gap or overlap up to the end. Anything else is refused with LATHE_E_CORRUPT,
 * which names file and tensor.
 */
#ifndef LATHE_FILES_SAFETENSORS_H
#define LATHE_FILES_SAFETENSORS_H

#include "files/safetensors/st_tensor.h"
#include "lathe/status.h"

typedef struct lathe_safetensors lathe_safetensors;

/** Opens a .safetensors file (if it does not exist, the index FILE.index.json), an index
 *  (*.index.json), or a folder: its model.safetensors, else its model.safetensors.index.json with
 *  all shards.
 *
 *  Errors: LATHE_E_NOT_FOUND: a folder without either. LATHE_E_IO. LATHE_E_CORRUPT: a damaged file,
 *  a tensor in two shards, or an index that names a tensor that is not in its shard.
 *  LATHE_E_UNSUPPORTED: a dtype or rank that Lathe does not have.
 */
lathe_status lathe_safetensors_open(const char *path, lathe_safetensors **out);

/** Like lathe_safetensors_open, but the set also has the tensors whose dtype or rank Lathe does not
 *  support (lathe_st_tensor.header), which can be copied but not read. Folders of models hold some.
 */
lathe_status lathe_safetensors_open_all(const char *path, lathe_safetensors **out);

/** Opens the content of one file in memory, which must outlive the set; `name` is for messages. */
lathe_status lathe_safetensors_parse(const char *name, const void *data, int64_t bytes,
                                     lathe_safetensors **out);

/** Memory that another format needs beside its tensors, and how to check and free it. */
typedef struct lathe_st_owner {
    void *arg;
    lathe_status (*check)(const void *arg); /* as lathe_safetensors_check */
    void (*close)(void *arg);               /* called once, with the last holder */
} lathe_st_owner;

/** Makes a set of the tensors of another format. Copies the list; names, files and data belong to
 *  the owner. On failure the owner is not closed. LATHE_E_CORRUPT: two tensors have one name. */
lathe_status lathe_safetensors_make(const char *path, const lathe_st_tensor *tensors, int64_t n,
                                    const lathe_st_owner *owner, lathe_safetensors **out);

/** Keeps the set open until another lathe_safetensors_close; returns it. Not for several threads
 *  at once. */
lathe_safetensors *lathe_safetensors_hold(const lathe_safetensors *set);

/** Call it after the last read of tensors. LATHE_E_IO: a file became shorter or unreadable since it
 *  was opened, so the data that were read must not be used. */
lathe_status lathe_safetensors_check(const lathe_safetensors *set);

/** Unmaps everything when the last holder closes it; NULL is fine. */
void lathe_safetensors_close(lathe_safetensors *set);

/** The path that was opened, or the name of a parsed image: for messages. */
const char *lathe_safetensors_path(const lathe_safetensors *set);

/** Number of tensors; tensor i, sorted by name. */
int64_t lathe_safetensors_count(const lathe_safetensors *set);
const lathe_st_tensor *lathe_safetensors_at(const lathe_safetensors *set, int64_t i);

/** The tensor of that name, or NULL. */
const lathe_st_tensor *lathe_safetensors_find(const lathe_safetensors *set, const char *name);

/** Value of a key of __metadata__ (of the first file that has it), or NULL. */
const char *lathe_safetensors_metadata(const lathe_safetensors *set, const char *key);

#endif
