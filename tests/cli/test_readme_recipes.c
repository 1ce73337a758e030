/* The recipes of README.md, line by line as they stand there, on a small model instead of the one
 * that the first line downloads. */
#include "cli/training_case.h"

TestSuite(readme_recipes, .init = setup, .fini = remove_folder);

/* A chat model of 135 kB as the folder that `hf download` makes in the first recipe. */
static void make_model(void)
{
    expect(LATHE " train run.toml --model.max_position_embeddings 1024 --tokenizer.path '' "
                 "--tokenizer.train '{vocab_size = 260}' 2>&1",
           0, "");
    expect("mv out/step-00000006 smollm2 && rm -rf out smollm2/manifest.json smollm2/state", 0, "");
    put("smollm2/chat_template.jinja",
        "{% for m in messages %}<{{ m.role }}>{{ m.content }}\n{% endfor %}"
        "{% if add_generation_prompt %}<assistant>{% endif %}");
}

static void make_data(void)
{
    put_times("chats.jsonl",
              "{\"messages\": [{\"role\": \"user\", \"content\": \"What turns?\"}, {\"role\": "
              "\"assistant\", \"content\": \"The wheel turns.\"}]}\n",
              400);
    put_times("pairs.jsonl",
              "{\"prompt\": [{\"role\": \"user\", \"content\": \"What turns?\"}], \"chosen\": "
              "[{\"role\": \"assistant\", \"content\": \"The wheel.\"}], \"rejected\": [{\"role\": "
              "\"assistant\", \"content\": \"No.\"}]}\n",
              60);
    expect("mkdir texts", 0, "");
    put_times("texts/a.txt", "the wheel turns and the tool holds, so the part is made\n", 500);
}

/* Runs the commands of the block of shell lines at `text`; returns the end of the block. */
static const char *run_block(const char *text, int *io_commands)
{
    for (text = strchr(text, '\n') + 1; strncmp(text, "```", 3) != 0;
         text = strchr(text, '\n') + 1) {
        char command[512];
        const int n = (int)strcspn(text, "\n");
        if (strncmp(text, "hf download ", 12) == 0)
            continue;
        cr_assert_eq(strncmp(text, "lathe ", 6), 0, "%.*s", n, text);
        snprintf(command, sizeof command, LATHE_TEST_BUILD "/bin/%.*s </dev/null 2>&1", n, text);
        const int code = run(command);
        cr_assert_eq(code, 0, "%s: exit %d\n%s", command, code, output);
        (*io_commands)++;
    }
    return text;
}

Test(readme_recipes, run_as_they_stand)
{
    static char readme[1 << 16];
    int commands = 0;
    FILE *f = fopen(LATHE_TEST_DATA "/../README.md", "r");
    cr_assert_not_null(f);
    const size_t n = fread(readme, 1, sizeof readme - 1, f);
    (void)fclose(f);
    readme[n] = '\0';
    make_model();
    make_data();
    for (const char *at = strstr(readme, "```sh\n"); at; at = strstr(at, "```sh\n"))
        at = run_block(at, &commands);
    cr_expect_eq(commands, 9, "%d commands", commands);
}
