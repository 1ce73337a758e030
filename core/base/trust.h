/* Who may change a file that is loaded as code, which runs with all rights of the user. */
#ifndef LATHE_BASE_TRUST_H
#define LATHE_BASE_TRUST_H

#include <sys/stat.h>

#include "lathe/status.h"

/** Refuses a file, open already, that its group or anyone may write, or that lies in a folder which
 *  anyone may write and which is not sticky. LATHE_E_PLUGIN, beginning with the path. */
lathe_status lathe_trust_file(const char *path, const struct stat *info);

/** Refuses a file or folder unless it and every folder above it belong to the user or to root and
 *  nobody else may write them. `path` is absolute and resolved (realpath).
 *
 *  The rule is that of sshd's StrictModes with one exception: a folder that others may write is
 *  accepted where it is sticky, such as /tmp, because there nobody can rename or replace what
 *  belongs to someone else, and the entry below it is checked for its owner. As in Debian's sshd, a
 *  folder that its group may write is accepted where the group has no member but the user.
 *  Errors  LATHE_E_PLUGIN: names the folder, why, and the command that mends it. */
lathe_status lathe_trust_path(const char *path);

#endif
