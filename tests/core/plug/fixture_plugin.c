/* A plugin configured by macros: valid ones, and others with one fault each. */
#include <signal.h>

#include "lathe/device.h"
#include "lathe/optimizer.h"
#include "lathe/plugin.h"
#include "lathe/scheduler.h"

#ifdef FIXTURE_NO_SYMBOL
LATHE_EXPORT extern const int some_other_symbol;
const int some_other_symbol = 1;
#elif defined FIXTURE_ENTRY_FUNCTION
LATHE_EXPORT int lathe_plugin_v2(void);
int lathe_plugin_v2(void) __asm__("lathe_plugin_v1");
int lathe_plugin_v2(void)
{
    return 1;
}
#elif defined FIXTURE_ENTRY_SMALL
LATHE_EXPORT extern const int lathe_plugin_v2 __asm__("lathe_plugin_v1");
const int lathe_plugin_v2 = 1;
#else

#ifdef FIXTURE_TWO_SYMBOLS
LATHE_EXPORT int helper(void);
int helper(void)
{
    return 1;
}
#endif

#ifndef FIXTURE_MAJOR
#define FIXTURE_MAJOR LATHE_ABI_MAJOR
#endif
#ifndef FIXTURE_SIZE
#define FIXTURE_SIZE sizeof(lathe_plugin)
#endif
#ifndef FIXTURE_REVISION
#define FIXTURE_REVISION 1
#endif
#ifndef FIXTURE_FAMILY
#define FIXTURE_FAMILY NULL
#endif
#ifndef FIXTURE_DEFAULT
#define FIXTURE_DEFAULT "0.001"
#endif
#ifndef FIXTURE_KIND
#define FIXTURE_KIND LATHE_KIND_OPTIMIZER
#endif

#ifdef FIXTURE_NEEDS_LIBRARY
int lathe_fixture_gone(void);
int fixture_uses_library(void);
__attribute__((used)) int fixture_uses_library(void)
{
    return lathe_fixture_gone();
}
#endif

#ifdef FIXTURE_CALLS_EXIT
#include <stdlib.h>
void fixture_ends(void);
__attribute__((used)) void fixture_ends(void)
{
    exit(0);
}
#endif

#ifdef FIXTURE_SCORE
#undef FIXTURE_KIND
#define FIXTURE_KIND LATHE_KIND_DEVICE
static int32_t score(char *why, int64_t why_bytes)
{
    (void)snprintf(why, (size_t)why_bytes, "score %d", FIXTURE_SCORE);
    return FIXTURE_SCORE;
}
/* These functions are never called. */
static lathe_status info(void *self, lathe_device_info *out)
{
    (void)self, (void)out;
#ifdef FIXTURE_INFO_FAULTS
    (void)raise(SIGSEGV);
#endif
    return LATHE_OK;
}
static lathe_status alloc(void *self, int64_t bytes, int32_t memory, void **out)
{
    (void)self, (void)bytes, (void)memory, (void)out;
    return LATHE_E_NOMEM;
}
static void release(void *self, void *memory)
{
    (void)self, (void)memory;
}
static lathe_status copy(void *self, lathe_stream *stream, void *dst, const void *src,
                         int64_t bytes, int32_t direction)
{
    (void)self, (void)stream, (void)dst, (void)src, (void)bytes, (void)direction;
    return LATHE_E_UNSUPPORTED;
}
static lathe_status kernel_create(void *self, const lathe_kernel_problem *problem,
                                  lathe_kernel **out, int64_t *out_scratch_bytes)
{
    (void)self, (void)problem, (void)out, (void)out_scratch_bytes;
    return LATHE_E_UNSUPPORTED;
}
static void kernel_destroy(void *self, lathe_kernel *kernel)
{
    (void)self, (void)kernel;
}
static lathe_status kernel_run(void *self, lathe_kernel *kernel, const lathe_kernel_args *args)
{
    (void)self, (void)kernel, (void)args;
    return LATHE_E_UNSUPPORTED;
}
static const lathe_device_v1 table = {sizeof table,
                                      FIXTURE_REVISION,
                                      .score = score,
                                      .info = info,
                                      .alloc = alloc,
                                      .free = release,
                                      .copy = copy,
                                      .kernel_create = kernel_create,
                                      .kernel_destroy = kernel_destroy,
                                      .kernel_run = kernel_run};
#elif defined FIXTURE_SCHEDULER
#undef FIXTURE_KIND
#define FIXTURE_KIND LATHE_KIND_SCHEDULER
static double at(void *self, int64_t step, int64_t total, double base_lr, const double *state)
{
    (void)self, (void)step, (void)total, (void)state;
    return base_lr;
}
static const lathe_scheduler_v1 table = {sizeof table, FIXTURE_REVISION, .at = at};
#else
#ifndef FIXTURE_TABLE_SIZE
#define FIXTURE_TABLE_SIZE sizeof(lathe_optimizer_v1)
#endif
#ifndef FIXTURE_NULL /* name of a table member that is NULL */
#define FIXTURE_NULL cuda_image
#endif
static int32_t slots(void *self, const lathe_param_info *param, lathe_slot *out)
{
    (void)self, (void)param, (void)out;
    return 0;
}
static double base_lr(void *self)
{
    (void)self;
    return 0.001;
}
static lathe_status step(void *self, const lathe_optimizer_step *todo)
{
    (void)self, (void)todo;
    return LATHE_OK;
}
#pragma GCC diagnostic ignored "-Woverride-init"
static const lathe_optimizer_v1 table = {FIXTURE_TABLE_SIZE, FIXTURE_REVISION,
                                         .slots = slots,     .base_lr = base_lr,
                                         .step = step,       .FIXTURE_NULL = NULL};
#endif

static const lathe_field fields[] = {
    {"lr", LATHE_T_FLOAT, LATHE_FIELD_MIN_EXCLUSIVE, FIXTURE_DEFAULT, 0.0, 10.0, NULL, "1",
     "learning rate"},
    LATHE_FIELD_FLOAT("weight_decay", "0.1", 0.0, 1.0, "1", "decoupled weight decay"),
    LATHE_FIELD_INT("warmup_steps", "0", 0, 1e9, "steps", "steps of linear warm-up"),
    LATHE_FIELD_STRING("mode", "\"fast\"", "fast|exact", "how"),
};

static lathe_status create(const lathe_host *host, const lathe_value *values, int32_t n_values,
                           void **out_self)
{
    if (n_values != 4)
        return lathe_fail(host, LATHE_E_ARG, "%d values", n_values);
    if (values[1].f > values[0].f * 1000.0)
        return lathe_fail(host, LATHE_E_CONFIG, "weight_decay %g is too large for lr %g",
                          values[1].f, values[0].f);
    *out_self = host->alloc(8);
    return *out_self != NULL ? LATHE_OK : lathe_fail(host, LATHE_E_NOMEM, "out of memory");
}

static const lathe_host *freed_by;

static void destroy(void *self)
{
    freed_by = (const lathe_host *)self;
}

LATHE_EXPORT extern const lathe_plugin LATHE_PLUGIN_ENTRY;
const lathe_plugin LATHE_PLUGIN_ENTRY = {
    .size = (uint32_t)FIXTURE_SIZE,
    .abi_major = FIXTURE_MAJOR,
    .abi_minor = LATHE_ABI_MINOR,
    .kind = FIXTURE_KIND,
    .revision = FIXTURE_REVISION,
    .n_fields = 4,
    .name = FIXTURE_NAME,
    .family = FIXTURE_FAMILY,
    .version = "1.0.0",
    .summary = "a fixture",
    .source = "ours",
    .license = "MIT",
    .fields = fields,
    .table = &table,
    .create = create,
    .destroy = destroy,
};
#endif
