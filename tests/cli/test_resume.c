/* Tests the messages when a run is resumed with settings that differ from its checkpoint's, and the
 * refusals: lathe validate and lathe train do the same. */
#include "started_program.h"

#include <jansson.h>
#include <sys/stat.h>

#define LATHE LATHE_TEST_BUILD "/bin/lathe"

static const char run_file[] = "[model]\nmodel_type = \"llama\"\nhidden_size = 16\n"
                               "intermediate_size = 32\nnum_hidden_layers = 1\n"
                               "num_attention_heads = 2\nmax_position_embeddings = 64\n"
                               "[tokenizer]\ntrain = { vocab_size = 300 }\n"
                               "[data]\ndatasets = [{ path = \"text.txt\" }]\nseq_len = 16\n"
                               "[optimizer]\nname = \"adamw\"\nlr = 1e-3\n"
                               "[scheduler]\nname = \"cosine\"\n"
                               "[train]\nprecision = \"fp32\"\nmax_steps = 12\nstop_after = 4\n"
                               "seed = 42\nthreads = 1\n"
                               "[log]\nprogress = \"off\"\n"
                               "[checkpoint]\ndir = \"out\"\nevery = 2\n";

static void setup(void)
{
    child_programs_skip_the_leak_check();
    make_folder();
    put_times("text.txt", "the cat sat on the mat and it was fine with the other cats.\n", 40);
    put_times("other.txt", "a dog ran by and never came back to the old barn again.\n", 40);
    put("run.toml", run_file);
    expect(LATHE " train run.toml 2>&1", 0, "checkpoint out/step-00000004");
}

TestSuite(resume_refusal, .init = setup, .fini = remove_folder, .timeout = 400);
TestSuite(resume_warning, .init = setup, .fini = remove_folder, .timeout = 400);
TestSuite(run_folder, .init = setup, .fini = remove_folder, .timeout = 400);

/* Changes a line of the run file with `sed`. */
static void edit(const char *script)
{
    char command[512];
    put("run.toml", run_file);
    snprintf(command, sizeof command, "sed -i '%s' run.toml", script);
    cr_assert_eq(run(command), 0, "%s", output);
}

/* Checks that lathe validate and lathe train print the same and exit with 2. */
static void expect_refused(const char *arguments, const char *text)
{
    static char said[sizeof output];
    char command[512];
    snprintf(command, sizeof command, LATHE " validate run.toml %s 2>&1", arguments);
    expect(command, 2, text);
    strcpy(said, output);
    snprintf(command, sizeof command, LATHE " train run.toml %s 2>&1", arguments);
    expect(command, 2, text);
    cr_expect_str_eq(output, said);
}

#define FROM ", but out/step-00000004, from which the run would resume, was written "
#define ANEW                                                                                       \
    "or choose another checkpoint.dir, or give --checkpoint.resume restart, to begin a new run\n"

Test(resume_refusal, names_the_key_its_place_and_both_values)
{
    static const struct {
        const char *script, *says;
    } rows[] = {
        {"s/^seq_len.*/seq_len = 32/",
         "run.toml:12:11: error: data.seq_len is 32" FROM "with 16: set it back, " ANEW},
        {"s/^seq_len.*/&\\nseed = 5/",
         "run.toml:13:8: error: data.seed is 5" FROM "with 42: set it back, " ANEW},
        {"s/^seed.*/seed = 7/", "run.toml:22:8: error: train.seed is 7" FROM
                                "with 42: set it back, set data.seed = 42 to keep the order of the "
                                "data, " ANEW},
        {"s/^seq_len.*/&\\nshuffle = false/",
         "run.toml:13:11: error: data.shuffle is false" FROM "with true: set it back, " ANEW},
        {"s/^seq_len.*/&\\nvalidation_split = 0.1/",
         "run.toml:13:20: error: data.validation_split is 0.1" FROM "with 0.0: set it back, " ANEW},
        {"s/^hidden_size.*/hidden_size = 32/",
         "run.toml:3:15: error: model.hidden_size is 32" FROM "with 16: set it back, " ANEW},
        {"s/^num_hidden.*/num_hidden_layers = 2/",
         "run.toml:5:21: error: model.num_hidden_layers is 2" FROM "with 1: set it back, " ANEW},
        {"s/^hidden_size.*/&\\nrope_theta = 500.0/", /* all tensors keep their shapes */
         "run.toml:4:14: error: model.rope_theta is 500.0" FROM "with 10000.0: set it back, " ANEW},
        {"s/^num_attention.*/num_attention_heads = 1/",
         "run.toml:6:23: error: model.num_attention_heads is 1" FROM "with 2: set it back, " ANEW},
        {"s/^train = .*/train = { vocab_size = 280 }/",
         "run.toml:9:9: error: tokenizer.train is {\"vocab_size\": 280, "},
        {"s/^name = \"adamw\"/name = \"lion\"/",
         "run.toml:14:8: error: optimizer.name is \"lion\"" FROM
         "with \"adamw\": set it back, " ANEW},
        {"s/^name = \"cosine\"/name = \"linear\"/",
         "run.toml:17:8: error: scheduler.name is \"linear\"" FROM
         "with \"cosine\": set it back, " ANEW},
        {"s/^lr = .*/&\\nstate_dtype = \"bf16\"/",
         "changed since then: optimizer.state_dtype \"fp32\" -> \"bf16\"; the run would resume "
         "from "
         "out/step-00000004: set these keys back, " ANEW},
        {"s/text.txt/other.txt/",
         "run.toml:11:12: error: out/step-00000004 cannot be resumed, "
         "because the data changed since it was written: other.txt is new"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        edit(rows[i].script);
        expect_refused("", rows[i].says);
    }
    put("run.toml", run_file);
    expect(LATHE " train run.toml --train.stop_after 5 2>&1", 0, "step-00000005");
}

Test(resume_refusal, names_every_key_that_changed_at_once)
{
    edit("s/^seq_len.*/seq_len = 32/; s/^seed.*/seed = 7/");
    expect_refused("", "run.toml:12:11: error: data.seq_len is 32");
    expect_refused("", "run.toml:22:8: error: train.seed is 7");
    cr_expect_not_null(strstr(output, "2 errors"), "%s", output);
}

/* If a checkpoint is damaged, the one before it is checked instead. */
Test(resume_refusal, is_of_the_checkpoint_that_would_be_taken)
{
    edit("s/^seq_len.*/seq_len = 32/");
    cr_assert_eq(truncate("out/step-00000004/state/run.json", 40), 0);
    expect_refused("", "data.seq_len is 32, but out/step-00000002, from which the run would "
                       "resume, was written with 16");
}

Test(resume_refusal, of_a_checkpoint_that_is_named_says_to_name_another)
{
    edit("s/^seq_len.*/seq_len = 32/");
    expect_refused("--checkpoint.dir new --checkpoint.resume out/step-00000002",
                   "or resume from another checkpoint with checkpoint.resume");
}

Test(resume_refusal, of_an_adapter_names_its_keys)
{
    put("base.toml", run_file);
    cr_assert_eq(run("sed -e '/^model_type/,/^max_position/d' -e '/^train = /d' "
                     "-e 's/^\\[model\\]/[model]\\npath = \"base\"\\n"
                     "[adapter]\\nname = \"lora\"\\nr = 4/' base.toml > run.toml && "
                     "cp -r out/step-00000004 base && rm -r out"),
                 0);
    expect(LATHE " train run.toml 2>&1", 0, "checkpoint out/step-00000004");
    cr_assert_eq(run("sed -i 's/^r = 4/r = 8/' run.toml"), 0);
    expect_refused("", "run.toml:5:5: error: ");
    cr_expect_not_null(strstr(output, "changed since then: adapter.r 4 -> 8;"), "%s", output);
}

/* ---- what is optimised ---- */

/* A run with an adapter, whose settings decide what its weights compute. */
static void make_adapter_run(void)
{
    put("base.toml", run_file);
    cr_assert_eq(run("sed -e '/^model_type/,/^max_position/d' -e '/^train = /d' "
                     "-e 's/^\\[model\\]/[model]\\npath = \"base\"\\n"
                     "[adapter]\\nname = \"lora\"\\nr = 4/' base.toml > run.toml && "
                     "cp -r out/step-00000004 base && rm -r out"),
                 0);
    expect(LATHE " train run.toml 2>&1", 0, "checkpoint out/step-00000004");
}

#define OTHER_ALPHA                                                                                \
    "--adapter.alpha: error: adapter.alpha is 7.0, but out/step-00000004, from which the run "     \
    "would resume, was written with "

Test(resume_refusal, of_another_objective_names_the_key_and_the_permission)
{
    make_adapter_run();
    expect_refused("--adapter.alpha 7", OTHER_ALPHA);
    cr_expect_not_null(
        strstr(output,
               "set it back, set checkpoint.allow_changed = [\"adapter.alpha\"] to continue with "
               "another objective, or choose another checkpoint.dir, or give --checkpoint.resume "
               "restart, to begin a new run\n"),
        "%s", output);
}

Test(resume_refusal, of_another_objective_is_lifted_by_its_permission_alone)
{
    make_adapter_run();
    expect_refused("--adapter.alpha 7 --checkpoint.allow_changed '[\"adapter.dropout\"]'",
                   OTHER_ALPHA);
    expect(LATHE " train run.toml --train.stop_after 5 --adapter.alpha 7 "
                 "--checkpoint.allow_changed '[\"adapter.alpha\"]' 2>&1",
           0, "with other settings than it was written with: adapter.alpha ");
    /* the checkpoint now has the new value */
    expect(LATHE " train run.toml --train.stop_after 6 --adapter.alpha 7 2>&1", 0,
           "checkpoint out/step-00000006");
}

/* The manifest is written again without a key, as a Lathe would have done that did not know it. */
Test(resume_warning, a_new_key_with_its_default_is_no_change)
{
    make_adapter_run();
    cr_assert_eq(
        run("cd out/step-00000004; head -n -2 manifest.json | sed -e 's/, \"use_rslora\": "
            "false//' -e 's/, \"capture\": \"auto\"//' -e 's/, \"max_grad_value\": 0.0//' > m; "
            "cmp -s m manifest.json || printf '  \"self\": \"%s\"\\n}\\n' "
            "$(sha256sum < m | cut -d' ' -f1) >> m; ! grep -q 'use_rslora\\|max_grad_value' m && "
            "mv m manifest.json"),
        0, "%s", output);
    expect(LATHE " train run.toml --train.stop_after 5 2>&1", 0, "checkpoint out/step-00000005");
    cr_expect_null(strstr(output, "other settings"), "%s", output);
    cr_assert_eq(run("rm -r out/step-00000005; echo step-00000004 > out/latest"), 0);
    expect(LATHE " train run.toml --train.stop_after 5 --train.max_grad_value 2 2>&1", 0,
           "checkpoint out/step-00000005");
}

Test(resume_refusal, permission_for_other_keys_is_refused)
{
    static const char *const names[] = {"optimizer.lr", "model.hidden_size", "stage",
                                        "stage.plugin", ""};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        char arguments[200], says[200];
        snprintf(arguments, sizeof arguments, "--checkpoint.allow_changed '[\"%s\"]'", names[i]);
        snprintf(says, sizeof says,
                 "--checkpoint.allow_changed: error: checkpoint.allow_changed names \"%s\"; "
                 "expected keys of [stage], [adapter], [quant], [moe], [reward] or [teacher]",
                 names[i]);
        expect_refused(arguments, says);
    }
}

Test(resume_warning, of_another_precision_is_told_once)
{
    expect(LATHE " train run.toml --train.stop_after 5 --train.precision bf16 2>&1", 0,
           "train.precision \"fp32\" -> \"bf16\"");
    cr_expect_null(strstr(output, "goes on in"), "%s", output);
}

/* ---- allowed changes ---- */

Test(resume_warning, lists_each_changed_key_once_and_the_lineage_has_them)
{
    static const char text[] =
        "run.toml:22:20: warning: the run resumes from out/step-00000004 with other settings than "
        "it was written with: train.micro_batch_size 1 -> 2, train.max_steps 12 -> 20, "
        "optimizer.lr 0.001 -> 0.002, scheduler.min_lr 0.0 -> 0.0005\n";
    edit("s/^max_steps.*/max_steps = 20\\nmicro_batch_size = 2/; s/^lr = .*/lr = 2e-3/; "
         "s/^stop_after.*/stop_after = 6/; s/^name = \"cosine\"/&\\nmin_lr = 0.0005/; "
         "s/^every = 2/every = 3/");
    expect(LATHE " validate run.toml 2>&1", 0, text);
    expect(LATHE " train run.toml 2>&1", 0, text);
    const char *first = strstr(output, "other settings");
    cr_assert_not_null(first);
    cr_expect_null(strstr(first + 1, "other settings"), "said twice:\n%s", output);
    json_t *root = json_load_file("out/run.json", 0, NULL);
    const json_t *lineage = json_object_get(root, "lineage");
    const json_t *changed = json_object_get(json_array_get(lineage, 1), "changed");
    const json_t *batch = json_object_get(changed, "train.micro_batch_size");
    cr_expect_eq(json_integer_value(json_object_get(batch, "from")), 1);
    cr_expect_eq(json_integer_value(json_object_get(batch, "to")), 2);
    cr_expect_not_null(json_object_get(changed, "checkpoint.every"));
    json_decref(root);
    /* the newest checkpoint now has the settings of the file */
    expect(LATHE " train run.toml --train.stop_after 7 2>&1", 0, "resumed from out/step-00000006");
    cr_expect_null(strstr(output, "other settings"), "%s", output);
}

Test(resume_warning, names_a_key_that_was_taken_out)
{
    edit("s/^max_steps.*/epochs = 1/");
    expect(LATHE " validate run.toml 2>&1", 0, "train.max_steps 12 -> unset");
}

Test(resume_warning, says_nothing_of_what_does_not_change_the_run)
{
    edit("s/^every = 2/every = 1\\nkeep_last = 3/; s/^progress.*/progress = \"plain\"/; "
         "s/^threads.*/&\\nlog_every = 1/; s/^datasets.*/&\\nprefetch = 0/");
    expect(LATHE " train run.toml --train.stop_after 5 --model.num_key_value_heads 2 2>&1", 0,
           "resumed from out/step-00000004");
    cr_expect_null(strstr(output, "warning"), "%s", output);
}

Test(resume_warning, of_an_earlier_checkpoint_in_another_folder_compares_with_that_one)
{
    edit("s/^lr = .*/lr = 2e-3/");
    expect(LATHE " train run.toml --checkpoint.dir new --checkpoint.resume out/step-00000002 "
                 "--train.stop_after 3 2>&1",
           0,
           "resumes from out/step-00000002 with other settings than it was written with: "
           "optimizer.lr 0.001 -> 0.002");
    json_t *root = json_load_file("new/run.json", 0, NULL);
    const json_t *start = json_array_get(json_object_get(root, "lineage"), 0);
    cr_expect_not_null(json_object_get(json_object_get(start, "changed"), "optimizer.lr"));
    json_decref(root);
}

/* ---- the run's folder ---- */

/* Starts a run that continues until it is stopped, with the given number of micro-batches per
 * step. */
static pid_t start_long_run(const char *micro_batches)
{
    return start_program(
        "log",
        (const char *const[]){LATHE, "train", "run.toml", "--train.max_steps", "100000000",
                              "--train.stop_after", "100000000", "--checkpoint.keep_last", "2",
                              "--train.gradient_accumulation_steps", micro_batches, NULL});
}

Test(run_folder, of_a_run_that_goes_on_is_refused_at_its_key)
{
    char who[80];
    int status = 0;
    const pid_t child = start_long_run("1");
    wait_until(child, "test -e out/step-00000006");
    expect_refused("", "run.toml:27:7: error: checkpoint.dir = \"out\" is the folder of a run that "
                       "is training: out/lock is held by process ");
    snprintf(who, sizeof who, "held by process %ld on ", (long)child);
    cr_expect_not_null(strstr(output, who), "%s", output);
    cr_assert_eq(kill(child, SIGKILL), 0);
    cr_assert_eq(waitpid(child, &status, 0), child);
    expect(LATHE " validate run.toml 2>&1", 0, "valid");
}

Test(run_folder, that_cannot_be_written_is_refused_at_its_key)
{
    edit("s/^dir = .*/dir = \"\\/proc\\/nowhere\\/out\"/");
    expect_refused("", "run.toml:27:7: error: checkpoint.dir = \"/proc/nowhere/out\": the folder "
                       "/proc cannot be written: ");
    edit("s/^dir = .*/dir = \"fresh\\/out\"/");
    expect(LATHE " validate run.toml 2>&1", 0, "valid");
    cr_expect_neq(access("fresh", F_OK), 0, "validate made the folder");
}

Test(run_folder, that_is_a_link_to_nowhere_is_refused_at_its_key)
{
    cr_assert_eq(symlink("missing", "link"), 0);
    expect_refused("--checkpoint.dir link",
                   "--checkpoint.dir: error: checkpoint.dir = \"link\": link is a link to missing, "
                   "which does not exist: create that folder, or remove the link");
    expect_refused("--checkpoint.dir link/out", "link is a link to missing, which does not exist");
    cr_assert_eq(mkdir("missing", 0777), 0);
    expect(LATHE " validate run.toml --checkpoint.dir link 2>&1", 0, "valid");
}

/* Reading a run needs no write permission for its folder. */
Test(run_folder, that_cannot_be_written_is_still_read)
{
    cr_assert_eq(chmod("out", 0555), 0);
    expect(LATHE " generate run.toml --max-new-tokens 2 --prompt the 2>&1", 0, "");
    cr_assert_eq(chmod("out", 0755), 0);
}

Test(run_folder, of_damaged_checkpoints_alone_names_each_file_and_keeps_the_data)
{
    cr_assert_eq(truncate("out/step-00000002/model.safetensors", 99), 0);
    cr_assert_eq(unlink("out/step-00000004/state/run.json"), 0);
    expect(LATHE " train run.toml 2>&1", 2, "out: all of its checkpoints are damaged: ");
    expect(LATHE " validate run.toml 2>&1", 2, "out: all of its checkpoints are damaged: ");
    const char *said = strstr(output, "all of its checkpoints");
    cr_assert_not_null(said);
    cr_expect_not_null(strstr(said, "out/step-00000004/state/run.json: cannot open"), "%s", output);
    cr_expect_not_null(strstr(said, "out/step-00000002/model.safetensors"), "%s", output);
    cr_expect_not_null(strstr(said, "restore one of these files"), "%s", output);
    cr_expect_null(strstr(output, "remove the folder"), "%s", output);
    cr_expect_eq(access("out/step-00000004/model.safetensors", F_OK), 0);
}

Test(run_folder, without_a_run_is_refused_by_report_and_watch)
{
    static const char says[] = "fresh: no run in it: neither run.json, nor metrics.jsonl, nor a "
                               "checkpoint; expected the checkpoint.dir of a run";
    cr_assert_eq(mkdir("fresh", 0777), 0);
    expect(LATHE " report fresh 2>&1", 2, says);
    expect(LATHE " watch fresh --once 2>&1", 2, says);
    cr_expect_neq(access("fresh/report.html", F_OK), 0);
    expect(LATHE " report out 2>&1", 0, "out/report.html");
}

/* Leaves a checkpoint in the middle of step 5. */
static void stop_in_the_middle(void)
{
    const pid_t child = start_long_run("1000000");
    wait_until(child, "grep -aqs 'resumed from' log");
    rest_ms(300);
    cr_assert_eq(kill(child, SIGTERM), 0);
    cr_assert_eq(exit_code(child), 143);
    expect("cat log", 0, "checkpoint out/step-00000004, in the middle of step 5");
}

Test(run_folder, of_a_step_in_its_middle_keeps_its_precision, .timeout = 400)
{
    stop_in_the_middle();
    expect_refused("--train.precision bf16", "--train.precision: error: ");
    cr_expect_not_null(strstr(output, "in the middle of a step, the run computes in bf16: finish "
                                      "the step in fp32; changed since then: train.precision "
                                      "\"fp32\" -> \"bf16\""),
                       "%s", output);
    expect(LATHE " validate run.toml 2>&1", 0, "valid");
    expect(LATHE " train run.toml --train.stop_after 5 2>&1", 0, "checkpoint out/step-00000005");
}

/* A step that is resumed counts the tokens that it computes in its seconds, not those before. */
Test(run_folder, of_a_step_in_its_middle_gives_the_speed_of_its_rest, .timeout = 400)
{
    char command[256];
    long long done = 0;
    stop_in_the_middle();
    cr_assert_eq(run("cat log"), 0);
    const char *at = strstr(output, "in the middle of step 5: ");
    cr_assert(at && sscanf(at, "in the middle of step 5: %lld of", &done) == 1 && done > 8, "%s",
              output);
    /* two further micro-batches of 16 tokens */
    snprintf(command, sizeof command,
             LATHE " train run.toml --train.stop_after 5 --train.gradient_accumulation_steps %lld "
                   "2>&1",
             done + 2);
    expect(command, 0, "checkpoint out/step-00000005");
    cr_expect_null(strstr(output, "is in the middle of a step"), "%s", output);
    cr_assert_eq(run("tail -n 1 out/metrics.jsonl"), 0);
    json_t *line = json_loads(output, 0, NULL);
    cr_assert_eq(json_integer_value(json_object_get(line, "step")), 5, "%s", output);
    const double tokens = json_number_value(json_object_get(line, "tokens_per_s")) *
                          json_number_value(json_object_get(line, "step_seconds"));
    cr_expect_float_eq(tokens, 32.0, 0.01, "%g tokens, %s", tokens, output);
    json_decref(line);
}

Test(run_folder, of_a_step_with_more_micro_batches_than_now_says_that_it_ends, .timeout = 400)
{
    static const char says[] =
        "--train.gradient_accumulation_steps: warning: out/step-00000004 is in the middle of a "
        "step, with ";
    stop_in_the_middle();
    expect(LATHE " validate run.toml --train.gradient_accumulation_steps 3 2>&1", 0, says);
    expect(LATHE " train run.toml --train.stop_after 5 --train.gradient_accumulation_steps 3 2>&1",
           0, says);
    cr_expect_not_null(strstr(output, "and train.gradient_accumulation_steps is 3 now: that step "
                                      "ends with the "),
                       "%s", output);
    cr_expect_not_null(strstr(output, "checkpoint out/step-00000005"), "%s", output);
}
