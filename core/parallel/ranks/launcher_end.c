/* Ends all processes that a launcher has started together, through PMIx. The functions are those of
 * the PMIx standard, version 2 and later; the library is that of mpirun. */
#include "parallel/ranks/launcher_end.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* pmix_proc_t has 260 bytes in all versions so far. */
enum { PROC_BYTES = 1024, END_SECONDS = 10 };

int32_t lathe__launcher_end(int32_t exit_code)
{
    typedef int (*init_function)(void *proc, void *info, size_t n_info);
    typedef int (*abort_function)(int status, const char *message, void *procs, size_t n_procs);
    union {
        uint64_t aligned;
        char bytes[PROC_BYTES];
    } proc;
    init_function init = NULL;
    abort_function end = NULL;
    void *const library =
        getenv("PMIX_NAMESPACE") != NULL ? dlopen("libpmix.so.2", RTLD_LAZY | RTLD_LOCAL) : NULL;
    if (library == NULL)
        return 0;
    *(void **)&init = dlsym(library, "PMIx_Init");
    *(void **)&end = dlsym(library, "PMIx_Abort");
    if (init == NULL || end == NULL)
        return 0;
    sigset_t alarm_only;
    (void)sigemptyset(&alarm_only);
    (void)sigaddset(&alarm_only, SIGALRM);
    (void)signal(SIGALRM, SIG_DFL);
    (void)sigprocmask(SIG_UNBLOCK, &alarm_only, NULL);
    (void)alarm(END_SECONDS);
    const int nowhere = open("/dev/null", O_WRONLY | O_CLOEXEC);
    if (nowhere >= 0) /* the library prints its own errors, such as having no memory */
        (void)dup2(nowhere, STDERR_FILENO);
    memset(&proc, 0, sizeof proc);
    const int is_asked = init(proc.bytes, NULL, 0) == 0 && end(exit_code, "", NULL, 0) == 0;
    (void)alarm(0);
    return is_asked;
}
