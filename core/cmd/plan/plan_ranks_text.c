/* The forecasts of lathe plan --ranks as tables and as JSON. */
#include <stdio.h>

#include "cmd/plan/plan_ranks.h"

/* A number of bytes such as "12.3 MB". */
static const char *bytes_text(double bytes, char *out, size_t size)
{
    static const char *const units[] = {"B", "KB", "MB", "GB", "TB"};
    int i = 0;
    for (; bytes >= 999.5 && i < 4; i++)
        bytes /= 1000.0;
    (void)snprintf(out, size, i ? "%.1f %s" : "%.0f %s", bytes, units[i]);
    return out;
}

static const char *seconds_text(double s, char *out, size_t size)
{
    if (s > 0.0 && s < 1.0)
        (void)snprintf(out, size, "%.3f ms", s * 1e3);
    else
        (void)snprintf(out, size, "%.3f s", s);
    return out;
}

/* Saving of a row over ddp, in bytes: those between islands where there are islands. 0: none. */
static double saving(const lathe_plan_ranks *x, int32_t i)
{
    const lathe_forecast *ddp = &x->rows[LATHE_FORECAST_DDP], *row = &x->rows[i];
    const int has_islands = x->setup.network.n_islands > 1;
    const double own = has_islands ? row->across : row->sent;
    return own > 0.0 ? (has_islands ? ddp->across : ddp->sent) / own : 0.0;
}

static int is_shown(const lathe_plan_ranks *x, int32_t i)
{
    return i != LATHE_FORECAST_HYBRID || x->setup.shard_ranks > 0;
}

static int trains(const lathe_plan_ranks *x, int32_t i)
{
    return lathe_forecast_is_built(i) && !x->refusal[0] && !x->why[i][0];
}

static const char *how_it_trains(const lathe_plan_ranks *x, int32_t i)
{
    return !trains(x, i) ? "not yet" : lathe_forecast_overlaps(i) ? "overlapped" : "in order";
}

/* Whether the memory is that of a rank's own plan, and not a prediction. */
static int is_exact(const lathe_plan_ranks *x, int32_t i)
{
    return x->is_planned[i];
}

/* "hybrid 8", "diloco int8". */
static const char *name_of(const lathe_plan_ranks *x, int32_t i, char *out, size_t size)
{
    if (i == LATHE_FORECAST_HYBRID)
        (void)snprintf(out, size, "%s %d", lathe_forecast_name(i), x->setup.shard_ranks);
    else
        (void)snprintf(out, size, "%s", lathe_forecast_name(i));
    return out;
}

static void put_network(const lathe_plan_ranks *x, lathe_buffer *b)
{
    const lathe_network *net = &x->setup.network;
    char text[32];
    lathe_buffer_printf(b, "ranks\n  %d ranks, each with a link of %.6g Mbit/s and %.6g ms",
                        net->n_ranks, net->link.bandwidth * 8e-6, net->link.latency * 1e3);
    if (net->n_islands > 1)
        lathe_buffer_printf(b, "; %d islands of %d, each with one of %.6g Mbit/s and %.6g ms",
                            net->n_islands, lathe_network_inside(net),
                            net->island_link.bandwidth * 8e-6, net->island_link.latency * 1e3);
    lathe_buffer_printf(b, "\n  a rank computes a step in %s (%s)",
                        seconds_text(x->seconds, text, sizeof text), x->from);
    lathe_buffer_printf(b, ", %.0f %% of it in backwards; %d micro-batch%s\n",
                        100.0 * x->run.backward, x->run.n_micro, x->run.n_micro == 1 ? "" : "es");
}

static void put_times(const lathe_plan_ranks *x, lathe_buffer *b)
{
    const int has_islands = x->setup.network.n_islands > 1;
    char t[6][32];
    lathe_buffer_printf(b, "  %-12s %-10s %10s%s %9s %12s %12s %12s %12s\n", "of a step", "trains",
                        "sent", has_islands ? "    across" : "", "ddp/sent", "exchange", "in order",
                        "overlapped", "exposed");
    for (int32_t i = 0; i < LATHE_N_FORECASTS; i++) {
        const lathe_forecast *r = &x->rows[i];
        if (!is_shown(x, i))
            continue;
        lathe_buffer_printf(b, "  %-12s %-10s %10s", name_of(x, i, t[0], sizeof t[0]),
                            how_it_trains(x, i), bytes_text(r->sent, t[1], sizeof t[1]));
        if (has_islands)
            lathe_buffer_printf(b, " %9s", bytes_text(r->across, t[1], sizeof t[1]));
        lathe_buffer_printf(b, " %9.1f %12s %12s %12s %12s\n", saving(x, i),
                            seconds_text(r->exchange, t[1], sizeof t[1]),
                            seconds_text(r->in_order, t[2], sizeof t[2]),
                            seconds_text(r->overlapped, t[3], sizeof t[3]),
                            seconds_text(r->overlapped - x->seconds, t[4], sizeof t[4]));
    }
    lathe_buffer_printf(
        b, "  diloco exchanges after every %d steps: %s with fp32, %s with int8\n",
        x->setup.inner_steps,
        seconds_text(x->rows[LATHE_FORECAST_DILOCO].outer_seconds, t[0], sizeof t[0]),
        seconds_text(x->rows[LATHE_FORECAST_DILOCO + 2].outer_seconds, t[1], sizeof t[1]));
}

/* The categories that the strategies change, the others together, and the peak. */
static void put_memory(const lathe_plan_ranks *x, lathe_buffer *b)
{
    const double mib = 1024.0 * 1024.0;
    char name[32];
    lathe_buffer_printf(b, "  %-12s %-10s %11s %10s %10s %10s %10s %11s\n", "memory, MiB", "",
                        "parameters", "gradients", "optimizer", "staging", "others", "peak");
    for (int32_t i = 0; i < LATHE_N_FORECASTS; i++) {
        const lathe_mem_bytes *m = &x->rows[i].memory;
        const int64_t outer = x->rows[i].outer_bytes;
        if (!is_shown(x, i) || i > LATHE_FORECAST_DILOCO)
            continue;
        const double peak = (double)x->peaks[i];
        const double shown = (double)(m->by[LATHE_MEM_PARAMETERS] + m->by[LATHE_MEM_GRADIENTS] +
                                      m->by[LATHE_MEM_OPTIMIZER] + m->by[LATHE_MEM_STAGING]);
        const int32_t is_diloco = i == LATHE_FORECAST_DILOCO;
        lathe_buffer_printf(
            b, "  %-12s %-10s %11.1f %10.1f %10.1f %10.1f %10.1f %11.1f\n",
            is_diloco ? "diloco" : name_of(x, i, name, sizeof name),
            is_exact(x, i) ? "exact" : "predicted", (double)m->by[LATHE_MEM_PARAMETERS] / mib,
            (double)m->by[LATHE_MEM_GRADIENTS] / mib, (double)m->by[LATHE_MEM_OPTIMIZER] / mib,
            (double)m->by[LATHE_MEM_STAGING] / mib,
            ((double)(lathe_mem_total(m) + outer) - shown) / mib, peak / mib);
    }
}

/* Which strategies fit train.memory_limit, and what would if none does. */
static void put_fit(const lathe_plan_ranks *x, lathe_buffer *b)
{
    char name[32];
    int32_t n = 0;
    if (!x->has_limit)
        return;
    for (int32_t i = 0; i < LATHE_N_FORECASTS; i++)
        if (x->is_planned[i] && !x->is_too_large[i] && is_shown(x, i))
            lathe_buffer_printf(b, "%s%s", n++ ? ", " : "  train.memory_limit is enough for ",
                                name_of(x, i, name, sizeof name));
    if (n > 0)
        lathe_buffer_puts(b, "\n");
    if (!x->fits_none)
        return;
    lathe_buffer_puts(b, "  train.memory_limit is too small for each of them; ");
    lathe_fit_put_options(&x->fit, b);
    lathe_buffer_puts(b, "\n");
}

void lathe_plan_ranks_text(const lathe_plan_ranks *x, lathe_buffer *out)
{
    put_network(x, out);
    if (x->refusal[0])
        lathe_buffer_printf(out, "  this run does not train on several ranks: %s\n", x->refusal);
    put_times(x, out);
    for (int32_t i = 0; i < LATHE_N_FORECASTS; i++)
        if (x->why[i][0])
            lathe_buffer_printf(out, "  %s does not train this run: %s\n", lathe_forecast_name(i),
                                x->why[i]);
    put_memory(x, out);
    put_fit(x, out);
    if (x->is_planned[LATHE_FORECAST_ZERO3])
        lathe_buffer_printf(out,
                            "  zero3 holds %lld bytes of weights whole on every rank: vectors, "
                            "which every layer reads, and what an adapter derives from weights\n",
                            (long long)x->whole_bytes);
}

static void put_link(const char *key, const lathe_link *link, lathe_buffer *b)
{
    lathe_buffer_printf(b, "\"%s\": {\"bytes_per_second\": %.9g, \"latency_seconds\": %.9g}", key,
                        link->bandwidth, link->latency);
}

static void put_row(const lathe_plan_ranks *x, int32_t i, lathe_buffer *b)
{
    const lathe_forecast *r = &x->rows[i];
    const double saved = saving(x, i);
    lathe_buffer_printf(
        b,
        "{\"name\": \"%s\", \"trains\": %s, \"overlaps\": %s, \"bytes_sent\": %.0f, "
        "\"bytes_across\": %.0f, ",
        lathe_forecast_name(i), trains(x, i) ? "true" : "false",
        lathe_forecast_overlaps(i) ? "true" : "false", r->sent, r->across);
    if (saved > 0.0)
        lathe_buffer_printf(b, "\"saving\": %.9g, ", saved);
    else
        lathe_buffer_puts(b, "\"saving\": null, ");
    lathe_buffer_printf(b,
                        "\"exchange_seconds\": %.9g, \"in_order_seconds\": %.9g, "
                        "\"overlapped_seconds\": %.9g, \"exposed_seconds\": %.9g, ",
                        r->exchange, r->in_order, r->overlapped, r->overlapped - x->seconds);
    if (i >= LATHE_FORECAST_DILOCO)
        lathe_buffer_printf(b,
                            "\"inner_steps\": %d, \"outer_seconds\": %.9g, \"outer_bytes\": %lld, ",
                            x->setup.inner_steps, r->outer_seconds, (long long)r->outer_bytes);
    if (i == LATHE_FORECAST_HYBRID)
        lathe_buffer_printf(b, "\"shard_ranks\": %d, ", x->setup.shard_ranks);
    if (i == LATHE_FORECAST_ZERO3 && is_exact(x, i))
        lathe_buffer_printf(b, "\"whole_bytes\": %lld, ", (long long)x->whole_bytes);
    if (x->has_limit && x->is_planned[i])
        lathe_buffer_printf(b, "\"fits\": %s, ", x->is_too_large[i] ? "false" : "true");
    lathe_buffer_printf(b, "\"memory_is_exact\": %s, \"memory\": {",
                        is_exact(x, i) ? "true" : "false");
    for (int32_t k = 0; k < LATHE_N_MEM; k++)
        lathe_buffer_printf(b, "\"%s\": %lld, ", lathe_mem_name(k), (long long)r->memory.by[k]);
    lathe_buffer_printf(b, "\"peak\": %lld}}", (long long)x->peaks[i]);
}

void lathe_plan_ranks_json(const lathe_plan_ranks *x, lathe_buffer *out)
{
    const lathe_network *net = &x->setup.network;
    int is_first = 1;
    lathe_buffer_printf(out, "  \"ranks\": {\"n\": %d, ", net->n_ranks);
    put_link("link", &net->link, out);
    if (net->n_islands > 1) {
        lathe_buffer_printf(out, ", \"islands\": %d, ", net->n_islands);
        put_link("island_link", &net->island_link, out);
    }
    lathe_buffer_puts(out, ", \"refusal\": ");
    if (x->refusal[0])
        lathe_buffer_json_string(out, x->refusal);
    else
        lathe_buffer_puts(out, "null");
    if (x->fits_none) {
        lathe_buffer_puts(out, ", \"would_fit\": ");
        lathe_fit_json(&x->fit, out);
    }
    lathe_buffer_printf(out,
                        ", \"compute_seconds\": %.9g, \"backward_share\": %.6g,\n"
                        "    \"strategies\": [",
                        x->seconds, x->run.backward);
    for (int32_t i = 0; i < LATHE_N_FORECASTS; i++) {
        if (!is_shown(x, i))
            continue;
        lathe_buffer_puts(out, is_first ? "\n      " : ",\n      ");
        put_row(x, i, out);
        is_first = 0;
    }
    lathe_buffer_puts(out, "]},\n");
}
