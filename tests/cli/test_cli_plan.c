/* lathe plan: its output about the schedule. */
#include "cli_case.h"
#include "support/child_program.h"

#define LATHE LATHE_TEST_BUILD "/bin/lathe"

static void setup(void)
{
    child_programs_skip_the_leak_check();
    make_folder();
    put("run.toml", "[model]\nmodel_type = \"llama\"\nvocab_size = 300\nhidden_size = 32\n"
                    "intermediate_size = 64\nnum_hidden_layers = 1\nnum_attention_heads = 2\n"
                    "max_position_embeddings = 64\n[tokenizer]\npath = \"bytes\"\n"
                    "[data]\nseq_len = 32\n");
}

TestSuite(cli_plan, .init = setup, .fini = remove_folder);

/* A run of three steps has three rates, although the table has room for more. */
Test(cli_plan, each_step_of_a_short_schedule_is_listed_once)
{
    expect(LATHE " plan run.toml --train.max_steps 3 2>&1", 0, "over 3 steps");
    for (int step = 1; step <= 3; step++) { /* counted from 1, as train does */
        char row[32];
        (void)snprintf(row, sizeof row, "\n  step %d ", step);
        const char *first = strstr(output, row);
        cr_assert_not_null(first, "no step %d in\n%s", step, output);
        cr_expect_null(strstr(first + 1, row), "step %d comes twice in\n%s", step, output);
    }
    expect(LATHE " plan run.toml --train.max_steps 1 --json 2>&1", 0,
           "\"schedule\": [{\"step\": 1, ");
    cr_expect_null(strstr(strstr(output, "\"schedule\""), "}, {"), "%s", output);
}

/* The work of a small model is not rounded to zero. */
Test(cli_plan, the_work_of_a_small_model_is_shown_in_gflop)
{
    expect(LATHE " plan run.toml --train.max_steps 3 2>&1", 0, " GFLOP and 32 tokens per step");
    cr_expect_null(strstr(output, " 0.000 GFLOP"), "%s", output);
}

Test(cli_plan, row_lengths_of_padded_rows_are_listed)
{
    put("p.jsonl", "{\"prompt\": \"a\", \"chosen\": \"b\", \"rejected\": \"c\"}\n");
    expect(LATHE
           " plan run.toml --data.seq_len 200 --model.max_position_embeddings 256 "
           "--stage.name dpo --data.datasets '[{path = \"p.jsonl\"}]' --train.max_steps 1 2>&1",
           0, "rows of 64, 128, 192 or 200 tokens, as its longest sequence needs");
    expect(LATHE " plan run.toml --data.seq_len 200 --model.max_position_embeddings 256 "
                 "--train.max_steps 1 2>&1",
           0, "work");
    cr_expect_null(strstr(output, "at most"), "%s", output);
}

/* Every command uses these words. */
Test(cli_plan, a_file_without_a_model_is_refused)
{
    put("empty.toml", "");
    expect(LATHE " plan empty.toml 2>&1", 2,
           "empty.toml: error: model.path or model.model_type is required");
    expect(LATHE " validate empty.toml 2>&1", 2,
           "empty.toml: error: model.path or model.model_type is required");
}
