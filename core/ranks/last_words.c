/* How a run ends that fails. */
#include "ranks/last_words.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/hash.h"
#include "lathe/kit/launcher_kit.h"
#include "ranks/launcher_end.h"
#include "ranks/word_board.h"

/* Longest waits, in seconds: for ranks that compute until they see that this one has failed; for
 * others, when some are known to be gone; for those that have not joined; for a line to be printed.
 */
static const double agree_seconds = 5.0, gone_seconds = 1.0, apart_seconds = 1.0,
                    line_seconds = 2.0, end_seconds = 5.0;
enum { MOST_APART = 1024 }; /* ranks looked for if the launcher's number of them is wrong */

/* The end of this process's run. */
static struct ending {
    lathe_ranks *ranks; /* the group that was forsaken; NULL: none */
    lathe_rank_words *all;
    unsigned char *told;
    int32_t rank, n_ranks; /* 1: it is alone */
    int32_t by_files;      /* 1: ranks told each other by files */
    int32_t speaks;
} ending = {.n_ranks = 1};
static atomic_int is_over; /* this rank needs no more words */

/* ---- the verdict ---- */

static int is_better(const lathe_rank_words *x)
{
    return x->status != LATHE_OK && x->status != LATHE_E_RANK;
}

void lathe__verdict_find(const lathe_rank_words *all, const unsigned char *told, int32_t rank,
                         int32_t n_ranks, lathe_verdict *out)
{
    const int own = is_better(&all[rank]);
    int32_t best = rank, n_same = 0, n_before = 0, some_better = 0;
    for (int32_t q = 0; q < n_ranks; q++) {
        if (!told[q] || all[q].status == LATHE_OK)
            continue;
        const int better = is_better(&all[q]), same = all[q].text == all[rank].text;
        n_same += same;
        n_before += q < rank && better == own && (same || !own);
        some_better |= better;
        if (better > is_better(&all[best]) || (better == is_better(&all[best]) && q < best))
            best = q;
    }
    out->speaks = n_before == 0 && (own || !some_better);
    out->names_rank = own && n_same < n_ranks;
    out->status = all[best].status;
    out->rank = rank;
    out->n_ranks = n_ranks;
}

/* ---- agreeing ---- */

void lathe_ranks_forsake(lathe_ranks *ranks)
{
    if (!ranks)
        return;
    lathe__ranks_leave_data(ranks);
    ending.ranks = ranks;
}

int32_t lathe_ranks_are_forsaken(void)
{
    return ending.ranks != NULL;
}

int32_t lathe_ranks_are_ending(int32_t sender)
{
    char byte;
    if (getenv(LATHE_LAUNCH_VARIABLE) != NULL && sender == getppid())
        return 1;
    return atomic_load(&is_over) != 0 || lathe__board_get("spoken", 0, &byte, 1);
}

static double now(void)
{
    struct timespec t;
    (void)clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static void rest(void)
{
    const struct timespec pause = {0, 10000000};
    (void)nanosleep(&pause, NULL);
}

/* Tells the other ranks of the group. Returns 0 if the engine cannot. */
static int tell(lathe_rank_words own, double seconds)
{
    const lathe_collective_v1 *const table = ending.ranks ? ending.ranks->table : NULL;
    return LATHE_HAS(table, tell) &&
           table->tell(ending.ranks->group, &own, ending.all, ending.told, seconds) == LATHE_OK;
}

/* Tells ranks of this host by files. */
static void tell_apart(lathe_rank_words own)
{
    const double begun = now();
    memset(ending.told, 0, (size_t)ending.n_ranks);
    ending.all[ending.rank] = own;
    ending.told[ending.rank] = 1;
    ending.by_files = lathe__board_put("words", ending.rank, &own, (int64_t)sizeof own);
    for (int32_t n = 1; ending.by_files && n < ending.n_ranks && now() - begun < apart_seconds;) {
        rest();
        for (int32_t q = 0; q < ending.n_ranks; q++) {
            if (ending.told[q])
                continue;
            ending.told[q] = (unsigned char)lathe__board_get("words", q, &ending.all[q],
                                                             (int64_t)sizeof *ending.all);
            n += ending.told[q];
        }
    }
}

/* The number of this process and of all. */
static void find_place(void)
{
    int32_t n = 1;
    if (ending.ranks) {
        ending.rank = ending.ranks->info.rank;
        ending.n_ranks = ending.ranks->info.n_ranks;
        return;
    }
    const int32_t is_several = lathe_launcher_find(&n) != NULL && n != 1;
    ending.rank = is_several ? lathe_launcher_rank() : 0;
    ending.n_ranks = n > 0 ? n : MOST_APART;
    if (!is_several || ending.rank < 0 || ending.rank >= ending.n_ranks)
        ending.n_ranks = 1;
}

/* Whether the launcher's number of ranks is wrong. */
static int is_unknown(void)
{
    int32_t n = 1;
    return lathe_launcher_find(&n) != NULL && n == 0;
}

static double seconds_for(lathe_status status)
{
    const double most = status == LATHE_E_RANK ? gone_seconds : agree_seconds;
    return ending.ranks->deadline_seconds < most ? ending.ranks->deadline_seconds : most;
}

void lathe_ranks_last_words(lathe_status status, const char *text, lathe_verdict *out)
{
    const lathe_rank_words own = {.status = status,
                                  .text = lathe_hash64(text, (int64_t)strlen(text))};
    find_place();
    *out = (lathe_verdict){
        .speaks = 1, .rank = ending.rank, .n_ranks = ending.n_ranks, .status = status};
    if (ending.n_ranks == 1)
        return;
    ending.all = calloc((size_t)ending.n_ranks, sizeof *ending.all);
    ending.told = malloc((size_t)ending.n_ranks);
    if (!ending.all || !ending.told) {
        out->names_rank = 1;
        ending.n_ranks = 1;
        return;
    }
    memset(ending.told, 1, (size_t)ending.n_ranks);
    if (!ending.ranks || !tell(own, seconds_for(status)))
        tell_apart(own);
    lathe__verdict_find(ending.all, ending.told, ending.rank, ending.n_ranks, out);
    if (!ending.ranks && is_unknown())
        out->names_rank = 0;
    ending.speaks = out->speaks;
    if (!out->speaks)
        atomic_store(&is_over, 1);
}

/* ---- ending ---- */

/* Waits for the lines of other ranks that speak. */
static void wait_apart(void)
{
    const double begun = now();
    for (int32_t q = 0; q < ending.n_ranks; q++) {
        lathe_verdict v = {0};
        char byte = 0;
        if (ending.told[q])
            lathe__verdict_find(ending.all, ending.told, q, ending.n_ranks, &v);
        while (v.speaks && !lathe__board_get("said", q, &byte, 1) && now() - begun < line_seconds)
            rest();
    }
}

/* Whether no rank is starting MPI now: mpirun 4.1.4 sometimes hangs if it is asked to end the job
 * then, so that a rank that fails alone just exits. */
static int all_told(void)
{
    int32_t n = 0;
    for (int32_t q = 0; q < ending.n_ranks; q++)
        n += ending.n_ranks > 1 && ending.told[q];
    return n == ending.n_ranks;
}

/* Whether no lower rank has told that it ends. */
static int is_lowest(void)
{
    for (int32_t q = 0; ending.n_ranks > 1 && q < ending.rank; q++)
        if (ending.told[q])
            return 0;
    return 1;
}

static void wait_for_the_end(void)
{
    const double begun = now();
    while (now() - begun < end_seconds)
        rest();
}

void lathe_ranks_end(int32_t exit_code)
{
    int32_t n;
    atomic_store(&is_over, 1);
    if (!ending.ranks && (lathe_launcher_find(&n) == NULL || n == 1))
        return;
    if (ending.speaks) {
        (void)lathe__board_put("said", ending.rank, "", 1);
        (void)lathe__board_put("spoken", 0, "", 1);
    }
    if (ending.n_ranks > 1 && ending.by_files)
        wait_apart();
    else if (ending.n_ranks > 1 && ending.ranks)
        (void)tell((lathe_rank_words){.status = LATHE_OK}, line_seconds);
    const int may_ask = ending.ranks || all_told();
    if (may_ask && !is_lowest())
        wait_for_the_end(); /* several that ask at once have crashed mpirun 4.1.4 */
    else if ((!may_ask || !lathe__launcher_end(exit_code)) && ending.ranks)
        ending.ranks->table->abort(ending.ranks->group, exit_code);
}
