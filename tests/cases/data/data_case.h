/* Runs `lathe data` on a record of a test. */
#ifndef LATHE_TEST_DATA_CASE_H
#define LATHE_TEST_DATA_CASE_H

#include "cli/cli_case.h"

#define LATHE LATHE_TEST_BUILD "/bin/lathe"
#define DATA LATHE " data run.toml --n 1"
#define U(text) "{\"role\": \"user\", \"content\": \"" text "\"}"
#define A(text) "{\"role\": \"assistant\", \"content\": \"" text "\"}"
#define S(text) "{\"role\": \"system\", \"content\": \"" text "\"}"

static void write_run(void)
{
    make_folder();
    put("t.jinja", "{%- for m in messages %}[{{ m.role }}]{{ m.content }}[/]{% endfor %}"
                   "{% if add_generation_prompt %}[assistant]{% endif %}");
    put("run.toml",
        "[model]\nmodel_type = \"llama\"\nhidden_size = 32\nintermediate_size = 64\n"
        "num_hidden_layers = 1\nnum_attention_heads = 2\n"
        "max_position_embeddings = 256\n[tokenizer]\npath = \"bytes\"\n[data]\n"
        "datasets = [{ path = \"d.jsonl\" }]\nchat_template = \"t.jinja\"\n"
        "seq_len = 256\nshuffle = false\n[stage]\nname = \"dpo\"\n[train]\nprecision = \"fp32\"\n"
        "max_steps = 1\nthreads = 1\n[checkpoint]\ndir = \"out\"\n");
}

/* Expects the text of a row after its header, without the rest of the output. */
__attribute__((unused)) static void shows(const char *record, const char *options, const char *row,
                                          const char *other)
{
    char command[1024];
    put("d.jsonl", record);
    (void)snprintf(command, sizeof command, DATA " %s 2>&1", options);
    cr_expect_eq(run(command), 0, "%s\n%s", command, output);
    cr_expect_not_null(strstr(output, row), "%s: no '%s' in\n%s", record, row, output);
    if (other)
        cr_expect_not_null(strstr(output, other), "%s: no '%s' in\n%s", record, other, output);
}

__attribute__((unused)) static void refuses(const char *record, const char *options,
                                            const char *why)
{
    char command[1024];
    put("d.jsonl", record);
    (void)snprintf(command, sizeof command, DATA " %s 2>&1", options);
    cr_expect_neq(run(command), 0, "%s", output);
    cr_expect_not_null(strstr(output, why), "%s: no '%s' in\n%s", record, why, output);
    cr_expect_not_null(strstr(output, "d.jsonl:1: "), "%s", output);
}

#endif
