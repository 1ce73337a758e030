/* Writes and checks manifest.json of a folder: size and SHA-256 of every file, to find and name
 * damaged files.
 *
 *   {
 *     "format": "lathe-manifest",
 *     "version": 2,
 *     "meta": ...,
 *     "files": {"state/run.json": {"bytes": 1012, "sha256": "<64 hex digits>"}, ...},
 *     "self": "<SHA-256 of all bytes before this line>"
 *   }
 *
 * The last two lines must be exactly as above, so that every flipped bit of the manifest is
 * detected.
 */
#ifndef LATHE_FILES_MANIFEST_H
#define LATHE_FILES_MANIFEST_H

#include "files/safetensors/file_hashes.h"
#include "lathe/status.h"

#define LATHE_MANIFEST_NAME "manifest.json"

/** Writes dir/manifest.json for all regular files below dir except itself. meta_json: JSON text for
 *  "meta", or NULL. Files are hashed in parallel; the write is durable. */
lathe_status lathe_manifest_write(const char *dir, const char *meta_json);

/** 1: dir/manifest.json begins as Lathe writes it; other programs have files of this name, too. A
 *  damaged one of Lathe's still is its own. */
int32_t lathe_manifest_is_own(const char *dir);

/** Checks the manifest and every file in it. LATHE_E_CORRUPT names the first file (by path) that is
 *  missing, truncated or changed; LATHE_E_NOT_FOUND: no manifest. Files that are not listed are
 *  ignored. */
lathe_status lathe_manifest_verify(const char *dir);

/** A range of the file `path` (folder, '/' and the name in the manifest), to be read to the
 *  caller's memory. */
typedef struct lathe_manifest_part {
    const char *path;
    lathe_file_part part;
} lathe_manifest_part;

/** Verifies, and in the same pass reads parts (sorted by path and offset) to their destinations
 *  while their files are hashed. If verification fails, the destinations are undefined.
 *  LATHE_E_ARG: a part of a file that is not listed. */
lathe_status lathe_manifest_verify_read(const char *dir, const lathe_manifest_part *parts,
                                        int64_t n_parts);

/** Verifies and reports every damaged file. hashes 0: checks only existence and size. Returns the
 *  status of the first damaged file; out_bytes (may be NULL): total size of the files as listed. */
lathe_status lathe_manifest_survey(const char *dir, int32_t hashes, lathe_damage_fn report,
                                   void *arg, int64_t *out_bytes);

/** Compares the files of the manifest of `dir` that lie directly in it (prefix "") or in a folder
 *  of it (prefix "average/") and whose name `take` accepts. Files that have not changed since they
 *  were hashed are not read again (known_hashes.h). Errors as lathe_manifest_survey. */
lathe_status lathe_manifest_compare(const char *dir, const char *prefix,
                                    int32_t (*take)(const char *name), lathe_damage_fn report,
                                    void *arg);

/** The "meta" text of a folder's manifest (malloc'ed; NULL if there is none). */
lathe_status lathe_manifest_meta(const char *dir, char **out_json);

/** Writes the hash in the last line of the manifest of `dir`, after checking it. LATHE_E_CORRUPT.
 */
lathe_status lathe_manifest_self(const char *dir, char out_hex[65]);

/** Ends a manifest's text with the "self" line, computed over the text so far (up to "files":
 *  {...},\n). */
lathe_status lathe_manifest_seal(lathe_buffer *text);

#endif
