/* Rules for all tables of the Lathe ABI (structs of data and function pointers), and their macros.
 *
 *  - A table begins with `size`: sizeof(table) in the header that its writer was built with. New
 *    members are only added at the end.
 *  - A reader checks LATHE_HAS(table, member) before it uses a member. The member's comment says
 *    what its absence means.
 *  - Structs marked "plain data" (lathe_field, lathe_value, lathe_desc, ...) are stored in arrays
 *    and never grow.
 *  - Signatures use no bool, enum, size_t, varargs or struct by value. Counts and sizes in bytes
 *    are int64_t.
 *  - Structs have no tail padding. LATHE_ABI_SIZE fixes their sizes on a 64-bit target.
 *
 * The comment of every function in a table begins with its call contract: when it is called and
 * what it may do. The rank's thread is the one that calls the functions of the run (lathe.h).
 *
 *    [any]      from any thread at any time
 *    [pure]     on the rank's thread at any time; the same arguments give the same result, and
 *               nothing else changes
 *    [open]     on the rank's thread while a run is opened, saved or closed; may allocate
 *    [build]    on the rank's thread while a graph is built; the graph and its values are borrowed
 *               until the function returns
 *    [step]     on the rank's thread during a training step, an evaluation or the generation of a
 *               token; must not allocate. A function that gets a stream queues its work on that
 *               stream; the memory stays borrowed until the stream has finished this work
 *    [between]  on the rank's thread between two steps, while no work is queued; may allocate
 *
 * Pointers passed to a function are borrowed until it returns, unless its comment says otherwise.
 * The core never calls two functions of one instance at the same time, except [any] functions.
 */
#ifndef LATHE_ABI_H
#define LATHE_ABI_H

#include <stddef.h>
#include <stdint.h>

/* Major version: part of the entry symbol's name. A change of it breaks every plugin. */
#define LATHE_ABI_MAJOR 1
/* Minor version: counts additions within a major version. For information only; use LATHE_HAS. */
#define LATHE_ABI_MINOR 0

#ifdef __cplusplus
#define LATHE_EXTERN_C_BEGIN extern "C" {
#define LATHE_EXTERN_C_END }
#define LATHE_STATIC_ASSERT(cond, text) static_assert(cond, text)
#else
#define LATHE_EXTERN_C_BEGIN
#define LATHE_EXTERN_C_END
#define LATHE_STATIC_ASSERT(cond, text) _Static_assert(cond, text)
#endif

/* For the few functions that plugins also compile into CUDA kernels. */
#ifdef __CUDACC__
#define LATHE_HD __host__ __device__
#else
#define LATHE_HD
#endif

#define LATHE_EXPORT __attribute__((visibility("default")))
#define LATHE_MUST_USE __attribute__((warn_unused_result))

/* True if `table` is large enough to contain `member` and the member is not 0 or NULL. */
#define LATHE_HAS(table, member)                                                                   \
    ((table) != NULL &&                                                                            \
     (size_t)(table)->size >= (size_t)((const char *)&(table)->member - (const char *)(table)) +   \
                                  sizeof((table)->member) &&                                       \
     (table)->member != 0)

/* Fixes a struct's size at compile time, so that no accidental change breaks the ABI. */
#define LATHE_ABI_SIZE(type, bytes)                                                                \
    LATHE_STATIC_ASSERT(sizeof(type) == (bytes), #type " changed its size: this breaks the ABI")

#endif
