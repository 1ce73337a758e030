/* Rounds, bytes and seconds of exchanges, against rings that are carried out here rank by rank. */
#include <criterion/criterion.h>
#include <math.h>

#include "parallel/ranks/network.h"

enum { N = 24, MAX = 12 }; /* elements, which all numbers of ranks below divide; ranks */

static double data[MAX][N];

/* Rings of `inside` ranks that follow each other by `step`; each rank passes one extent of n /
 * inside elements of [at, at + n) on in each round. Counts rounds, and elements that rank `first`
 * sends. */
typedef struct counted {
    int rounds, elements;
} counted;

static void ring(int first, int step, int inside, int at, int n, int adds, counted *out)
{
    const int length = n / inside;
    for (int round = 0; round + 1 < inside; round++) {
        double sent[MAX][N];
        for (int r = 0; r < inside; r++) { /* all at once */
            const int extent = ((adds ? r : r + 1) - round + 2 * inside) % inside;
            for (int i = 0; i < length; i++)
                sent[r][i] = data[first + r * step][at + extent * length + i];
        }
        for (int r = 0; r < inside; r++) {
            const int from = (r - 1 + inside) % inside;
            const int extent = ((adds ? from : from + 1) - round + 2 * inside) % inside;
            for (int i = 0; i < length; i++) {
                double *const to = &data[first + r * step][at + extent * length + i];
                *to = (adds ? *to : 0.0) + sent[from][i];
            }
        }
        out->rounds++;
        out->elements += length;
    }
}

static void fill(int n_ranks)
{
    for (int r = 0; r < n_ranks; r++)
        for (int i = 0; i < N; i++)
            data[r][i] = r * 100 + i;
}

static void expect_sums(int n_ranks)
{
    for (int r = 0; r < n_ranks; r++)
        for (int i = 0; i < N; i++)
            cr_assert_eq(data[r][i], n_ranks * (n_ranks - 1) / 2 * 100 + n_ranks * i,
                         "rank %d, element %d", r, i);
}

Test(network, a_ring_of_all_ranks_has_these_rounds_and_bytes)
{
    for (int n_ranks = 2; n_ranks <= MAX; n_ranks++) {
        const lathe_network net = {n_ranks, 1, {2.0, 10.0}, {0, 0}};
        counted scatter = {0, 0}, all = {0, 0};
        if (N % n_ranks != 0)
            continue;
        fill(n_ranks);
        ring(0, 1, n_ranks, 0, N, 1, &scatter);
        all = scatter;
        ring(0, 1, n_ranks, 0, N, 0, &all);
        expect_sums(n_ranks);
        const lathe_network_cost a =
            lathe_network_exchange(&net, LATHE_REDUCE_SCATTER, n_ranks, 1, N);
        const lathe_network_cost b = lathe_network_exchange(&net, LATHE_ALL_REDUCE, n_ranks, 1, N);
        cr_expect_float_eq(a.sent, scatter.elements, 1e-12);
        cr_expect_float_eq(b.sent, all.elements, 1e-12);
        cr_expect_float_eq(a.seconds, scatter.rounds * 10.0 + scatter.elements / 2.0, 1e-9);
        cr_expect_float_eq(b.seconds, all.rounds * 10.0 + all.elements / 2.0, 1e-9);
        cr_expect_eq(b.across, 0.0);
    }
}

/* 3 islands of 4: rings inside, rings of the ranks of one extent across, rings inside. */
Test(network, islands_reduce_inside_then_across)
{
    enum { ISLANDS = 3, INSIDE = 4, SHARE = N / INSIDE };
    const lathe_network net = {ISLANDS * INSIDE, ISLANDS, {2.0, 10.0}, {4.0, 1000.0}};
    counted inside = {0, 0}, across = {0, 0}, others = {0, 0};
    fill(ISLANDS * INSIDE);
    for (int k = 0; k < ISLANDS; k++)
        ring(k * INSIDE, 1, INSIDE, 0, N, 1, k == 0 ? &inside : &others);
    for (int r = 0; r < INSIDE; r++) { /* the rank has reduced the extent after its own */
        const int at = (r + 1) % INSIDE * SHARE;
        ring(r, INSIDE, ISLANDS, at, SHARE, 1, r == 0 ? &across : &others);
        ring(r, INSIDE, ISLANDS, at, SHARE, 0, r == 0 ? &across : &others);
    }
    for (int k = 0; k < ISLANDS; k++)
        ring(k * INSIDE, 1, INSIDE, 0, N, 0, k == 0 ? &inside : &others);
    expect_sums(ISLANDS * INSIDE);
    const lathe_network_cost cost =
        lathe_network_exchange(&net, LATHE_ALL_REDUCE, INSIDE, ISLANDS, N);
    cr_expect_float_eq(cost.across, across.elements, 1e-12);
    cr_expect_float_eq(cost.sent, inside.elements + across.elements, 1e-12);
    cr_expect_float_eq(cost.sent, 2.0 * 11 / 12 * N, 1e-12); /* as in one ring of 12 */
    cr_expect_float_eq(cost.seconds,
                       inside.rounds * 10.0 + inside.elements / 2.0 + across.rounds * 1000.0 +
                           INSIDE * across.elements / 4.0,
                       1e-9);
}

Test(network, one_rank_exchanges_nothing)
{
    const lathe_network net = {4, 4, {2.0, 10.0}, {4.0, 1000.0}};
    const lathe_network_cost cost = lathe_network_exchange(&net, LATHE_ALL_REDUCE, 1, 1, 1e9);
    cr_expect_eq(cost.sent, 0.0);
    cr_expect_eq(cost.seconds, 0.0);
    cr_expect_eq(lathe_link_rounds(LATHE_BARRIER, 1), 0);
    cr_expect_eq(lathe_link_rounds(LATHE_BARRIER, 2), 1);
    cr_expect_eq(lathe_link_rounds(LATHE_BARRIER, 5), 3);
    cr_expect_eq(lathe_link_rounds(LATHE_SEND, 64), 1);
}

Test(network, numbers_of_links_are_read_with_their_units)
{
    static const struct {
        const char *text;
        double want; /* bytes/s; negative: refused */
    } rows[] = {
        {"10Gbit", 1.25e9},
        {"100Mbit", 12.5e6},
        {"1.5GB", 1.5e9},
        {"9600bit", 1200.0},
        {"1B", 1.0},
        {"0Gbit", -1},
        {"0.0B", -1},
        {"10", -1},
        {"Gbit", -1},
        {"10gbit", -1},
        {"10Gb", -1},
        {"-1Gbit", -1},
        {"1.Gbit", -1},
        {".5Gbit", -1},
        {"1.2.3Gbit", -1},
        {"1e3Gbit", -1},
        {"10 Gbit", -1},
        {"", -1},
        {"10Gbit/s", -1},
        {"infGbit", -1},
        {"999999999999999999999999Tbit", -1},
        {"1000000000000000000000000000000000000bit", -1},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        double got = -1.0;
        const char *wrong = lathe_link_read_bandwidth(rows[i].text, strlen(rows[i].text), &got);
        cr_expect_eq(wrong != NULL, rows[i].want < 0, "%s", rows[i].text);
        if (wrong == NULL)
            cr_expect_float_eq(got, rows[i].want, 1e-9 * rows[i].want, "%s", rows[i].text);
    }
    double s;
    cr_expect_null(lathe_link_read_time("0.2ms", 5, &s));
    cr_expect_float_eq(s, 2e-4, 1e-18);
    cr_expect_null(lathe_link_read_time("0s", 2, &s));
    cr_expect_eq(s, 0.0);
    cr_expect_null(lathe_link_read_time("50us,more", 4, &s)); /* as long as its length says */
    cr_expect_float_eq(s, 5e-5, 1e-18);
    cr_expect_not_null(lathe_link_read_time("5m", 2, &s));
    cr_expect_not_null(lathe_link_read_time("5000000s", 8, &s));
}
