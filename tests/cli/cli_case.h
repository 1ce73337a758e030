/* Runs commands as a user does: through the shell, in a folder of the test's own. */
#ifndef LATHE_TEST_CLI_CASE_H
#define LATHE_TEST_CLI_CASE_H

#include <criterion/criterion.h>
#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "support/child_program.h"

static char output[1 << 20];
static char folder[] = "/tmp/lathe_cli_XXXXXX";

/* Runs a shell command; its stdout, and its stderr after 2>&1, are stored in `output`. */
static int run(const char *command)
{
    FILE *pipe = popen(command, "r");
    cr_assert_not_null(pipe);
    const size_t n = fread(output, 1, sizeof output - 1, pipe);
    cr_assert_lt(n, sizeof output - 1);
    output[n] = '\0';
    const int status = pclose(pipe);
    cr_assert(WIFEXITED(status), "%s: killed by signal %d", command, WTERMSIG(status));
    return WEXITSTATUS(status);
}

__attribute__((unused)) static void expect(const char *command, int code, const char *text)
{
    const int got = run(command);
    cr_expect_eq(got, code, "%s: exit %d, expected %d:\n%s", command, got, code, output);
    cr_expect_not_null(strstr(output, text), "%s: no '%s' in\n%s", command, text, output);
}

/* Makes `folder` and changes to it; only the build's plugins are visible. */
static void make_folder(void)
{
    child_programs_skip_the_leak_check();
    cr_assert_not_null(mkdtemp(folder));
    cr_assert_eq(chdir(folder), 0);
    cr_assert_eq(unsetenv("LATHE_PLUGIN_PATH"), 0);
}

static int remove_one(const char *path, const struct stat *info, int type, struct FTW *walk)
{
    (void)info, (void)type, (void)walk;
    return remove(path);
}

static void remove_folder(void)
{
    (void)nftw(folder, remove_one, 16, FTW_DEPTH | FTW_PHYS);
}

/* Writes `text` the given number of times to a file in the folder. */
__attribute__((unused)) static void put_times(const char *name, const char *text, int times)
{
    FILE *file = fopen(name, "wb");
    cr_assert_not_null(file);
    for (int i = 0; i < times; i++)
        cr_assert_eq(fwrite(text, 1, strlen(text), file), strlen(text));
    cr_assert_eq(fclose(file), 0);
}

__attribute__((unused)) static void put(const char *name, const char *text)
{
    put_times(name, text, 1);
}

#endif
