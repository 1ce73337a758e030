/* A rank for tests of engines: rank_program PLUGIN.so MODE DEADLINE. It repeats a sum, and the last
 * rank does what MODE says at the third repetition. A rank that gets an error prints it, and ends
 * the others.
 *
 *   sum     nothing
 *   kill    it kills itself
 *   stop    it stops itself
 *   sleep   it sleeps for longer than the deadline
 *   exit    it exits with 7 without a word
 *   differ  it prepares another exchange
 *   report  prints rank, local rank and host */
#include <signal.h>
#include <time.h>
#include <unistd.h>

#include "lathe/collective.h"
#include "lathe/kit/testing.h"

/* More than one piece of a reduction for 2 and 3 ranks. */
enum { N = 4000000, N_STEPS = 5, BAD_STEP = 3 };

static lathe_group *group;
static const lathe_collective_v1 *table;
static lathe_group_info info = {.size = (uint32_t)sizeof info};

static void expect(lathe_status status, int step)
{
    if (status == LATHE_OK)
        return;
    fprintf(stderr, "step %d: %s (%d)\n", step, lathe_test_message, status);
    fflush(stderr);
    const struct timespec pause = {0, 300000000}; /* until all have said their line */
    (void)nanosleep(&pause, NULL);
    if (group != NULL)
        table->abort(group, 3);
    _exit(3);
}

static void misbehave(const char *mode, double deadline)
{
    if (strcmp(mode, "kill") == 0)
        (void)raise(SIGKILL);
    if (strcmp(mode, "stop") == 0)
        (void)raise(SIGSTOP);
    if (strcmp(mode, "exit") == 0)
        _exit(7);
    if (strcmp(mode, "sleep") == 0)
        (void)sleep((unsigned)(deadline + 3.0));
}

static void steps(const char *mode, double deadline)
{
    static float in[N], out[N];
    const int is_last = info.rank == info.n_ranks - 1;
    const lathe_exchange_problem problem = {.size = (uint32_t)sizeof problem,
                                            .op = LATHE_ALL_REDUCE,
                                            .dtype = LATHE_F32,
                                            .n = is_last && strcmp(mode, "differ") == 0 ? N - 1 : N,
                                            .label = "gradients 1 of 1"};
    lathe_exchange_info what = {.size = (uint32_t)sizeof what};
    lathe_exchange *x;
    expect(table->prepare(group, &problem, &x, &what), 0);
    void *const scratch = lathe_test_alloc(what.scratch_bytes + 64);
    const lathe_exchange_args args = {
        .size = (uint32_t)sizeof args, .in = in, .out = out, .scratch = scratch};
    for (int step = 1; step <= N_STEPS; step++) {
        if (is_last && step == BAD_STEP)
            misbehave(mode, deadline);
        for (int i = 0; i < N; i++)
            in[i] = (float)(info.rank + step + i % 7);
        expect(table->start(x, &args), step);
        expect(table->wait(x, deadline), step);
        for (int i = 0; i < N; i++) {
            const int n = info.n_ranks;
            if (out[i] != (float)(n * (n - 1) / 2 + n * (step + i % 7))) {
                (void)snprintf(lathe_test_message, sizeof lathe_test_message, "element %d is %g", i,
                               (double)out[i]);
                expect(LATHE_E_NUMERIC, step);
            }
        }
    }
    table->exchange_destroy(x);
    free(scratch);
}

int main(int argc, char **argv)
{
    void *self = NULL;
    if (argc != 4)
        return 2;
    const double deadline = strtod(argv[3], NULL);
    const lathe_collective_setup setup = {.size = (uint32_t)sizeof setup,
                                          .deadline_seconds = deadline};
    (void)signal(SIGTERM, SIG_IGN); /* as a run, which ends in order */
    const lathe_plugin *const plugin = lathe_test_open(argv[1]);
    table = plugin->table;
    expect(lathe_test_create(plugin, "", &self), 0);
    expect(table->open(self, &setup, &group), 0);
    expect(table->info(group, &info), 0);
    if (strcmp(argv[2], "report") == 0)
        printf("rank %d of %d, local %d of %d, host %d of %d\n", info.rank, info.n_ranks,
               info.local_rank, info.n_local, info.host, info.n_hosts);
    else
        steps(argv[2], deadline);
    expect(table->close(group), 99);
    plugin->destroy(self);
    return 0;
}
