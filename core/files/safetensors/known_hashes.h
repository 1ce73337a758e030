/* SHA-256 of files that were hashed before and have not changed since.
 *
 * The weights of a model are compared with a manifest at every start that reads them; hashing 100
 * GB takes a minute. A file is known by device, inode, size, and the times of its last change of
 * content (mtime) and of its entry (ctime, which no program can set back), all in nanoseconds. What
 * was hashed in this process is remembered in memory; what is large is also kept in the file
 * `hashes` of the user's cache folder, $XDG_CACHE_HOME/lathe or ~/.cache/lathe. LATHE_CACHE names
 * another folder; "off": none.
 *
 *   lathe-hashes 1
 *   DEVICE INODE BYTES MTIME CTIME SHA-256          one line for each file, the newest last
 *   <SHA-256 of all bytes before this line>
 *
 * A file of another form, or one that cannot be written, is the same as none: then more is hashed.
 * A file that changed in the last two seconds is not kept, because a later change may get the same
 * times. Damage of the disk that changes no time stays unseen until the cache forgets the file;
 * lathe checkpoint verify and a run that resumes read every byte.
 *
 * Threads: any.
 */
#ifndef LATHE_FILES_KNOWN_HASHES_H
#define LATHE_FILES_KNOWN_HASHES_H

#include <sys/stat.h>

#include "lathe/status.h"

/** 1: out_hex is the SHA-256 that the file of this entry (by stat()) had. */
int32_t lathe__known_hash(const struct stat *of, char out_hex[65]);

/** Remembers the SHA-256 of a file. before, after: its entry when the hashing began and ended;
 * nothing is remembered if they differ. */
void lathe__known_hash_add(const struct stat *before, const struct stat *after, const char hex[65]);

/** Adds what is new to the file in the cache folder. */
void lathe__known_hashes_keep(void);

/** Forgets what this process remembers, for tests. */
void lathe__known_hashes_forget(void);

#endif
