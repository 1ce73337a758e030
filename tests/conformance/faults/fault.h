/* A plugin with one fault. FAULT_NAME is its name in list.txt and of its file; IS(name) is 1 only
 * in that plugin.
 *
 * This file has the faults that every kind can have: in its constant, in create() and destroy(),
 * and against the process. */
#ifndef LATHE_TEST_FAULT_H
#define LATHE_TEST_FAULT_H

#include <fcntl.h>
#include <fenv.h>
#include <locale.h>
#include <math.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "lathe/plugin.h"

#define IS(name) (__builtin_strcmp(FAULT_NAME, #name) == 0)

/* Like IS, and true for the fault in iterate() of a stage, too: rolls_crashes (fault_rolls.h). */
#define DOES(name) (IS(name) || __builtin_strcmp(FAULT_NAME, "rolls_" #name) == 0)

/* An instance of any kind. */
typedef struct instance {
    const lathe_host *host;
    double lr, factor;
    int64_t calls;
} instance;

static inline void crash(void)
{
    *(volatile int *)(uintptr_t)8 = 1;
}

static inline void hang(void)
{
    for (volatile int i = 1; i != 0;)
        (void)sleep(1);
}

static inline int recurse(volatile int *depth)
{
    volatile char page[4096];
    page[0] = (char)*depth;
    (*depth)++;
    return recurse(depth) + page[0];
}

static inline void *idle(void *arg)
{
    return arg;
}

/* Harms that a plugin may do to the process while it computes; each is a separate fault. */
static inline void misbehave(const lathe_host *host)
{
    if (DOES(crashes))
        crash();
    if (DOES(exits))
        exit(0);
    if (DOES(exits_at_once))
        (void)syscall(SYS_exit_group, 0); /* a name that the loader cannot see */
    if (DOES(aborts))
        abort();
    if (DOES(hangs))
        hang();
    if (DOES(spins))
        for (volatile int i = 1; i != 0;)
            ;
    if (DOES(recurses)) {
        volatile int depth = 0;
        (void)recurse(&depth);
    }
    if (DOES(prints))
        printf("a step\n");
    if (DOES(prints_errors))
        fprintf(stderr, "a step\n");
    if (DOES(takes_signals))
        (void)signal(SIGTERM, SIG_IGN);
    if (DOES(starts_threads)) {
        pthread_t thread;
        if (pthread_create(&thread, NULL, idle, NULL) == 0)
            (void)pthread_join(thread, NULL);
    }
    if (DOES(changes_rounding))
        (void)fesetround(FE_TOWARDZERO);
    if (DOES(changes_folder) && chdir("/") != 0)
        abort();
    if (DOES(changes_environment))
        (void)setenv("OMP_NUM_THREADS", "1", 1);
    if (DOES(changes_umask))
        (void)umask(0);
    if (DOES(leaves_files_open) && open("/dev/null", O_RDONLY) < 0)
        abort();
    if (DOES(mallocs)) {
        volatile char *memory = malloc(64);
        free((void *)memory);
    }
    if (DOES(reallocs)) {
        static void *memory;
        memory = realloc(memory, 64);
    }
    if (DOES(takes_host_memory))
        host->free(host->alloc(64));
}

static volatile double last_lr; /* a setting in static memory: that of the last instance */
static volatile int64_t n_created;

static inline lathe_status create(const lathe_host *host, const lathe_value *values,
                                  int32_t n_values, void **out_self)
{
    if (IS(creates_with_exit))
        exit(0);
    if (IS(creates_with_crash))
        crash();
    if (IS(creates_with_hang))
        hang();
    if (IS(crashes_on_a_setting) && n_values > 0 && values[0].f > 4.0)
        crash();
    if (IS(hangs_on_a_setting) && n_values > 0 && values[0].f > 4.0)
        hang();
    if (IS(refuses_defaults))
        return lathe_fail(host, LATHE_E_CONFIG, "lr is not to my liking");
    if (IS(refuses_in_silence) && n_values > 0 && values[0].f != 0.01)
        return LATHE_E_CONFIG;
    if (IS(create_sets_a_global))
        last_lr = n_values > 0 ? values[0].f : 0.01;
    if (IS(create_counts_in_a_global))
        n_created++;
    instance *x = host->alloc((int64_t)sizeof *x);
    if (x == NULL)
        return lathe_fail(host, LATHE_E_NOMEM, "no memory");
    *x = (instance){host, n_values > 0 ? values[0].f : 0.01, 1.0, 0};
    *out_self = x;
    return LATHE_OK;
}

static inline void destroy(void *self)
{
    if (IS(destroys_null_badly) && self == NULL)
        crash();
    if (IS(destroys_twice) && self != NULL)
        free(self);
    if (self != NULL)
        ((instance *)self)->host->free(self);
}

__attribute__((unused)) static const lathe_field fields[] = {
    {"lr", IS(field_of_unknown_type) ? 99 : LATHE_T_FLOAT, 0,
     IS(default_out_of_range) ? "99" : "0.01", 0, 10, NULL, "1",
     IS(field_without_doc) ? "" : "learning rate"},
    {IS(same_key_twice)    ? "lr"
     : IS(key_is_name)     ? "name"
     : IS(key_in_capitals) ? "Spare"
                           : "spare",
     LATHE_T_FLOAT, 0, "0.5", 0, 1, NULL, "1", "unused"},
};

#ifndef FAULT_N_FIELDS
#define FAULT_N_FIELDS 2
#endif
#define FAULT_CREATE create
#define FAULT_FIELDS fields
#define FAULTY_PLUGIN(plugin_kind, plugin_revision, plugin_table)                                  \
    LATHE_EXPORT const lathe_plugin LATHE_PLUGIN_ENTRY = {                                         \
        .size = IS(constant_too_short) ? 40 : sizeof(lathe_plugin),                                \
        .abi_major = IS(other_abi) ? 7 : LATHE_ABI_MAJOR,                                          \
        .abi_minor = LATHE_ABI_MINOR,                                                              \
        .kind = IS(kind_unknown) ? 99 : plugin_kind,                                               \
        .revision = IS(revision_unknown) ? 99 : plugin_revision,                                   \
        .n_fields = IS(negative_fields) ? -3 : FAULT_N_FIELDS,                                     \
        .name = IS(no_name)      ? NULL                                                            \
                : IS(other_name) ? "somebody_else"                                                 \
                                 : FAULT_NAME,                                                     \
        .version = IS(no_version)    ? NULL                                                        \
                   : IS(odd_version) ? "one"                                                       \
                                     : "0.1.0",                                                    \
        .summary = IS(no_summary)         ? NULL                                                   \
                   : IS(summary_of_lines) ? "two\nlines"                                           \
                                          : "a fixture",                                           \
        .source = IS(no_source) ? NULL : "ours",                                                   \
        .license = IS(no_license) ? NULL : "MIT",                                                  \
        .fields = IS(null_fields) ? NULL : FAULT_FIELDS,                                           \
        .table = IS(null_table) ? NULL : plugin_table,                                             \
        .create = FAULT_CREATE,                                                                    \
        .destroy = destroy,                                                                        \
    }

#endif
