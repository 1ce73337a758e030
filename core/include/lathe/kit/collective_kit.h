/* Rules of exchanges that every engine needs: which problems are right, and the extents of ranks.
 *
 *     LATHE_TRY(lathe_exchange_check(host, problem, rank, n_ranks));
 *     const int64_t own = lathe_exchange_extent(problem, rank, n_ranks);
 */
#ifndef LATHE_KIT_COLLECTIVE_KIT_H
#define LATHE_KIT_COLLECTIVE_KIT_H

#include "lathe/collective.h"

/** "all_reduce", ...; "?" for an unknown op. */
static inline const char *lathe_exchange_name(int32_t op)
{
    static const char *const names[LATHE_N_EXCHANGES] = {
        "all_reduce", "reduce_scatter", "all_gather", "broadcast",
        "all_to_all", "send",           "receive",    "barrier"};
    return op >= 0 && op < LATHE_N_EXCHANGES ? names[op] : "?";
}

/** Whether exchanges have elements of this type. */
static inline int lathe_exchange_takes(int32_t dtype)
{
    return dtype == LATHE_F32 || dtype == LATHE_F64 || dtype == LATHE_BF16 || dtype == LATHE_F16 ||
           dtype == LATHE_I32 || dtype == LATHE_I64 || dtype == LATHE_U8;
}

/** Elements of rank q's extent of REDUCE_SCATTER or ALL_GATHER. */
static inline int64_t lathe_exchange_extent(const lathe_exchange_problem *p, int32_t q,
                                            int32_t n_ranks)
{
    return p->counts != NULL ? p->counts[q] : p->n / n_ranks;
}

/** Elements of all extents together; -1: one is negative, or the sum is above 2^62. */
static inline int64_t lathe_exchange_total(const int64_t *counts, int32_t n_ranks)
{
    int64_t total = 0;
    for (int32_t q = 0; q < n_ranks; q++) {
        if (counts[q] < 0 || counts[q] > (INT64_C(1) << 62) - total)
            return -1;
        total += counts[q];
    }
    return total;
}

/** Elements of the input of this rank. */
static inline int64_t lathe_exchange_in(const lathe_exchange_problem *p, int32_t rank,
                                        int32_t n_ranks)
{
    switch (p->op) {
    case LATHE_ALL_REDUCE:
    case LATHE_REDUCE_SCATTER:
    case LATHE_SEND:
        return p->n;
    case LATHE_ALL_GATHER:
        return lathe_exchange_extent(p, rank, n_ranks);
    case LATHE_BROADCAST:
        return rank == p->peer ? p->n : 0;
    case LATHE_ALL_TO_ALL:
        return lathe_exchange_total(p->counts, n_ranks);
    default:
        return 0;
    }
}

/** Elements of the output of this rank. */
static inline int64_t lathe_exchange_out(const lathe_exchange_problem *p, int32_t rank,
                                         int32_t n_ranks)
{
    switch (p->op) {
    case LATHE_ALL_REDUCE:
    case LATHE_ALL_GATHER:
    case LATHE_BROADCAST:
    case LATHE_RECEIVE:
        return p->n;
    case LATHE_REDUCE_SCATTER:
        return lathe_exchange_extent(p, rank, n_ranks);
    case LATHE_ALL_TO_ALL:
        return lathe_exchange_total(p->from, n_ranks);
    default:
        return 0;
    }
}

/** Bytes of scratch that an engine of shared/peer.h (mpi) needs to reduce an extent of own_bytes
 *  from n_ranks ranks: two rounds of pieces from the n_ranks - 1 others, of which one is received
 *  while the other is added. Pieces: lathe_exchange_piece. */
static inline int64_t lathe_exchange_piece(int32_t n_ranks)
{
    const int64_t least = 65536, most = 4194304, all = 8388608;
    const int64_t share = all / (n_ranks > 1 ? n_ranks - 1 : 1) / least * least;
    return share < least ? least : share < most ? share : most;
}

static inline int64_t lathe_exchange_scratch(int64_t own_bytes, int32_t n_ranks)
{
    const int64_t piece = lathe_exchange_piece(n_ranks);
    const int64_t slot = ((own_bytes < piece ? own_bytes : piece) + 63) / 64 * 64;
    return 2 * (n_ranks - 1) * slot;
}

static inline lathe_status lathe_exchange_check_extents(const lathe_host *host,
                                                        const lathe_exchange_problem *p,
                                                        int32_t n_ranks)
{
    const char *const name = lathe_exchange_name(p->op);
    if (p->op == LATHE_ALL_TO_ALL) {
        if (p->counts == NULL || p->from == NULL || lathe_exchange_total(p->counts, n_ranks) < 0 ||
            lathe_exchange_total(p->from, n_ranks) < 0)
            return lathe_fail(host, LATHE_E_ARG,
                              "all_to_all needs counts and from, with 0 or more elements per rank");
        return LATHE_OK;
    }
    if (p->from != NULL ||
        (p->counts != NULL && p->op != LATHE_REDUCE_SCATTER && p->op != LATHE_ALL_GATHER))
        return lathe_fail(host, LATHE_E_ARG, "%s has no extents per rank", name);
    if (p->counts != NULL && lathe_exchange_total(p->counts, n_ranks) != p->n)
        return lathe_fail(host, LATHE_E_ARG,
                          "the extents of %s are not numbers of 0 or more whose sum is n = %lld",
                          name, (long long)p->n);
    if (p->counts == NULL && (p->op == LATHE_REDUCE_SCATTER || p->op == LATHE_ALL_GATHER) &&
        p->n % n_ranks != 0)
        return lathe_fail(host, LATHE_E_ARG,
                          "%d ranks do not divide the %lld elements of %s; give each rank's extent",
                          n_ranks, (long long)p->n, name);
    return LATHE_OK;
}

/** Whether a problem of a group is right by itself; what other ranks ask for is not known here.
 *  LATHE_E_ARG, LATHE_E_DTYPE, LATHE_E_UNSUPPORTED (an op that this header does not have). */
static inline lathe_status lathe_exchange_check(const lathe_host *host,
                                                const lathe_exchange_problem *p, int32_t rank,
                                                int32_t n_ranks)
{
    const int reduces = p->op == LATHE_ALL_REDUCE || p->op == LATHE_REDUCE_SCATTER;
    const int pairs = p->op == LATHE_SEND || p->op == LATHE_RECEIVE;
    const char *const name = lathe_exchange_name(p->op);
    if (p->op < 0 || p->op >= LATHE_N_EXCHANGES)
        return lathe_fail(host, LATHE_E_UNSUPPORTED, "no exchange has the number %d", p->op);
    if (p->op != LATHE_BARRIER && !lathe_exchange_takes(p->dtype))
        return lathe_fail(host, LATHE_E_DTYPE,
                          "%s of %s: exchanges have f32, f64, bf16, f16, i32, i64 and u8", name,
                          lathe_dtype_name(p->dtype));
    if (p->reduce < 0 || p->reduce >= LATHE_N_REDUCES || (!reduces && p->reduce != 0))
        return lathe_fail(host, LATHE_E_ARG, "%s with the reduction %d", name, p->reduce);
    if (p->n < 0 || p->n > INT64_C(1) << 60 ||
        (p->n > 0 && (p->op == LATHE_BARRIER || p->op == LATHE_ALL_TO_ALL)))
        return lathe_fail(host, LATHE_E_ARG, "%s of %lld elements", name, (long long)p->n);
    if (p->peer < 0 || p->peer >= n_ranks || (pairs && p->peer == rank) ||
        (!pairs && p->op != LATHE_BROADCAST && p->peer != 0))
        return lathe_fail(host, LATHE_E_ARG, "%s with rank %d: this is rank %d of %d", name,
                          p->peer, rank, n_ranks);
    if (p->tag < 0 || p->tag > 32767 || (!pairs && p->tag != 0))
        return lathe_fail(host, LATHE_E_ARG, "%s with the tag %d", name, p->tag);
    return lathe_exchange_check_extents(host, p, n_ranks);
}

#endif
