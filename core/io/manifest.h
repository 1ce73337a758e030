/* manifest.json of a folder: size and SHA-256 of every file, so that damage is found and named. */
#ifndef LATHE_IO_MANIFEST_H
#define LATHE_IO_MANIFEST_H

#include "lathe/status.h"

#define LATHE_MANIFEST_NAME "manifest.json"

/** Writes dir/manifest.json over all regular files below dir except itself:
 *      {"format": "lathe-manifest", "version": 1, "meta": ..., "files": {"path": {"bytes", "sha256"}}}
 *  meta_json: JSON text kept under "meta", or NULL. Files are hashed in parallel; the write is durable. */
lathe_status lathe_manifest_write(const char *dir, const char *meta_json);

/** Checks every file the manifest lists. LATHE_E_CORRUPT names the first (by path) that is missing,
 *  truncated or changed; LATHE_E_NOT_FOUND: no manifest. Files that are not listed are left alone. */
lathe_status lathe_manifest_verify(const char *dir);

/** The "meta" text of a folder's manifest (malloc'ed, NULL when there is none). */
lathe_status lathe_manifest_meta(const char *dir, char **out_json);

#endif
