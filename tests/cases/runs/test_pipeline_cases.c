/* Pipelines whose later step cannot begin with the adapter that an earlier one will make: found by
 * --dry-run, before anything is trained. */
#include "cli/training_case.h"

/* A model in `base`, and tuned.toml, which trains an adapter over it. */
static void setup_base(void)
{
    setup();
    cr_assert_eq(run(LATHE " train run.toml --checkpoint.dir base --train.max_steps 2 "
                           "--train.eval_every 0 2>&1"),
                 0, "%s", output);
    cr_assert_eq(run("sed -e '/^model_type/,/^max_pos/d' -e 's#^\\[model\\]#[model]\\npath = "
                     "\"base/step-00000002\"#' -e 's/^max_steps.*/max_steps = 2/' run.toml > "
                     "tuned.toml"),
                 0);
}

TestSuite(pipeline_cases, .init = setup_base, .fini = remove_folder, .timeout = 240);

static void put_pipeline(const char *second)
{
    char text[1024];
    (void)snprintf(text, sizeof text,
                   "[[step]]\nname = \"a\"\nrun = \"tuned.toml\"\n"
                   "overrides = { \"adapter.name\" = \"lora\", \"adapter.r\" = 4, "
                   "\"checkpoint.dir\" = \"pa\" }\n"
                   "[[step]]\nname = \"b\"\nrun = \"tuned.toml\"\n"
                   "overrides = { \"model.path\" = \"@a\", \"checkpoint.dir\" = \"pb\"%s }\n",
                   second);
    put("pipe.toml", text);
}

Test(pipeline_cases, an_adapter_that_will_not_fit_is_found_before_the_first_training)
{
    static const struct {
        const char *second, *says;
    } rows[] = {
        {", \"adapter.name\" = \"lora\", \"adapter.r\" = 8",
         "adapter.r is 8, but the adapter in the checkpoints of step \"a\" was trained with 4"},
        {", \"adapter.name\" = \"lora\", \"adapter.target_modules\" = [\"q_proj\"]",
         "adapter.target_modules is [\"q_proj\"], but the adapter in the checkpoints of step "
         "\"a\""},
        {", \"adapter.name\" = \"dora\"", "q_proj.lora_magnitude_vector f32[32], which the adapter "
                                          "of the checkpoints of step \"a\" will not have"},
        {", \"adapter.name\" = \"oft\"", "will not have: train both with the same method"},
        {", \"adapter.name\" = \"full\"", "the checkpoints of step \"a\" will hold an adapter, but "
                                          "adapter \"full\" has no parameters "
                                          "of its own"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        put_pipeline(rows[i].second);
        expect(LATHE " pipeline pipe.toml --dry-run 2>&1", 2, rows[i].says);
        cr_expect_not_null(strstr(output, "pipe.toml:8:"), "%s", output);
        expect(LATHE " pipeline pipe.toml 2>&1", 2, rows[i].says);
        cr_expect_eq(run("test -e pa"), 1, "nothing was trained: %s", rows[i].second);
    }
}

Test(pipeline_cases, an_adapter_that_fits_passes_and_trains)
{
    static const char *const rows[] = {"", ", \"adapter.name\" = \"lora\", \"adapter.r\" = 4",
                                       ", \"adapter.name\" = \"lora_plus\"",
                                       ", \"adapter.dropout\" = 0.1, \"adapter.name\" = \"lora\""};
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        cr_assert_eq(run("rm -rf pa pb"), 0);
        put_pipeline(rows[i]);
        expect(LATHE " pipeline pipe.toml --dry-run 2>&1", 0, "dry run: 2 steps are valid");
        expect(LATHE " pipeline pipe.toml 2>&1", 0, "pipeline finished");
    }
}
