/* @NAME@: the group of one rank, whose exchanges are copies. Replace open() and the functions that
 * move data.
 *
 * The rules of exchanges that do not depend on the transport are in lathe/kit/collective_kit.h. */
#include <stdio.h>
#include <string.h>

#include <lathe/kit/collective_kit.h>
#include <lathe/plugin.h>

typedef struct instance {
    const lathe_host *host;
} instance;

struct lathe_group {
    const lathe_host *host;
};

struct lathe_exchange {
    const lathe_host *host;
    int64_t bytes; /* to copy */
};

static lathe_status create(const lathe_host *host, const lathe_value *values, int32_t n_values,
                           void **out_self)
{
    (void)values;
    (void)n_values;
    instance *const self = host->alloc((int64_t)sizeof *self);
    if (self == NULL)
        return lathe_fail(host, LATHE_E_NOMEM, "no memory for an instance of @NAME@");
    self->host = host;
    *out_self = self;
    return LATHE_OK;
}

static void destroy(void *self)
{
    if (self != NULL)
        ((instance *)self)->host->free(self);
}

static int32_t score(const lathe_collective_probe *probe, char *why, int64_t why_bytes)
{
    (void)snprintf(why, (size_t)why_bytes, "a group of one rank");
    return probe->host_memory ? LATHE_SCORE_PORTABLE : LATHE_SCORE_NO;
}

static lathe_status make_group(const lathe_host *host, lathe_group **out)
{
    lathe_group *const group = host->alloc((int64_t)sizeof *group);
    *out = group;
    if (group == NULL)
        return lathe_fail(host, LATHE_E_NOMEM, "no memory for a group");
    group->host = host;
    return LATHE_OK;
}

static lathe_status open_group(void *self, const lathe_collective_setup *setup, lathe_group **out)
{
    (void)setup; /* deadline_seconds bounds what you wait for here */
    return make_group(((instance *)self)->host, out);
}

static lathe_status info(const lathe_group *group, lathe_group_info *out)
{
    const lathe_group_info all = {.size = out->size,
                                  .n_ranks = 1,
                                  .n_local = 1,
                                  .n_hosts = 1,
                                  .flags = LATHE_GROUP_DETERMINISTIC | LATHE_GROUP_RANK_ORDER,
                                  .host_name = "this host",
                                  .engine = "@NAME@"};
    (void)group;
    memcpy(out, &all, out->size < sizeof all ? out->size : sizeof all);
    return LATHE_OK;
}

static lathe_status split(lathe_group *group, int32_t color, int32_t key, lathe_group **out)
{
    (void)key;
    *out = NULL;
    return color < 0 ? LATHE_OK : make_group(group->host, out);
}

static lathe_status close_group(lathe_group *group)
{
    if (group != NULL)
        group->host->free(group);
    return LATHE_OK;
}

static lathe_status prepare(lathe_group *group, const lathe_exchange_problem *problem,
                            lathe_exchange **out, lathe_exchange_info *out_info)
{
    const lathe_exchange_info all = {.size = out_info->size};
    *out = NULL;
    LATHE_TRY(lathe_exchange_check(group->host, problem, 0, 1));
    lathe_exchange *const x = group->host->alloc((int64_t)sizeof *x);
    if (x == NULL)
        return lathe_fail(group->host, LATHE_E_NOMEM, "no memory for an exchange");
    x->host = group->host;
    x->bytes = lathe_exchange_out(problem, 0, 1) * lathe_dtype_bytes(problem->dtype);
    memcpy(out_info, &all, out_info->size < sizeof all ? out_info->size : sizeof all);
    *out = x;
    return LATHE_OK;
}

static void exchange_destroy(lathe_exchange *x)
{
    if (x != NULL)
        x->host->free(x);
}

static lathe_status start(lathe_exchange *x, const lathe_exchange_args *args)
{
    if (x->bytes > 0 && args->out != args->in)
        memcpy(args->out, args->in, (size_t)x->bytes);
    return LATHE_OK;
}

static lathe_status test(lathe_exchange *x, int32_t *out_done)
{
    (void)x;
    *out_done = 1;
    return LATHE_OK;
}

static lathe_status wait(lathe_exchange *x, double deadline_seconds)
{
    (void)x;
    (void)deadline_seconds;
    return LATHE_OK;
}

static lathe_status traffic(const lathe_group *group, int64_t *out_sent, int64_t *out_received)
{
    (void)group;
    *out_sent = *out_received = 0;
    return LATHE_OK;
}

static void abort_all(lathe_group *group, int32_t exit_code)
{
    (void)group;
    (void)exit_code;
}

static const lathe_collective_v1 table = {
    .size = (uint32_t)sizeof table,
    .revision = LATHE_COLLECTIVE_REVISION,
    .score = score,
    .open = open_group,
    .info = info,
    .split = split,
    .close = close_group,
    .prepare = prepare,
    .exchange_destroy = exchange_destroy,
    .start = start,
    .test = test,
    .wait = wait,
    .traffic = traffic,
    .abort = abort_all,
};

const lathe_plugin LATHE_PLUGIN_ENTRY = {
    LATHE_PLUGIN_HEADER,     .kind = LATHE_KIND_COLLECTIVE,
    .revision = LATHE_COLLECTIVE_REVISION,
    .name = "@NAME@",        .version = "0.1.0",
    .summary = "the group of one rank",
    .source = "ours",        .license = "Apache-2.0",
    .table = &table,         .create = create,
    .destroy = destroy,
};
