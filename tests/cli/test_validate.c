/* lathe validate, and trying out a run file: a valid file would start; paths, warnings, dry runs.
 * test_bad_configs.c has the faults that validate and train refuse alike. Above 500 lines because
 * all of it is tried on one small run file. */
#include "cli_case.h"

#define LATHE LATHE_TEST_BUILD "/bin/lathe"

static const char run_file[] = "[model]\nmodel_type = \"llama\"\nhidden_size = 16\n"
                               "intermediate_size = 32\nnum_hidden_layers = 1\n"
                               "num_attention_heads = 2\nmax_position_embeddings = 64\n"
                               "[data]\ndatasets = [{ path = \"text.txt\" }]\nseq_len = 16\n"
                               "[scheduler]\nname = \"cosine\"\nwarmup_steps = 10\n"
                               "[train]\nprecision = \"fp32\"\nmax_steps = 12\nthreads = 1\n"
                               "[log]\nprogress = \"off\"\n";

static void setup(void)
{
    make_folder();
    put_times("text.txt", "the cat sat on the mat and it was fine.\n", 40);
    put("run.toml", run_file);
}

TestSuite(validate, .init = setup, .fini = remove_folder);
TestSuite(run_file_paths, .init = setup, .fini = remove_folder);
TestSuite(dry_run, .init = setup, .fini = remove_folder);
TestSuite(smoke_test, .init = setup, .fini = remove_folder);
TestSuite(warm_up, .init = setup, .fini = remove_folder);
TestSuite(places, .init = setup, .fini = remove_folder);

static void expect_also(const char *text)
{
    cr_expect_not_null(strstr(output, text), "no '%s' in\n%s", text, output);
}

/* ---- places of errors ---- */

Test(places, of_a_model_s_size_are_the_key_s)
{
    expect(LATHE " validate run.toml --model.hidden_size 63 --model.num_attention_heads 4 2>&1", 2,
           "--model.hidden_size: error: model llama: hidden_size is 63; it must be a multiple of "
           "num_attention_heads");
    put("rope.toml", "[model]\nmodel_type = \"llama\"\nhidden_size = 16\nintermediate_size = 32\n"
                     "num_hidden_layers = 1\nnum_attention_heads = 2\n"
                     "rope_scaling = { rope_type = \"linear\", factor = 0 }\n"
                     "[data]\ndatasets = [{ path = \"text.txt\" }]\n[train]\nmax_steps = 2\n");
    expect(LATHE " validate --offline rope.toml 2>&1", 2,
           "rope.toml:7:49: error: rope_scaling.factor is 0; expected a number above 0");
}

Test(places, of_a_plugin_s_warning_are_the_key_s)
{
    put("warn.toml", "");
    expect("sed 's/^warmup_steps = 10/start_lr_ratio = 0.5/' run.toml >warn.toml; " LATHE
           " validate warn.toml 2>&1",
           0, "warn.toml:13:18: warning: scheduler.start_lr_ratio has no effect without a warm-up");
    expect(LATHE " validate warn.toml --json 2>&1", 0, "\"line\": 13");
    expect(LATHE " train warn.toml --dry-run 2>&1", 0, "warn.toml:13:18: warning: scheduler.start");
}

Test(places, of_a_model_are_folders_and_run_files_alone)
{
    put("model.safetensors", "");
    expect(LATHE " generate model.safetensors 2>&1", 2,
           "model.safetensors: a file of weights; expected the folder of a model");
    expect(LATHE " eval nothing --data text.txt 2>&1", 2,
           "nothing: no such file or folder; expected the folder of a model");
}

/* ---- a valid file would start ---- */

Test(validate, tells_errors_of_all_parts_at_once)
{
    expect(LATHE " validate run.toml --train.grad_dtype bf16 --train.early_stopping_patience 2 "
                 "--train.capture on --stage.name dpo --checkpoint.resume nothing 2>&1",
           2, "checkpoint.resume: no such folder: nothing");
    expect(LATHE " validate run.toml --train.grad_dtype bf16 --train.early_stopping_patience 2 "
                 "--train.capture on --stage.name dpo 2>&1",
           2, "run.toml:9:22: error: stage \"dpo\" reads pairs");
    expect_also("--train.capture: error: train.capture = \"on\"");
    expect_also("--train.early_stopping_patience: error: train.early_stopping_patience counts");
    cr_expect_null(strstr(output, "valid\n"), "%s", output);
}

Test(validate, offline_leaves_out_the_machine_and_the_data)
{
    static const char *const elsewhere[] = {
        "--train.capture on", "--train.memory_limit 0.000001",
        "--data.datasets '[{path = \"text.txt\", type = \"jsonl\"}]'", NULL};
    char command[512];
    for (int i = 0; elsewhere[i]; i++) {
        snprintf(command, sizeof command, LATHE " validate run.toml %s 2>&1", elsewhere[i]);
        expect(command, 2, ": error: ");
        snprintf(command, sizeof command, LATHE " validate run.toml --offline %s 2>&1",
                 elsewhere[i]);
        expect(command, 0, "run.toml: valid");
    }
    expect(LATHE " validate run.toml --offline --scheduler.warmup_steps 13 2>&1", 0,
           "warmup_steps is 13, the run has 12 steps");
    expect(LATHE " validate run.toml --offline --train.grad_dtype bf16 2>&1", 2,
           "train.grad_dtype = \"bf16\" needs");
}

Test(validate, offline_reads_no_data_and_writes_nothing)
{
    expect(LATHE " validate run.toml --offline 2>&1", 0, "valid");
    expect("find . | sort", 0, "./run.toml");
    cr_expect_str_eq(output, ".\n./run.toml\n./text.txt\n");
}

/* A file that will run on another machine names what only that machine has. */
Test(validate, offline_takes_files_that_are_elsewhere)
{
    put("far.toml", "[model]\npath = \"/far/model\"\n"
                    "[data]\ndatasets = [{ path = \"/far/a.jsonl\" }]\n"
                    "validation = [{ path = \"/far/*.jsonl\" }]\nseq_len = 32\n"
                    "[stage]\nname = \"sft\"\n[adapter]\nname = \"lora\"\n"
                    "[train]\nmax_steps = 3\n[checkpoint]\ndir = \"/far/out\"\n");
    expect(LATHE " validate far.toml 2>&1", 2, "far.toml: 3 errors");
    expect(LATHE " validate far.toml --offline 2>&1", 0, "far.toml: valid");
    expect_also("far.toml:2:8: warning: model.path: no such folder or GGUF file: /far/model; it is "
                "checked where the run starts");
    expect_also("far.toml:4:22: warning: data.datasets: no such file or folder: /far/a.jsonl; ");
    expect_also("far.toml:5:24: warning: data.validation: no file matches the pattern ");
    /* what can be checked here is checked */
    expect(LATHE " validate far.toml --offline --adapter.rr 4 2>&1", 2, "unknown key 'rr'");
    expect(LATHE " validate far.toml --offline --scheduler.warmup_steps 9 2>&1", 0,
           "warmup_steps is 9, the run has 3 steps");
    put("file", "");
    expect(LATHE " validate far.toml --offline --model.path file 2>&1", 2,
           "model.path: a file, expected a folder or a GGUF file: file");
    expect(LATHE " validate far.toml --offline --model.adapter /far/adapter 2>&1", 0, "valid");
    expect(LATHE " validate far.toml --offline --stage.name distill --teacher.path /far/t 2>&1", 0,
           "--teacher.path: warning: ");
    expect(LATHE " validate run.toml --offline --tokenizer.path /far/t 2>&1", 0, "valid");
}

/* Each key alone is accepted with a warning that it has no effect; the run still starts. */
Test(validate, warns_of_keys_that_have_no_effect)
{
    static const struct {
        const char *settings, *says;
    } rows[] = {
        {"--train.loss_scale_init 8.0", "train.loss_scale_init has no effect: it belongs to"},
        {"--train.loss_scale_growth_interval 8", "train.loss_scale_growth_interval has no effect"},
        {"--train.weight_average_decay 0.9", "train.weight_average_decay has no effect"},
        {"--train.weight_average_start 2", "train.weight_average_start has no effect"},
        {"--train.weight_average_every 2", "train.weight_average_every has no effect"},
        {"--train.weight_average swa --train.weight_average_decay 0.9",
         "train.weight_average_decay has no effect: it belongs to train.weight_average = \"ema\""},
        {"--train.early_stopping_threshold 0.1", "train.early_stopping_threshold has no effect"},
        {"--train.offload_buffer 8.0", "train.offload_buffer has no effect"},
        {"--train.eval_batches 2", "train.eval_batches has no effect"},
        {"--train.eval_every 2", "train.eval_every has nothing to evaluate"},
        {"--train.epochs 2", "train.epochs has no effect: train.max_steps is the length"},
        {"--checkpoint.gate false", "checkpoint.gate has no effect"},
        {"--checkpoint.best_metric loss", "checkpoint.best_metric has no effect"},
        {"--checkpoint.best_mode min", "checkpoint.best_mode has no effect"},
        {"--generate.temperature 0.0 --generate.top_k 5", "generate.top_k has no effect"},
        {"--generate.temperature 0.0 --generate.top_p 0.5", "generate.top_p has no effect"},
        {"--generate.draft_tokens 2", "generate.draft_tokens has no effect: generate.draft is"},
        {"--train.fp8_recipe rowwise", "train.fp8_recipe changes nothing"},
        {"--scheduler.warmup_steps 0 --scheduler.warmup_type cosine",
         "scheduler.warmup_type has no effect without a warm-up"},
        {"--scheduler.warmup_steps 0 --scheduler.start_lr_ratio 0.5",
         "scheduler.start_lr_ratio has no effect without a warm-up"},
        {"--scheduler.name wsd --scheduler.num_cycles 2 --scheduler.decay_type linear",
         "scheduler.num_cycles has no effect"},
        {"--optimizer.name adamw_anyprecision --optimizer.use_kahan_summation false "
         "--optimizer.compensation_dtype fp32",
         "optimizer.compensation_dtype has no effect"},
        {"--optimizer.name apollo --optimizer.norm_growth_limiter false "
         "--optimizer.scale_front true",
         "optimizer.scale_front has no effect"},
        {"--optimizer.name adafactor --optimizer.lr 0.01 --optimizer.scale_parameter false "
         "--optimizer.eps2 0.1",
         "optimizer.eps2 has no effect"},
    };
    char command[512];
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        snprintf(command, sizeof command, LATHE " validate run.toml --offline %s 2>&1",
                 rows[i].settings);
        expect(command, 0, rows[i].says);
        expect_also("run.toml: valid");
    }
}

/* The seed of weights that are all in a folder, unless an adapter or a head begins with others. */
Test(validate, warns_of_a_seed_of_no_weights)
{
    put("next.toml", "[model]\npath = \"m/step-00000001\"\nseed = 3\n"
                     "[data]\ndatasets = [{ path = \"text.txt\" }]\nseq_len = 16\n"
                     "[train]\nmax_steps = 2\nthreads = 1\n");
    expect(LATHE " train run.toml --train.max_steps 1 --scheduler.warmup_steps 0 "
                 "--checkpoint.dir m 2>&1",
           0, "step-00000001");
    expect(LATHE " validate next.toml 2>&1", 0,
           "next.toml:3:8: warning: model.seed has no effect: all weights are those of model.path");
    expect(LATHE " validate next.toml --adapter.name lora 2>&1", 0, "valid");
    cr_expect_null(strstr(output, "model.seed"), "%s", output);
    expect(LATHE " validate run.toml --model.seed 3 2>&1", 0, "valid");
    cr_expect_null(strstr(output, "model.seed"), "%s", output);
}

/* These warnings depend on the stage and on the data, which --offline does not read. */
Test(validate, warns_of_keys_that_the_data_leave_without_effect)
{
    put("pairs.jsonl", "{\"prompt\": \"a\", \"chosen\": \"b\", \"rejected\": \"c\"}\n");
    static const char *const packings[] = {"sequential", "multipack"};
    for (int i = 0; i < 2; i++) {
        char command[512];
        snprintf(command, sizeof command,
                 LATHE " validate run.toml --stage.name dpo --data.datasets '[{path = "
                       "\"pairs.jsonl\"}]' --data.packing %s 2>&1",
                 packings[i]);
        (void)run(command);
        expect_also("data.packing has no effect: the stage's rows are pairs, which are not packed");
    }
    expect(LATHE " validate run.toml --data.chat_template_kwargs '{a = 1}' 2>&1", 0,
           "data.chat_template_kwargs has no effect on this training: its data are plain text, "
           "which has no conversations");
    expect(LATHE " validate run.toml --renderer.name chatml 2>&1", 0,
           "renderer.name has no effect on this training: its data are plain text");
    put("talk.jsonl", "{\"messages\": [{\"role\": \"user\", \"content\": \"a\"}]}\n");
    (void)run(LATHE " validate run.toml --data.chat_template_kwargs '{a = 1}' --data.datasets "
                    "'[{path = \"talk.jsonl\"}]' 2>&1");
    cr_expect_null(strstr(output, "has no effect"), "%s", output);
}

Test(validate, warns_of_values_that_cannot_be_meant)
{
    static const struct {
        const char *settings, *says;
    } rows[] = {
        {"--optimizer.lr 0.0",
         "--optimizer.lr: warning: optimizer.lr = 0: the optimizer changes no "
         "parameter in this run"},
        {"--scheduler.total_steps 10 --scheduler.warmup_steps 2",
         "--scheduler.total_steps: warning: scheduler \"cosine\" has the learning rate 0 in the "
         "last 2 of 12 steps"},
        {"--train.stop_after 12", "--train.stop_after: warning: train.stop_after = 12 has no "
                                  "effect: the run ends after step 12"},
        {"--train.spike_threshold 3.0",
         "train.spike_threshold only counts spikes in metrics.jsonl"},
        {"--train.spike_window 8", "train.spike_window only counts spikes in metrics.jsonl"},
        {"--train.threads 4000", "--train.threads: warning: train.threads = 4000, but this process "
                                 "may run on "},
        {"--checkpoint.shard_size 0.000001",
         "--checkpoint.shard_size: warning: checkpoint.shard_size = 1e-06 GB is 1000 bytes"},
    };
    char command[512];
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        snprintf(command, sizeof command, LATHE " validate run.toml %s 2>&1", rows[i].settings);
        expect(command, 0, rows[i].says);
        expect_also("run.toml: valid");
    }
    expect("sed -i 's/^max_steps.*/epochs = 1/; s/^warmup.*//' run.toml; " LATHE
           " validate run.toml --train.stop_after 100000 2>&1",
           0, "train.stop_after = 100000 has no effect: the run ends after step ");
    expect(LATHE " validate run.toml --train.stop_after 2 --train.on_spike stop "
                 "--train.spike_threshold 3.0 2>&1",
           0, "run.toml: valid");
    cr_expect_null(strstr(output, "warning"), "%s", output);
}

/* A checkpoint with other plugins, other data or another model is refused before training
 * begins. */
Test(validate, refuses_a_checkpoint_that_the_run_could_not_resume)
{
    static const struct {
        const char *settings, *says;
    } rows[] = {
        {"--optimizer.name lion", "--optimizer.name: error: optimizer.name is \"lion\", but"},
        {"--data.seq_len 32", "--data.seq_len: error: data.seq_len is 32, but out/step-00000012"},
        {"--data.seed 5", "--data.seed: error: data.seed is 5, but out/step-00000012"},
        {"--model.hidden_size 32", "--model.hidden_size: error: model.hidden_size is 32, but"},
        {"--adapter.name lora", "was written with \"full\": set it back, or choose another"},
    };
    char command[512];
    static char said[sizeof output];
    expect(LATHE " train run.toml 2>&1", 0, "");
    expect(LATHE " validate run.toml 2>&1", 0, "run.toml: valid");
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        snprintf(command, sizeof command, LATHE " validate run.toml %s 2>&1", rows[i].settings);
        expect(command, 2, rows[i].says);
        strcpy(said, output);
        snprintf(command, sizeof command, LATHE " train run.toml %s 2>&1", rows[i].settings);
        expect(command, 2, rows[i].says);
        cr_expect_str_eq(output, said);
    }
    expect(LATHE " train run.toml --optimizer.name lion --checkpoint.dir other 2>&1", 0, "");
}

/* ---- paths ---- */

Test(run_file_paths, are_relative_to_the_file_and_those_of_the_command_line_to_the_current_folder)
{
    expect("mkdir -p a/b && mv text.txt a/b && mv run.toml a/b", 0, "");
    expect("cd a && " LATHE " train b/run.toml --train.max_steps 2 --scheduler.warmup_steps 0 2>&1",
           0, "");
    expect("find . -maxdepth 3 -name out -o -maxdepth 3 -name .lathe | sort", 0, "");
    cr_expect_str_eq(output, "./a/b/.lathe\n./a/b/out\n"); /* the defaults, relative to the file */
    expect("cd a && " LATHE " train b/run.toml --train.max_steps 2 --scheduler.warmup_steps 0 "
           "--checkpoint.dir mine --data.cache_dir cache 2>&1",
           0, "");
    expect("ls a", 0, "");
    cr_expect_str_eq(output, "b\ncache\nmine\n");
    expect("cd a && " LATHE " validate b/run.toml --data.datasets '[{path = \"text.txt\"}]' 2>&1",
           2, "no such file or folder: text.txt");
}

Test(run_file_paths, of_every_kind_are_relative_to_the_file)
{
    expect("mkdir -p a/plugins a/m && cd a && mv ../text.txt ../run.toml . && " LATHE
           " train run.toml --train.max_steps 1 --scheduler.warmup_steps 0 2>&1",
           0, "");
    expect("cp a/out/step-00000001/*.* a/m && " LATHE
           " tokenizer train a/text.txt --vocab-size 257 -o a/tok 2>&1",
           0, "");
    put("a/all.toml", "[model]\npath = \"m\"\n[tokenizer]\npath = \"tok\"\n"
                      "[data]\ndatasets = [{ path = \"t*.txt\" }]\n"
                      "validation = { path = \"text.txt\" }\ncache_dir = \"cache\"\nseq_len = 16\n"
                      "[train]\nmax_steps = 1\nthreads = 1\n[scheduler]\nname = \"constant\"\n"
                      "[checkpoint]\ndir = \"out2\"\nresume = \"auto\"\n"
                      "[plugins]\npaths = [\"plugins\"]\n[log]\nprogress = \"off\"\n");
    expect(LATHE " train a/all.toml 2>&1; sed -i 's/\"auto\"/\"out2\"/; s/dir = \"out2\"/dir = "
                 "\"out3\"/' a/all.toml",
           0, "checkpoint a/out2/step-00000001");
    expect(LATHE " validate a/all.toml 2>&1", 0, "a/all.toml: valid");
    expect("cd a && " LATHE " validate all.toml 2>&1", 0, "all.toml: valid");
    expect("cd / && " LATHE " validate $OLDPWD/a/all.toml 2>&1", 0, "all.toml: valid");
}

/* ---- dry runs ---- */

Test(dry_run, takes_two_steps_and_writes_nothing)
{
    expect("mkdir tmp; TMPDIR=$PWD/tmp " LATHE " train run.toml --dry-run 2>&1", 0,
           "dry run: 2 steps of 12 taken, nothing was written");
    expect("find . | sort", 0, "./run.toml");
    cr_expect_str_eq(output, ".\n./run.toml\n./text.txt\n./tmp\n");
    expect(LATHE " train run.toml --dry-run --generate.every 1 --log.tensorboard true "
                 "--checkpoint.every 1 --train.eval_every 1 --data.validation '[{path = "
                 "\"text.txt\"}]' 2>&1",
           0, "dry run: 2 steps");
    expect("find . | sort", 0, "./run.toml");
    cr_expect_str_eq(output, ".\n./run.toml\n./text.txt\n./tmp\n");
}

Test(dry_run, prints_a_line_for_each_of_its_steps)
{
    expect(LATHE " train run.toml --dry-run --log.progress plain 2>&1", 0, "\nstep 1/12 ");
    cr_expect_not_null(strstr(output, "\nstep 2/12 "), "%s", output);
    expect(LATHE " train run.toml --dry-run --log.progress plain --train.log_every 5 2>&1", 0,
           "\nstep 2/12 ");
}

Test(dry_run, does_not_change_an_existing_run)
{
    expect(LATHE " train run.toml 2>&1", 0, "");
    expect("find out -type f -exec sha256sum {} + | sort >before; " LATHE
           " train run.toml --dry-run 2>&1",
           0, "dry run: 2 steps of 12");
    expect("find out -type f -exec sha256sum {} + | sort | diff before - && echo same", 0, "same");
}

Test(dry_run, refuses_what_train_refuses)
{
    expect(LATHE " train run.toml --dry-run --train.max_step 3 2>&1", 2,
           "did you mean 'max_steps'?");
    expect(LATHE " train run.toml --dry-run --stage.name dpo 2>&1", 2, "reads pairs");
}

Test(smoke_test, five_steps_of_a_file_with_ten_steps_of_warm_up_are_taken)
{
    expect(LATHE " train run.toml --train.max_steps 5 2>&1", 0,
           "warning: warmup_steps is 10, the run has 5 steps: the run ends before the schedule is "
           "complete");
    expect("grep -c lr out/metrics.jsonl", 0, "5");
    expect(LATHE " train run.toml --scheduler.name wsd --train.max_steps 5 --checkpoint.dir b 2>&1",
           0, "the run ends before the schedule is complete");
}

Test(warm_up, longer_than_the_run_is_a_warning_wherever_the_length_is_set)
{
    static const char warning[] = "warning: warmup_steps is 10, the run has 5 steps: the run ends "
                                  "before the schedule is complete";
    put("five.toml", "");
    expect(LATHE " validate run.toml --train.max_steps 5 2>&1", 0, warning);
    expect("sed 's/max_steps = 12/max_steps = 5/' run.toml >five.toml; " LATHE
           " validate five.toml 2>&1",
           0, warning);
    cr_expect_not_null(strstr(output, "five.toml:13:16: "), "%s", output);
    expect(LATHE " validate five.toml --scheduler.warmup_steps 10 2>&1", 0, warning);
    expect(LATHE " validate five.toml --offline 2>&1", 0, warning);
    expect(LATHE " plot schedule five.toml 2>&1", 0, warning);
    /* The length of the schedule is not the length of the run. */
    expect(LATHE " validate five.toml --scheduler.total_steps 6 2>&1", 2,
           "warmup_steps is 10, the schedule has 6 steps");
}

Test(warm_up, is_a_share_beside_steps_in_every_scheduler_that_warms_up)
{
    expect(
        "for s in " LATHE_TEST_BUILD "/lib/lathe/plugins/scheduler/*.so; do n=$(basename $s .so); "
        "t=$(" LATHE " show scheduler/$n); case $t in *warmup_steps*) case $t in *warmup_ratio*) "
        "echo \"$n both\";; *) echo \"$n lacks it\";; esac;; esac; done",
        0, "cosine both");
    cr_expect_null(strstr(output, "lacks"), "%s", output);
    expect(LATHE " train run.toml --scheduler.warmup_steps 0 --scheduler.warmup_ratio 0.5 "
                 "--train.max_steps 4 2>&1",
           0, "");
    expect("sed -n 's/.*\"lr\": \\([^,]*\\),.*/\\1/p' out/metrics.jsonl | tr '\\n' ' '", 0,
           "0 0.0005 0.001 0.0005");
}

/* ---- what started and then failed ---- */

Test(validate, a_teacher_s_folder_without_a_model_is_refused)
{
    put("pairs.jsonl", "{\"prompt\": \"a\", \"completion\": \"b c d\"}\n");
    expect("mkdir empty broken && echo '{}' >broken/config.json && " LATHE
           " validate run.toml --tokenizer.path bytes --stage.name distill --teacher.path empty "
           "--data.datasets '[{path = \"pairs.jsonl\"}]' 2>&1",
           2,
           "--teacher.path: error: teacher.path: empty: has no config.json, so it is not a model");
    expect(LATHE " validate run.toml --tokenizer.path bytes --stage.name distill --teacher.path "
                 "broken --data.datasets '[{path = \"pairs.jsonl\"}]' 2>&1",
           2, "--teacher.path: error: teacher.path: broken/config.json");
}

Test(validate, data_to_evaluate_on_without_a_target_is_refused)
{
    put("one.txt", "a");
    expect(LATHE " validate run.toml --data.validation '[{path = \"one.txt\"}]' "
                 "--tokenizer.path bytes 2>&1",
           0, "valid"); /* one byte and the end of the text */
    put_times("long.txt", "the cat sat. ", 400);
    expect(LATHE " validate run.toml --tokenizer.path bytes --data.datasets '[{path = "
                 "\"long.txt\"}]' --data.validation_split 0.0001 2>&1",
           2,
           "--data.validation_split: error: the data to evaluate on has 1 token, and so no target");
}

Test(validate, records_that_a_reward_cannot_use_are_refused)
{
    static const char ppo[] =
        " run.toml --tokenizer.path bytes --data.seq_len 32 --stage.name ppo "
        "--stage.max_new_tokens 8 --reward.name match --reward.pattern '[0-9]+' "
        "--data.datasets '[{path = \"p.jsonl\"}]' --train.max_steps 1 ";
    char command[1024];
    put("p.jsonl", "{\"prompt\": \"1+1=\", \"solution\": 2}\n");
    (void)snprintf(command, sizeof command, LATHE " validate%s 2>&1", ppo);
    expect(command, 2,
           "--reward.name: error: p.jsonl:1: reward \"match\": the record has no column "
           "\"answer\"; set "
           "reward.column to the column of the right answer; the record has: prompt, solution");
    (void)snprintf(command, sizeof command, LATHE " validate%s --reward.column solution 2>&1", ppo);
    expect(command, 0, "valid");
    put("p.jsonl", "{\"prompt\": \"1+1=\", \"answer\": 2}\n{\"prompt\": \"1+2=\", \"answer\": 3}\n"
                   "{\"prompt\": \"1+3=\", \"answer\": null}\n");
    for (int trains = 0; trains < 2; trains++) {
        (void)snprintf(command, sizeof command, LATHE " %s%s 2>&1", trains ? "train" : "validate",
                       ppo);
        expect(command, 2, "p.jsonl:3: reward \"match\": column \"answer\" is null");
        cr_expect_null(strstr(output, "step 1"), "%s", output);
    }
}

Test(validate, samples_that_cannot_be_made_are_refused)
{
    expect(LATHE " validate run.toml --generate.every 2 --generate.stop '[\"a\", \"\"]' 2>&1", 2,
           "--generate.stop: error: generate.stop[1] is empty; expected a text");
    expect(LATHE " validate run.toml --tokenizer.path bytes --generate.every 2 --generate.prompt "
                 "'a prompt of more than sixteen bytes' 2>&1",
           2, "35 tokens, but the context holds 16; data.seq_len sets its length, up to the model");
}

Test(validate, checkpoints_that_are_all_damaged_are_refused)
{
    expect(LATHE
           " train run.toml --tokenizer.path bytes 2>&1 && rm out/step-*/manifest.json && " LATHE
           " validate run.toml --tokenizer.path bytes 2>&1",
           2, "out: all of its checkpoints are damaged: ");
}

Test(validate, json_has_every_error_whatever_its_bytes)
{
    put("utf16.csv", "\xff\xfet,e\n");
    expect(LATHE " validate run.toml --json --data.datasets '[{path = \"utf16.csv\"}]' 2>/dev/null",
           2, "\"message\"");
    expect(LATHE " validate --json $'caf\\xe9.toml' 2>/dev/null", 2, "\"message\"");
}

Test(validate, a_folder_that_is_no_model_s_is_told_apart)
{
    put("r.toml", "[model]\npath = \"r\"\n[tokenizer]\npath = \"bytes\"\n[data]\ndatasets = "
                  "[{ path = \"text.txt\" }]\nseq_len = 16\n[train]\nmax_steps = 2\n");
    expect("mkdir -p r/step-00000004 a && echo step-00000004 >r/latest && "
           "echo '{}' >a/adapter_config.json && " LATHE " validate r.toml 2>&1",
           2, "r/step-00000004: has no config.json, so it is not a model folder");
    expect("echo step-00000009 >r/latest && " LATHE " validate r.toml 2>&1", 2,
           "r.toml:2:8: error: model.path: r/latest names the checkpoint r/step-00000009, which "
           "does not exist");
    expect("echo global_step9 >r/latest && " LATHE " validate r.toml 2>&1", 2,
           "r.toml:2:8: error: model.path: r/latest does not name a checkpoint");
    expect(LATHE " validate r.toml --model.path a 2>&1", 2,
           "a holds an adapter, and no file in it names the adapter's model");
}

Test(validate, warns_of_a_step_with_more_rows_than_the_data)
{
    expect(LATHE " validate run.toml --tokenizer.path bytes --train.micro_batch_size 1000 2>&1", 0,
           "a step takes 1000 rows, and the data has ");
}

Test(validate, a_csv_file_with_a_column_twice_is_refused)
{
    put("twice.csv", "prompt,completion,completion\na,b,c\n");
    expect(LATHE " validate run.toml --stage.name sft --tokenizer.path bytes "
                 "--data.datasets '[{path = \"twice.csv\"}]' 2>&1",
           2, "twice.csv:1: two columns are named \"completion\"");
}
