/* Reads and compares the state of the process: signal handlers, current folder, locale, rounding,
 * umask, environment, open files, threads, and printing. */
#include "check/harness/process_state.h"

#include <dirent.h>
#include <fenv.h>
#include <locale.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#if defined(__x86_64__)
#include <xmmintrin.h>
#endif

#include "base/error.h"
#include "check/harness/imports.h"

extern char **environ;

static unsigned rounding(void)
{
#if defined(__x86_64__)
    return (unsigned)_mm_getcsr() & ~0x3fu; /* without the flags of past exceptions */
#else
    return (unsigned)fegetround();
#endif
}

static int64_t entries(const char *folder)
{
    int64_t n = 0;
    DIR *dir = opendir(folder);
    if (dir == NULL)
        return 0;
    for (const struct dirent *e = readdir(dir); e != NULL; e = readdir(dir))
        n += e->d_name[0] != '.';
    (void)closedir(dir);
    return n;
}

void lathe__process_state_read(lathe__process_state *out, int counts)
{
    memset(out, 0, sizeof *out);
    for (int i = 1; i < LATHE__N_SIGNALS; i++) {
        struct sigaction action;
        if (sigaction(i, NULL, &action) == 0)
            out->handlers[i] = action.sa_handler;
    }
    if (getcwd(out->folder, sizeof out->folder) == NULL)
        out->folder[0] = '\0';
    const char *locale = setlocale(LC_ALL, NULL);
    (void)snprintf(out->locale, sizeof out->locale, "%s", locale != NULL ? locale : "");
    out->rounding = rounding();
    out->umask = (unsigned)umask(0);
    (void)umask((mode_t)out->umask);
    out->environment = 5381;
    for (char **e = environ; e != NULL && *e != NULL; e++)
        for (const char *c = *e; *c != '\0'; c++)
            out->environment = out->environment * 33 + (unsigned char)*c;
    out->prints = lathe__imports_prints();
    if (counts) {
        out->descriptors = entries("/proc/self/fd");
        out->starts = lathe__imports_threads();
    }
}

lathe_status lathe__process_state_compare(const lathe__process_state *before,
                                          const lathe__process_state *after)
{
    for (int i = 1; i < LATHE__N_SIGNALS; i++)
        if (before->handlers[i] != after->handlers[i])
            return lathe_error(LATHE_E_PLUGIN, "it changed what happens on %s (signal %d)",
                               strsignal(i), i);
    if (strcmp(before->folder, after->folder) != 0)
        return lathe_error(LATHE_E_PLUGIN, "it changed the current folder to %s", after->folder);
    if (strcmp(before->locale, after->locale) != 0)
        return lathe_error(LATHE_E_PLUGIN, "it changed the locale from %s to %s", before->locale,
                           after->locale);
    if (before->rounding != after->rounding)
        return lathe_error(LATHE_E_PLUGIN,
                           "it changed how the processor rounds (control word 0x%x, was 0x%x)",
                           after->rounding, before->rounding);
    if (before->umask != after->umask)
        return lathe_error(LATHE_E_PLUGIN, "it changed the umask from %03o to %03o", before->umask,
                           after->umask);
    if (before->environment != after->environment)
        return lathe_error(LATHE_E_PLUGIN, "it changed the environment's variables");
    if (before->prints != after->prints)
        return lathe_error(LATHE_E_PLUGIN,
                           "it printed %lld times; a plugin speaks through host->log",
                           (long long)(after->prints - before->prints));
    if (before->starts != after->starts)
        return lathe_error(LATHE_E_PLUGIN,
                           "it started %lld threads; work is spread by host->parallel_for",
                           (long long)(after->starts - before->starts));
    if (before->descriptors != 0 && after->descriptors > before->descriptors)
        return lathe_error(LATHE_E_PLUGIN, "it left %lld files open",
                           (long long)(after->descriptors - before->descriptors));
    return LATHE_OK;
}

void lathe__process_state_restore(const lathe__process_state *s)
{
#if defined(__x86_64__)
    _mm_setcsr(s->rounding);
#endif
    for (int i = 1; i < LATHE__N_SIGNALS; i++) {
        struct sigaction action;
        if (sigaction(i, NULL, &action) == 0 && action.sa_handler != s->handlers[i])
            (void)signal(i, s->handlers[i]);
    }
    if (s->folder[0] != '\0' && chdir(s->folder) != 0)
        return;
    (void)umask((mode_t)s->umask);
    (void)setlocale(LC_ALL, s->locale);
}
