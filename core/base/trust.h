/* Refuses files that others can change before they are loaded as code, because such code has all
 * rights of the user. lathe_trust_path checks a path before plugins are looked for in it;
 * lathe_trust_file checks the opened file just before it is loaded. */
#ifndef LATHE_BASE_TRUST_H
#define LATHE_BASE_TRUST_H

#include <sys/stat.h>

#include "lathe/status.h"

/** Refuses a file that its group or others can write to, or whose folder others can write to; a
 *  sticky folder is accepted. The owner is not checked. info: fstat() of the opened file.
 *  Errors  LATHE_E_PLUGIN: the message gives the path, the reason and the command that corrects it;
 *          LATHE_E_NOMEM */
lathe_status lathe_trust_file(const char *path, const struct stat *info);

/** Refuses a file or folder unless it and every folder above it belong to the user or to root and
 *  nobody else can write to them. `path` is absolute and resolved (realpath).
 *
 *  The rule is that of sshd's StrictModes with two exceptions. A sticky folder, such as /tmp, is
 *  accepted, because nobody can rename or replace the entries of another user in it; the owner of
 *  the entry itself is checked. As in Debian's sshd, a file or folder that the user's private group
 *  can write to is accepted: the user's primary group, of the user's name, without other members.
 *
 *  LATHE_E_PLUGIN: the message gives the path, the reason and, for wrong permissions, the chmod
 *  command. LATHE_E_NOMEM. */
lathe_status lathe_trust_path(const char *path);

#endif
