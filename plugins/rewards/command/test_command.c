/* The reward by a program: its lines, its end, and what it says that is no number. */
#include "support/reward_case.h"

#include <limits.h>
#include <signal.h>
#include <stdlib.h>
#include <unistd.h>

TestSuite(command_reward, .fini = reward_close);

/* A shell script as the command. */
static void opens(const char *script)
{
    char toml[2048];
    (void)snprintf(toml, sizeof toml, "command = [\"/bin/sh\", \"-c\", '''%s''']", script);
    reward_opens(toml);
}

static void fails_with(const char *script, const char *message)
{
    opens(script);
    reward_fails("text", "{}", message);
}

/* The message of a command that ends before it has given a number. */
static const char *at_once(const char *message)
{
    static char text[PATH_MAX + 256];
    char folder[PATH_MAX];
    cr_assert_not_null(getcwd(folder, sizeof folder));
    (void)snprintf(text, sizeof text,
                   "%s; it gave no number, and ran in %s, where relative paths in it begin",
                   message, folder);
    return text;
}

#define LENGTHS "while IFS= read -r line; do echo ${#line}; done"

Test(command_reward, each_line_is_answered_by_a_number)
{
    const lathe_reward_item items[3] = {reward_item("", "{}"), reward_item("abc", "{\"a\":\n1}"),
                                        reward_item("\"\n\\", "")};
    double out[3];
    opens(LENGTHS);
    for (int pass = 0; pass < 2; pass++) {
        const size_t n = strlen("{\"prompt\": \"2 + 3?\", \"completion\": \"\", \"n_tokens\": 0, "
                                "\"record\": {}}");
        cr_assert_eq(reward_try(items, 3, out), LATHE_OK, "%s", lathe_error_message());
        cr_expect_eq(out[0], (double)n);
        cr_expect_eq(out[1], (double)(n + 3 + 6));
        cr_expect_eq(out[2], (double)(n + 2 + 6 + 2));
    }
}

Test(command_reward, the_program_starts_once_and_keeps_its_state)
{
    opens("n=0; while read -r line; do n=$((n + 1)); echo $n; done");
    cr_expect_eq(reward_of("a", "{}"), 1.0);
    cr_expect_eq(reward_of("b", "{}"), 2.0);
}

/* More than both pipes hold, which is 64 KiB each. */
Test(command_reward, long_batches_go_both_ways_without_a_standstill)
{
    enum { N = 400 };
    static lathe_reward_item items[N];
    static double out[N];
    static char text[1001];
    memset(text, 'x', sizeof text - 1);
    for (int i = 0; i < N; i++)
        items[i] = reward_item(text, "{}");
    opens("while IFS= read -r line; do printf \"%-250s\\n\" ${#line}; done");
    cr_assert_eq(reward_try(items, N, out), LATHE_OK, "%s", lathe_error_message());
    cr_expect_eq(out[0], out[N - 1]);
    cr_expect_gt(out[0], 1000.0);
}

Test(command_reward, a_program_that_dies_is_named_with_its_last_error)
{
    fails_with("read -r line; echo 'cannot load the judge' >&2; exit 3",
               at_once("the command '/bin/sh' ended with exit status 3: cannot load the judge"));
}

Test(command_reward, a_program_that_dies_after_an_answer_says_no_more_than_its_error)
{
    opens("read -r line; echo 1; read -r line; echo 'out of memory' >&2; exit 3");
    cr_expect_eq(reward_of("a", "{}"), 1.0);
    reward_fails("b", "{}", "the command '/bin/sh' ended with exit status 3: out of memory");
}

Test(command_reward, a_script_that_is_not_there_is_refused_before_the_run)
{
    char folder[PATH_MAX], message[PATH_MAX + 256];
    cr_assert_not_null(getcwd(folder, sizeof folder));
    (void)snprintf(message, sizeof message,
                   "command: sub/python3.9 has no file 'no.py' to run: the command runs in %s, and "
                   "relative paths in it begin there, not at the run file",
                   folder);
    cr_assert_eq(system("mkdir -p sub && cp /bin/sh sub/python3.9 && cp /bin/sh sub/judge"), 0);
    const char *text = NULL;
    cr_assert_eq(reward_make("command = [\"sub/python3.9\", \"no.py\"]"), LATHE_E_CONFIG);
    text = lathe_error_message();
    cr_expect(strstr(text, message) != NULL, "%s", text);
    reward_close();
    reward_opens("command = [\"sub/python3.9\", \"-c\", \"no.py\"]");
    reward_close();
    reward_opens("command = [\"sub/judge\", \"no.py\"]"); /* may read its argument otherwise */
    cr_assert_eq(system("rm -r sub"), 0);
}

Test(command_reward, a_program_that_is_killed_is_named_with_the_signal)
{
    fails_with("kill -9 $$", at_once("the command '/bin/sh' was killed by signal 9 (Killed)"));
}

Test(command_reward, a_program_that_reads_nothing_does_not_end_the_run_by_a_signal)
{
    static char text[300001];
    memset(text, 'x', sizeof text - 1);
    opens("exec 0<&-; sleep 0.05; exit 4");
    const lathe_reward_item item = reward_item(text, "{}");
    double out;
    cr_assert_eq(reward_try(&item, 1, &out), LATHE_E_IO);
    cr_expect_str_eq(lathe_error_message(),
                     at_once("the command '/bin/sh' ended with exit status 4"));
}

Test(command_reward, a_line_that_is_no_number_is_shown)
{
    fails_with(
        "echo 'Loading model...'; " LENGTHS,
        "'/bin/sh' printed the line 'Loading model...', expected a number, or null for no score");
    reward_close();
    fails_with("echo; " LENGTHS,
               "'/bin/sh' printed the line '', expected a number, or null for no score");
}

static void expect_too_many_lines(void)
{
    cr_expect_str_eq(lathe_error_message(), "'/bin/sh' printed more lines than it was given; "
                                            "expected one number for each line");
}

Test(command_reward, more_lines_than_completions_are_refused)
{
    double out;
    const lathe_reward_item item = reward_item("x", "{}");
    opens("while read -r line; do printf '1\\n2\\n'; done");
    cr_assert_eq(reward_try(&item, 1, &out), LATHE_E_PARSE);
    expect_too_many_lines();
}

/* On a busy machine the surplus line may come with the first answer, or so late that it is taken
 * for the next one: then a later batch has a line too many. */
Test(command_reward, a_surplus_line_that_comes_late_is_refused)
{
    double out;
    lathe_status status = LATHE_OK;
    const lathe_reward_item item = reward_item("x", "{}");
    opens("while read -r line; do echo 1; sleep 0.01; echo 2; done");
    for (int i = 0; i < 10 && status == LATHE_OK; i++) {
        status = reward_try(&item, 1, &out);
        if (status == LATHE_OK)
            (void)usleep(100000);
    }
    cr_assert_eq(status, LATHE_E_PARSE);
    expect_too_many_lines();
}

Test(command_reward, nan_is_left_to_the_core)
{
    opens("while read -r line; do echo nan; done");
    const double score = reward_of("x", "{}");
    cr_expect_neq(score, score);
}

Test(command_reward, cancel_ends_a_program_that_hangs)
{
    const lathe_reward_v1 *table;
    const lathe_reward_item item = reward_item("x", "{}");
    double out;
    opens("read -r line; echo 1; read -r line; (sleep 1000) & sleep 1000");
    table = reward_instance.table;
    cr_expect_eq(reward_of("x", "{}"), 1.0);
    table->cancel(reward_instance.self);
    cr_assert_eq(reward_try(&item, 1, &out), LATHE_E_IO);
    cr_expect_str_eq(lathe_error_message(),
                     "the command '/bin/sh' was killed by signal 9 (Killed)");
}

Test(command_reward, a_missing_program_is_refused_before_the_run)
{
    reward_refuses("command = [\"no-such-program\"]", "reward command: there is no program "
                                                      "'no-such-program' in the folders of PATH");
    reward_refuses("command = [\"./judge.py\"]",
                   "reward command: there is no program './judge.py' that may be run; a "
                   "relative path begins in the current folder");
    reward_refuses(
        "command = []",
        "reward command: command is empty; expected a program and its arguments, such as "
        "[\"python3\", \"reward.py\"]");
}
