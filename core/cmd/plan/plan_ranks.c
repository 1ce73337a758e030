/* Reads the options of lathe plan --ranks. */
#include "cmd/plan/plan_ranks.h"

#include <string.h>

#include "base/error.h"
#include "parallel/ranks/rank_layout.h"

enum { MAX_RANKS = 1 << 20, MAX_STEPS = 1000000000, USUAL_SHARD = 8 };

/* Reads "10Gbit,0.2ms". */
static lathe_status read_link(const lathe_args *args, const char *name, lathe_link *out)
{
    const char *text = lathe_args_value(args, name), *comma = strchr(text, ',');
    if (!comma)
        return lathe_error(LATHE_E_ARG,
                           "%s is \"%s\", expected bandwidth and latency, such as 10Gbit,0.2ms",
                           name, text);
    const char *wrong = lathe_link_read_bandwidth(text, (size_t)(comma - text), &out->bandwidth);
    if (!wrong)
        wrong = lathe_link_read_time(comma + 1, strlen(comma + 1), &out->latency);
    return wrong ? lathe_error(LATHE_E_ARG, "%s is \"%s\": %s", name, text, wrong) : LATHE_OK;
}

static lathe_status read_islands(const lathe_args *args, lathe_network *net)
{
    int64_t n = 0;
    LATHE_TRY(lathe_args_int(args, "--islands", 2, net->n_ranks, 1, &n));
    net->n_islands = (int32_t)n;
    if ((n > 1) != (lathe_args_value(args, "--island-link") != NULL))
        return lathe_error(LATHE_E_ARG, n > 1
                                            ? "--islands needs --island-link, such as 100Mbit,50ms"
                                            : "--island-link has no effect without --islands");
    if (n == 1)
        return LATHE_OK;
    if (net->n_ranks % n != 0) {
        char fitting[32];
        const lathe_layout_ask ask = {.n_islands = (int32_t)n};
        (void)lathe_layout_divisors((int32_t)n, net->n_ranks, 2, net->n_ranks, fitting,
                                    sizeof fitting);
        return lathe_error(LATHE_E_ARG,
                           "%lld islands do not divide the %d ranks: give --islands %s, or "
                           "--ranks %d",
                           (long long)n, net->n_ranks, fitting,
                           lathe_layout_most_ranks(net->n_ranks, &ask));
    }
    return read_link(args, "--island-link", &net->island_link);
}

/* Ranks of a copy of the weights: given, or an island, or a divisor. */
static lathe_status read_shard(const lathe_args *args, lathe_forecast_setup *setup)
{
    const int32_t inside = lathe_network_inside(&setup->network);
    int64_t n = 0;
    LATHE_TRY(lathe_args_int(args, "--shard-ranks", 2, MAX_RANKS, 0, &n));
    if (n > 0 && (inside % n != 0 || n == setup->network.n_ranks)) {
        char fitting[32];
        const int32_t max_ranks = inside < setup->network.n_ranks ? inside : inside / 2;
        (void)lathe_layout_divisors((int32_t)n, inside, 2, max_ranks, fitting, sizeof fitting);
        return lathe_error(LATHE_E_ARG,
                           "--shard-ranks is %lld, expected a divisor of the %d ranks%s, and "
                           "fewer than all ranks: %s",
                           (long long)n, inside,
                           setup->network.n_islands > 1 ? " of an island" : "",
                           fitting[0] ? fitting : "there is none, so leave it out");
    }
    if (n == 0 && setup->network.n_islands > 1)
        n = inside;
    for (int32_t d = 2; n == 0 && setup->network.n_islands == 1 && d <= USUAL_SHARD; d++)
        if (inside % d == 0 && d < inside)
            setup->shard_ranks = d;
    if (n > 1)
        setup->shard_ranks = (int32_t)n;
    return LATHE_OK;
}

/* The time of computing: one of --step-time, --rate and --share. */
static lathe_status read_speed(const lathe_args *args, lathe_plan_ranks *out)
{
    static const lathe_link_unit units[] = {
        {"FLOP", 1.0},   {"MFLOP", 1e6},   {"GFLOP", 1e9},   {"TFLOP", 1e12},   {"PFLOP", 1e15},
        {"FLOP/s", 1.0}, {"MFLOP/s", 1e6}, {"GFLOP/s", 1e9}, {"TFLOP/s", 1e12}, {"PFLOP/s", 1e15}};
    const char *time = lathe_args_value(args, "--step-time");
    const char *rate = lathe_args_value(args, "--rate");
    if ((time != NULL) + (rate != NULL) + (lathe_args_value(args, "--share") != NULL) > 1)
        return lathe_error(LATHE_E_ARG, "give one of --step-time, --rate and --share");
    LATHE_TRY(lathe_args_float(args, "--share", 1e-6, 1.0, 0.5, &out->share));
    if (time) {
        const char *wrong = lathe_link_read_time(time, strlen(time), &out->seconds);
        if (wrong || out->seconds <= 0.0)
            return lathe_error(LATHE_E_ARG, "--step-time is \"%s\": %s", time,
                               wrong ? wrong : "expected a time above 0");
    }
    if (rate &&
        (!lathe_link_number(rate, strlen(rate), units, sizeof units / sizeof *units, &out->rate) ||
         out->rate <= 0.0))
        return lathe_error(LATHE_E_ARG,
                           "--rate is \"%s\": expected a number above 0 with FLOP/s, MFLOP/s, "
                           "GFLOP/s, TFLOP/s or PFLOP/s, such as 180TFLOP/s",
                           rate);
    return LATHE_OK;
}

lathe_status lathe_plan_ranks_read(const lathe_args *args, lathe_plan_ranks *out)
{
    static const char *const needs[] = {"--link",        "--islands",     "--island-link",
                                        "--shard-ranks", "--inner-steps", "--step-time",
                                        "--rate",        "--share"};
    int64_t n = 0;
    memset(out, 0, sizeof *out);
    LATHE_TRY(lathe_args_int(args, "--ranks", 2, MAX_RANKS, 0, &n));
    for (size_t i = 0; n == 0 && i < sizeof needs / sizeof *needs; i++)
        if (lathe_args_value(args, needs[i]))
            return lathe_error(LATHE_E_ARG, "%s has no effect without --ranks", needs[i]);
    if (n == 0)
        return LATHE_OK;
    lathe_network *net = &out->setup.network;
    net->n_ranks = (int32_t)n;
    if (!lathe_args_value(args, "--link"))
        return lathe_error(LATHE_E_ARG, "--ranks needs --link, such as --link 10Gbit,0.2ms");
    LATHE_TRY(read_link(args, "--link", &net->link));
    LATHE_TRY(read_islands(args, net));
    LATHE_TRY(read_shard(args, &out->setup));
    LATHE_TRY(lathe_args_int(args, "--inner-steps", 1, MAX_STEPS, 100, &n));
    out->setup.inner_steps = (int32_t)n;
    return read_speed(args, out);
}
