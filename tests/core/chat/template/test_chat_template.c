/* Chat templates of folders, rows of datasets, and what is learnt of a conversation. */
#include <criterion/criterion.h>
#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/error.h"
#include "base/fs.h"
#include "base/json/json.h"
#include "chat/template/chat_template.h"

static char dir[] = "/tmp/lathe_chat_XXXXXX";

static void put(const char *name, const char *text)
{
    cr_assert_eq(lathe_file_write_atomic(name, text, (int64_t)strlen(text)), LATHE_OK);
}

static int remove_one(const char *path, const struct stat *info, int type, struct FTW *walk)
{
    (void)info, (void)type, (void)walk;
    return remove(path);
}

static void setup(void)
{
    cr_assert_not_null(mkdtemp(dir));
    cr_assert_eq(chdir(dir), 0);
}

static void teardown(void)
{
    (void)nftw(dir, remove_one, 16, FTW_DEPTH | FTW_PHYS);
}

TestSuite(chat_template, .init = setup, .fini = teardown);

static void renders(const char *row, int trains, const char *want, const char *spans)
{
    lathe_chat_template *chat = NULL;
    json_t *json = NULL, *owned = NULL;
    lathe_chat what;
    lathe_rendering got = {0};
    char text[200] = "";
    cr_assert_eq(lathe_chat_template_load(".", &chat), LATHE_OK, "%s", lathe_error_message());
    cr_assert_eq(lathe_json_load("row", row, (int64_t)strlen(row), &json), LATHE_OK);
    cr_assert_eq(lathe_chat_from_row(json, &what, &owned), LATHE_OK, "%s", lathe_error_message());
    const lathe_status status = trains ? lathe_chat_render_training(chat, &what, &got)
                                       : lathe_chat_render(chat, &what, &got);
    cr_assert_eq(status, LATHE_OK, "%s", lathe_error_message());
    cr_expect_str_eq(got.text, want);
    for (int64_t i = 0; i < got.n_spans; i++)
        (void)snprintf(text + strlen(text), sizeof text - strlen(text), "%lld-%lld ",
                       (long long)got.spans[i].begin, (long long)got.spans[i].end);
    cr_expect_str_eq(text, spans);
    lathe_rendering_fini(&got);
    json_decref(owned);
    json_decref(json);
    lathe_chat_template_destroy(chat);
}

#define ONE "{\"messages\": [{\"role\": \"user\", \"content\": \"q\"}]}"

Test(chat_template, the_file_comes_before_the_configuration)
{
    put("tokenizer_config.json",
        "{\"bos_token\": {\"content\": \"<s>\"}, \"eos_token\": \"</s>\", \"pad_token\": null, "
        "\"chat_template\": \"config {{ bos_token }}{{ eos_token }}{{ pad_token is defined }}\"}");
    put("special_tokens_map.json", "{\"eos_token\": \"other\", \"unk_token\": \"<unk>\"}");
    renders(ONE, 0, "config <s>otherFalse", "");
    put("chat_template.jinja", "file {{ bos_token }}{{ unk_token }}");
    renders(ONE, 0, "file <s><unk>", "");
}

Test(chat_template, a_list_of_templates_has_one_for_tools)
{
    put("tokenizer_config.json",
        "{\"chat_template\": [{\"name\": \"rag\", \"template\": \"{% unknown %}\"}, {\"name\": "
        "\"default\", \"template\": \"plain\"}, {\"name\": \"tool_use\", \"template\": \"tools {{ "
        "tools[0].name }}\"}]}");
    renders(ONE, 0, "plain", "");
    renders("{\"messages\": [], \"tools\": [{\"name\": \"f\"}]}", 0, "tools f", "");
    renders("{\"messages\": [], \"tools\": \"[{\\\"name\\\": \\\"g\\\"}]\"}", 0, "tools g", "");
}

Test(chat_template, learnt_is_what_the_assistant_adds_to_the_prompt)
{
    put("chat_template.jinja", "{% for m in messages %}[{{ m.role }}]{{ m.content }}|{% endfor %}"
                               "{% if add_generation_prompt %}[assistant]{% endif %}");
    renders("{\"messages\": [{\"role\": \"user\", \"content\": \"q\"}, {\"role\": \"assistant\", "
            "\"content\": \"aa\"}, {\"role\": \"assistant\", \"content\": \"b\"}], "
            "\"add_generation_prompt\": true}",
            1, "[user]q|[assistant]aa|[assistant]b|", "19-22 33-35 ");
    renders(ONE, 1, "[user]q|", "");
}

Test(chat_template, learnt_is_what_the_template_marks)
{
    put("chat_template.jinja", "{% for m in messages %}{{ m.role }}{% generation %}{{ m.content }}"
                               "{% endgeneration %}{% endfor %}");
    renders("{\"messages\": [{\"role\": \"user\", \"content\": \"\\u00e9\"}, {\"role\": "
            "\"assistant\", \"content\": \"xy\"}]}",
            1,
            "user\xc3\xa9"
            "assistantxy",
            "4-6 15-17 ");
}

Test(chat_template, a_key_of_a_message_that_is_null_is_none)
{
    put("chat_template.jinja", "{% for m in messages %}{{ m.role }} {{ 'content' in m }} {{ "
                               "'tool_calls' in m }} {{ m.name is defined }};{% endfor %}");
    renders("{\"messages\": [{\"role\": \"user\", \"content\": null, \"name\": null}, {\"role\": "
            "\"tool\", \"content\": \"\", \"tool_calls\": null}]}",
            0, "user False False False;tool True False False;", "");
}

Test(chat_template, the_hash_is_of_template_and_tokens)
{
    lathe_chat_template *a = NULL, *b = NULL;
    put("chat_template.jinja", "x");
    cr_assert_eq(lathe_chat_template_load(".", &a), LATHE_OK);
    put("tokenizer_config.json", "{\"bos_token\": \"<s>\"}");
    cr_assert_eq(lathe_chat_template_load(".", &b), LATHE_OK);
    cr_expect_str_neq(lathe_chat_template_hash(a), lathe_chat_template_hash(b));
    cr_expect_eq(strlen(lathe_chat_template_hash(a)), 64);
    lathe_chat_template_destroy(a);
    lathe_chat_template_destroy(b);
}

static void refuses(const char *row, const char *message)
{
    json_t *json = NULL, *owned = NULL;
    lathe_chat what;
    cr_assert_eq(lathe_json_load("row", row, (int64_t)strlen(row), &json), LATHE_OK);
    cr_expect_neq(lathe_chat_from_row(json, &what, &owned), LATHE_OK, "%s", row);
    cr_expect(strstr(lathe_error_message(), message), "%s: %s", row, lathe_error_message());
    json_decref(owned);
    json_decref(json);
}

Test(chat_template, rows_of_another_form_are_refused)
{
    refuses("{\"text\": 1}", "expected an object with a list \"messages\" of objects");
    refuses("{\"messages\": \"x\"}", "expected an object with a list \"messages\"");
    refuses("{\"messages\": [], \"tools\": 1}", "\"tools\" is no list");
    refuses("{\"messages\": [], \"tools\": \"{\"}", "tools:1:1");
    refuses("{\"messages\": [], \"documents\": {}}", "\"documents\" is no list");
    refuses("{\"messages\": [], \"chat_template_kwargs\": []}",
            "\"chat_template_kwargs\" is no object");
}
