/* Describes the plugin that is checked, and declares the functions that all checks use. */
#ifndef LATHE_CHECK_SUBJECT_H
#define LATHE_CHECK_SUBJECT_H

#include "base/arena.h"
#include "base/toml.h"
#include "plug/select.h"

/* Returned by a check that does not apply to the plugin, instead of LATHE_OK or an error. */
enum { LATHE__SKIP = 1 };

typedef struct lathe__check lathe__check;

typedef struct lathe__subject {
    const lathe_component *component;
    const lathe_plugin *plugin;
    const void *table;
    lathe_arena arena; /* memory of the check that runs */
    struct lathe__guarded *guarded;
    const lathe_toml_node *settings;         /* values that the user set; NULL: none */
    const struct lathe__device_side *device; /* device_side.h; NULL: checks run in host memory */
    const struct lathe_op_source *ops;       /* where graphs find ops of plugins */
    const lathe__check *check;               /* the one that runs */
    char note[256];                          /* the reason for skipping, or a figure to print */
} lathe__subject;

struct lathe__check {
    const char *name; /* "step_allocates_nothing" */
    lathe_status (*run)(lathe__subject *s);
    int32_t argument; /* for checks that share a function: an op */
};

/** Notes the reason and returns LATHE__SKIP. */
__attribute__((format(printf, 2, 3))) lathe_status lathe__skip(lathe__subject *s,
                                                               const char *format, ...);
/** Notes a figure; the check goes on. */
__attribute__((format(printf, 2, 3))) void lathe__note(lathe__subject *s, const char *format, ...);

/** Values of the plugin's keys: the user's settings and `toml` (lines "key = value", NULL: none),
 *  which wins; for other keys the default, or a value within its range if the key is required.
 *  LATHE_E_CONFIG: the message lists all errors. */
lathe_status lathe__values(lathe__subject *s, const char *toml, const lathe_value **out);

/** The size that checks use for a key that many model families have ("hidden_size"); 0: the key is
 *  not one of these. */
int64_t lathe__small_size(const lathe_plugin *plugin, const char *key);

/** Like lathe__values, for any plugin and with memory from an arena. settings: a table, or NULL. */
lathe_status lathe__values_of(const lathe_plugin *plugin, const lathe_toml_node *settings,
                              const char *toml, lathe_arena *arena, const lathe_value **out);

/** Makes an instance with the defaults and the user's settings; the caller calls
 *  lathe_instance_fini. */
lathe_status lathe__instance(lathe__subject *s, lathe_instance *out);
/** Like lathe__instance, with lines of TOML that override the user's settings. */
lathe_status lathe__instance_with(lathe__subject *s, const char *toml, lathe_instance *out);

/** Counts the heap blocks that the core has taken so far; by default lathe_heap_allocations. A
 *  program that counts malloc itself sets its own counter before the first run. The plugin's own
 *  calls are counted in any case. */
extern int64_t (*lathe_conformance_heap)(void);

/** Number of heap blocks that the core and the plugin have taken so far. */
int64_t lathe__heap(void);

enum { LATHE__GUARD = 64 }; /* bytes on each side */

/** Guarded memory: [LATHE__GUARD][bytes][LATHE__GUARD], the middle aligned to 64. */
typedef struct lathe__guarded {
    struct lathe__guarded *next;
    unsigned char *middle;
    int64_t bytes;
    void *device; /* its copy in device memory, with guards; NULL: none */
    void *pinned; /* the device's host memory that contains it; NULL: other host memory */
} lathe__guarded;

/** Zeroed 64-byte aligned memory with guards on both sides, until the check ends. */
void *lathe__memory(lathe__subject *s, int64_t bytes);
/** Makes a guarded block in raw memory of at least bytes + 3 * LATHE__GUARD,
 *  whose content is kept. */
lathe__guarded *lathe__guard(lathe__subject *s, unsigned char *raw, int64_t bytes);
/** LATHE_E_CORRUPT: a guard of such memory was overwritten. */
lathe_status lathe__guards(const lathe__subject *s);

/** n numbers in [-scale, scale), by seed. */
float *lathe__random(lathe__subject *s, int64_t n, uint64_t seed, double scale);

/** Bitwise equality. */
int lathe__same(const void *a, const void *b, int64_t bytes);

/** Runs body(arg) with a thread pool of n threads, then restores the pool. */
lathe_status lathe__with_threads(int32_t n_threads, lathe_status (*body)(void *arg), void *arg);

/** LATHE_E_PARSE: `write` does not give JSON, or ignores the capacity. */
typedef int64_t (*lathe__writer)(void *arg, char *out, int64_t capacity);
lathe_status lathe__check_json(lathe__subject *s, const char *what, lathe__writer write, void *arg);

#endif
