/* The functions of MPI that the plugin uses (mpi_shim.h). Ranks on one host have a window of shared
 * memory, in which they tell each other what they have started. */
#include "mpi_shim.h"

#include <mpi.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { N_LANES = 3, TOLD_LANE = 2, MAX_MESSAGE = 1 << 30, FIRST_SIGNAL = 1, LAST_SIGNAL = 31 };

/* A communicator for each lane, and the ranks on this host. */
typedef struct mpi_link {
    const lathe_host *host;
    MPI_Comm lanes[N_LANES], local;
    MPI_Win window;
    peer_board **boards;
    int32_t *members, *leaders;
} mpi_link;

static pid_t started_in;     /* the process that called MPI_Init */
static int32_t n_links_open; /* MPI ends at exit only if none is left */

static lathe_status check(const lathe_host *host, const char *what, int code)
{
    char text[MPI_MAX_ERROR_STRING] = "";
    int n = 0;
    if (code == MPI_SUCCESS)
        return LATHE_OK;
    (void)MPI_Error_string(code, text, &n);
    return lathe_fail(host, LATHE_E_RANK, "%s: %.300s", what, text);
}

#define MPI(call) LATHE_TRY(check(host, #call, call))

/* ---- the transport ---- */

static lathe_status mpi_send(void *self, int32_t peer, int32_t lane, int32_t tag, const void *data,
                             int64_t bytes, void *request)
{
    mpi_link *const x = self;
    return check(x->host, "MPI_Isend",
                 MPI_Isend(data, (int)bytes, MPI_BYTE, peer, tag, x->lanes[lane], request));
}

static lathe_status mpi_receive(void *self, int32_t peer, int32_t lane, int32_t tag, void *data,
                                int64_t bytes, void *request)
{
    mpi_link *const x = self;
    return check(x->host, "MPI_Irecv",
                 MPI_Irecv(data, (int)bytes, MPI_BYTE, peer, tag, x->lanes[lane], request));
}

static lathe_status mpi_test(void *self, void *requests, int32_t n, int32_t *out_done)
{
    mpi_link *const x = self;
    int done = 0;
    const int code = MPI_Testall(n, requests, &done, MPI_STATUSES_IGNORE);
    *out_done = done;
    return check(x->host, "MPI_Testall", code);
}

static int32_t mpi_told(void *self)
{
    const mpi_link *const x = self;
    MPI_Status from;
    int is_there = 0;
    const int code = MPI_Iprobe(MPI_ANY_SOURCE, MPI_ANY_TAG, x->lanes[TOLD_LANE], &is_there, &from);
    return code == MPI_SUCCESS && is_there ? from.MPI_SOURCE : -1;
}

static peer_transport transport = {
    .request_bytes = (int64_t)sizeof(MPI_Request),
    .most_bytes = MAX_MESSAGE,
    .max_tag = 32767,
    .send = mpi_send,
    .receive = mpi_receive,
    .test = mpi_test,
    .told = mpi_told,
};

/* ---- groups ---- */

/* Open MPI unloads its parts at its end without freeing what they allocated, and no suppression can
 * name a library that is gone. So the leak check does not count what it allocates at its start and
 * end. */
#ifdef __SANITIZE_ADDRESS__
void __lsan_disable(void); /* sanitizer/lsan_interface.h */
void __lsan_enable(void);
#define LEAKS_MAY_BEGIN() __lsan_disable()
#define LEAKS_MAY_END() __lsan_enable()
#else
#define LEAKS_MAY_BEGIN() ((void)0)
#define LEAKS_MAY_END() ((void)0)
#endif

static void end_mpi(void)
{
    int is_ended = 0;
    if (getpid() != started_in || n_links_open != 0)
        return; /* a child, or a rank that ended in the middle: mpirun ends the others */
    LEAKS_MAY_BEGIN();
    if (MPI_Finalized(&is_ended) == MPI_SUCCESS && !is_ended)
        (void)MPI_Finalize();
    LEAKS_MAY_END();
}

/* ---- what MPI_Init changes in the process ---- */

typedef struct snapshot {
    struct sigaction handlers[LAST_SIGNAL + 1];
    char **variables; /* n of "NAME=value" */
    int32_t n;
} snapshot;

static int is_name_of(const char *variable, const char *other)
{
    const size_t n = strcspn(variable, "=");
    return strncmp(variable, other, n) == 0 && other[n] == '=';
}

static void snapshot_fini(const lathe_host *host, snapshot *x)
{
    for (int32_t i = 0; i < x->n; i++)
        host->free(x->variables[i]);
    host->free(x->variables);
}

static lathe_status snapshot_init(const lathe_host *host, snapshot *out)
{
    int32_t n = 0;
    for (int i = FIRST_SIGNAL; i <= LAST_SIGNAL; i++)
        (void)sigaction(i, NULL, &out->handlers[i]);
    while (environ[n] != NULL)
        n++;
    out->n = 0;
    out->variables = host->alloc((n + 1) * (int64_t)sizeof *out->variables);
    for (int32_t i = 0; i < n && out->variables != NULL; i++) {
        const size_t bytes = strlen(environ[i]) + 1;
        char *const copy = host->alloc((int64_t)bytes);
        if (copy == NULL)
            break;
        out->variables[out->n++] = memcpy(copy, environ[i], bytes);
    }
    if (out->variables != NULL && out->n == n)
        return LATHE_OK;
    snapshot_fini(host, out);
    return lathe_fail(host, LATHE_E_NOMEM, "no memory for %d variables", n);
}

/* Takes out variables that were not there before. Returns whether it has changed any. */
static int remove_new(const snapshot *x)
{
    for (char **e = environ; *e != NULL; e++) {
        char name[256];
        int32_t i = 0;
        while (i < x->n && !is_name_of(*e, x->variables[i]))
            i++;
        const size_t bytes = strcspn(*e, "=");
        if (i < x->n || bytes == 0 || bytes >= sizeof name)
            continue;
        memcpy(name, *e, bytes);
        name[bytes] = '\0';
        (void)unsetenv(name);
        return 1; /* environ has moved */
    }
    return 0;
}

/* Puts back signal handlers and variables: children of this process are no ranks. */
static void restore(const snapshot *x)
{
    for (int i = FIRST_SIGNAL; i <= LAST_SIGNAL; i++)
        if (i != SIGKILL && i != SIGSTOP)
            (void)sigaction(i, &x->handlers[i], NULL);
    while (remove_new(x))
        ;
    for (int32_t i = 0; i < x->n; i++) {
        char *const equals = strchr(x->variables[i], '=');
        if (equals == NULL)
            continue;
        *equals = '\0';
        (void)setenv(x->variables[i], equals + 1, 1);
        *equals = '=';
    }
}

/* Starts MPI. */
static lathe_status start_mpi(const lathe_host *host)
{
    snapshot before;
    int is_started = 0, is_ended = 0, level = 0, has_max = 0, *max = NULL;
    MPI(MPI_Initialized(&is_started));
    MPI(MPI_Finalized(&is_ended));
    if (is_ended)
        return lathe_fail(host, LATHE_E_STATE, "MPI has ended in this process");
    if (is_started)
        return LATHE_OK;
    LATHE_TRY(snapshot_init(host, &before));
    LEAKS_MAY_BEGIN();
    const int code = MPI_Init_thread(NULL, NULL, MPI_THREAD_FUNNELED, &level);
    LEAKS_MAY_END();
    restore(&before);
    snapshot_fini(host, &before);
    MPI(code);
    started_in = getpid();
    if (atexit(end_mpi) != 0)
        return lathe_fail(host, LATHE_E_NOMEM, "no memory to end MPI at exit");
    MPI(MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN));
    MPI(MPI_Comm_get_attr(MPI_COMM_WORLD, MPI_TAG_UB, (void *)&max, &has_max));
    if (has_max && max != NULL && *max > transport.max_tag)
        transport.max_tag = *max;
    return LATHE_OK;
}

/* Numbers the hosts, and makes the window of this one. */
static lathe_status find_hosts(const lathe_host *host, mpi_link *x, mpi_place *out)
{
    void *base = NULL;
    int leader = out->rank;
    MPI(MPI_Comm_split_type(x->lanes[0], MPI_COMM_TYPE_SHARED, out->rank, MPI_INFO_NULL,
                            &x->local));
    MPI(MPI_Comm_rank(x->local, &out->local_rank));
    MPI(MPI_Comm_size(x->local, &out->n_local));
    MPI(MPI_Bcast(&leader, 1, MPI_INT, 0, x->local));
    MPI(MPI_Allgather(&leader, 1, MPI_INT, x->leaders, 1, MPI_INT, x->lanes[0]));
    MPI(MPI_Win_allocate_shared((MPI_Aint)sizeof(peer_board), 1, MPI_INFO_NULL, x->local, &base,
                                &x->window));
    int local = 0;
    for (int32_t q = 0; q < out->n_ranks; q++) {
        MPI_Aint bytes;
        int unit;
        out->n_hosts += x->leaders[q] == q;
        out->host += x->leaders[q] == q && q < leader;
        if (x->leaders[q] == leader)
            MPI(MPI_Win_shared_query(x->window, local++, &bytes, &unit, (void *)&x->boards[q]));
    }
    memset(x->boards[out->rank], 0, sizeof **x->boards);
    MPI(MPI_Barrier(x->local));
    return LATHE_OK;
}

static void mpi_leave(const lathe_host *host, void *self)
{
    mpi_link *const x = self;
    if (x->window != MPI_WIN_NULL)
        (void)MPI_Win_free(&x->window);
    if (x->local != MPI_COMM_NULL)
        (void)MPI_Comm_free(&x->local);
    for (int i = 0; i < N_LANES; i++)
        if (x->lanes[i] != MPI_COMM_NULL)
            (void)MPI_Comm_free(&x->lanes[i]);
    host->free(x->boards);
    host->free(x->members);
    host->free(x->leaders);
    host->free(x);
    n_links_open--;
}

static lathe_status fill(const lathe_host *host, MPI_Comm comm, mpi_link *x, mpi_place *out)
{
    char version[MPI_MAX_LIBRARY_VERSION_STRING] = "";
    int n = 0, number = 0;
    for (int i = 0; i < N_LANES; i++)
        MPI(MPI_Comm_dup(comm, &x->lanes[i]));
    MPI(MPI_Comm_rank(x->lanes[0], &out->rank));
    MPI(MPI_Comm_size(x->lanes[0], &out->n_ranks));
    MPI(MPI_Comm_rank(MPI_COMM_WORLD, &number));
    x->boards = host->alloc(out->n_ranks * (int64_t)sizeof(void *));
    x->members = host->alloc(out->n_ranks * (int64_t)sizeof(int32_t));
    x->leaders = host->alloc(out->n_ranks * (int64_t)sizeof(int32_t));
    if (x->boards == NULL || x->members == NULL || x->leaders == NULL)
        return lathe_fail(host, LATHE_E_NOMEM, "no memory for a group of %d ranks", out->n_ranks);
    MPI(MPI_Allgather(&number, 1, MPI_INT, x->members, 1, MPI_INT, x->lanes[0]));
    LATHE_TRY(find_hosts(host, x, out));
    MPI(MPI_Get_library_version(version, &n));
    /* "Open MPI v4.1.4, package: Debian OpenMPI, ident: 4.1.4, ..." */
    (void)snprintf(out->engine, sizeof out->engine, "%.*s",
                   (int)strcspn(version, ",\n") < 63 ? (int)strcspn(version, ",\n") : 63, version);
    out->link = x;
    out->boards = x->boards;
    out->members = x->members;
    return LATHE_OK;
}

static lathe_status make(const lathe_host *host, MPI_Comm comm, mpi_place *out)
{
    mpi_link *const x = host->alloc((int64_t)sizeof *x);
    *out = (mpi_place){0};
    if (x == NULL)
        return lathe_fail(host, LATHE_E_NOMEM, "no memory for a group");
    x->host = host;
    x->local = MPI_COMM_NULL;
    for (int i = 0; i < N_LANES; i++)
        x->lanes[i] = MPI_COMM_NULL;
    x->window = MPI_WIN_NULL;
    n_links_open++;
    const lathe_status status = fill(host, comm, x, out);
    if (status != LATHE_OK)
        mpi_leave(host, x);
    return status;
}

static lathe_status mpi_join(const lathe_host *host, mpi_place *out)
{
    LATHE_TRY(start_mpi(host));
    return make(host, MPI_COMM_WORLD, out);
}

static lathe_status mpi_split(const lathe_host *host, void *self, int32_t color, int32_t key,
                              mpi_place *out)
{
    mpi_link *const x = self;
    MPI_Comm part = MPI_COMM_NULL;
    *out = (mpi_place){0};
    MPI(MPI_Comm_split(x->lanes[0], color < 0 ? MPI_UNDEFINED : color, key, &part));
    if (part == MPI_COMM_NULL)
        return LATHE_OK;
    const lathe_status status = make(host, part, out);
    (void)MPI_Comm_free(&part);
    return status;
}

static void mpi_abort(int32_t exit_code)
{
    (void)MPI_Abort(MPI_COMM_WORLD, exit_code);
}

LATHE_EXPORT extern const mpi_shim lathe_mpi_shim;
const mpi_shim lathe_mpi_shim = {
    .version = MPI_SHIM_VERSION,
    .transport = &transport,
    .join = mpi_join,
    .split = mpi_split,
    .leave = mpi_leave,
    .abort = mpi_abort,
};
