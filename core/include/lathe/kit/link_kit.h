/* A link between ranks: how long an exchange takes on it, and how people write its numbers.
 *
 *     seconds = rounds * latency + bytes / bandwidth
 *
 * bytes: what one rank sends (or receives, if that is more). A link is full duplex. Rounds are
 * those of algorithms along a ring, which send the fewest bytes; for R ranks:
 *
 *   all_reduce                    2 (R - 1)    2 (R - 1)/R n
 *   reduce_scatter, all_gather      (R - 1)      (R - 1)/R n
 *   broadcast                       (R - 1)                n
 *   all_to_all                      (R - 1)    what it sends
 *   send, receive                         1                n
 *   barrier                       log2 R, rounded up       0
 *
 * Source: the alpha-beta model of Hockney; Thakur, Rabenseifner and Gropp, "Optimization of
 * Collective Communication Operations in MPICH" (2005).
 */
#ifndef LATHE_KIT_LINK_KIT_H
#define LATHE_KIT_LINK_KIT_H

#include <stdlib.h>
#include <string.h>

#include "lathe/collective.h"

typedef struct lathe_link {
    double bandwidth; /* bytes/s in each direction, above 0 */
    double latency;   /* s per round, 0 or more */
} lathe_link;

/** Messages that follow one another in an exchange of n_ranks. */
static inline int32_t lathe_link_rounds(int32_t op, int32_t n_ranks)
{
    int32_t rounds = 0;
    if (n_ranks < 2)
        return 0;
    switch (op) {
    case LATHE_ALL_REDUCE:
        return 2 * (n_ranks - 1);
    case LATHE_SEND:
    case LATHE_RECEIVE:
        return 1;
    case LATHE_BARRIER:
        while (INT64_C(1) << rounds < n_ranks)
            rounds++;
        return rounds;
    default:
        return n_ranks - 1;
    }
}

/** The fewest bytes that a rank sends in an ALL_REDUCE, REDUCE_SCATTER or ALL_GATHER of `bytes`. */
static inline double lathe_link_bytes(int32_t op, double bytes, int32_t n_ranks)
{
    return bytes * (double)(n_ranks - 1) / (double)n_ranks * (op == LATHE_ALL_REDUCE ? 2.0 : 1.0);
}

static inline double lathe_link_seconds(const lathe_link *link, int32_t rounds, double bytes)
{
    return (double)rounds * link->latency + bytes / link->bandwidth;
}

typedef struct lathe_link_unit {
    const char *name;
    double factor;
} lathe_link_unit;

/* A number of at most 30 digits, then one of the units. Returns 0 if the text is something else. */
static inline int lathe_link_number(const char *text, size_t length, const lathe_link_unit *units,
                                    size_t n_units, double *out)
{
    char digits[32], *end;
    const size_t n = strspn(text, "0123456789.");
    if (n == 0 || n >= sizeof digits || n >= length)
        return 0;
    memcpy(digits, text, n);
    digits[n] = '\0';
    *out = strtod(digits, &end);
    if (*end != '\0' || digits[0] == '.' || digits[n - 1] == '.')
        return 0;
    for (size_t i = 0; i < n_units; i++)
        if (strlen(units[i].name) == length - n &&
            memcmp(text + n, units[i].name, length - n) == 0) {
            *out *= units[i].factor;
            return 1;
        }
    return 0;
}

#define LATHE_LINK_BANDWIDTHS "bit, Kbit, Mbit, Gbit, Tbit, B, KB, MB, GB or TB per second"
#define LATHE_LINK_TIMES "ns, us, ms or s"

/** Reads "10Gbit" or "1.25GB" as bytes/s. NULL, or what was expected. */
static inline const char *lathe_link_read_bandwidth(const char *text, size_t length, double *out)
{
    static const lathe_link_unit units[] = {
        {"bit", 0.125}, {"Kbit", 125.0}, {"Mbit", 125e3}, {"Gbit", 125e6}, {"Tbit", 125e9},
        {"B", 1.0},     {"KB", 1e3},     {"MB", 1e6},     {"GB", 1e9},     {"TB", 1e12}};
    if (!lathe_link_number(text, length, units, sizeof units / sizeof *units, out))
        return "expected a number with " LATHE_LINK_BANDWIDTHS ", such as 10Gbit";
    return *out > 0.0 && *out < 1e18 ? NULL : "expected a bandwidth above 0 and below 1e18 bytes/s";
}

/** Reads "0.2ms" as seconds. NULL, or what was expected. */
static inline const char *lathe_link_read_time(const char *text, size_t length, double *out)
{
    static const lathe_link_unit units[] = {{"ns", 1e-9}, {"us", 1e-6}, {"ms", 1e-3}, {"s", 1.0}};
    if (!lathe_link_number(text, length, units, sizeof units / sizeof *units, out))
        return "expected a number with " LATHE_LINK_TIMES ", such as 0.2ms";
    return *out <= 1e6 ? NULL : "expected at most 1000000s";
}

#endif
