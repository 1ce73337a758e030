/* Foreign code and foreign patterns that do not end, or end the process: a line says whose they
 * are. Small files and short templates that stand for very much.
 */
#include <sys/resource.h>
#include <time.h>

#include "base/error.h"
#include "chat/template/template.h"
#include "cli/cli_case.h"
#include "tokenizer/unicode/pattern.h"

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

/* Quantifiers in each other, references to groups, recursion, sets of expressions that all fail. */
Test(limits_cases, expressions_that_try_for_ever)
{
    static const struct {
        const char *expression, *unit;
    } cases[] = {{"(a+)+$", "aaaaaaaab"},
                 {"(a|aa)+b", "a"},
                 {"((a+)+)+b", "a"},
                 {"(\\w+\\s?)*\\.", "word "},
                 {"(.+)\\1+\\1b", "a"},
                 {"(?=.*a)(?=.*b)(?=.*c)", "a"},
                 {"((a{1,100}){1,100}){1,100}b", "a"},
                 {"(\\((?:[^()]|(?1))*\\))", "("},
                 {"(?:a?){200}a{200}b", "a"},
                 {"(\\p{L}|\\p{Lu}|\\p{Ll})*\\p{N}", "\xff\xe2\x82"},
                 {"(?i:(a|A)+)$", "aaaab"},
                 {"(?(?=a)a*b|c)", "a"}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const double begun = seconds();
        const lathe_status status = split_by(cases[i].expression, cases[i].unit, 200000);
        const double taken = seconds() - begun;
        cr_expect_lt(taken, 6.0, "%s takes %.1f s", cases[i].expression, taken);
        if (status != LATHE_OK)
            cr_expect_str_not_empty(lathe_error_message(), "%s", cases[i].expression);
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

/* A tokenizer.json with bytes as tokens, a normalizer and a decoder. */
static void put_tokenizer(const char *normalizer, const char *decoder)
{
    FILE *file = fopen("tokenizer.json", "wb");
    cr_assert_not_null(file);
    (void)fprintf(file,
                  "{\"added_tokens\": [{\"id\": 3, \"content\": \"</s>\", \"special\": true}], "
                  "\"normalizer\": %s, \"pre_tokenizer\": null, \"post_processor\": null, "
                  "\"decoder\": %s, \"model\": {\"type\": \"BPE\", \"unk_token\": \"u\", "
                  "\"vocab\": {\"u\": 0, \"a\": 1, \"b\": 2, \"</s>\": 3}, \"merges\": []}}",
                  normalizer, decoder);
    cr_assert_eq(fclose(file), 0);
}

/* Replace makes any text of a character, and sixteen steps may each lengthen the text: 200 kB
 * became 20 GB, and more. */
Test(limits_cases, normalizers_and_decoders_that_lengthen_a_text, .init = make_folder,
     .fini = remove_folder)
{
    static char step[4000], steps[32000];
    put_times("text.txt", "a", 100000);
    (void)snprintf(step, sizeof step,
                   "{\"type\": \"Replace\", \"pattern\": {\"String\": \"a\"}, "
                   "\"content\": \"%01000d\"}",
                   0);
    put_tokenizer(step, "null");
    expect(LATHE " tokenizer encode . text.txt 2>&1", 1,
           "the tokenizer's normalizer makes more than 6404096 bytes of a text of 100000, which is "
           "the most that is allowed");
    for (int i = 0; i < 16; i++)
        (void)snprintf(steps + strlen(steps), sizeof steps - strlen(steps),
                       "%s{\"type\": \"Replace\", \"pattern\": {\"String\": \"a\"}, \"content\": "
                       "\"aa\"}",
                       i ? ", " : "{\"type\": \"Sequence\", \"normalizers\": [");
    (void)snprintf(steps + strlen(steps), sizeof steps - strlen(steps), "]}");
    put_tokenizer(steps, "null");
    put_times("short.txt", "a",
              2000); /* AddressSanitizer's memmem reads the whole text each time */
    expect(LATHE " tokenizer encode . short.txt 2>&1", 1, "makes more than 132096 bytes");
    put_tokenizer("null", step);
    put_times("ids.txt", "1 ", 10000);
    expect(LATHE " tokenizer decode . - < ids.txt 2>&1", 1,
           "the tokenizer's decoder makes more than 644096 bytes of tokens of 10000");
}

/* It took 48 s of 900 kB: each name was searched from the begin of the header. */
Test(limits_cases, a_csv_file_with_100000_columns, .init = make_folder, .fini = remove_folder)
{
    FILE *file = fopen("wide.csv", "wb");
    cr_assert_not_null(file);
    for (int i = 0; i < 100000; i++)
        (void)fprintf(file, "c%d,", i);
    (void)fputs("text\n", file);
    for (int i = 0; i < 100000; i++)
        (void)fputs("1,", file);
    (void)fputs("the wheel turns and the tool holds\n", file);
    cr_assert_eq(fclose(file), 0);
    put("run.toml", "[model]\nmodel_type = \"llama\"\nvocab_size = 260\nhidden_size = 32\n"
                    "intermediate_size = 64\nnum_hidden_layers = 1\nnum_attention_heads = 2\n"
                    "max_position_embeddings = 64\n[tokenizer]\npath = \"bytes\"\n[data]\n"
                    "datasets = [{ path = \"wide.csv\" }]\nseq_len = 16\n");
    struct rusage used;
    expect(LATHE " data run.toml 2>&1", 0, "1 document, 35 tokens");
    cr_assert_eq(getrusage(RUSAGE_CHILDREN, &used), 0);
    cr_expect_lt(used.ru_utime.tv_sec, 6, "%ld s", (long)used.ru_utime.tv_sec);
}

#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
/* 617 bytes took 1.1 GB and 49 s. */
Test(limits_cases, equal_texts_in_parquet, .init = make_folder, .fini = remove_folder)
{
    if (access(LATHE_TEST_BUILD "/lib/lathe/plugins/reader/arrow-shim.so", F_OK) != 0)
        cr_skip_test("Lathe was built without Apache Arrow (LATHE_ARROW_ROOT)");
    struct rusage used;
    put("run.toml", "[model]\nmodel_type = \"llama\"\nvocab_size = 260\nhidden_size = 32\n"
                    "intermediate_size = 64\nnum_hidden_layers = 1\nnum_attention_heads = 2\n"
                    "max_position_embeddings = 64\n[tokenizer]\npath = \"bytes\"\n[data]\n"
                    "datasets = [{ path = \"" LATHE_TEST_DATA
                    "/golden/data/readers/hostile/equal_4000.parquet\" }]\nseq_len = 16\n");
    expect(LATHE " data run.toml 2>&1", 2, "row 35: up to here the rows have 35 MiB as JSON");
    cr_assert_eq(getrusage(RUSAGE_CHILDREN, &used), 0);
    cr_expect_lt(used.ru_maxrss, 200 << 10, "%ld kB", used.ru_maxrss);
    cr_expect_lt(used.ru_utime.tv_sec, 4, "%ld s", (long)used.ru_utime.tv_sec);
}
#endif

/* Characters of a text that is not ASCII are counted from its begin: 16 s, beyond all limits. */
Test(limits_cases, characters_far_inside_a_text)
{
    static const char text[] =
        "{% set s = '\xc3\xa9' * 10**6 %}{% for i in range(10**5) %}{{ s[i + "
        "800000] }}{% endfor %}";
    lathe_template *tpl = NULL;
    const lathe_template_input input = {0};
    lathe_rendering out = {0};
    cr_assert_eq(lathe_template_parse("t", text, (int64_t)strlen(text), &tpl), LATHE_OK);
    const double begun = seconds();
    cr_expect_eq(lathe_template_render(tpl, &input, &out), LATHE_E_UNSUPPORTED);
    cr_expect_lt(seconds() - begun, 6.0, "%.1f s", seconds() - begun);
    cr_expect_not_null(strstr(lathe_error_message(), "more than 67108864 steps"), "%s",
                       lathe_error_message());
    lathe_rendering_fini(&out);
    lathe_template_destroy(tpl);
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
