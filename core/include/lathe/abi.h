/* The rules every table of the Lathe ABI obeys, and the macros that keep them.
 *
 *  - A table begins with `size`, the bytes its writer knew of. Tables only grow, at the end.
 *  - A reader asks LATHE_HAS(table, member) before use; absence has a meaning stated at the member.
 *  - Plain data that travels in arrays (lathe_field, lathe_value, lathe_desc, ...) never grows.
 *  - No bool, enum, size_t, varargs or struct-by-value in a signature. Counts and bytes are int64_t.
 *  - No tail padding: LATHE_ABI_SIZE pins the size of every struct on a 64-bit target.
 *
 * The comment of every function in a table begins with its call contract, the state in which it is called:
 *
 *    [any]      from any thread at any time
 *    [pure]     on the rank's thread at any time; the same arguments give the same answer, nothing else changes
 *    [open]     on the rank's thread while a run is opened, saved or closed; may allocate
 *    [build]    on the rank's thread while a graph is built; the graph and its values are borrowed until it returns
 *    [step]     on the rank's thread inside a step, an evaluation or a generated token: allocates nothing; with a stream,
 *               queues its work there, and memory stays borrowed until the stream has passed
 *    [between]  on the rank's thread between two steps, with nothing queued; may allocate
 *
 * Pointers given to a function are borrowed until it returns unless its comment says otherwise. Functions of one
 * instance are never called at the same time, but for [any].
 */
#ifndef LATHE_ABI_H
#define LATHE_ABI_H

#include <stddef.h>
#include <stdint.h>

/* Major version: part of the entry symbol's name. A change of it breaks every plugin. */
#define LATHE_ABI_MAJOR 1
/* Minor version: counts additions within the major; for information only, LATHE_HAS decides. */
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

/* Whether `table` reaches as far as `member` and the member is set. */
#define LATHE_HAS(table, member)                                                                   \
    ((table) != NULL &&                                                                            \
     (size_t)(table)->size >= (size_t)((const char *)&(table)->member - (const char *)(table)) +   \
                                  sizeof((table)->member) &&                                       \
     (table)->member != 0)

/* Pins a struct's size so that padding or reordering cannot slip into the ABI unseen. */
#define LATHE_ABI_SIZE(type, bytes)                                                                \
    LATHE_STATIC_ASSERT(sizeof(type) == (bytes), #type " changed its size: this breaks the ABI")

#endif
