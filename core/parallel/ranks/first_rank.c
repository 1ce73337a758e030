/* Knows the process of rank 0. */
#include "parallel/ranks/first_rank.h"

#include <stdatomic.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/process.h"
#include "parallel/ranks/failure_report.h"

/* Numbers that rank 0 tells; a double holds integers up to 53 bits, so a number of 64 takes two. */
enum { HOST, PID, BORN, DEVICE, FILE_HIGH = DEVICE + 2, N_TOLD = FILE_HIGH + 2 };

/* A process is one rank of one run at a time. */
static struct first_rank {
    int64_t pid, born;
    uint64_t device, file; /* of its lock; 0: none */
} first;
static atomic_int is_seen; /* 1: `first` is set, and this rank is another one of its host */

static void put_halves(uint64_t x, double out[2])
{
    out[0] = (double)(x >> 32);
    out[1] = (double)(x & UINT32_MAX);
}

static uint64_t of_halves(const double x[2])
{
    return (uint64_t)x[0] << 32 | (uint64_t)x[1];
}

lathe_status lathe_first_rank_tell(lathe_ranks *ranks, const lathe_lock *lock)
{
    double own[N_TOLD] = {0};
    const double *all = NULL;
    struct stat info;
    atomic_store(&is_seen, 0);
    own[HOST] = ranks->info.host;
    own[PID] = (double)getpid();
    own[BORN] = (double)lathe_process_born(getpid());
    if (lock && lock->fd >= 0 && fstat(lock->fd, &info) == 0) {
        put_halves((uint64_t)info.st_dev, own + DEVICE);
        put_halves((uint64_t)info.st_ino, own + FILE_HIGH);
    }
    LATHE_TRY(lathe_ranks_gather(ranks, own, N_TOLD, 1, &all));
    first.pid = (int64_t)all[PID];
    first.born = (int64_t)all[BORN];
    first.device = of_halves(all + DEVICE);
    first.file = of_halves(all + FILE_HIGH);
    /* a process that is alive and not seen is in another namespace */
    const int sees = ranks->info.rank > 0 && all[HOST] == own[HOST] && first.born != 0 &&
                     lathe_process_born(first.pid) == first.born;
    LATHE_TRY(lathe_ranks_gather(ranks, own, 1, 1, NULL)); /* all have looked before one may end */
    atomic_store(&is_seen, sees);
    return LATHE_OK;
}

int32_t lathe_first_rank_is_lost(void)
{
    return atomic_load(&is_seen) && lathe_process_born(first.pid) != first.born &&
           !lathe_ranks_have_said_why();
}

int32_t lathe_first_rank_goes_on(void)
{
    return atomic_load(&is_seen) && lathe_process_born(first.pid) == first.born &&
           !lathe_process_is_stopped(first.pid);
}

int32_t lathe_first_rank_had(const lathe_lock *lock)
{
    struct stat info;
    return lock->fd >= 0 && first.file != 0 && fstat(lock->fd, &info) == 0 &&
           (uint64_t)info.st_dev == first.device && (uint64_t)info.st_ino == first.file;
}
