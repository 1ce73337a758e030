/* A run is decided once: each command reads the run file and config.json, and loads each plugin,
 * once, however many settings it plans. A library that is loaded before the command writes down
 * what it opens (tests/interruptions/opens.c). */
#include "cli_case.h"

#define LATHE LATHE_TEST_BUILD "/bin/lathe"
#define COUNTED "LD_PRELOAD=" LATHE_TEST_BUILD "/tests/opens.so LATHE_TEST_OPENS=$PWD/opens "

/* A plugin is opened as a file first, and then loaded by a name that is never the same. */
#define PLUGINS "^read .*/lathe/plugins/.*[.]so$"

static const char base_file[] = "[model]\nmodel_type = \"llama\"\nvocab_size = 260\n"
                                "hidden_size = 32\nintermediate_size = 64\nnum_hidden_layers = 3\n"
                                "num_attention_heads = 2\nmax_position_embeddings = 64\n"
                                "[tokenizer]\npath = \"bytes\"\n"
                                "[data]\ndatasets = [{ path = \"text.jsonl\" }]\nseq_len = 32\n"
                                "[train]\nmax_steps = 1\nprecision = \"fp32\"\nthreads = 1\n"
                                "[log]\nprogress = \"off\"\n[checkpoint]\ndir = \"base\"\n";

static const char run_file[] = "[model]\npath = \"model\"\n"
                               "[data]\ndatasets = [{ path = \"text.jsonl\" }]\nseq_len = 32\n"
                               "[train]\nmax_steps = 2\nmicro_batch_size = 6\nthreads = 1\n"
                               "[generate]\nprompt = \"the\"\nmax_new_tokens = 4\n"
                               "[log]\nprogress = \"off\"\n[checkpoint]\ndir = \"out\"\n";

static void setup(void)
{
    make_folder();
    put_times("text.jsonl", "{\"text\": \"the wheel turns and the tool holds\"}\n", 40);
    put("base.toml", base_file);
    put("run.toml", run_file);
    put("plain.jinja", "{% for m in messages %}{{ m.content }}\n{% endfor %}");
    expect(LATHE " train base.toml 2>&1", 0, "checkpoint");
    /* without the manifest, against which all files of a checkpoint are hashed */
    cr_assert_eq(run("cp -r base/step-00000001 model && rm -r model/manifest.json && "
                     "echo '{\"eos_token_id\": 7}' >model/generation_config.json && " LATHE
                     " tokenizer train text.jsonl -o tokens --vocab-size 258 && "
                     "cp tokens/*.json model"),
                 0);
}

TestSuite(read_once, .init = setup, .fini = remove_folder, .timeout = 120);

/* Runs a command. Expects that what the pattern names was opened, and nothing of it twice. */
static void expect_once(const char *command, const char *pattern)
{
    char line[512];
    (void)snprintf(line, sizeof line, "grep -E '%s' opens | sort | uniq -c | sort -rn", pattern);
    cr_assert_eq(run(line), 0);
    cr_expect_neq(output[0], '\0', "lathe %s: nothing was opened", command);
    cr_expect_eq(atoi(output), output[0] ? 1 : 0, "lathe %s opened more than once:\n%s", command,
                 output);
}

static const char *const commands[] = {
    "validate run.toml",
    "plan run.toml",
    "plan run.toml --all-methods",
    "plan run.toml --adapter.name auto",
    "plan run.toml --train.memory_limit 0.001",
    "plan run.toml --ranks 2 --link 10Gbit,0.2ms",
    "validate run.toml --adapter.name auto",
    "validate run.toml --train.memory_limit 0.001",
    "train run.toml",
    "train run.toml --adapter.name auto",
    "train run.toml --parallel.shard auto",
    "train run.toml --train.max_steps 3",
    "generate run.toml",
    "eval run.toml --data.validation '[{path = \"text.jsonl\"}]'",
    "eval run.toml --data text.jsonl",
    "eval run.toml --data text.jsonl --stage.name pretrain",
    "chat run.toml --data.chat_template plain.jinja </dev/null",
};

Test(read_once, files_and_plugins)
{
    char line[512];
    for (size_t i = 0; i < sizeof commands / sizeof *commands; i++) {
        (void)snprintf(line, sizeof line,
                       "rm -rf opens %s; " COUNTED LATHE " %s >said 2>&1; echo $?",
                       strncmp(commands[i], "train", 5) == 0 ? "out" : "", commands[i]);
        cr_assert_eq(run(line), 0);
        cr_expect(output[0] == '0' || output[0] == '2', "lathe %s: exit %s", commands[i], output);
        expect_once(commands[i], "^read run[.]toml$");
        expect_once(commands[i], "^read model/config[.]json$");
        expect_once(commands[i], PLUGINS);
    }
}

/* A folder is read for its context length, and then opened. */
Test(read_once, folders)
{
    static const char *const how[] = {"generate model --prompt the --max-new-tokens 2",
                                      "eval model --data text.jsonl"};
    for (size_t i = 0; i < sizeof how / sizeof *how; i++) {
        char line[512];
        (void)snprintf(line, sizeof line, "rm -rf opens; " COUNTED LATHE " %s >said 2>&1; echo $?",
                       how[i]);
        cr_assert_eq(run(line), 0);
        cr_expect_eq(output[0], '0', "lathe %s: exit %s", how[i], output);
        expect_once(how[i], "^read model/config[.]json$");
        expect_once(how[i], PLUGINS);
    }
}

/* The stage and the renderer that a checkpoint remembers are looked up before its run is made. */
Test(read_once, plugins_of_checkpoints)
{
    static const char *const how[] = {
        "eval out --data text.jsonl",
        "eval out --data.validation '{path = \"text.jsonl\"}'",
        "generate out --prompt the",
        "chat out --data.chat_template plain.jinja </dev/null",
        "eval tuned --data text.jsonl",
        "generate tuned --prompt the",
        "merge tuned -o merged",
        "convert tuned -o tuned.gguf",
        "quantize out --quant.name int8 -o small --text text.jsonl",
        "generate model --adapter a=tuned --adapter b=tuned --prompt the"};
    expect(LATHE " train run.toml 2>&1", 0, "checkpoint");
    expect(LATHE " train run.toml --adapter.name lora --checkpoint.dir tuned 2>&1", 0,
           "checkpoint");
    for (size_t i = 0; i < sizeof how / sizeof *how; i++) {
        char line[512];
        (void)snprintf(line, sizeof line, "rm -rf opens; " COUNTED LATHE " %s >said 2>&1; echo $?",
                       how[i]);
        cr_assert_eq(run(line), 0);
        cr_expect_eq(output[0], '0', "lathe %s: exit %s", how[i], output);
        expect_once(how[i], PLUGINS);
    }
}

Test(read_once, the_schedule)
{
    cr_assert_eq(run("rm -rf opens; " COUNTED LATHE " plot schedule run.toml "
                     "--optimizer.lr 1e-3 >said 2>&1; echo $?"),
                 0);
    cr_expect_eq(output[0], '0', "exit %s", output);
    expect_once("plot schedule", "^read run[.]toml$");
    expect_once("plot schedule", PLUGINS);
}

/* A second step begins with the checkpoint of the first. */
Test(read_once, steps_of_a_pipeline)
{
    put("pipe.toml", "[[step]]\nname = \"one\"\nrun = \"run.toml\"\n"
                     "[[step]]\nname = \"two\"\nrun = \"next.toml\"\n"
                     "overrides = { \"train.max_steps\" = 3 }\n");
    cr_assert_eq(run("sed 's/\"model\"/\"@one\"/; s/\"out\"/\"second\"/' run.toml >next.toml"), 0);
    static const char *const how[] = {"pipeline pipe.toml --dry-run", "pipeline pipe.toml"};
    for (size_t i = 0; i < sizeof how / sizeof *how; i++) {
        char line[512];
        (void)snprintf(line, sizeof line, "rm -rf opens; " COUNTED LATHE " %s >said 2>&1; echo $?",
                       how[i]);
        cr_assert_eq(run(line), 0);
        cr_expect_eq(output[0], '0', "lathe %s: exit %s", how[i], output);
        expect_once(how[i], "^read (run|next)[.]toml$");
        expect_once(how[i], PLUGINS);
    }
}
