/* Faulty plugins in the search path do not break a command that does not use them. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>

#define LATHE LATHE_TEST_BUILD "/bin/lathe"

/* Runs a command with the faulty plugins in the path; returns its exit code. */
static int run(const char *words, char *output, size_t bytes)
{
    char command[1024];
    cr_assert_eq(setenv("LATHE_PLUGIN_PATH", LATHE_TEST_BUILD "/tests/faults", 1), 0);
    snprintf(command, sizeof command, "%s %s 2>&1", LATHE, words);
    FILE *f = popen(command, "r");
    cr_assert_not_null(f);
    const size_t n = fread(output, 1, bytes - 1, f);
    output[n] = '\0';
    const int status = pclose(f);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

Test(faulty_plugins, ls_survives_those_of_every_kind_and_lists_the_sound_ones)
{
    static const char *const kinds[] = {"scheduler", "adapter", "device"};
    static char output[1 << 18];
    for (int i = 0; i < 3; i++) {
        char words[64], sound[64];
        snprintf(words, sizeof words, "ls %s", kinds[i]);
        snprintf(sound, sizeof sound, "%s/sound_%s", kinds[i], kinds[i]);
        cr_expect_eq(run(words, output, sizeof output), 0, "%s: %s", words, output);
        cr_expect_not_null(strstr(output, sound), "%s: %s", words, output);
    }
}

Test(faulty_plugins, doctor_survives_and_names_them)
{
    static char output[1 << 18];
    const int code = run("doctor", output, sizeof output);
    cr_expect(code == 0 || code == 1, "exit code %d: %s", code, output);
    cr_expect_not_null(strstr(output, "score_crashes.so"), "%s", output);
}
