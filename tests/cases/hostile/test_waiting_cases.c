/* A named pipe instead of a file is refused or passed over at once. Opening it would wait for a
 * program at its other end, and no signal ends that wait. */
#include <sys/stat.h>

#include "cli/cli_case.h"

#define LATHE LATHE_TEST_BUILD "/bin/lathe"
/* The exit code of a command that still waits after this time is 124; each takes some 0.1 s. */
#define SOON "timeout -s KILL 60 " LATHE

static const char run_file[] =
    "[model]\nmodel_type = \"llama\"\nhidden_size = 32\nintermediate_size = 64\n"
    "num_hidden_layers = 1\nnum_attention_heads = 2\nmax_position_embeddings = 64\n"
    "[tokenizer]\npath = \"bytes\"\n[data]\ndatasets = [{ path = \"text.txt\" }]\nseq_len = 16\n"
    "[train]\nprecision = \"fp32\"\nmax_steps = 2\nthreads = 1\n"
    "[log]\nprogress = \"off\"\n[checkpoint]\ndir = \"out\"\n";

static void setup(void)
{
    make_folder();
    put("run.toml", run_file);
    put_times("text.txt", "the wheel turns and the tool holds\n", 40);
    put("t.jinja", "{% for m in messages %}{{ m.content }}{% endfor %}");
    put("words.txt", "hello\n");
    cr_assert_eq(run(LATHE " train run.toml 2>&1 && mv out whole"), 0, "%s", output);
}

TestSuite(waiting_cases, .init = setup, .fini = remove_folder, .timeout = 240);

static void expect_end(const char *what, const char *command)
{
    char line[512];
    (void)snprintf(line, sizeof line, "%s </dev/null 2>&1; code=$?; [ $code -le 3 ]", command);
    cr_expect_eq(run(line), 0, "%s, %s: it waits, or is killed: %s", what, command, output);
}

Test(waiting_cases, files_of_a_run_and_of_its_model)
{
    static const char *const names[] = {"latest",
                                        "best",
                                        "lock",
                                        "run.json",
                                        "events.jsonl",
                                        "metrics.jsonl",
                                        "samples.jsonl",
                                        "branches.json",
                                        "step-00000002/manifest.json",
                                        "step-00000002/config.json",
                                        "step-00000002/model.safetensors",
                                        "step-00000002/tokenizer.json",
                                        "step-00000002/generation_config.json",
                                        "step-00000002/chat_template.jinja",
                                        "step-00000002/state/state.json"};
    static const char *const commands[] = {SOON " train run.toml --train.max_steps 3",
                                           SOON " validate run.toml --train.max_steps 3",
                                           SOON " watch out --once",
                                           SOON " report out -o r.html",
                                           SOON " checkpoint ls out",
                                           SOON " checkpoint verify out",
                                           SOON " lineage out",
                                           SOON " eval out --data text.txt --data.seq_len 16",
                                           SOON " generate out --prompt a --max-new-tokens 2",
                                           SOON " chat out --data.chat_template t.jinja",
                                           SOON " convert out -o m.gguf",
                                           SOON " quantize out --quant.name nf4 -o four"};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        for (size_t k = 0; k < sizeof commands / sizeof commands[0]; k++) {
            char path[128];
            cr_assert_eq(run("rm -rf out four m.gguf && cp -r whole out"), 0);
            (void)snprintf(path, sizeof path, "out/%s", names[i]);
            (void)unlink(path);
            cr_assert_eq(mkfifo(path, 0644), 0, "%s", path);
            expect_end(names[i], commands[k]);
        }
}

Test(waiting_cases, files_that_a_command_names)
{
    static const char *const commands[] = {SOON " eval whole --data pipe --data.seq_len 16",
                                           SOON " generate whole --prompts pipe",
                                           SOON " generate whole --messages pipe",
                                           SOON " chat whole --data.chat_template pipe",
                                           SOON " train pipe",
                                           SOON " import pipe",
                                           SOON " pipeline pipe",
                                           SOON " tokenizer check whole pipe",
                                           SOON
                                           " train run.toml --data.datasets '[{path = \"pipe\"}]'",
                                           SOON " convert pipe -o m.gguf",
                                           SOON " plugin check ./pipe"};
    cr_assert_eq(mkfifo("pipe", 0644), 0);
    for (size_t k = 0; k < sizeof commands / sizeof commands[0]; k++)
        expect_end("pipe", commands[k]);
}
