/* Joins the group of ranks, and exchanges numbers and texts. */
#include "parallel/ranks/ranks.h"

#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/hash.h"
#include "base/json/json.h"
#include "parallel/ranks/join_watch.h"

/* Waits for work of unknown length on another rank, such as preparing data. The engine still
 * notices that a rank has ended. */
#define LONG_WAIT 1e7

int32_t lathe_ranks_rank(const lathe_ranks *ranks)
{
    return ranks ? ranks->info.rank : 0;
}

int32_t lathe_ranks_count(const lathe_ranks *ranks)
{
    return ranks ? ranks->info.n_ranks : 1;
}

lathe_status lathe_ranks_run(lathe_ranks *ranks, lathe_exchange *exchange,
                             const lathe_exchange_args *args, int32_t waits)
{
    lathe_exchange_args given = *args;
    given.size = (uint32_t)sizeof given;
    LATHE_TRY(ranks->table->start(exchange, &given));
    return ranks->table->wait(exchange, waits ? LONG_WAIT : ranks->deadline_seconds);
}

static lathe_status prepare_gather(lathe_ranks *r)
{
    const int64_t n = (int64_t)r->info.n_ranks * LATHE_RANK_NUMBERS;
    lathe_exchange_info info = {.size = (uint32_t)sizeof info};
    const lathe_exchange_problem problem = {.size = (uint32_t)sizeof problem,
                                            .op = LATHE_ALL_GATHER,
                                            .dtype = LATHE_F64,
                                            .n = n,
                                            .label = "numbers of all ranks"};
    LATHE_TRY(r->table->prepare(r->group, &problem, &r->gather, &info));
    r->own = calloc(LATHE_RANK_NUMBERS, sizeof *r->own);
    r->others = calloc((size_t)n, sizeof *r->others);
    r->scratch = aligned_alloc(64, ((size_t)info.scratch_bytes + 127) / 64 * 64);
    return r->own && r->others && r->scratch
               ? LATHE_OK
               : lathe_error(LATHE_E_NOMEM, "no memory for the numbers of %d ranks",
                             r->info.n_ranks);
}

/* Joins the group, of the base first. */
static lathe_status join(lathe_ranks *r, int32_t (*stops)(void *arg), void *stops_arg)
{
    const lathe_collective_v1 *base = r->base.component ? r->base.table : NULL;
    lathe_collective_setup setup = {.size = (uint32_t)sizeof setup,
                                    .deadline_seconds = r->deadline_seconds,
                                    .stops = stops,
                                    .stops_arg = stops_arg};
    if (base)
        LATHE_TRY(base->open(r->base.self, &setup, &r->base_group));
    setup.base = base;
    setup.base_group = r->base_group;
    LATHE_TRY(r->table->open(r->engine.self, &setup, &r->group));
    return r->table->info(r->group, &r->info);
}

lathe_status lathe_ranks_open(lathe_instance *engine, lathe_instance *base, double deadline_seconds,
                              int32_t (*stops)(void *arg), void *stops_arg, lathe_ranks **out)
{
    lathe_ranks *r = calloc(1, sizeof *r);
    *out = NULL;
    if (r == NULL) {
        lathe_instance_fini(engine);
        if (base)
            lathe_instance_fini(base);
        return lathe_error(LATHE_E_NOMEM, "no memory for the group of ranks");
    }
    r->engine = *engine;
    *engine = (lathe_instance){.component = NULL};
    if (base) {
        r->base = *base;
        *base = (lathe_instance){.component = NULL};
    }
    r->table = r->engine.table;
    r->deadline_seconds = deadline_seconds;
    r->info.size = (uint32_t)sizeof r->info;
    lathe_join_watch *const watch =
        lathe_join_watch_begin(r->engine.component->plugin->name, deadline_seconds);
    lathe_status status = join(r, stops, stops_arg);
    lathe_join_watch_end(watch);
    r->data.table = r->table;
    r->data.group = r->group;
    r->data.info = r->info;
    if (status == LATHE_OK && r->info.n_ranks > 1)
        status = prepare_gather(r);
    if (status != LATHE_OK || r->info.n_ranks < 2) {
        lathe_ranks_close(r);
        return status;
    }
    *out = r;
    return LATHE_OK;
}

lathe_status lathe_ranks_split(lathe_ranks *ranks, int32_t color, int32_t key, lathe_ranks **out)
{
    lathe_ranks *r = calloc(1, sizeof *r);
    *out = NULL;
    if (r == NULL)
        return lathe_error(LATHE_E_NOMEM, "no memory for a group of ranks");
    r->table = ranks->table;
    r->deadline_seconds = ranks->deadline_seconds;
    r->info.size = (uint32_t)sizeof r->info;
    lathe_status status = r->table->split(ranks->group, color, key, &r->group);
    if (status != LATHE_OK)
        goto out;
    if ((status = r->table->info(r->group, &r->info)) != LATHE_OK)
        goto out;
    if ((status = lathe__ranks_split_data(ranks, color, key, r)) != LATHE_OK)
        goto out;
    status = prepare_gather(r);
out:
    if (status != LATHE_OK) {
        lathe_ranks_close(r);
        return status;
    }
    *out = r;
    return LATHE_OK;
}

void lathe_ranks_close(lathe_ranks *r)
{
    if (r == NULL)
        return;
    lathe__ranks_leave_data(r);
    if (r->gather)
        r->table->exchange_destroy(r->gather);
    const int is_closed = r->group == NULL || r->table->close(r->group) == LATHE_OK;
    lathe_instance_fini(&r->engine);
    if (r->base_group && is_closed)
        (void)((const lathe_collective_v1 *)r->base.table)->close(r->base_group);
    lathe_instance_fini(&r->base);
    free(r->own);
    free(r->others);
    free(r->scratch);
    free(r);
}

lathe_status lathe_ranks_gather(lathe_ranks *r, const double *numbers, int32_t n, int32_t waits,
                                const double **out_all)
{
    memset(r->own, 0, LATHE_RANK_NUMBERS * sizeof *r->own);
    memcpy(r->own, numbers, (size_t)n * sizeof *r->own);
    const lathe_exchange_args args = {.in = r->own, .out = r->others, .scratch = r->scratch};
    LATHE_TRY(lathe_ranks_run(r, r->gather, &args, waits));
    if (out_all)
        *out_all = r->others;
    return LATHE_OK;
}

lathe_status lathe_ranks_is_first(lathe_ranks *r, const char *text, int32_t *out)
{
    /* 52 bits: a double holds them */
    const double own = (double)(lathe_hash64(text, (int64_t)strlen(text)) >> 12), *all = NULL;
    *out = 1;
    if (r == NULL)
        return LATHE_OK;
    LATHE_TRY(lathe_ranks_gather(r, &own, 1, 1, &all));
    for (int32_t q = 0; q < r->info.rank; q++)
        *out &= all[(int64_t)q * LATHE_RANK_NUMBERS] != own;
    return LATHE_OK;
}

/* Gives every rank the n bytes of rank `root`. */
static lathe_status broadcast(lathe_ranks *r, int32_t root, char *data, int64_t n)
{
    lathe_exchange *exchange = NULL;
    lathe_exchange_info info = {.size = (uint32_t)sizeof info};
    const lathe_exchange_problem problem = {.size = (uint32_t)sizeof problem,
                                            .op = LATHE_BROADCAST,
                                            .dtype = LATHE_U8,
                                            .peer = root,
                                            .n = n,
                                            .label = "a text of one rank"};
    LATHE_TRY(r->table->prepare(r->group, &problem, &exchange, &info));
    void *scratch = aligned_alloc(64, ((size_t)info.scratch_bytes + 127) / 64 * 64);
    const lathe_exchange_args args = {
        .in = r->info.rank == root ? data : NULL, .out = data, .scratch = scratch};
    const lathe_status status = scratch ? lathe_ranks_run(r, exchange, &args, 0)
                                        : lathe_error(LATHE_E_NOMEM, "no memory for a text");
    if (status == LATHE_OK)
        r->table->exchange_destroy(exchange);
    free(scratch);
    return status;
}

/* Bytes of rank 0's text with its NUL. */
static lathe_status bytes_of_first(lathe_ranks *r, const char *text, int64_t *out)
{
    const double *all = NULL;
    const double own = r->info.rank == 0 ? (double)strlen(text) + 1.0 : 0.0;
    LATHE_TRY(lathe_ranks_gather(r, &own, 1, 0, &all));
    *out = (int64_t)all[0];
    return LATHE_OK;
}

lathe_status lathe_ranks_share_text(lathe_ranks *r, char *text, int64_t bytes)
{
    int64_t n = 0;
    LATHE_TRY(bytes_of_first(r, text, &n));
    if (n > bytes)
        return lathe_error(LATHE_E_ARG, "a text of %lld bytes from rank 0; expected at most %lld",
                           (long long)n - 1, (long long)bytes - 1);
    return broadcast(r, 0, text, n);
}

/* ---- comparing ---- */

static void put_value(const json_t *value, char *out, size_t bytes)
{
    char *text = value ? json_dumps(value, JSON_ENCODE_ANY | JSON_SORT_KEYS) : NULL;
    (void)snprintf(out, bytes, "%.*s", (int)(bytes > 200 ? 200 : bytes - 1),
                   text ? text : "not there");
    free(text);
}

/* Finds the first member of `first` or `own` that differs. path: [bytes] so far, in/out. Returns
 * whether there is one. */
static int find_difference(const json_t *first, const json_t *own, char *path, size_t bytes,
                           const json_t **out_first, const json_t **out_own)
{
    const size_t n = strlen(path);
    const char *key;
    json_t *value;
    if (!json_is_object(first) || !json_is_object(own)) {
        *out_first = first;
        *out_own = own;
        return first == NULL || own == NULL || !json_equal(first, own);
    }
    for (int turn = 0; turn < 2; turn++) {
        json_t *walked = turn == 0 ? (json_t *)(uintptr_t)first : (json_t *)(uintptr_t)own;
        json_object_foreach(walked, key, value)
        {
            (void)snprintf(path + n, bytes - n, "%s%s", n > 0 ? "." : "", key);
            if (find_difference(json_object_get(first, key), json_object_get(own, key), path, bytes,
                                out_first, out_own))
                return 1;
            path[n] = '\0';
        }
    }
    return 0;
}

/* Sets the message of a difference between this rank's object and that of rank 0; LATHE_OK: none.
 */
static lathe_status differs(const lathe_ranks *r, const char *first, const char *own)
{
    json_t *a = NULL, *b = NULL;
    const json_t *x = NULL, *y = NULL;
    char path[256] = "", there[256], here[256];
    lathe_status status = lathe_json_load("rank 0", first, (int64_t)strlen(first), &a);
    if (status == LATHE_OK)
        status = lathe_json_load("this rank", own, (int64_t)strlen(own), &b);
    if (status == LATHE_OK && find_difference(a, b, path, sizeof path, &x, &y)) {
        put_value(x, there, sizeof there);
        put_value(y, here, sizeof here);
        status = lathe_error(LATHE_E_RANK,
                             "rank %d of %d on host %s differs from rank 0: %s is %s, and %s on "
                             "rank 0; start all ranks with the same files and program",
                             r->info.rank, r->info.n_ranks, r->info.host_name, path, here, there);
    }
    json_decref(a);
    json_decref(b);
    return status;
}

lathe_status lathe_ranks_compare(lathe_ranks *r, const char *json)
{
    const double *all = NULL;
    int64_t n = 0;
    LATHE_TRY(bytes_of_first(r, json, &n));
    char *first = malloc((size_t)n);
    if (first == NULL)
        return lathe_error(LATHE_E_NOMEM, "no memory to compare ranks");
    if (r->info.rank == 0)
        memcpy(first, json, (size_t)n);
    lathe_status status = broadcast(r, 0, first, n);
    if (status != LATHE_OK) {
        free(first);
        return status;
    }
    const lathe_status own = differs(r, first, json);
    free(first);
    char said[1024] = "";
    (void)snprintf(said, sizeof said, "%s", own != LATHE_OK ? lathe_error_message() : "");
    const double flag = own != LATHE_OK;
    LATHE_TRY(lathe_ranks_gather(r, &flag, 1, 0, &all));
    int32_t q = 0;
    while (q < r->info.n_ranks && all[q * LATHE_RANK_NUMBERS] == 0.0)
        q++;
    if (q == r->info.n_ranks)
        return LATHE_OK;
    LATHE_TRY(broadcast(r, q, said, (int64_t)sizeof said)); /* all ranks say the same */
    said[sizeof said - 1] = '\0';
    return lathe_error(LATHE_E_CONFIG, "%s", said);
}
