/* Suggestions of lathe for keys and sections of other programs, or in the wrong place; and where
 * keys of tables inside sections are described. */
#include "cli_case.h"

#define LATHE LATHE_TEST_BUILD "/bin/lathe"
#define VALIDATE LATHE " validate --offline run.toml 2>&1"

TestSuite(suggestions, .init = make_folder, .fini = remove_folder);

/* Checks that the errors of a run file contain this text. */
static void says(const char *file, const char *text)
{
    put("run.toml", file);
    expect(VALIDATE, 2, text);
}

Test(suggestions, of_keys_outside_every_section)
{
    says("learning_rate = 1e-3\n", "run.toml:1:1: error: key 'learning_rate' is outside all "
                                   "sections (did you mean 'optimizer.lr'?)");
    says("lr = 1e-3\n", "(did you mean 'optimizer.lr'?)");
    says("batch_size = 4\n", "(did you mean 'train.micro_batch_size'?)");
    says("max_steps = 4\n", "(did you mean 'train.max_steps'?)");
    says("warmup_steps = 4\n", "(did you mean 'scheduler.warmup_steps'?)");
    says("lora_r = 4\n", "(did you mean 'adapter.r'?)");
    says("output_dir = \"out\"\n", "(did you mean 'checkpoint.dir'?)");
    says("foo = 4\n", "key 'foo' is outside all sections\n");
}

Test(suggestions, of_sections_that_are_named_after_a_plugin)
{
    says("[lora]\nr = 8\n",
         "run.toml:1:2: error: unknown section [lora] (did you mean '[adapter] name = \"lora\"'?)");
    says("[adamw]\n", "(did you mean '[optimizer] name = \"adamw\"'?)");
    says("[dpo]\n", "(did you mean '[stage] name = \"dpo\"'?)");
    says("[training]\n", "unknown section [training] (did you mean 'train'?)");
}

Test(suggestions, of_keys_that_other_plugins_of_the_kind_have)
{
    says("[adapter]\nname = \"full\"\nr = 8\n",
         "run.toml:3:1: error: unknown key 'r' in [adapter]: \"full\" does not have it; a key 'r' "
         "is "
         "in \"dora\", \"lora\", \"lora_plus\", \"qlora\"");
    says("[adapter]\nname = \"full\"\nlora_rank = 8\n",
         "a key 'r' is in \"dora\", \"lora\", \"lora_plus\", \"qlora\"");
    says("[optimizer]\nname = \"lion\"\neps = 1e-8\n", "a key 'eps' is in \"");
    cr_expect_not_null(strstr(output, "\"adamw\""), "%s", output);
    says("[optimizer]\nname = \"adamw\"\nwd = 0.1\n",
         "unknown key 'wd' in [optimizer] (did you mean 'weight_decay'?)");
}

Test(suggestions, of_the_model_s_path)
{
    says("[model]\nname_or_path = \"m\"\n",
         "unknown key 'name_or_path' in [model] (did you mean 'path'?)");
    says("[model]\nname = \"m\"\n", "(the key of a model's folder is model.path)");
}

Test(suggestions, tables_inside_a_section_have_one_name_everywhere)
{
    says("[data]\ndatasets = [{ path = \"a\", columns = { txet = \"b\" }, weigth = 2 }]\n",
         "unknown key 'txet' in [data.datasets.columns] (did you mean 'text'?)");
    cr_expect_not_null(
        strstr(output, "unknown key 'weigth' in [data.datasets] (did you mean 'weight'?)"), "%s",
        output);
    says("[data]\nvalidation = [{ path = \"a\", columns = { txet = \"b\" } }]\n",
         "unknown key 'txet' in [data.validation.columns]");
    expect(LATHE " show data", 0, "[data.datasets.columns]");
    cr_expect_not_null(strstr(output, "column of the preferred completion"), "%s", output);
    expect(LATHE " show data.datasets.columns", 0, "[data.datasets.columns]");
    expect(LATHE " show data --markdown", 0, "`data.datasets.columns`");
    expect(LATHE " show data --json", 0, "\"section\": \"data.datasets.columns\"");
    expect(LATHE " show tokenizer", 0, "[tokenizer.train]");
    expect(LATHE " show optimizer", 0, "[optimizer.groups]");
    expect(LATHE " show columns 2>&1", 2, "(did you mean 'data.datasets.columns'?)");
    expect(LATHE " help run.toml --man 2>&1", 0, "[data.datasets.columns]");
}
