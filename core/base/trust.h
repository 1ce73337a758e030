/* Checks who may change a file before it is loaded as code, because such code has all rights of
 * the user. */
#ifndef LATHE_BASE_TRUST_H
#define LATHE_BASE_TRUST_H

#include <sys/stat.h>

#include "lathe/status.h"

/** Refuses an open file that its group or other users may write, or whose folder other users may
 *  write unless it is sticky. LATHE_E_PLUGIN; the message begins with the path. */
lathe_status lathe_trust_file(const char *path, const struct stat *info);

/** Refuses a file or folder unless it and every folder above it belong to the user or to root and
 *  nobody else may write them. `path` is absolute and resolved (realpath).
 *
 *  The rule is that of sshd's StrictModes with one exception: a folder that others may write is
 *  accepted if it is sticky, as /tmp is: in a sticky folder nobody can rename or replace the
 *  entries of another user, and the owner of the entry itself is checked. As in Debian's sshd, a
 *  folder that its group may write is accepted if the user is the only member of the group.
 *  Errors  LATHE_E_PLUGIN: names the folder, the reason, and the command that corrects it. */
lathe_status lathe_trust_path(const char *path);

#endif
