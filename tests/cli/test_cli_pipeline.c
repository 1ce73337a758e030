/* lathe pipeline: order, what each step begins with, resuming, and what is refused before the
 * first step. */
#include "started_program.h"

#define LATHE LATHE_TEST_BUILD "/bin/lathe"

static const char base_file[] = "[model]\nmodel_type = \"llama\"\nvocab_size = 300\n"
                                "hidden_size = 16\nintermediate_size = 32\nnum_hidden_layers = 1\n"
                                "num_attention_heads = 2\nmax_position_embeddings = 64\n"
                                "[tokenizer]\npath = \"bytes\"\n"
                                "[data]\ndatasets = [{ path = \"text.txt\" }]\nseq_len = 32\n"
                                "[train]\nmax_steps = 2\nthreads = 1\n"
                                "[log]\nprogress = \"off\"\n[checkpoint]\ndir = \"out/base\"\n";

static const char sft_file[] = "[model]\npath = \"@base\"\n"
                               "[data]\ndatasets = [{ path = \"answers.jsonl\" }]\nseq_len = 32\n"
                               "[stage]\nname = \"sft\"\n[train]\nmax_steps = 3\nthreads = 1\n"
                               "[log]\nprogress = \"off\"\n";

static const char dpo_file[] = "[model]\npath = \"unset\"\n"
                               "[data]\ndatasets = [{ path = \"pairs.jsonl\" }]\nseq_len = 32\n"
                               "[stage]\nname = \"dpo\"\n[adapter]\nname = \"lora\"\nr = 2\n"
                               "[train]\nmax_steps = 2\nthreads = 1\n[log]\nprogress = \"off\"\n"
                               "[checkpoint]\ndir = \"out/dpo\"\n";

static const char pipe_file[] = "[[step]]\nname = \"base\"\nrun = \"base.toml\"\n\n"
                                "[[step]]\nname = \"sft\"\nrun = \"sft.toml\"\n"
                                "overrides = { \"checkpoint.dir\" = \"out/sft\" }\n\n"
                                "[[step]]\nname = \"dpo\"\nrun = \"dpo.toml\"\n"
                                "[step.overrides.model]\npath = \"@sft\"\n";

static void setup(void)
{
    child_programs_skip_the_leak_check();
    make_folder();
    cr_assert_eq(run("mkdir p"), 0);
    put("p/base.toml", base_file);
    put("p/sft.toml", sft_file);
    put("p/dpo.toml", dpo_file);
    put("p/pipe.toml", pipe_file);
    put_times("p/text.txt", "the wheel turns and the tool holds\n", 40);
    put_times("p/answers.jsonl", "{\"prompt\": \"why?\", \"completion\": \"so\"}\n", 4);
    put_times("p/pairs.jsonl", "{\"prompt\": \"a \", \"chosen\": \"good\", \"rejected\": \"no\"}\n",
              4);
}

TestSuite(pipeline, .init = setup, .fini = remove_folder, .timeout = 120);

static int says(const char *text)
{
    return strstr(output, text) != NULL;
}

/* Paths are relative to the files, not to the current folder. */
Test(pipeline, runs_its_steps_each_from_the_one_before)
{
    expect(LATHE " pipeline p/pipe.toml 2>&1", 0, "pipeline finished: ");
    cr_expect(says("2 steps are checked by their keys alone: an earlier step makes the model"),
              "%s", output);
    cr_expect(says("== step 1 of 3, base (p/base.toml)\n"), "%s", output);
    cr_expect(says("== step 2 of 3, sft (p/sft.toml): model.path = \""), "%s", output);
    cr_expect(says("/p/out/base/step-00000002\""), "%s", output);
    cr_expect(says("== step 3 of 3, dpo (p/dpo.toml): model.path = \""), "%s", output);
    expect(LATHE " lineage p/out/dpo", 0, "<- model, reference: ");
    cr_expect(says("/p/out/sft/step-00000003\n") && says("/p/out/base/step-00000002\n"), "%s",
              output);
    cr_expect(says("begins    with random weights"), "%s", output);
    /* nothing is left to do */
    expect(LATHE " pipeline p/pipe.toml 2>&1", 0, "pipeline finished: ");
    cr_expect(says("== step 2 of 3, sft (p/sft.toml)") && says("; finished: "), "%s", output);
    cr_expect(!says("planned peak"), "%s", output);
}

Test(pipeline, dry_run_checks_and_tells_and_trains_nothing)
{
    expect(LATHE " pipeline p/pipe.toml --dry-run 2>&1", 0,
           "dry run: 3 steps are valid, nothing was trained");
    cr_expect(says("== step 2 of 3, sft (p/sft.toml): model.path = \"@base\"\n"), "%s", output);
    expect("ls p/out 2>&1 || true", 0, "No such file");
}

Test(pipeline, goes_on_where_a_paused_step_stopped)
{
    expect(LATHE " pipeline p/pipe.toml --train.stop_after 1 2>&1", 0,
           "the pipeline stops in step 1 of 3, base; the same command goes on from there");
    expect(LATHE " pipeline p/pipe.toml 2>&1", 0, "; goes on from step 1 in p/out/base\n");
    cr_expect(says("resumed from p/out/base/step-00000001 at step 1"), "%s", output);
    cr_expect(says("pipeline finished: "), "%s", output);
}

/* A longer last step goes on; a longer first step makes the later ones out of date. */
Test(pipeline, a_changed_step_is_trained_on_and_what_follows_it_is_refused)
{
    expect(LATHE " pipeline p/pipe.toml 2>&1", 0, "pipeline finished: ");
    cr_assert_eq(run("sed -i 's/max_steps = 2/max_steps = 4/' p/dpo.toml"), 0);
    expect(LATHE " pipeline p/pipe.toml 2>&1", 0, "resumed from p/out/dpo/step-00000002");
    cr_assert_eq(run("sed -i 's/max_steps = 2/max_steps = 4/' p/base.toml"), 0);
    expect(
        LATHE " pipeline p/pipe.toml 2>&1", 2,
        "p/pipe.toml:5:1: step \"sft\" has checkpoints in p/out/sft, but step \"base\", from which "
        "it starts, is not finished, because train.max_steps 2 -> 4: move p/out/sft away, or give "
        "the step another checkpoint.dir");
    expect("ls p/out/base", 0, "step-00000002");
    put("p/first.toml", "[[step]]\nname = \"base\"\nrun = \"base.toml\"\n");
    expect(LATHE " pipeline p/first.toml 2>&1", 0, "checkpoint p/out/base/step-00000004");
    expect(
        LATHE " pipeline p/pipe.toml 2>&1", 2,
        "step \"sft\": the checkpoints in p/out/sft were trained from another checkpoint of step "
        "\"base\" than its present one, ");
    expect("mv p/out/sft p/out/dpo p/; " LATHE " pipeline p/pipe.toml 2>&1", 0,
           "pipeline finished: ");
}

/* The cause, and not that the folders of such a step are unknown. */
Test(pipeline, an_option_that_a_step_does_not_have_is_told_with_the_step)
{
    expect(LATHE " pipeline p/pipe.toml 2>&1", 0, "pipeline finished: ");
    expect(LATHE " pipeline p/pipe.toml --stage.beta 0.2 2>&1", 2,
           "--stage.beta: error: step \"base\": unknown key 'beta' in [stage]");
    cr_expect(says("--stage.beta: error: step \"sft\": unknown key 'beta' in [stage]"), "%s",
              output);
    cr_expect(!says("step \"dpo\"") && !says("move"), "%s", output);
    expect(LATHE " pipeline p/pipe.toml 2>&1", 0, "; finished: ");
}

/* A step that has taken all its steps does not finish with settings that trained nothing. */
Test(pipeline, a_changed_step_with_no_step_left_is_refused)
{
    put("p/first.toml", "[[step]]\nname = \"base\"\nrun = \"base.toml\"\n");
    expect(LATHE " pipeline p/first.toml 2>&1", 0, "pipeline finished: ");
    expect(
        LATHE " pipeline p/first.toml --optimizer.lr 0.9 2>&1", 2,
        "p/first.toml:1:1: step \"base\" has taken all its steps with other settings, and nothing "
        "is trained with the new ones, optimizer.lr ");
    expect(LATHE " pipeline p/first.toml 2>&1", 0, "; finished: ");
}

Test(pipeline, a_failing_step_keeps_what_is_there)
{
    /* its error appears only when the data are read with the model of the first step */
    cr_assert_eq(run("sed -i 's/answers.jsonl/missing.jsonl/' p/sft.toml"), 0);
    expect(LATHE " pipeline p/pipe.toml 2>&1", 2, "missing.jsonl");
    cr_expect(says("step \"sft\" failed; what the steps made is kept, and the same command goes on "
                   "from there"),
              "%s", output);
    cr_assert_eq(run("sed -i 's/missing.jsonl/answers.jsonl/' p/sft.toml"), 0);
    expect(LATHE " pipeline p/pipe.toml 2>&1", 0, "; finished: ");
    cr_expect(says("pipeline finished: "), "%s", output);
}

/* All of them before the first step: with a folder as the first model, the later steps are checked
 * completely. */
Test(pipeline, errors_of_every_step_are_told_before_the_first_starts)
{
    expect(LATHE " train p/base.toml 2>&1", 0, "checkpoint");
    put("p/short.toml", "[[step]]\nname = \"sft\"\nrun = \"sft.toml\"\n"
                        "overrides = { \"model.path\" = \"out/base/step-00000002\", "
                        "\"checkpoint.dir\" = \"out/sft\", optimizer = { lrr = 1 } }\n"
                        "[[step]]\nname = \"dpo\"\nrun = \"dpo.toml\"\n"
                        "overrides = { \"model.path\" = \"@sft\", "
                        "\"data.datasets\" = [{ path = \"answers.jsonl\" }] }\n");
    expect(LATHE " pipeline p/short.toml 2>&1", 2, "p/short.toml:4:100: error: unknown key 'lrr'");
    cr_expect(says("p/answers.jsonl:1: no column \"chosen\""), "%s", output);
    expect("ls p/out", 0, "base\n");
    cr_expect(!says("sft"), "%s", output);
}

static const char ppo_steps[] =
    "[[step]]\nname = \"rm\"\nrun = \"dpo.toml\"\n"
    "overrides = { \"model.path\" = \"@base\", \"adapter.name\" = \"full\", \"stage.name\" = "
    "\"rm\", "
    "\"checkpoint.dir\" = \"out/rm\" }\n"
    "[[step]]\nname = \"ppo\"\nrun = \"sft.toml\"\n"
    "[step.overrides]\nreward = { model = \"@rm\" }\ncheckpoint = { dir = \"out/ppo\" }\n"
    "stage = { name = \"ppo\", prompts = 2, group = 2, max_new_tokens = 4 }\n";

static void put_ppo_pipe(const char *name, const char *base)
{
    char text[2048];
    cr_assert_eq(run("sed -i '/^r = 2$/d' p/dpo.toml"), 0);
    (void)snprintf(text, sizeof text, "%s%s", base, ppo_steps);
    put(name, text);
}

/* The reward model of the last step is made by the one before it. */
Test(pipeline, a_step_is_rewarded_by_the_model_of_an_earlier_one)
{
    put_ppo_pipe("p/ppo.toml", "[[step]]\nname = \"base\"\nrun = \"base.toml\"\n");
    expect(LATHE " pipeline p/ppo.toml 2>&1", 0, "pipeline finished: ");
    cr_expect(says("reward.model = \"") && says("/p/out/rm/step-00000002\""), "%s", output);
    expect(LATHE " pipeline p/ppo.toml 2>&1", 0, "; finished: ");
    cr_expect(says("pipeline finished: ") && !says("planned peak"), "%s", output);
    /* another reward model than that of the last step's checkpoints */
    expect("mv p/out p/was; " LATHE " pipeline p/ppo.toml --train.seed 5 2>&1", 0,
           "pipeline finished: ");
    expect("rm -r p/out/ppo; cp -r p/was/ppo p/out/; " LATHE
           " pipeline p/ppo.toml --train.seed 5 2>&1",
           2,
           "step \"ppo\": the checkpoints in p/out/ppo were trained from another checkpoint of ");
}

/* In an array of rewards, in the run file and by its number in the overrides. */
Test(pipeline, one_of_several_rewards_is_the_model_of_an_earlier_step)
{
    static const char base[] = "[[step]]\nname = \"base\"\nrun = \"base.toml\"\n";
    put_ppo_pipe("p/ppo.toml", base);
    put("p/rewards.toml", "[[reward]]\nname = \"length\"\ntokens = 3\n"
                          "[[reward]]\nmodel = \"@rm\"\n");
    cr_assert_eq(run("cat p/rewards.toml >>p/sft.toml; sed -i '/^reward = /d' p/ppo.toml"), 0);
    expect(LATHE " pipeline p/ppo.toml --dry-run 2>&1", 0, "reward.1.model = \"@rm\"\n");
    cr_assert_eq(run("sed 's/^checkpoint = /\"reward.1.model\" = \"@base\"\\n&/' p/ppo.toml "
                     ">p/bad.toml"),
                 0);
    expect(LATHE " pipeline p/bad.toml --dry-run 2>&1", 2,
           "step \"ppo\": reward.1.model = \"@base\", but the checkpoints of step \"base\" will "
           "hold a language model and no reward model");
    expect(LATHE " pipeline p/ppo.toml 2>&1", 0, "pipeline finished: ");
    cr_expect(says("reward.1.model = \""), "%s", output);
    expect(LATHE " pipeline p/ppo.toml 2>&1", 0, "; finished: ");
    expect(LATHE " lineage p/out/ppo 2>&1", 0, "<- reward: ");
}

/* Its reward model is checked as what it will be made of. */
Test(pipeline, a_reward_model_that_is_not_made_yet_is_checked_by_what_it_will_be_made_of)
{
    expect(LATHE " train p/base.toml 2>&1", 0, "checkpoint");
    put_ppo_pipe("p/ppo.toml", "");
    cr_assert_eq(run("sed -i 's|@base|out/base/step-00000002|' p/ppo.toml p/sft.toml"), 0);
    expect(LATHE " pipeline p/ppo.toml --dry-run 2>&1", 0,
           "== step 2 of 2, ppo (p/sft.toml): reward.model = \"@rm\"\n"
           "dry run: 2 steps are valid, nothing was trained");
    expect(LATHE " pipeline p/ppo.toml --data.seq_len 100 2>&1", 2, "64 positions");
    expect(LATHE " pipeline p/ppo.toml 2>&1", 0, "pipeline finished: ");
}

/* A step named "it" after a step named "base" that makes, or made, a new model. */
static void expect_misfit(const char *overrides, const char *says_what)
{
    static const char *const first[] = {
        "[[step]]\nname = \"base\"\nrun = \"base.toml\"\n",
        "[[step]]\nname = \"base\"\nrun = \"sft.toml\"\noverrides = { \"model.path\" = "
        "\"out/made/step-00000002\", \"checkpoint.dir\" = \"out/base\" }\n"};
    static const char rm[] = "[[step]]\nname = \"rm\"\nrun = \"dpo.toml\"\n"
                             "overrides = { \"model.path\" = \"@base\", \"adapter.name\" = "
                             "\"full\", \"stage.name\" = \"rm\" }\n";
    char text[2048];
    for (int i = 0; i < 2; i++) {
        (void)snprintf(text, sizeof text,
                       "%s%s[[step]]\nname = \"it\"\nrun = \"sft.toml\"\n[step.overrides]\n"
                       "checkpoint.dir = \"out/it\"\n%s\n",
                       first[i], rm, overrides);
        put("p/bad.toml", text);
        expect(LATHE " pipeline p/bad.toml --dry-run 2>&1", 2, says_what);
        cr_expect(!says("errors"), "%s", output);
    }
}

/* A misfit is found where the keys alone can be checked, too. */
Test(pipeline, what_a_step_will_not_make_is_refused_before_it_starts)
{
    expect(LATHE " train p/base.toml --checkpoint.dir p/out/made 2>&1", 0, "checkpoint");
    cr_assert_eq(run("sed -i '/^r = 2$/d' p/dpo.toml"), 0);
    expect_misfit("model.path = \"@base/average\"",
                  "error: step \"it\": model.path = \"@base/average\", but the checkpoints of step "
                  "\"base\" will hold no averaged weights: set train.weight_average in that step");
    expect_misfit("model.path = \"@rm\"",
                  "error: step \"it\": model.path = \"@rm\", but the checkpoints of step \"rm\" "
                  "will hold a sequence classifier, such as a reward model, which has no head over "
                  "the vocabulary: name a step that makes a language model");
    expect_misfit("stage.name = \"distill\"",
                  "error: stage \"distill\" learns from a teacher: set teacher.path to ");
    expect_misfit("stage.name = \"distill\"\nteacher.path = \"@rm\"",
                  "error: step \"it\": teacher.path = \"@rm\", but the checkpoints of step \"rm\" "
                  "will hold a sequence classifier");
    expect_misfit("stage = { name = \"ppo\", prompts = 2, group = 2, max_new_tokens = 4 }\n"
                  "reward.model = \"@base\"",
                  "error: step \"it\": reward.model = \"@base\", but the checkpoints of step "
                  "\"base\" will hold a language model and no reward model: train that step with "
                  "stage.name = \"rm\"");
}

static const char adapter_steps[] =
    "[[step]]\nname = \"sft\"\nrun = \"sft.toml\"\n"
    "overrides = { \"model.path\" = \"out/base/step-00000002\", "
    "\"checkpoint.dir\" = \"out/sft\", \"adapter.name\" = \"lora\", \"adapter.r\" = 2 }\n"
    "[[step]]\nname = \"dpo\"\nrun = \"dpo.toml\"\n";

/* The reference of dpo is the base with the adapter of sft, and not the base alone. */
Test(pipeline, a_step_begins_with_the_adapter_of_an_earlier_one)
{
    char text[1024];
    expect(LATHE " train p/base.toml 2>&1", 0, "checkpoint");
    (void)snprintf(text, sizeof text, "%soverrides = { \"model.path\" = \"@sft\" }\n",
                   adapter_steps);
    put("p/short.toml", text);
    expect(LATHE " pipeline p/short.toml 2>&1", 0, "begins with the adapter in ");
    expect(LATHE " lineage p/out/dpo", 0, "<- adapter, reference: ");
    expect(LATHE " pipeline p/short.toml 2>&1", 0, "");
    cr_expect(!says("begins with"), "a finished step is not trained again: %s", output);
}

Test(pipeline, an_adapter_is_refused_where_a_whole_model_is_needed)
{
    char text[1024];
    expect(LATHE " train p/base.toml 2>&1", 0, "checkpoint");
    (void)snprintf(text, sizeof text, "%soverrides = { \"teacher.path\" = \"@sft\" }\n",
                   adapter_steps);
    put("p/short.toml", text);
    expect(LATHE " pipeline p/short.toml 2>&1", 2,
           "p/short.toml:5:1: error: step \"dpo\": teacher.path = \"@sft\", but the checkpoints of "
           "step \"sft\" will hold an adapter and no model: train that step with adapter.name = "
           "\"full\"");
}

Test(pipeline, bad_files_are_refused_with_their_places)
{
    static const struct {
        const char *text, *says;
    } cases[] = {
        {"", "p/bad.toml: error: no steps; expected [[step]] tables with name and run"},
        {"step = 3\n", "p/bad.toml: error: no steps; expected [[step]] tables with name and run"},
        {"[[stepp]]\nname = \"a\"\n",
         "p/bad.toml:1:3: error: unknown key 'stepp'; expected [[step]] tables"},
        {"[[step]]\nrun = \"base.toml\"\n",
         "p/bad.toml:1:1: error: a step without name; expected name = \"...\""},
        {"[[step]]\nname = \"a\"\n",
         "p/bad.toml:1:1: error: a step without run; expected run = \"...\""},
        {"[[step]]\nname = \"a/b\"\nrun = \"base.toml\"\n",
         "name = \"a/b\"; expected letters, digits, '_', '-' and '.'"},
        {"[[step]]\nname = \"a\"\nrun = \"base.toml\"\nruns = 3\n",
         "p/bad.toml:4:1: error: unknown key 'runs' in [[step]]; expected name, run and overrides"},
        {"[[step]]\nname = \"a\"\nrun = \"base.toml\"\n[[step]]\nname = \"a\"\nrun = "
         "\"dpo.toml\"\n",
         "p/bad.toml:4:1: error: two steps have the name \"a\""},
        {"[[step]]\nname = \"a\"\nrun = \"none.toml\"\n", "step \"a\": p/none.toml: "},
        {"[[step]]\nname = \"a\"\nrun = \"base.toml\"\noverrides = 3\n",
         "overrides is an integer; expected { \"section.key\" = value }"},
        {"[[step]]\nname = \"a\"\nrun = \"base.toml\"\noverrides = { lr = 3 }\n",
         "p/bad.toml:4:15: error: overrides: 'lr' is no key of a run file; expected "
         "\"section.key\""},
        {"[[step]]\nname = \"a\"\nrun = \"sft.toml\"\n",
         "step \"a\": model.path = \"@base\" names no earlier step of this pipeline"},
        {"[[step]]\nname = \"base\"\nrun = \"base.toml\"\n[[step]]\nname = \"b\"\nrun = "
         "\"sft.toml\"\n"
         "overrides = { model = { path = \"@base/best\" } }\n",
         "model.path = \"@base/best\"; expected \"@base\", the final checkpoint, or "
         "\"@base/average\", its "
         "averaged weights"},
        {"[[step]]\nname = \"a\"\nrun = \"base.toml\"\n[[step]]\nname = \"b\"\nrun = "
         "\"base.toml\"\n",
         "p/bad.toml:4:1: error: steps \"a\" and \"b\" have the same checkpoint.dir, p/out/base: "
         "give each "
         "its own, in its run file or in its overrides"},
        {"[[step]]\nname = \n", "p/bad.toml:2:8: "},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        put("p/bad.toml", cases[i].text);
        expect(LATHE " pipeline p/bad.toml 2>&1", 2, cases[i].says);
    }
    expect(LATHE " pipeline p/none.toml 2>&1", 2, "p/none.toml");
}

/* SIGTERM within the first step: its checkpoint is written, and the pipeline goes on from it. */
Test(pipeline, sigterm_ends_the_step_with_its_checkpoint, .timeout = 200)
{
    cr_assert_eq(run("sed -i 's/max_steps = 2/max_steps = 1000000/' p/base.toml"), 0);
    const pid_t child =
        start_program("log", (const char *const[]){LATHE, "pipeline", "p/pipe.toml", NULL});
    wait_until(child, "test -s p/out/base/metrics.jsonl");
    cr_assert_eq(kill(child, SIGTERM), 0);
    cr_expect_eq(exit_code(child), 143);
    expect("cat log", 0, "the pipeline stops in step 1 of 3, base; the same command goes on");
    expect("cat p/out/base/latest", 0, "step-");
}
