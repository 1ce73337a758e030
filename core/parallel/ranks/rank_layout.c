/* Finds the place of each rank, and makes the groups. */
#include "parallel/ranks/rank_layout.h"

#include <stdio.h>
#include <stdlib.h>

#include "base/error.h"

/* ---- what fits ---- */

int32_t lathe_layout_fewest_ranks(const lathe_layout_ask *ask)
{
    const int64_t n = ask->n_islands * (int64_t)(ask->shard_ranks > 0 ? ask->shard_ranks : 1);
    return (int32_t)(n < INT32_MAX ? n : INT32_MAX);
}

int32_t lathe_layout_most_ranks(int64_t max, const lathe_layout_ask *ask)
{
    const int64_t each = lathe_layout_fewest_ranks(ask);
    const int64_t n = max < INT32_MAX ? max / each * each : INT32_MAX / each * each;
    return (int32_t)n;
}

const char *lathe_layout_divisors(int32_t value, int32_t n, int32_t least, int32_t max, char *out,
                                  size_t bytes)
{
    int32_t below = (value < max ? value - 1 : max), above = value > least ? value + 1 : least;
    while (below >= least && n % below != 0)
        below--;
    while (above <= max && n % above != 0)
        above++;
    const int has_below = below >= least, has_above = above <= max;
    out[0] = '\0';
    if (has_below && has_above)
        (void)snprintf(out, bytes, "%d or %d", below, above);
    else if (has_below || has_above)
        (void)snprintf(out, bytes, "%d", has_below ? below : above);
    return out;
}

/* "; set it to 2 or 4, or start 3 ranks", for a value that does not divide n. */
static void put_advice(int32_t value, int32_t n, int32_t n_ranks, const lathe_layout_ask *ask,
                       char *out, size_t bytes)
{
    char fitting[32];
    const int32_t fewer = lathe_layout_most_ranks(n_ranks, ask);
    const int32_t start = fewer > 0 ? fewer : lathe_layout_fewest_ranks(ask);
    (void)lathe_layout_divisors(value, n, 2, n, fitting, sizeof fitting);
    (void)snprintf(out, bytes, "%s%s%s start %d ranks", fitting[0] ? "; set it to " : ";", fitting,
                   fitting[0] ? ", or" : "", start);
}

lathe_status lathe_layout_check(int32_t n_ranks, const lathe_layout_ask *ask, const char **out_key)
{
    const int32_t islands = ask->n_islands, n = ask->shard_ranks;
    char advice[96];
    *out_key = NULL;
    if (n_ranks % islands != 0) {
        *out_key = "diloco_islands";
        put_advice(islands, n_ranks, n_ranks, ask, advice, sizeof advice);
        return lathe_error(LATHE_E_CONFIG,
                           "parallel.diloco_islands is %d, and does not divide the %d ranks%s",
                           islands, n_ranks, advice);
    }
    const int32_t inside = n_ranks / islands;
    if (n > 0 && inside % n != 0) {
        *out_key = "shard_ranks";
        put_advice(n, inside, n_ranks, ask, advice, sizeof advice);
        return lathe_error(LATHE_E_CONFIG,
                           "parallel.shard_ranks is %d, and does not divide the %d ranks%s%s", n,
                           inside, islands > 1 ? " of an island" : "", advice);
    }
    return LATHE_OK;
}

void lathe_layout_count(const int32_t *hosts, const int32_t *locals, int32_t n,
                        int32_t *out_counted)
{
    for (int32_t r = 0; r < n; r++) {
        int32_t before = 0;
        for (int32_t q = 0; q < n; q++)
            before += hosts[q] < hosts[r] ||
                      (hosts[q] == hosts[r] &&
                       (locals[q] < locals[r] || (locals[q] == locals[r] && q < r)));
        out_counted[before] = r;
    }
}

int32_t lathe_layout_inside(const lathe_rank_layout *l)
{
    return l->n_copies * l->n_shard;
}

int32_t lathe_layout_rank(const lathe_rank_layout *l, int32_t island, int32_t copy, int32_t place)
{
    return l->world ? l->world[(island * l->n_copies + copy) * l->n_shard + place] : 0;
}

int32_t lathe_layout_member(const lathe_rank_layout *l, int32_t k)
{
    return l->world ? l->world[l->island_no * lathe_layout_inside(l) + k] : 0;
}

lathe_division_ask lathe_layout_division(const lathe_rank_layout *l, int32_t shard,
                                         int64_t bucket_bytes)
{
    const int divides = shard != LATHE_SHARD_NONE;
    return (lathe_division_ask){.shard = shard,
                                .rank = divides ? l->shard_no : l->copy_no,
                                .n_ranks = divides ? l->n_shard : l->n_copies,
                                .n_copies = divides ? l->n_copies : 1,
                                .bucket_bytes = bucket_bytes};
}

/* ---- making ---- */

/* Whether all ranks are one group, so that nothing depends on where they are. */
static int is_one_group(const lathe_rank_layout *l)
{
    const int32_t n = l->all->info.n_ranks;
    return l->n_shard == n || l->n_copies == n;
}

/* Fills in l->world by host. */
static lathe_status count_by_host(lathe_rank_layout *l)
{
    const lathe_group_info *info = &l->all->info;
    const int32_t n = info->n_ranks;
    const double own[2] = {info->host, info->local_rank}, *all = NULL;
    int32_t *hosts = calloc(2 * (size_t)n, sizeof *hosts);
    lathe_status status =
        hosts ? lathe_ranks_gather(l->all, own, 2, 1, &all)
              : lathe_error(LATHE_E_NOMEM, "no memory for the places of %d ranks", n);
    for (int32_t q = 0; status == LATHE_OK && q < n; q++) {
        hosts[q] = (int32_t)all[(int64_t)q * LATHE_RANK_NUMBERS];
        hosts[n + q] = (int32_t)all[(int64_t)q * LATHE_RANK_NUMBERS + 1];
    }
    if (status == LATHE_OK)
        lathe_layout_count(hosts, hosts + n, n, l->world);
    free(hosts);
    return status;
}

/* Fills in l->world, and the place of this rank. */
static lathe_status find_places(lathe_rank_layout *l)
{
    const int32_t n = l->all->info.n_ranks;
    l->world = calloc((size_t)n, sizeof *l->world);
    if (l->world == NULL)
        return lathe_error(LATHE_E_NOMEM, "no memory for the places of %d ranks", n);
    for (int32_t k = 0; k < n; k++)
        l->world[k] = k;
    if (!is_one_group(l))
        LATHE_TRY(count_by_host(l));
    for (int32_t k = 0; k < n; k++)
        if (l->world[k] == l->all->info.rank) {
            l->shard_no = k % l->n_shard;
            l->copy_no = k / l->n_shard % l->n_copies;
            l->island_no = k / l->n_shard / l->n_copies;
        }
    return LATHE_OK;
}

/* A group of n ranks. */
static lathe_status split(const lathe_rank_layout *l, int32_t n, int32_t color, int32_t key,
                          lathe_ranks **out)
{
    return n < 2 ? LATHE_OK : lathe_ranks_split(l->all, color, key, out);
}

static lathe_status make_groups(lathe_rank_layout *l)
{
    const int32_t inside = lathe_layout_inside(l), own = l->copy_no * l->n_shard + l->shard_no;
    if (l->n_islands == 1)
        l->island = l->all;
    else
        LATHE_TRY(split(l, inside, l->island_no, own, &l->island));
    if (is_one_group(l)) {
        *(l->n_shard > 1 ? &l->shard : &l->copies) = l->all;
        return LATHE_OK;
    }
    LATHE_TRY(
        split(l, l->n_shard, l->island_no * l->n_copies + l->copy_no, l->shard_no, &l->shard));
    LATHE_TRY(
        split(l, l->n_copies, l->island_no * l->n_shard + l->shard_no, l->copy_no, &l->copies));
    return split(l, l->n_islands, own, l->island_no, &l->others);
}

lathe_status lathe_rank_layout_create(lathe_ranks *all, int32_t n_ranks,
                                      const lathe_layout_ask *ask, lathe_rank_layout **out)
{
    const int32_t n = all ? all->info.n_ranks : n_ranks;
    const char *key;
    LATHE_TRY(lathe_layout_check(n, ask, &key));
    lathe_rank_layout *l = calloc(1, sizeof *l);
    if (l == NULL)
        return lathe_error(LATHE_E_NOMEM, "no memory for the places of ranks");
    const int32_t inside = n / ask->n_islands;
    l->all = all;
    l->n_islands = ask->n_islands;
    l->n_shard = ask->shard_ranks > 0 ? ask->shard_ranks : inside;
    l->n_copies = inside / l->n_shard;
    *out = l;
    if (all == NULL)
        return LATHE_OK;
    LATHE_TRY(find_places(l));
    return make_groups(l);
}

void lathe_rank_layout_destroy(lathe_rank_layout *l)
{
    if (l == NULL)
        return;
    lathe_ranks *const groups[] = {l->others, l->copies, l->shard, l->island};
    for (size_t i = 0; i < sizeof groups / sizeof *groups; i++)
        if (groups[i] != l->all)
            lathe_ranks_close(groups[i]);
    free(l->world);
    free(l);
}
