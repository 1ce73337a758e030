/* Help, manual pages, completion, and messages for words that are not commands. */
#include "cli_case.h"
#include "support/child_program.h"

#define LATHE LATHE_TEST_BUILD "/bin/lathe"

static void setup(void)
{
    child_programs_skip_the_leak_check();
    make_folder();
}

TestSuite(cli_help, .init = setup, .fini = remove_folder);

Test(cli_help, help_of_a_command_is_what_its_option_prints)
{
    static char before[sizeof output];
    expect(LATHE " train --help", 0, "usage: lathe train RUN.toml");
    strcpy(before, output);
    expect(LATHE " help train", 0, "usage: lathe train RUN.toml");
    cr_expect_str_eq(output, before);
    expect(LATHE " help checkpoint diff", 0, "usage: lathe checkpoint diff A B");
    expect(LATHE " help plugin", 0, "lathe plugin check FILE.so");
    expect(LATHE " help", 0, "usage: lathe COMMAND");
    expect(LATHE " help nothing 2>&1", 2, "there is no command 'nothing'");
    expect(LATHE " help train now 2>&1", 2, "there is no command 'train now'");
}

Test(cli_help, words_of_other_tools_are_answered_with_what_lathe_has)
{
    expect(LATHE " export out 2>&1", 2, "each checkpoint is a Hugging Face folder already");
    expect(LATHE " evaluate out 2>&1", 2, "use `lathe eval");
    expect(LATHE " trian 2>&1", 2, "did you mean 'train'?");
}

/* Every command has a page, and the run file's keys, with those of the plugins, have one. */
Test(cli_help, manual_pages_are_made_from_the_tables)
{
    expect(LATHE " help --man", 0, ".TH \"LATHE\" 1");
    expect(LATHE " help --man plugin new", 0, ".TH \"LATHE-PLUGIN-NEW\" 1");
    expect(LATHE " help --man run.toml", 0, "\\fBmicro_batch_size\\fR = 1\n");
    cr_expect_not_null(strstr(output, ".SS \"[optimizer] name = 'adamw'\""));
    expect("ls " LATHE_TEST_BUILD "/manual/man1 | wc -l", 0, "");
    const int pages = atoi(output);
    expect(LATHE " help | grep -c '^  [a-z]'", 0, "");
    cr_expect_eq(pages, atoi(output) + 1, "%d pages for %s commands", pages, output);
}

static void completes(const char *words, const char *want)
{
    char command[512];
    (void)snprintf(command, sizeof command, LATHE " --complete %s", words);
    cr_expect_eq(run(command), 0, "%s", command);
    cr_expect_str_eq(output, want, "%s gives\n%s", command, output);
}

Test(cli_help, completion_knows_commands_options_keys_values_and_plugins)
{
    completes("tr", "train\n");
    completes("checkpoint ''", "ls\nverify\ndiff\nrm\n");
    completes("help plugin ''", "new\ncheck\n");
    completes("train ''", ":files *.toml\n");
    completes("plugin check ''", ":files *.so\n");
    completes("show scheduler/cosine_with_m", "scheduler/cosine_with_min_lr\n");
    completes("train run.toml --train.prec", "--train.precision\n");
    completes("train run.toml --train.precision b", "bf16\n");
    completes("train run.toml --train.precision = b", "bf16\n");
    completes("train run.toml --optimizer.name lio", "lion\n");
    completes("plan run.toml --js", "--json\n");
    completes("completion z", "zsh\n");
    completes("nothing ''", "");
}

Test(cli_help, bash_completes_with_the_script)
{
    expect(LATHE " completion tcsh 2>&1", 2, "expected bash, zsh or fish");
    put("complete.sh",
        "source <(" LATHE " completion bash)\n"
        "COMP_WORDS=(" LATHE " val); COMP_CWORD=1; _lathe; echo \"${COMPREPLY[@]}\"\n"
        "touch a.toml b.txt\n"
        "COMP_WORDS=(" LATHE " plan ''); COMP_CWORD=2; _lathe; echo \"${COMPREPLY[@]}\"\n");
    cr_assert_eq(run("bash complete.sh"), 0);
    cr_expect_str_eq(output, "validate\na.toml\n");
}
