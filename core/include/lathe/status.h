/* The result of a call that can fail, and the table of all error codes.
 *
 * A code gives the kind of error. The message (what was found, what was expected, where) is kept in
 * the calling thread's error record: plugins write it with lathe_host.fail, callers read it with
 * lathe_last_error.
 */
#ifndef LATHE_STATUS_H
#define LATHE_STATUS_H

#include "abi.h"

typedef int32_t lathe_status;

/*  X(code, value, meaning) */
#define LATHE_STATUS_TABLE(X)                                                                      \
    X(LATHE_OK, 0, "success")                                                                      \
    X(LATHE_E_ARG, -1, "invalid argument")                                                         \
    X(LATHE_E_NOMEM, -2, "out of memory")                                                          \
    X(LATHE_E_IO, -3, "input or output failed")                                                    \
    X(LATHE_E_PARSE, -4, "malformed input")                                                        \
    X(LATHE_E_CONFIG, -5, "invalid configuration")                                                 \
    X(LATHE_E_NOT_FOUND, -6, "not found")                                                          \
    X(LATHE_E_SHAPE, -7, "shapes do not agree")                                                    \
    X(LATHE_E_DTYPE, -8, "data types do not agree")                                                \
    X(LATHE_E_UNSUPPORTED, -9, "not supported here")                                               \
    X(LATHE_E_PLUGIN, -10, "plugin refused")                                                       \
    X(LATHE_E_CORRUPT, -11, "data is damaged")                                                     \
    X(LATHE_E_STATE, -12, "called in the wrong state")                                             \
    X(LATHE_E_NUMERIC, -13, "not a finite number")                                                 \
    X(LATHE_E_INTERRUPTED, -14, "interrupted")                                                     \
    X(LATHE_E_DEVICE, -15, "device failed")                                                        \
    X(LATHE_E_RANK, -16, "another rank failed")

/* An anonymous enum gives the constants; signatures carry lathe_status (int32_t). */
enum {
#define LATHE_X(code, value, meaning) code = (value),
    LATHE_STATUS_TABLE(LATHE_X)
#undef LATHE_X
};

/* Returns from the enclosing function when `expr` failed. */
#define LATHE_TRY(expr)                                                                            \
    do {                                                                                           \
        const lathe_status lathe_try_status_ = (expr);                                             \
        if (lathe_try_status_ != LATHE_OK)                                                         \
            return lathe_try_status_;                                                              \
    } while (0)

#endif
