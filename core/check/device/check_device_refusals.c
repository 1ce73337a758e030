/* Checks that a device refuses ops, dtypes, shapes and enum values that it cannot know. */
#include <string.h>

#include "base/error.h"
#include "check/device/device_checks.h"
#include "check/device/device_session.h"

typedef struct wrong {
    const char *what;
    int32_t op, n_in, n_out;
    lathe_desc in[3], out[2];
} wrong;

#define T(dtype, rows, cols)                                                                       \
    {                                                                                              \
        dtype, 2,                                                                                  \
        {                                                                                          \
            rows, cols, 1, 1                                                                       \
        }                                                                                          \
    }

static const wrong problems[] = {
    {"op 1000", 1000, 2, 1, {T(LATHE_F32, 3, 5), T(LATHE_F32, 3, 5)}, {T(LATHE_F32, 3, 5)}},
    {"op -1", -1, 2, 1, {T(LATHE_F32, 3, 5), T(LATHE_F32, 3, 5)}, {T(LATHE_F32, 3, 5)}},
    {"swiglu of i64",
     LATHE_OP_SWIGLU,
     2,
     1,
     {T(LATHE_I64, 3, 5), T(LATHE_I64, 3, 5)},
     {T(LATHE_I64, 3, 5)}},
    {"add of dtype 99", LATHE_OP_ADD, 2, 1, {T(99, 3, 5), T(99, 3, 5)}, {T(99, 3, 5)}},
    {"linear of x [4,5] and W [3,6]",
     LATHE_OP_LINEAR,
     3,
     1,
     {T(LATHE_F32, 4, 5), T(LATHE_F32, 3, 6), {LATHE_ABSENT, 0, {1, 1, 1, 1}}},
     {T(LATHE_F32, 4, 3)}},
    {"add of [3,5] and [3,6]",
     LATHE_OP_ADD,
     2,
     1,
     {T(LATHE_F32, 3, 5), T(LATHE_F32, 3, 6)},
     {T(LATHE_F32, 3, 5)}},
    {"matmul of [4,5] and [6,3]",
     LATHE_OP_MATMUL,
     2,
     1,
     {T(LATHE_F32, 4, 5), T(LATHE_F32, 6, 3)},
     {T(LATHE_F32, 4, 3)}},
};

lathe_status lathe__refuses_wrong_problems(lathe__subject *s)
{
    lathe__session d;
    LATHE_TRY(lathe__session_init(&d, s));
    const lathe_op_attrs attrs = {.alpha = 1.0};
    lathe_status status = LATHE_OK;
    for (size_t i = 0; i < sizeof problems / sizeof problems[0] && status == LATHE_OK; i++) {
        const wrong *w = &problems[i];
        const lathe_kernel_problem problem = {.size = sizeof problem,
                                              .op = w->op,
                                              .attrs = &attrs,
                                              .in = w->in,
                                              .out = w->out,
                                              .n_in = w->n_in,
                                              .n_out = w->n_out,
                                              .may_overwrite = 1,
                                              .n_threads = 1};
        lathe_kernel *kernel = NULL;
        int64_t scratch = 0;
        lathe_error_clear();
        if (d.table->kernel_create(d.instance.self, &problem, &kernel, &scratch) == LATHE_OK) {
            d.table->kernel_destroy(d.instance.self, kernel);
            status = lathe_error(LATHE_E_PLUGIN, "makes a kernel for %s", w->what);
        } else if (lathe_error_message()[0] == '\0') {
            status = lathe_error(LATHE_E_PLUGIN, "refuses %s without a message", w->what);
        }
    }
    lathe_instance_fini(&d.instance);
    return status;
}

/* Numbers that are not in the enums of lathe/device.h. */
static lathe_status unknown_numbers(lathe__session *d, void *memory)
{
    char host[64] = "unchanged";
    void *unknown = NULL;
    lathe_error_clear();
    if (d->table->copy(d->instance.self, NULL, memory, host, (int64_t)sizeof host, 99) == LATHE_OK)
        return lathe_error(LATHE_E_PLUGIN, "copies in direction 99, which does not exist");
    if (lathe_error_message()[0] == '\0')
        return lathe_error(LATHE_E_PLUGIN, "refuses a copy in direction 99 without a message");
    if (d->table->alloc(d->instance.self, 64, 99, &unknown) == LATHE_OK) {
        d->table->free(d->instance.self, unknown);
        return lathe_error(LATHE_E_PLUGIN, "takes memory of kind 99, which does not exist");
    }
    if (d->table->alloc(d->instance.self, (int64_t)1 << 60, LATHE_MEM_DEVICE, &unknown) ==
        LATHE_OK) {
        d->table->free(d->instance.self, unknown);
        return lathe_error(LATHE_E_PLUGIN, "gives 2^60 bytes of memory");
    }
    return LATHE_OK;
}

lathe_status lathe__refuses_unknown_numbers(lathe__subject *s)
{
    lathe__session d;
    void *memory = NULL;
    LATHE_TRY(lathe__session_init(&d, s));
    lathe_status status = lathe__session_put(&d, NULL, 64, &memory);
    if (status == LATHE_OK)
        status = unknown_numbers(&d, memory);
    d.table->free(d.instance.self, memory);
    lathe_instance_fini(&d.instance);
    return status;
}
