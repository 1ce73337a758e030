/* A small run that saves every two steps, in a folder of its own. */
#ifndef LATHE_TEST_CLI_TRAINING_CASE_H
#define LATHE_TEST_CLI_TRAINING_CASE_H

#include "cli_case.h"
#include "support/child_program.h"

#define LATHE LATHE_TEST_BUILD "/bin/lathe"

static const char run_file[] = "[model]\n"
                               "model_type = \"llama\"\n"
                               "vocab_size = 260\n"
                               "hidden_size = 32\n"
                               "intermediate_size = 64\n"
                               "num_hidden_layers = 1\n"
                               "num_attention_heads = 2\n"
                               "max_position_embeddings = 64\n"
                               "[tokenizer]\n"
                               "path = \"bytes\"\n"
                               "[data]\n"
                               "datasets = [{ path = \"text.txt\", type = \"text\" }]\n"
                               "validation_split = 0.2\n"
                               "seq_len = 16\n"
                               "[train]\n"
                               "max_steps = 6\n"
                               "eval_every = 2\n"
                               "threads = 1\n"
                               "[checkpoint]\n"
                               "dir = \"out\"\n"
                               "every = 2\n";

static void setup(void)
{
    child_programs_skip_the_leak_check();
    make_folder();
    put("run.toml", run_file);
    put_times("text.txt", "the wheel turns and the tool holds, so the part is made\n", 60);
}

#endif
