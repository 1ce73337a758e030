/* Runs every command with every run file of examples/, also with each section removed in turn: no
 * command ends by a signal, each exits with 0, 1 or 2, a failure gives one message, and a file that
 * validate accepts trains and generates. The files are made small: a model of one layer, a few
 * steps, a few texts as data. */
#include "cli_case.h"

#define LATHE LATHE_TEST_BUILD "/bin/lathe"
#define EXAMPLES LATHE_TEST_DATA "/../examples"

enum { MAX_FILE = 1 << 16, MAX_SECTIONS = 32 };

TestSuite(examples, .init = make_folder, .fini = remove_folder);

/* Keys that make a run large, and small values for them. */
static const struct {
    const char *key, *value;
} small[] = {{"hidden_size", "32"},
             {"intermediate_size", "64"},
             {"num_hidden_layers", "1"},
             {"num_attention_heads", "2"},
             {"num_key_value_heads", "2"},
             {"max_position_embeddings", "64"},
             {"seq_len", "32"},
             {"micro_batch_size", "2"},
             {"max_steps", "3"},
             {"warmup_steps", "1"},
             {"eval_every", "2"},
             {"log_every", "1"},
             {"train", "{ vocab_size = 280 }"}};

/* Commands in this order, and their arguments after the name of the run file. */
static const struct {
    const char *name, *after;
} commands[] = {{"validate", ""},      {"plan", ""},
                {"plot schedule", ""}, {"data", ""},
                {"train", ""},         {"generate", "--prompt int --max-new-tokens 3"},
                {"eval", ""},          {"plan", "--json"}};
enum { VALIDATE = 0, TRAIN = 4, GENERATE = 5, N_COMMANDS = sizeof commands / sizeof commands[0] };

/* A run file cut into sections: from a line that begins with '[' to the next one. */
typedef struct run_file {
    char path[256]; /* below the folder: examples/quickstart/run.toml */
    char text[MAX_FILE];
    const char *sections[MAX_SECTIONS + 1]; /* the last one: end of the text */
    int n;
} run_file;

/* Copies one line, with the small value if its key has one. */
static char *put_line(char *out, const char *line, size_t n)
{
    const size_t key = strspn(line, "abcdefghijklmnopqrstuvwxyz_");
    for (size_t i = 0; i < sizeof small / sizeof small[0]; i++)
        if (strlen(small[i].key) == key && strncmp(line, small[i].key, key) == 0 &&
            strncmp(line + key, " = ", 3) == 0)
            return out + sprintf(out, "%s = %s\n", small[i].key, small[i].value);
    memcpy(out, line, n);
    return out + n;
}

static void read_example(run_file *f)
{
    static char text[MAX_FILE];
    char path[512];
    snprintf(path, sizeof path, EXAMPLES "/../%s", f->path);
    FILE *file = fopen(path, "r");
    cr_assert_not_null(file, "%s", path);
    const size_t n = fread(text, 1, sizeof text / 2, file);
    fclose(file);
    cr_assert_lt(n, sizeof text / 2);
    text[n] = '\0';
    char *out = f->text;
    f->n = 0;
    for (const char *line = text; *line;) {
        const size_t length = strcspn(line, "\n") + 1;
        if (*line == '[') {
            cr_assert_lt(f->n, MAX_SECTIONS);
            f->sections[f->n++] = out;
        }
        out = put_line(out, line, length);
        line += length;
    }
    f->sections[f->n] = out;
    *out = '\0';
    cr_assert_gt(f->n, 3, "%s", f->path);
}

/* Writes the file without section `left_out`; -1: the whole file. */
static void write_variant(const run_file *f, int left_out)
{
    FILE *file = fopen(f->path, "w");
    cr_assert_not_null(file, "%s", f->path);
    for (int i = 0; i < f->n; i++)
        if (i != left_out)
            fwrite(f->sections[i], 1, (size_t)(f->sections[i + 1] - f->sections[i]), file);
    cr_assert_eq(fclose(file), 0);
}

/* Writes texts to all places where the examples read data: the folders of the sources. */
static void make_data(void)
{
    static const char *const dirs[] = {"core/run", "kernels", "plugins", "docs", "examples"};
    char path[64];
    for (size_t i = 0; i < sizeof dirs / sizeof dirs[0]; i++) {
        snprintf(path, sizeof path, "mkdir -p %s", dirs[i]);
        cr_assert_eq(run(path), 0);
        for (int k = 0; k < 4; k++) {
            snprintf(path, sizeof path, "%s/%d.c", dirs[i], k);
            put_times(path, "int main(void)\n{\n    return 0;\n}\n", 3 + k);
        }
    }
    put_times("README.md", "Lathe trains large language models.\n", 8);
}

/* Whether stderr has exactly one message: a line "lathe train: ...", an error of the run file, or
 * several with their number. */
static int is_one_message(const char *name)
{
    char begin[64];
    int n = 0, n_lists = 0, n_errors = 0;
    snprintf(begin, sizeof begin, "lathe %s:", name);
    for (const char *line = output; line; line = strchr(line, '\n')) {
        line += *line == '\n';
        n += strncmp(line, begin, strlen(begin)) == 0;
        const size_t length = strcspn(line, "\n");
        n_lists += length > 7 && strncmp(line + length - 7, " errors", 7) == 0;
    }
    for (const char *at = strstr(output, ": error: "); at; at = strstr(at + 1, ": error: "))
        n_errors++;
    return n == 1 ? n_lists == 0 : n == 0 && (n_errors == 1 ? n_lists == 0 : n_lists == 1);
}

/* Runs all commands and stores their exit codes; `output` has the stderr of the last one. */
static void run_all(const run_file *f, const char *what, int *codes)
{
    cr_assert_eq(run("find . -name out -type d -prune -exec rm -rf {} + ; find . -name .lathe "
                     "-prune -exec rm -rf {} +"),
                 0);
    for (int i = 0; i < N_COMMANDS; i++) {
        char command[512];
        snprintf(command, sizeof command, LATHE " %s %s %s 2>&1 >/dev/null </dev/null",
                 commands[i].name, f->path, commands[i].after);
        const int code = codes[i] = run(command); /* asserts that no signal ended it */
        cr_expect(code == 0 || code == 1 || code == 2, "%s, %s: exit %d\n%s", what, command, code,
                  output);
        cr_expect(code == 0 || is_one_message(commands[i].name),
                  "%s, %s: exit %d, not one message:\n%s", what, command, code, output);
        cr_expect_null(strstr(output, "(null)"), "%s, %s:\n%s", what, command, output);
        if (codes[VALIDATE] == 0 && (i == TRAIN || i == GENERATE))
            cr_expect_eq(code, 0, "%s is valid, and %s exits with %d:\n%s", what, command, code,
                         output);
    }
}

static void check_example(const char *path)
{
    static run_file f;
    int codes[N_COMMANDS];
    char what[512], command[512];
    snprintf(f.path, sizeof f.path, "%s", path);
    snprintf(command, sizeof command, "mkdir -p $(dirname %s)", path);
    cr_assert_eq(run(command), 0);
    make_data();
    read_example(&f);
    write_variant(&f, -1);
    run_all(&f, "the whole file", codes);
    for (int i = 0; i < N_COMMANDS; i++)
        cr_expect_eq(codes[i], 0, "%s: %s exits with %d", path, commands[i].name, codes[i]);
    for (int k = 0; k < f.n; k++) {
        snprintf(what, sizeof what, "%s without %.*s", path, (int)strcspn(f.sections[k], "\n"),
                 f.sections[k]);
        write_variant(&f, k);
        run_all(&f, what, codes);
        if (strncmp(f.sections[k], "[stage]", 7) == 0)
            cr_expect(codes[VALIDATE] == 0 && codes[GENERATE] == 0, "%s", what);
    }
}

Test(examples, quickstart_with_each_section_left_out_never_crashes_a_command)
{
    check_example("examples/quickstart/run.toml");
}

Test(examples, optimizers_with_each_section_left_out_never_crashes_a_command)
{
    check_example("examples/optimizers/run.toml");
}

/* The data change after the training: training a tokenizer again would give another one. */
Test(examples, generate_takes_the_tokenizer_that_the_model_was_trained_with)
{
#define GENERATE_AGAIN                                                                             \
    LATHE " generate run.toml --prompt 'the wheel' --temperature 0 --train.precision fp32"
    static char before[sizeof output];
    put("run.toml",
        "[model]\nmodel_type = \"llama\"\nhidden_size = 32\n"
        "intermediate_size = 64\nnum_hidden_layers = 1\nnum_attention_heads = 2\n"
        "[tokenizer]\ntrain = { vocab_size = 280 }\n"
        "[data]\ndatasets = [{ path = \"text.txt\" }]\nseq_len = 16\n"
        "[train]\nmax_steps = 3\n[optimizer]\nlr = 1e-2\n[checkpoint]\ndir = \"out\"\n");
    put_times("text.txt", "the wheel turns and a thread is cut\n", 50);
    expect(GENERATE_AGAIN " 2>&1", 2, "holds no checkpoint yet");
    expect(GENERATE_AGAIN " --checkpoint.dir '' 2>&1", 2,
           "its checkpoint.dir is empty, so it has no checkpoint to read");
    expect(LATHE " train run.toml 2>&1", 0, "checkpoint out/");
    expect(GENERATE_AGAIN, 0, "the wheel");
    memcpy(before, output, sizeof before);
    put_times("text.txt", "zq xj vk zq xj vk\n", 50);
    expect(GENERATE_AGAIN, 0, "the wheel");
    cr_expect_str_eq(output, before);
    expect(LATHE " eval run.toml 2>&1", 2,
           "run.toml:9:2: error: there is no data to evaluate on: set data.validation,");
}

/* The example's own files, with a tiny model and a few records beside them. */
Test(examples, pipeline_trains_its_steps_and_its_lineage_has_them)
{
    cr_assert_eq(run("cp -r " EXAMPLES "/pipeline ."), 0);
    put("tiny.toml", "[model]\nmodel_type = \"llama\"\nhidden_size = 16\nintermediate_size = 32\n"
                     "num_hidden_layers = 1\nnum_attention_heads = 2\n"
                     "max_position_embeddings = 256\n[tokenizer]\ntrain = { vocab_size = 280 }\n"
                     "[data]\ndatasets = [{ path = \"text.txt\" }]\nseq_len = 16\n"
                     "[train]\nmax_steps = 1\n[checkpoint]\ndir = \"tiny\"\n");
    put_times("text.txt", "Question: how many? Answer: 3 + 4 = 7\n", 50);
    put_times("pipeline/questions.jsonl",
              "{\"question\": \"3 and 4?\", \"answer\": \"3 + 4 = 7\"}\n", 80);
    put_times("pipeline/pairs.jsonl",
              "{\"question\": \"3 and 4?\", \"right\": \"7\", \"wrong\": \"8\"}\n", 80);
    put_times("pipeline/sums.jsonl", "{\"question\": \"3 and 4?\", \"answer\": \"7\"}\n", 40);
    expect(LATHE " train tiny.toml 2>&1 && mv tiny/step-00000001 pipeline/model", 0, "checkpoint");
    expect(LATHE " pipeline pipeline/pipe.toml --train.max_steps 2 2>&1", 0, "pipeline finished: ");
    cr_expect_not_null(strstr(output, "validation loss"), "%s", output);
    expect(LATHE " lineage pipeline/out/ppo 2>&1", 0, "stage     sft");
    cr_expect_not_null(strstr(output, "stage     dpo"), "%s", output);
}

/* From LoRA to a file for llama.cpp, with a tiny model. */
Test(examples, lora_is_trained_in_two_steps_merged_and_converted)
{
    cr_assert_eq(run("cp -r " EXAMPLES "/lora ."), 0);
    put("tiny.toml", "[model]\nmodel_type = \"llama\"\nhidden_size = 32\nintermediate_size = 64\n"
                     "num_hidden_layers = 1\nnum_attention_heads = 2\n"
                     "max_position_embeddings = 256\n[tokenizer]\ntrain = { vocab_size = 280 }\n"
                     "[data]\ndatasets = [{ path = \"text.txt\" }]\nseq_len = 16\n"
                     "[train]\nmax_steps = 1\n[checkpoint]\ndir = \"tiny\"\n");
    put_times("text.txt", "Question: how many? Answer: 3 + 4 = 7\n", 50);
    put_times("lora/questions.jsonl", "{\"question\": \"3 and 4?\", \"answer\": \"3 + 4 = 7\"}\n",
              40);
    put_times("lora/pairs.jsonl",
              "{\"question\": \"3 and 4?\", \"right\": \"7\", \"wrong\": \"8\"}\n", 40);
    expect(LATHE " train tiny.toml 2>&1 && mv tiny/step-00000001 lora/model", 0, "checkpoint");
    expect("PATH=" LATHE_TEST_BUILD "/bin:$PATH lora/run.sh --train.max_steps 2 2>&1", 0,
           "<- adapter, reference: ");
    cr_expect_not_null(strstr(output, "made      by lathe merge"), "%s", output);
    expect(LATHE " convert lora/out/model.gguf -o back 2>&1 && ls back", 0, "tokenizer.json");
}

/* A file added to examples/ needs a test above. Those of embed and policy are for programs of their
 * own, which tests/package/check.sh runs. */
Test(examples, every_run_file_of_examples_is_tested)
{
    cr_assert_eq(run("cd " EXAMPLES " && find . -name '*.toml' | sort"), 0);
    cr_expect_str_eq(
        output,
        "./embed/run.toml\n./lora/dpo.toml\n./lora/pipe.toml\n./lora/sft.toml\n"
        "./optimizers/run.toml\n./pipeline/dpo.toml\n./pipeline/pipe.toml\n./"
        "pipeline/ppo.toml\n./pipeline/sft.toml\n./policy/run.toml\n./quickstart/run.toml\n");
}
