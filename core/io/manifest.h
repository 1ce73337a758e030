/* manifest.json of a folder: size and SHA-256 of every file, so that damage is found and named.
 *
 *   {
 *     "format": "lathe-manifest",
 *     "version": 2,
 *     "meta": ...,
 *     "files": {"state/run.json": {"bytes": 1012, "sha256": "<64 hex digits>"}, ...},
 *     "self": "<SHA-256 of all bytes before this line>"
 *   }
 *
 * The last two lines are byte for byte as above, so that no flipped bit of the manifest goes
 * unseen.
 */
#ifndef LATHE_IO_MANIFEST_H
#define LATHE_IO_MANIFEST_H

#include "base/buffer.h"
#include "base/hash.h"
#include "lathe/status.h"

#define LATHE_MANIFEST_NAME "manifest.json"

/** Writes dir/manifest.json over all regular files below dir except itself. meta_json: JSON text
 *  kept under "meta", or NULL. Files are hashed in parallel; the write is durable. */
lathe_status lathe_manifest_write(const char *dir, const char *meta_json);

/** Checks the manifest and every file it lists. LATHE_E_CORRUPT names the first (by path) that is
 *  missing, truncated or changed; LATHE_E_NOT_FOUND: no manifest. Files that are not listed are
 *  left alone. */
lathe_status lathe_manifest_verify(const char *dir);

/** A stretch of the file `path` (the folder's path, '/' and the name in the manifest) for memory of
 *  the caller's. */
typedef struct lathe_manifest_part {
    const char *path;
    lathe_file_part part;
} lathe_manifest_part;

/** The same in one pass with reading: parts, in the order of paths and offsets, are read to their
 *  places as their files are hashed. When the folder verifies they are there; else what is in their
 *  memory is undefined. LATHE_E_ARG: a part of a file that is not listed. */
lathe_status lathe_manifest_verify_read(const char *dir, const lathe_manifest_part *parts,
                                        int64_t n_parts);

/** One message per damaged file. */
typedef void (*lathe_damage_fn)(void *arg, const char *message);

/** The same for all files: every damaged one is reported. hashes 0: only what is there and how long
 *  it is. The status is that of the first; out_bytes (may be NULL): bytes of the listed files, as
 *  listed. */
lathe_status lathe_manifest_survey(const char *dir, int32_t hashes, lathe_damage_fn report,
                                   void *arg, int64_t *out_bytes);

/** The "meta" text of a folder's manifest (malloc'ed, NULL when there is none). */
lathe_status lathe_manifest_meta(const char *dir, char **out_json);

/** Ends a manifest's text with the "self" line over what it holds so far (up to "files":
 *  {...},\n). */
lathe_status lathe_manifest_seal(lathe_buffer *text);

#endif
