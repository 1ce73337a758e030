/* lathe report as a program: where it writes the page, and its errors. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/fs.h"

#define LATHE LATHE_TEST_BUILD "/bin/lathe"

static char dir[] = "/tmp/lathe_report_command_XXXXXX";
static char output[1 << 18];

static void prepare(void)
{
    char path[64];
    cr_assert(mkdtemp(dir));
    snprintf(path, sizeof path, "%s/metrics.jsonl", dir);
    cr_assert_eq(lathe_file_write_atomic(path, "{\"step\": 1, \"loss\": 4}\n", 23), LATHE_OK);
    cr_assert_eq(chdir(dir), 0);
}

static void clean(void)
{
    cr_assert_eq(lathe_dir_remove(dir), LATHE_OK);
}

TestSuite(report_command, .init = prepare, .fini = clean);

static int run(const char *command)
{
    FILE *pipe = popen(command, "r");
    cr_assert_not_null(pipe);
    output[fread(output, 1, sizeof output - 1, pipe)] = '\0';
    const int status = pclose(pipe);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

Test(report_command, the_page_is_written_to_the_given_file)
{
    cr_expect_eq(run(LATHE " report ."), 0);
    cr_expect_not_null(strstr(output, "./report.html ("));
    cr_expect(lathe_path_exists("report.html"));
    cr_expect_eq(run(LATHE " report . -o other.html --no-verify"), 0);
    cr_expect(lathe_path_exists("other.html"));
    cr_expect_eq(run(LATHE " report . -o -"), 0);
    cr_expect_eq(strncmp(output, "<!doctype html>", 15), 0);
    cr_expect_not_null(strstr(output, "</html>\n"));
}

Test(report_command, what_cannot_be_is_named)
{
    cr_expect_eq(run(LATHE " report nowhere 2>&1"), 2);
    cr_expect_not_null(strstr(output, "nowhere: no such folder"), "%s", output);
    cr_expect_eq(run(LATHE " report . -o no/such/folder.html 2>&1"), 2);
    cr_expect_not_null(strstr(output, "no/such/folder.html"), "%s", output);
    cr_expect_eq(run(LATHE " report 2>&1"), 2);
    cr_expect_eq(run(LATHE " report . -x 2>&1"), 2);
    cr_expect_not_null(strstr(output, "unknown option '-x'"), "%s", output);
    cr_expect_eq(run(LATHE " report . -o 2>&1"), 2);
    cr_expect_not_null(strstr(output, "needs a value"), "%s", output);
}
