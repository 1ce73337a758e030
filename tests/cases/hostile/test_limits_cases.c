/* Foreign code and foreign patterns that do not end, or end the process: a line says whose they
 * are.
 */
#include <time.h>

#include "base/error.h"
#include "cli/cli_case.h"
#include "unicode/pattern.h"

#define LATHE LATHE_TEST_BUILD "/bin/lathe"
#define FAULTS LATHE_TEST_BUILD "/tests/faults/"

TestSuite(limits_cases, .timeout = 120);

static double seconds(void)
{
    struct timespec t;
    (void)clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static int64_t n_spans;

static lathe_status count_span(void *arg, int64_t begin, int64_t end, int is_match)
{
    (void)arg, (void)begin, (void)end;
    n_spans += is_match;
    return LATHE_OK;
}

/* Splits n bytes `unit` by an expression of a tokenizer.json. */
static lathe_status split_by(const char *expression, const char *unit, int64_t n)
{
    lathe_pattern pattern = {.source = strdup(expression)};
    lathe_matcher matcher = {0};
    char *text = malloc((size_t)n);
    for (int64_t i = 0; i < n; i++)
        text[i] = unit[(size_t)i % strlen(unit)];
    lathe_status status = lathe__regex_compile("t", expression, &pattern.code, &pattern.jit);
    n_spans = 0;
    if (status == LATHE_OK)
        status =
            lathe__pattern_spans(&pattern, &matcher, (const uint8_t *)text, n, count_span, NULL);
    lathe__matcher_fini(&matcher);
    lathe__pattern_fini(&pattern);
    free(text);
    return status;
}

/* It took 11 to 22 s before, in one search or in many: they read the rest of the text at each
 * place. */
Test(limits_cases, expressions_that_read_the_text_again)
{
    static const char *const expressions[] = {"a(?=(a*)b?)", "(?=a+b)a", "a(?=a*b)|c", "(?>a+)b"};
    for (size_t i = 0; i < sizeof expressions / sizeof *expressions; i++) {
        const double begun = seconds();
        const lathe_status status = split_by(expressions[i], "a", 200000);
        const double taken = seconds() - begun;
        cr_expect_lt(taken, 6.0, "%s takes %.1f s", expressions[i], taken);
        if (status != LATHE_OK || i == 0) { /* PCRE2 sees of some that no b follows */
            cr_expect_eq(status, LATHE_E_UNSUPPORTED);
            cr_expect_not_null(strstr(lathe_error_message(), expressions[i]), "%s",
                               lathe_error_message());
            cr_expect_not_null(strstr(lathe_error_message(), "reads much of the text again"), "%s",
                               lathe_error_message());
        }
    }
}

/* A search is made in parts, between which a match must not be lost. */
Test(limits_cases, matches_far_from_each_other)
{
    char unit[1001];
    (void)memset(unit, 'a', 1000);
    (void)memcpy(unit + 500, "x\xc3\xa9y", 4);
    unit[1000] = '\0';
    cr_assert_eq(split_by("x\xc3\xa9y", unit, 5000000), LATHE_OK, "%s", lathe_error_message());
    cr_expect_eq(n_spans, 5000);
    cr_assert_eq(split_by("\xc3\xa9", unit, 5000000), LATHE_OK, "%s", lathe_error_message());
    cr_expect_eq(n_spans, 5000);
    cr_assert_eq(split_by("(?<=x)[^a](?=y)", unit, 5000000), LATHE_OK, "%s", lathe_error_message());
    cr_expect_eq(n_spans, 5000);
    cr_assert_eq(split_by("q", unit, 5000000), LATHE_OK, "%s", lathe_error_message());
    cr_expect_eq(n_spans, 0);
}

static void setup(void)
{
    make_folder();
    child_programs_crash_by_signal();
    put("run.toml",
        "[model]\nmodel_type = \"llama\"\nvocab_size = 260\nhidden_size = 32\n"
        "intermediate_size = 64\nnum_hidden_layers = 1\nnum_attention_heads = 2\n"
        "max_position_embeddings = 64\n[tokenizer]\npath = \"bytes\"\n[data]\n"
        "datasets = [{ path = \"text.txt\" }]\nseq_len = 16\n[train]\nmax_steps = 2\nthreads = 1\n"
        "[checkpoint]\ndir = \"out\"\n");
    put_times("text.txt", "the wheel turns and the tool holds\n", 40);
    put_times("prompts.jsonl", "{\"prompt\": \"the wheel\"}\n", 40);
    put("text.recs", "RECS\nthe wheel turns and the tool holds\nso the part is made\n");
}

/* Trains with one plugin of tests/conformance/faults. */
static void expect_fault(const char *kind, const char *name, const char *words, int code,
                         const char *says)
{
    char command[2048];
    (void)snprintf(command, sizeof command,
                   "sh -c 'rm -rf p out && mkdir -p p/%s && cp " FAULTS "%s/%s.so p/%s && exec env "
                   "LATHE_PLUGIN_SECONDS=2 LATHE_PLUGIN_PATH=$PWD/p " LATHE
                   " train run.toml %s 2>&1'",
                   kind, kind, name, kind, words);
    expect(command, code, says);
    cr_expect_not_null(strstr(output, name), "%s", output);
}

#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
/* The signal ends the command as it would without the line; the shell says 128 + its number. */
Test(limits_cases, a_crash_names_its_plugin, .init = setup, .fini = remove_folder)
{
    static const struct {
        const char *kind, *name, *words, *signal;
        int code;
    } cases[] = {
        {"optimizer", "crashes", "--optimizer.name crashes", "SIGSEGV", 139},
        {"optimizer", "aborts", "--optimizer.name aborts", "SIGABRT", 134},
        {"optimizer", "recurses", "--optimizer.name recurses", "SIGSEGV", 139},
        {"optimizer", "crashes_on_a_setting",
         "--optimizer.name crashes_on_a_setting --optimizer.lr 5", "SIGSEGV", 139},
        {"stage", "rolls_crashes",
         "--stage.name rolls_crashes --reward.name length --reward.tokens 4 --data.datasets "
         "\"[{path = \\\"prompts.jsonl\\\"}]\"",
         "SIGSEGV", 139},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char says[128];
        (void)snprintf(says, sizeof says, "/%s.so ends by %s", cases[i].name, cases[i].signal);
        expect_fault(cases[i].kind, cases[i].name, cases[i].words, cases[i].code, says);
    }
}
#endif

/* A reader that never lists its last column, and code that never returns. */
Test(limits_cases, plugins_that_do_not_end, .init = setup, .fini = remove_folder)
{
    static const char recs[] = "--data.datasets \"[{path = \\\"text.recs\\\"}]\"";
    expect_fault("reader", "names_columns_for_ever", recs, 2,
                 "column() gives more than 65536 names");
    expect_fault("reader", "column_hangs", recs, 1, "column() has not returned for 2 s");
    expect_fault("optimizer", "hangs_on_a_setting",
                 "--optimizer.name hangs_on_a_setting --optimizer.lr 5", 1,
                 "create() has not returned for 2 s");
}
