/* How a failing run ends. */
#include "parallel/ranks/failure_report.h"

#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/hash.h"
#include "lathe/kit/launcher_kit.h"
#include "parallel/ranks/failure_files.h"
#include "parallel/ranks/launcher_end.h"

static const double agree_seconds = 5.0; /* for ranks that compute until they see the failure */
static const double gone_seconds = 1.0;  /* for the others, if some are known to be gone */
static const double files_seconds = 1.0; /* for ranks that have not joined */
static const double line_seconds = 2.0;  /* for a line to be printed */
static const double end_seconds = 5.0;   /* for a lower rank to end the job */
enum { MAX_RANKS = 1024 }; /* looked for if the launcher's number of ranks cannot be read */

/* How far this process is with its end. */
static struct ending {
    lathe_ranks *ranks; /* the group that was abandoned; NULL: none */
    lathe_rank_failure *all;
    unsigned char *told;
    int32_t rank, n_ranks; /* 1: it is alone */
    int32_t by_files;      /* 1: ranks told each other by files */
    int32_t prints;
    double save_seconds; /* rank 0 writes a checkpoint before it tells its reason; 0: it does not */
} ending = {.n_ranks = 1};
static atomic_int is_over; /* 1: this rank prints nothing more */

/* ---- the decision ---- */

static int is_better(const lathe_rank_failure *x)
{
    return x->status != LATHE_OK && x->status != LATHE_E_RANK;
}

void lathe__failure_decide(const lathe_rank_failure *all, const unsigned char *told, int32_t rank,
                           int32_t n_ranks, lathe_failure_decision *out)
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
    out->prints = n_before == 0 && (own || !some_better);
    out->names_rank = own && n_same < n_ranks;
    out->status = all[best].status;
    out->rank = rank;
    out->n_ranks = n_ranks;
}

/* ---- agreeing ---- */

void lathe_ranks_abandon(lathe_ranks *ranks)
{
    if (!ranks)
        return;
    lathe__ranks_leave_data(ranks);
    ending.ranks = ranks;
}

void lathe_ranks_expect_save(double seconds)
{
    ending.save_seconds = seconds;
}

int32_t lathe_ranks_are_abandoned(void)
{
    return ending.ranks != NULL;
}

int32_t lathe_ranks_have_said_why(void)
{
    char byte;
    return lathe__failure_file_read("ending", 0, &byte, 1);
}

int32_t lathe_ranks_are_ending(int32_t sender)
{
    if (getenv(LATHE_LAUNCH_VARIABLE) != NULL && sender == getppid())
        return 1;
    return atomic_load(&is_over) != 0 || lathe_ranks_have_said_why();
}

void lathe_ranks_hold_launcher(int32_t holds)
{
    if (getenv(LATHE_LAUNCH_VARIABLE) != NULL)
        (void)kill(getppid(), holds ? SIGSTOP : SIGCONT);
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

/* The engine of the run, or that under it, if it can tell. */
static const lathe_collective_v1 *teller(lathe_group **out_group)
{
    const lathe_ranks *const r = ending.ranks;
    const lathe_collective_v1 *const base = r && r->base_group ? r->base.table : NULL;
    *out_group = NULL;
    if (r && LATHE_HAS(r->table, tell)) {
        *out_group = r->group;
        return r->table;
    }
    if (!base || !LATHE_HAS(base, tell))
        return NULL;
    *out_group = r->base_group;
    return base;
}

/* Tells the other ranks of the group. Returns 0 if no other rank has told its reason because there
 * was an error, or because the engine cannot. */
static int tell(lathe_rank_failure own, double seconds)
{
    lathe_group *group;
    const lathe_collective_v1 *const table = teller(&group);
    int32_t n_told = 0;
    if (!table)
        return 0;
    const lathe_status status = table->tell(group, &own, ending.all, ending.told, seconds);
    for (int32_t q = 0; q < ending.n_ranks; q++)
        n_told += ending.told[q];
    return status == LATHE_OK || n_told > 1;
}

/* Tells ranks of this host by files. */
static void tell_by_files(lathe_rank_failure own)
{
    const double begun = now();
    memset(ending.told, 0, (size_t)ending.n_ranks);
    ending.all[ending.rank] = own;
    ending.told[ending.rank] = 1;
    ending.by_files = lathe__failure_file_write("reason", ending.rank, &own, (int64_t)sizeof own);
    for (int32_t n = 1; ending.by_files && n < ending.n_ranks && now() - begun < files_seconds;) {
        rest();
        for (int32_t q = 0; q < ending.n_ranks; q++) {
            if (ending.told[q])
                continue;
            ending.told[q] = (unsigned char)lathe__failure_file_read("reason", q, &ending.all[q],
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
    ending.n_ranks = n > 0 ? n : MAX_RANKS;
    if (!is_several || ending.rank < 0 || ending.rank >= ending.n_ranks)
        ending.n_ranks = 1;
}

/* Whether the launcher's number of ranks cannot be read. */
static int is_unknown(void)
{
    int32_t n = 1;
    return lathe_launcher_find(&n) != NULL && n == 0;
}

static double seconds_for(lathe_status status)
{
    const double max = ending.save_seconds > 0.0 ? ending.save_seconds
                       : status == LATHE_E_RANK  ? gone_seconds
                                                 : agree_seconds;
    return ending.ranks->deadline_seconds < max ? ending.ranks->deadline_seconds : max;
}

void lathe_ranks_agree_on_failure(lathe_status status, const char *text,
                                  lathe_failure_decision *out)
{
    const lathe_rank_failure own = {.status = status,
                                    .text = lathe_hash64(text, (int64_t)strlen(text))};
    find_place();
    *out = (lathe_failure_decision){
        .prints = 1, .rank = ending.rank, .n_ranks = ending.n_ranks, .status = status};
    if (ending.n_ranks == 1)
        return;
    ending.all = calloc((size_t)ending.n_ranks, sizeof *ending.all);
    ending.told = malloc((size_t)ending.n_ranks);
    if (!ending.all || !ending.told) {
        out->names_rank = 1;
        ending.prints = 1;
        ending.n_ranks = 1;
        return;
    }
    memset(ending.told, 1, (size_t)ending.n_ranks);
    if (!ending.ranks || !tell(own, seconds_for(status)))
        tell_by_files(own);
    lathe__failure_decide(ending.all, ending.told, ending.rank, ending.n_ranks, out);
    if (!ending.ranks && is_unknown())
        out->names_rank = 0;
    ending.prints = out->prints;
    if (!out->prints)
        atomic_store(&is_over, 1);
}

/* ---- ending ---- */

/* Waits for the lines of other ranks that speak. */
static void wait_by_files(void)
{
    const double begun = now();
    for (int32_t q = 0; q < ending.n_ranks; q++) {
        lathe_failure_decision v = {0};
        char byte = 0;
        if (ending.told[q])
            lathe__failure_decide(ending.all, ending.told, q, ending.n_ranks, &v);
        while (v.prints && !lathe__failure_file_read("printed", q, &byte, 1) &&
               now() - begun < line_seconds)
            rest();
    }
}

/* Whether every rank has told why it fails. Then none is in MPI_Init, where mpirun 4.1.4 sometimes
 * hangs if it is asked to end the job; else a rank that fails alone just exits. */
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
    lathe_ranks_hold_launcher(0); /* all is said */
    if (!ending.ranks && (lathe_launcher_find(&n) == NULL || n == 1))
        return;
    if (ending.prints) {
        (void)lathe__failure_file_write("printed", ending.rank, "", 1);
        (void)lathe__failure_file_write("ending", 0, "", 1);
    }
    if (ending.n_ranks > 1 && ending.by_files)
        wait_by_files();
    else if (ending.n_ranks > 1 && ending.ranks)
        (void)tell((lathe_rank_failure){.status = LATHE_OK}, line_seconds);
    const int may_ask = ending.ranks || all_told();
    if (may_ask && !is_lowest())
        wait_for_the_end(); /* several that ask at once have crashed mpirun 4.1.4 */
    else if ((!may_ask || !lathe__launcher_end(exit_code)) && ending.ranks)
        ending.ranks->table->abort(ending.ranks->group, exit_code);
}
