/* Runs `lathe plugin check` over the rows of list.txt of one kind, two at a time, and compares the
 * results. Include it in one file of a program, after defining FAULT_KIND. */
#ifndef LATHE_TEST_FAULT_RUN_H
#define LATHE_TEST_FAULT_RUN_H

#include <criterion/criterion.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>

#include "support/child_program.h"

enum { MAX_ROWS = 256, WORKERS = 2 };

typedef struct row {
    char name[64], checks[256], what[160], words[128];
    char first[512]; /* the first check that failed, and why */
    int exit_code;
    double seconds;
} row;

static row rows[MAX_ROWS];
static int n_rows;
static atomic_int next_row;

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static void read_list(void)
{
    char line[1024], kind[32];
    FILE *list = fopen(LATHE_TEST_DATA "/conformance/faults/list.txt", "r");
    cr_assert_not_null(list);
    while (fgets(line, sizeof line, list) != NULL) {
        row *r = &rows[n_rows];
        r->words[0] = '\0';
        const int n = sscanf(line, "%31[a-z]|%63[^|\n]|%255[^|\n]|%159[^|\n]|%127[^\n]", kind,
                             r->name, r->checks, r->what, r->words);
        if (n >= 4 && strcmp(kind, FAULT_KIND) == 0 && n_rows < MAX_ROWS - 1)
            n_rows++;
    }
    fclose(list);
}

/* Whether the plugin never returns, by its name: hangs, score_hangs, hangs_in_wait, spins. */
static int never_returns(const row *r)
{
    return strstr(r->name, "hangs") != NULL || strstr(r->name, "with_hang") != NULL ||
           strstr(r->name, "spins") != NULL;
}

/* A plugin that hangs is waited for only as long as needed; others may be slow on a busy
 * machine. */
static void check_row(row *r)
{
    char command[1024], line[1024];
    const double begin = now();
    snprintf(command, sizeof command,
             "exec '%s/bin/lathe' plugin check '%s/tests/faults/" FAULT_KIND
             "/%s.so' --first-failure --timeout %d %s 2>/dev/null",
             LATHE_TEST_BUILD, LATHE_TEST_BUILD, r->name, never_returns(r) ? 3 : 100, r->words);
    FILE *output = popen(command, "r");
    if (output == NULL)
        return;
    while (fgets(line, sizeof line, output) != NULL) {
        line[strcspn(line, "\n")] = '\0';
        if (r->first[0] == '\0' && strstr(line, " FAIL") != NULL)
            snprintf(r->first, sizeof r->first, "%s", line + strspn(line, " "));
    }
    const int status = pclose(output);
    r->exit_code = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
    r->seconds = now() - begin;
}

static void *work(void *arg)
{
    for (int i = atomic_fetch_add(&next_row, 1); i < n_rows; i = atomic_fetch_add(&next_row, 1))
        check_row(&rows[i]);
    return arg;
}

/* Whether the first failure is in one of the named checks, or there is none if none is named. */
static int as_expected(const row *r)
{
    char check[64] = "", list[280], word[70];
    (void)sscanf(r->first, "%63s", check);
    if (strcmp(r->checks, "passes") == 0)
        return r->exit_code == 0 && r->first[0] == '\0';
    snprintf(list, sizeof list, ",%s,", r->checks);
    snprintf(word, sizeof word, ",%s,", check);
    return r->exit_code == 1 && r->first[0] != '\0' && strstr(list, word) != NULL;
}

static void expect_all(void)
{
    pthread_t workers[WORKERS];
    int found = 0;
    child_programs_crash_by_signal();
    read_list();
    cr_assert_gt(n_rows, 0);
    for (int i = 0; i < WORKERS; i++)
        cr_assert_eq(pthread_create(&workers[i], NULL, work, NULL), 0);
    for (int i = 0; i < WORKERS; i++)
        pthread_join(workers[i], NULL);
    for (int i = 0; i < n_rows; i++) {
        const row *r = &rows[i];
        const int good = as_expected(r);
        found += good;
        printf("%-9s %s/%s: %s; expected in %s, %.1f s: %s\n", good ? "found" : "NOT FOUND",
               FAULT_KIND, r->name, r->what, r->checks, r->seconds,
               r->first[0] != '\0' ? r->first : "nothing failed");
        cr_expect(good, "%s/%s: %s: expected in %s, exit code %d, got '%s'", FAULT_KIND, r->name,
                  r->what, r->checks, r->exit_code, r->first);
    }
    printf("%d of %d %s plugins as expected\n", found, n_rows, FAULT_KIND);
}

#endif
