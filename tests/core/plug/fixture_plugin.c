/* A plugin shaped by macros: good ones, and each with one thing wrong. */
#include "lathe/device.h"
#include "lathe/optimizer.h"
#include "lathe/plugin.h"
#include "lathe/scheduler.h"

#ifdef FIXTURE_NO_SYMBOL
LATHE_EXPORT extern const int some_other_symbol;
const int some_other_symbol = 1;
#else

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
LATHE_EXPORT int fixture_uses_library(void);
int fixture_uses_library(void)
{
    return lathe_fixture_gone();
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
static const lathe_device_v1 table = {sizeof table, FIXTURE_REVISION, .score = score};
#else
#ifndef FIXTURE_TABLE_SIZE
#define FIXTURE_TABLE_SIZE sizeof(lathe_optimizer_v1)
#endif
/* Long enough for a scheduler's table too: nobody calls it. */
static const lathe_optimizer_v1 table = {FIXTURE_TABLE_SIZE, FIXTURE_REVISION, .slots = NULL};
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
