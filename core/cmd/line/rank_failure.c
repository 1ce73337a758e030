/* Ends a command that fails in one or several of the processes that a launcher has started. */
#include "cmd/line/rank_failure.h"

#include <stdio.h>
#include <string.h>

#include "base/print.h"
#include "lathe/kit/launcher_kit.h"
#include "parallel/ranks/failure_report.h"

/* Prints in one write: a launcher that marks the lines of a process marks each write. */
static void print_lines(const char *text, const lathe_failure_decision *decision)
{
    static char all[16384]; /* there may be no memory */
    size_t at = 0;
    while (*text != '\0' && at < sizeof all - 1) {
        const size_t n = strcspn(text, "\n");
        if (decision->names_rank)
            at += (size_t)snprintf(all + at, sizeof all - at, "rank %d of %d: ", decision->rank,
                                   decision->n_ranks);
        if (at < sizeof all)
            at += (size_t)snprintf(all + at, sizeof all - at, "%.*s\n", (int)n, text);
        text += n + (text[n] == '\n');
    }
    (void)fflush(stdout);
    lathe_print_text(stderr, all);
    (void)fflush(stderr);
}

int lathe_cli_fail_ranks(const char *text, lathe_status status, int (*code_of)(lathe_status status))
{
    lathe_failure_decision decision;
    lathe_ranks_agree_on_failure(status, text, &decision);
    if (decision.prints)
        print_lines(text, &decision);
    const int code = code_of(decision.status);
    lathe_ranks_end(code);
    return code;
}

int lathe_cli_is_rank(void)
{
    int32_t n_ranks;
    return lathe_launcher_find(&n_ranks) != NULL && n_ranks != 1;
}
