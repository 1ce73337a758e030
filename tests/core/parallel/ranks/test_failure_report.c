/* Which rank says why a run fails: a function of what all ranks have told. */
#include "parallel/ranks/failure_report.h"

#include <criterion/criterion.h>

enum { N = 3 };

/* The failure that rank q tells: 'd' disk full, 'm' out of memory, 'c' configuration, 'r' another
 * rank failed, '.' nothing. */
static lathe_rank_failure failure_of(char c)
{
    const lathe_status status = c == 'd'   ? LATHE_E_IO
                                : c == 'm' ? LATHE_E_NOMEM
                                : c == 'c' ? LATHE_E_CONFIG
                                : c == 'r' ? LATHE_E_RANK
                                           : LATHE_OK;
    return (lathe_rank_failure){.status = status, .text = (uint64_t)c};
}

static lathe_failure_decision decision_of(const char *told, int32_t rank)
{
    lathe_rank_failure all[N];
    unsigned char is_told[N];
    lathe_failure_decision v;
    for (int q = 0; q < N; q++) {
        all[q] = failure_of(told[q]);
        if (told[q] == 'r') /* each rank says it with its own number */
            all[q].text += (uint64_t)q;
        is_told[q] = told[q] != '.';
    }
    lathe__failure_decide(all, is_told, rank, N, &v);
    return v;
}

Test(failure_report, who_prints)
{
    static const struct {
        const char *told, *prints, *names;
        lathe_status status;
    } rows[] = {
        {"ccc", "100", "000", LATHE_E_CONFIG}, /* all for one reason */
        {"rdr", "010", "010", LATHE_E_IO},     /* one alone: the others only learn of it */
        {"drm", "101", "101", LATHE_E_IO},     /* two reasons */
        {"mdd", "110", "111", LATHE_E_NOMEM},
        {"rr.", "100", "000", LATHE_E_RANK}, /* rank 2 was killed */
        {".rr", "010", "000", LATHE_E_RANK},
        {"d..", "100", "100", LATHE_E_IO}, /* the others compute, and do not answer */
        {"..d", "001", "001", LATHE_E_IO},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        for (int q = 0; q < N; q++) {
            if (rows[i].told[q] == '.')
                continue;
            const lathe_failure_decision v = decision_of(rows[i].told, q);
            cr_expect_eq(v.prints, rows[i].prints[q] == '1', "%s, rank %d prints", rows[i].told, q);
            cr_expect_eq(v.status, rows[i].status, "%s, rank %d: status %d", rows[i].told, q,
                         v.status);
            cr_expect(!v.prints || v.names_rank == (rows[i].names[q] == '1'), "%s, rank %d named",
                      rows[i].told, q);
        }
}
