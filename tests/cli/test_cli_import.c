/* lathe import and lathe new: run files of other trainers and templates, as a user gets them. */
#include "cli/training_case.h"
#include "plug/foreign_keys.h"

TestSuite(cli_import, .init = setup, .fini = remove_folder);

/* Whether the last output has all of these lines, up to a NULL. */
static void expect_lines(const char *const *lines)
{
    for (; *lines; lines++)
        cr_expect_not_null(strstr(output, *lines), "no '%s' in\n%s", *lines, output);
}

/* Imports a file, expects these lines, and expects a run file without an error of its keys. */
static void check(const char *yaml, const char *options, const char *const *lines)
{
    char command[512];
    put("theirs.yaml", yaml);
    (void)remove("ours.toml");
    snprintf(command, sizeof command, LATHE " import theirs.yaml %s -o ours.toml 2>&1", options);
    expect(command, 0, "");
    expect("cat ours.toml", 0, "");
    expect_lines(lines);
    expect(LATHE " validate ours.toml --offline 2>&1", 0, "");
}

Test(cli_import, llamafactory)
{
    static const char yaml[] =
        "model_name_or_path: Qwen/Qwen3-0.6B\nstage: sft\ndo_train: true\nfinetuning_type: lora\n"
        "lora_rank: 8\nlora_target: q_proj,v_proj\ndataset: one,two\ndataset_dir: sets\n"
        "template: qwen3\ncutoff_len: 512\nmax_samples: 100\noutput_dir: saves/x\n"
        "logging_steps: 10\nsave_steps: 500\nper_device_train_batch_size: 2\nbf16: true\n"
        "gradient_accumulation_steps: 8\nlearning_rate: 1.0e-4\nnum_train_epochs: 3.0\n"
        "lr_scheduler_type: cosine\nwarmup_ratio: 0.1\nquantization_bit: 4\nval_size: 0.1\n"
        "report_to: [wandb, tensorboard]\npush_to_hub: false\nuse_badam: true\n";
    static const char *const lines[] = {
        "path = \"Qwen/Qwen3-0.6B\"",
        "{ path = \"sets/one.json\", columns = { prompt = \"q\", completion = \"a\" }, "
        "max_samples = 100 }",
        "validation_split = 0.1",
        "name = \"sft\"",
        "name = \"qwen3\"",
        "name = \"lora\"",
        "r = 8",
        "alpha = 16",
        "target_modules = [\"q_proj\", \"v_proj\"]",
        "name = \"nf4\"",
        "lr = 0.0001",
        "weight_decay = 0  # weight_decay, default of LLaMA-Factory",
        "name = \"cosine\"",
        "warmup_ratio = 0.1",
        "epochs = 3 ",
        "every = 500",
        "tensorboard = true",
        "#   use_badam = true: no equal",
        "#   dataset two: give the path of its file",
        "hf download Qwen/Qwen3-0.6B",
        NULL};
    expect("mkdir sets", 0, "");
    put("sets/dataset_info.json",
        "{\"one\": {\"file_name\": \"one.json\", \"columns\": {\"prompt\": \"q\", \"response\": "
        "\"a\"}}}");
    check(yaml, "", lines);
    cr_expect_null(strstr(output, "push_to_hub"), "what is off needs no words");
}

Test(cli_import, trl)
{
    static const char yaml[] =
        "model_name_or_path: m\ndataset_name: pairs.jsonl\nlearning_rate: 5e-7\nwarmup_steps: 0.1\n"
        "use_peft: true\nlora_r: 16\nlora_target_modules: [q_proj]\nbeta: 0.05\n"
        "loss_type: [ipo, sft]\nmax_steps: -1\nload_in_4bit: true\nnonsense: 1\n";
    static const char *const lines[] = {
        "name = \"dpo\"",
        "beta = 0.05",
        "loss_type = \"ipo\"",
        "warmup_ratio = 0.1",
        "lr = 5e-07",
        "target_modules = [\"q_proj\"]",
        "name = \"nf4\"",
        "epochs = 3  # num_train_epochs, default of TRL",
        "#   loss_type = [\"ipo\", \"sft\"]: only the first is taken",
        "#   nonsense = 1: unknown key",
        NULL};
    check(yaml, "--stage dpo", lines);
    cr_expect_null(strstr(output, "max_steps"));
    (void)remove("ours.toml");
    expect(LATHE " import theirs.yaml -o ours.toml 2>&1", 2, "name it with --stage");
    expect("ls ours.toml 2>&1", 2, "");
}

Test(cli_import, trl_grpo)
{
    static const char yaml[] = "model_name_or_path: m\ndataset_name: q.jsonl\nnum_generations: 4\n"
                               "max_completion_length: 64\nbeta: 0.04\nepsilon: 0.1\n"
                               "gradient_accumulation_steps: 4\nloss_type: dr_grpo\n";
    static const char *const lines[] = {
        "name = \"ppo\"", "group = 4",       "max_new_tokens = 64",        "kl_coef = 0.04",
        "clip_low = 0.1", "clip_high = 0.1", "aggregation = \"constant\"", NULL};
    put("theirs.yaml", yaml);
    expect(LATHE " import theirs.yaml --stage grpo 2>&1", 0, "");
    expect_lines(lines);
}

Test(cli_import, axolotl)
{
    static const char yaml[] =
        "base_model: m\nload_in_4bit: true\nadapter: qlora\ndatasets:\n  - path: chats.jsonl\n"
        "    type: chat_template\n    field_messages: talk\n    roles_to_train: [assistant]\n"
        "val_set_size: 50\nsequence_len: 1024\nsample_packing: true\nlora_r: 32\nlora_alpha: 64\n"
        "lora_target_linear: true\nmicro_batch_size: 2\nnum_epochs: 1\noptimizer: adamw_bnb_8bit\n"
        "learning_rate: 0.0002\nbf16: auto\ngradient_checkpointing: true\nwandb_project: p\n"
        "trl:\n  beta: 0.1\n";
    static const char *const lines[] = {
        "{ path = \"chats.jsonl\", columns = { messages = \"talk\" } }",
        "validation_count = 50",
        "name = \"qlora\"",
        "target_modules = [\"all-linear\"]",
        "name = \"adamw_8bit\"",
        "recompute = \"layer\"",
        "precision = \"bf16\"",
        "roles_to_train = [\"assistant\"]: has no equal",
        "#   wandb_project = \"p\": no equal",
        NULL};
    check(yaml, "", lines);
}

/* Keys inside the tables of datasets, and values that Lathe counts otherwise. */
Test(cli_import, keys_below_the_top_are_read_or_named)
{
    static const char yaml[] =
        "base_model: m\ndatasets:\n"
        "  - path: org/talks\n    type: chat_template\n    split: train[:5%]\n    name: small\n"
        "  - path: a.jsonl\n    type: alpaca\n    split: train\n"
        "  - path: folder\n    data_files: [b.jsonl]\n    type: completion\n"
        "  - path: json\n    data_files: c.jsonl\n    type: {field_output: y, format: '{x}'}\n"
        "  - d.jsonl\n  - 7\n"
        "save_steps: 0.5\neval_steps: 0.25\nlogging_steps: 2.0\n";
    static const char *const lines[] = {
        "{ path = \"org/talks\" }, { path = \"a.jsonl\" }, { path = \"folder/b.jsonl\" }, { path = "
        "\"c.jsonl\" }, { path = \"d.jsonl\" } ]",
        "log_every = 2",
        "#   datasets, \"org/talks\": split = \"train[:5%]\": splits are not read",
        "#   datasets, \"org/talks\": name = \"small\": has no equal",
        "#   datasets, \"a.jsonl\": type = \"alpaca\": the records are recognised; axolotl writes "
        "them "
        "as Alpaca's prompts",
        "#   datasets, \"folder/b.jsonl\": type = \"completion\": every token of these texts is "
        "learnt",
        "#   datasets, \"c.jsonl\": type = {",
        "#   datasets[5] is no dataset",
        "#   save_steps = 0.5: a share; checkpoint.every is a number of steps",
        "#   eval_steps = 0.25: a share; train.eval_every is a number of steps",
        NULL};
    static const char *const factory[] = {"\"data/one.json\"", "\"data/two.json\"",
                                          "#   dataset one: num_samples has no equal", NULL};
    check(yaml, "", lines);
    cr_expect_null(strstr(output, "every = 0.5"), "%s", output);
    cr_assert_eq(run("mkdir -p data"), 0);
    put("data/dataset_info.json",
        "{\"one\": {\"file_name\": \"one.json\", \"num_samples\": 5, \"ranking\": false}, "
        "\"two\": {\"file_name\": \"two.json\"}}");
    check("model_name_or_path: m\nstage: sft\ndataset: [one, two]\ntemplate: qwen\n", "", factory);
    put("theirs.yaml", "base_model: m\nlearning_rate: 1\nbf16: true\nlearning_rate: 2\n");
    expect(LATHE " import theirs.yaml 2>&1", 2,
           "theirs.yaml:4:1: the key \"learning_rate\" is there twice");
}

Test(cli_import, xorl)
{
    static const char yaml[] =
        "model:\n  model_path: m\ndata:\n  datasets:\n    - path: chats.jsonl\n"
        "  sample_packing_sequence_len: 4096\ntrain:\n  optimizer: muon\n  muon_lr: 0.0005\n"
        "  lr: 1.0e-4\n  lr_decay_style: cosine\n  tensor_parallel_size: 1\n"
        "  pipeline_parallel_size: 2\n  data_parallel_mode: ddp\nlora:\n  enable_lora: true\n"
        "  lora_rank: 8\n";
    static const char *const lines[] = {"seq_len = 4096",
                                        "name = \"muon\"",
                                        "lr = 0.0005",
                                        "adamw_lr = 0.0001",
                                        "name = \"cosine\"",
                                        "shard = \"none\"",
                                        "alpha = 16  # lora.lora_alpha, default of xorl",
                                        "#   train.pipeline_parallel_size = 2: no equal",
                                        NULL};
    check(yaml, "", lines);
    cr_expect_null(strstr(output, "tensor_parallel_size"), "one part is no division");
}

/* A default of the other trainer stands only where its file says nothing. */
Test(cli_import, packing_that_is_on_stays_on)
{
    static const char *const files[] = {
        "base_model: m/m\nadapter: lora\nsample_packing: true\noutput_dir: o\n"
        "datasets:\n  - path: a.jsonl\n    type: chat_template\n",
        "model_name_or_path: m/m\nstage: sft\nfinetuning_type: lora\npacking: true\n"
        "output_dir: o\ntemplate: qwen\n"};
    for (int i = 0; i < 2; i++) {
        put("theirs.yaml", files[i]);
        (void)remove("ours.toml");
        expect(LATHE " import theirs.yaml -o ours.toml 2>&1", 0, "");
        expect("cat ours.toml", 0, "name = \"sft\"");
        cr_expect_null(strstr(output, "packing = \"none\""), "%s", output);
    }
}

Test(cli_import, refuses_what_it_cannot_read)
{
    put("empty.yaml", "");
    put("list.yaml", "- a\n");
    put("broken.yaml", "a: [1,\nb: }\n");
    put("cycle.yaml", "base_model: m\nx: &a [*a]\n");
    put("other.yaml", "colour: red\n");
    put("escape.yaml", "base_model: m\n\"\\e[31mred\": \"\\e[0m\\n[train]\\nseed = 1\"\n");
    expect(LATHE " import empty.yaml 2>&1", 2, "empty.yaml: the file is empty");
    expect(LATHE " import list.yaml 2>&1", 2, "list.yaml: expected keys with values");
    expect(LATHE " import broken.yaml 2>&1", 2, "broken.yaml:2:");
    expect(LATHE " import cycle.yaml 2>&1", 1, "nested more than 32 levels deep");
    expect(LATHE " import other.yaml 2>&1", 2, "none of its keys tells whose file it is");
    expect(LATHE " import none.yaml 2>&1", 2, "none.yaml");
    expect(LATHE " import escape.yaml --from nobody 2>&1", 2, "expected llamafactory");
    expect(LATHE " import escape.yaml 2>/dev/null", 0, "");
    cr_expect_null(strchr(output, '\x1b'), "%s", output);
    cr_expect_null(strstr(output, "\n[train]\nseed"), "%s", output);
    put("there.toml", "");
    expect(LATHE " import escape.yaml -o there.toml 2>&1", 2, "is there already");
}

/* TOML has no null, and a table of datasets that cannot be read is not one that is missing. */
Test(cli_import, leaves_null_out_and_names_a_broken_table_of_datasets)
{
    static const char *const lines[] = {"target_modules = [\"q_proj\", \"k_proj\"]",
                                        "sets/dataset_info.json:1:", NULL};
    expect("mkdir sets", 0, "");
    put("sets/dataset_info.json", "{\"one\": ");
    check("model_name_or_path: m/m\nstage: sft\ntemplate: qwen\nfinetuning_type: lora\n"
          "lora_target: [q_proj, null, k_proj]\ndataset: one\ndataset_dir: sets\noutput_dir: o\n",
          "", lines);
}

/* tests/golden/foreign_keys.py lists what the four trainers' own sources name. */
Test(cli_import, every_key_of_the_trainers_is_in_the_table)
{
    char line[256];
    int n = 0;
    FILE *f = fopen(LATHE_TEST_DATA "/golden/data/foreign_keys.txt", "r");
    cr_assert_not_null(f);
    while (fgets(line, sizeof line, f)) {
        line[strcspn(line, "\n")] = '\0';
        static const char *const stages[] = {"", "sft", "dpo", "kto", "rm", "ppo"};
        int found = 0;
        for (size_t i = 0; i < 6; i++)
            found |= lathe_foreign_key_find(line[0], stages[i], line + 2) != NULL;
        cr_expect(found, "%s", line);
        n++;
    }
    (void)fclose(f);
    cr_expect_gt(n, 1000);
}

/* The tables of docs/migrating.md are what lathe import --keys prints. */
Test(cli_import, the_page_has_the_tables)
{
    static const char *const names[] = {"llamafactory", "trl", "axolotl", "xorl"};
    for (int i = 0; i < 4; i++) {
        char command[512];
        snprintf(command, sizeof command,
                 LATHE " import --keys %s > table && sed -n '/^<!-- keys %s -->$/,/^<!-- end "
                       "-->$/p' %s/../docs/migrating.md | sed '1d;$d' | diff - table",
                 names[i], names[i], LATHE_TEST_DATA);
        expect(command, 0, "");
    }
}

Test(cli_import, new_files_are_valid)
{
    static const char *const stages[] = {"sft", "dpo", "kto", "rm", "ppo", "pretrain"};
    static const char *const data[] = {
        "{\"prompt\": \"one\", \"completion\": \" two\"}\n",
        "{\"prompt\": \"one\", \"chosen\": \" two\", \"rejected\": \" three\"}\n",
        "{\"prompt\": \"one\", \"completion\": \" two\", \"label\": true}\n"
        "{\"prompt\": \"one\", \"completion\": \" three\", \"label\": false}\n",
        "{\"prompt\": \"one\", \"chosen\": \" two\", \"rejected\": \" three\"}\n",
        "{\"prompt\": \"one\", \"answer\": \"#### 2\"}\n",
        "{\"text\": \"the wheel turns and the tool holds, so the part is made\"}\n"};
    char command[512];
    expect(LATHE " train run.toml --model.max_position_embeddings 1024 2>&1", 0, "");
    for (int i = 0; i < 6; i++) {
        put_times("data.jsonl", data[i], 200);
        snprintf(command, sizeof command,
                 LATHE
                 " new %s --model out/step-00000006 --data data.jsonl -o new_%s.toml && " LATHE
                 " validate new_%s.toml --tokenizer.path bytes 2>&1",
                 stages[i], stages[i], stages[i]);
        expect(command, 0, "valid");
    }
    put_times("texts.txt", "the wheel turns and the tool holds, so the part is made\n", 400);
    expect(LATHE " new pretrain --data texts.txt && " LATHE " validate pretrain.toml 2>&1", 0,
           "valid");
    expect(LATHE " new pretrain --data texts.txt 2>&1", 2, "pretrain.toml is there already");
    /* each file has a folder of its own, and few records make steps of few records */
    expect("cat new_sft.toml", 0, "dir = \"out/new_sft\"");
    put_times("few.jsonl", data[0], 4);
    expect(LATHE " new sft --model out/step-00000006 --data few.jsonl -o few.toml && cat few.toml",
           0, "dir = \"out/few\"");
    static const char *const few[] = {"micro_batch_size = 1 ", "gradient_accumulation_steps = 1\n",
                                      "epochs = 3 ",           "packing = \"none\"",
                                      "# validation_split",    NULL};
    for (size_t i = 0; few[i]; i++)
        cr_expect_not_null(strstr(output, few[i]), "%s: %s", few[i], output);
    cr_expect_null(strstr(output, "@"), "%s", output);
    cr_expect_null(strstr(output, "eval_every"), "%s", output);
    expect(LATHE " validate few.toml --tokenizer.path bytes 2>&1", 0, "valid");
    expect(LATHE " new nothing 2>&1", 2, "expected one of sft, pretrain, dpo, kto, rm, ppo");
}
