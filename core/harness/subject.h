/* The plugin under check, and the functions that checks are written with. */
#ifndef LATHE_HARNESS_SUBJECT_H
#define LATHE_HARNESS_SUBJECT_H

#include "base/arena.h"
#include "base/toml.h"
#include "plug/select.h"

/* What a check returns beside LATHE_OK and errors: it does not apply here. */
enum { LATHE__SKIP = 1 };

typedef struct lathe__check lathe__check;

typedef struct lathe__subject {
    const lathe_component *component;
    const lathe_plugin *plugin;
    const void *table;
    lathe_arena arena; /* of the check that runs */
    struct lathe__guarded *guarded;
    const lathe_toml_node *settings; /* what the user set; NULL: nothing */
    const struct lathe__device_side
        *device;               /* device_side.h; NULL: checks run in the host's memory */
    const lathe__check *check; /* the one that runs */
    char note[256];            /* why it was skipped, or a figure worth printing */
} lathe__subject;

struct lathe__check {
    const char *name; /* "step_allocates_nothing" */
    lathe_status (*run)(lathe__subject *s);
    int32_t argument; /* for checks that share a function: an op */
};

/** Notes why and returns LATHE__SKIP. */
__attribute__((format(printf, 2, 3))) lathe_status lathe__skip(lathe__subject *s,
                                                               const char *format, ...);
/** Notes a figure; the check goes on. */
__attribute__((format(printf, 2, 3))) void lathe__note(lathe__subject *s, const char *format, ...);

/** Values of the schema: defaults, a value within its range for each required key, the user's
 *  settings over them, and `toml` over these (lines "key = value", NULL: none). LATHE_E_CONFIG with
 *  all that is wrong. */
lathe_status lathe__values(lathe__subject *s, const char *toml, const lathe_value **out);

/** The size that checks give a key which many model families have ("hidden_size"); 0: it is none of
 *  them. */
int64_t lathe__small_size(const char *key);

/** The same for any plugin, in an arena; settings: a table, or NULL. */
lathe_status lathe__values_of(const lathe_plugin *plugin, const lathe_toml_node *settings,
                              const char *toml, lathe_arena *arena, const lathe_value **out);

/** An instance with the defaults and the user's settings. lathe_instance_fini it. */
lathe_status lathe__instance(lathe__subject *s, lathe_instance *out);
/** The same with lines of TOML over them. */
lathe_status lathe__instance_with(lathe__subject *s, const char *toml, lathe_instance *out);

/** Heap blocks that the core took so far; default lathe_heap_allocations. A program that counts
 *  malloc itself sets its own counter before the first run. Calls that the plugin makes itself are
 *  counted in any case. */
extern int64_t (*lathe_conformance_heap)(void);

/** Heap blocks that the core and the plugin have taken so far. */
int64_t lathe__heap(void);

enum { LATHE__GUARD = 64 }; /* bytes on each side */

/** Guarded memory: [LATHE__GUARD][bytes][LATHE__GUARD], the middle aligned to 64. */
typedef struct lathe__guarded {
    struct lathe__guarded *next;
    unsigned char *middle;
    int64_t bytes;
    void *there;  /* its like in device memory, guards included; NULL: none */
    void *pinned; /* what middle lies in, where it is the device's host memory */
} lathe__guarded;

/** Zeroed 64-byte aligned memory with guards on both sides, until the check ends. */
void *lathe__memory(lathe__subject *s, int64_t bytes);
/** Makes a block of raw memory of at least bytes + 3 * LATHE__GUARD, as zeroed. */
lathe__guarded *lathe__guard(lathe__subject *s, unsigned char *raw, int64_t bytes);
/** LATHE_E_CORRUPT when something was written beside such memory. */
lathe_status lathe__guards(const lathe__subject *s);

/** n numbers in [-scale, scale), by seed. */
float *lathe__random(lathe__subject *s, int64_t n, uint64_t seed, double scale);

/** Bitwise equality. */
int lathe__same(const void *a, const void *b, int64_t bytes);

/** Runs body(arg) with a pool of n threads; the pool is as before afterwards. */
lathe_status lathe__with_threads(int32_t n_threads, lathe_status (*body)(void *arg), void *arg);

/** LATHE_E_PARSE when `write` does not give JSON, or breaks the protocol of capacities. */
typedef int64_t (*lathe__writer)(void *arg, char *out, int64_t capacity);
lathe_status lathe__check_json(lathe__subject *s, const char *what, lathe__writer write, void *arg);

#endif
