/* The table of other trainers' keys. */
#include "plug/foreign_keys.h"

#include <stddef.h>
#include <string.h>

#define FOREIGN(programs, name, target, rule, remark) {programs, name, target, rule, remark},
static const lathe_foreign_key rows[] = {
#include "plug/foreign_keys.inc"
};
#undef FOREIGN

enum { N_ROWS = sizeof rows / sizeof rows[0] };

const lathe_foreign_key *lathe_foreign_keys(int32_t *out_n)
{
    *out_n = N_ROWS;
    return rows;
}

/* How well a row fits a key: 0 not at all; a name in full 2, a stage of its own 1 more. */
static int fit_of(const lathe_foreign_key *row, char program, const char *stage, const char *name)
{
    const char *slash = strchr(row->programs, '/');
    const size_t n_letters = slash ? (size_t)(slash - row->programs) : strlen(row->programs);
    const size_t n = strlen(row->name);
    if (memchr(row->programs, program, n_letters) == NULL)
        return 0;
    if (slash && strcmp(slash + 1, stage) != 0)
        return 0;
    if (strcmp(row->name, name) == 0)
        return slash ? 4 : 3;
    if (row->name[n - 1] == '*' && strncmp(row->name, name, n - 1) == 0)
        return slash ? 2 : 1;
    return 0;
}

const lathe_foreign_key *lathe_foreign_key_find(char program, const char *stage, const char *name)
{
    const lathe_foreign_key *best = NULL;
    int best_fit = 0;
    for (int32_t i = 0; i < N_ROWS; i++) {
        const int fit = fit_of(&rows[i], program, stage, name);
        if (fit > best_fit) {
            best = &rows[i];
            best_fit = fit;
        }
    }
    return best;
}
