/* The renderer of a chat template: families are found by their template, user text stays text. */
#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/json.h"
#include "run/renderer_choice.h"

#ifndef LATHE_TEST_BUILD
#error the build folder is not known
#endif

/* A template with the renderer that is chosen for it. */
typedef struct fixture {
    lathe_registry *registry;
    lathe_arena arena;
    lathe_chat_template *chat;
    lathe_instance renderer;
    json_t *tokens;
} fixture;

static lathe_status choose(fixture *f, const char *text, const char *name)
{
    memset(f, 0, sizeof *f);
    cr_assert_eq(setenv("LATHE_PLUGIN_PATH", LATHE_TEST_BUILD "/lib/lathe/plugins", 1), 0);
    f->tokens = json_pack("{s:s, s:s}", "bos_token", "<s>", "eos_token", "</s>");
    cr_assert_eq(lathe_registry_create(&f->registry), LATHE_OK);
    cr_assert_eq(lathe_chat_template_create("t", text, (int64_t)strlen(text), f->tokens, &f->chat),
                 LATHE_OK, "%s", lathe_error_message());
    return lathe_renderer_choose(f->registry, name, NULL, NULL, f->chat, &f->arena, &f->renderer,
                                 NULL);
}

static void fixture_fini(fixture *f)
{
    lathe_chat_template_destroy(f->chat);
    lathe_instance_fini(&f->renderer);
    lathe_registry_destroy(f->registry);
    lathe_arena_fini(&f->arena);
    json_decref(f->tokens);
}

static const char *chosen(const fixture *f)
{
    const char *name = lathe_chat_template_renderer(f->chat);
    return name ? name : "jinja";
}

static lathe_status render(const fixture *f, const char *row, lathe_rendering *out)
{
    json_t *object = NULL, *owned = NULL;
    lathe_chat what;
    cr_assert_eq(lathe_json_load("row", row, (int64_t)strlen(row), &object), LATHE_OK);
    cr_assert_eq(lathe_chat_from_row("row", object, &what, &owned), LATHE_OK);
    const lathe_status status = lathe_chat_render_training(f->chat, &what, out);
    json_decref(owned);
    json_decref(object);
    return status;
}

#define CHATML                                                                                     \
    "{% for m in messages %}{{'<|im_start|>' + m['role'] + '\\n' + m['content'] + '<|im_end|>' + " \
    "'\\n'}}{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}"
#define HEADERS                                                                                    \
    "{% for m in messages %}{% set c = '<|start_header_id|>' + m['role'] + "                       \
    "'<|end_header_id|>\\n\\n' + m['content'] | trim + '<|eot_id|>' %}{% if loop.index0 == 0 %}"   \
    "{% set c = bos_token + c %}{% endif %}{{ c }}{% endfor %}{% if add_generation_prompt %}"      \
    "{{ '<|start_header_id|>assistant<|end_header_id|>\\n\\n' }}{% endif %}"

/* Templates of families, as small as they can be. */
static const struct {
    const char *renderer, *text;
} families[] = {
    {"chatml", CHATML},
    {"smollm2",
     "{% if messages[0]['role'] != 'system' %}{{ '<|im_start|>system\nYou are a helpful AI "
     "assistant named SmolLM, trained by Hugging Face<|im_end|>\n' }}{% endif %}" CHATML},
    {"llama3", HEADERS},
    {"gemma",
     "{{ bos_token }}{% if messages[0]['role'] == 'system' %}{{ raise_exception('no') }}{% endif "
     "%}{% for m in messages %}{% if (m['role'] == 'user') != (loop.index0 % 2 == 0) %}{{ "
     "raise_exception('alternate') }}{% endif %}{% if m['role'] == 'assistant' %}{% set role = "
     "'model' %}{% else %}{% set role = m['role'] %}{% endif %}{{ '<start_of_turn>' + role + '\\n' "
     "+ m['content'] | trim + '<end_of_turn>\\n' }}{% endfor %}{% if add_generation_prompt %}"
     "{{ '<start_of_turn>model\\n' }}{% endif %}"},
    {"phi",
     "{% for m in messages %}{% if m['role'] == 'system' %}{{ '<|system|>\\n' + m['content'] + "
     "'<|end|>\\n' }}{% elif m['role'] == 'user' %}{{ '<|user|>\\n' + m['content'] + '<|end|>\\n' "
     "}}{% elif m['role'] == 'assistant' %}{{ '<|assistant|>\\n' + m['content'] + '<|end|>\\n' }}"
     "{% endif %}{% endfor %}{% if add_generation_prompt %}{{ '<|assistant|>\\n' }}{% else %}"
     "{{ eos_token }}{% endif %}"},
    {"mistral",
     "{{ bos_token }}{% for m in messages %}{% if (m['role'] == 'user') != (loop.index0 % 2 == 0) "
     "%}{{ raise_exception('alternate') }}{% endif %}{% if m['role'] == 'user' %}{{ '[INST] ' + "
     "m['content'] + ' [/INST]' }}{% elif m['role'] == 'assistant' %}{{ m['content'] + eos_token "
     "}}{% else %}{{ raise_exception('no') }}{% endif %}{% endfor %}"},
    {"llama2",
     "{% if messages[0]['role'] == 'system' %}{% set rest = messages[1:] %}{% set system = "
     "messages[0]['content'] %}{% else %}{% set rest = messages %}{% set system = false %}{% endif "
     "%}{% for m in rest %}{% if (m['role'] == 'user') != (loop.index0 % 2 == 0) %}{{ "
     "raise_exception('alternate') }}{% endif %}{% if loop.index0 == 0 and system != false %}{% "
     "set c = '<<SYS>>\\n' + system + '\\n<</SYS>>\\n\\n' + m['content'] %}{% else %}{% set c = "
     "m['content'] %}{% endif %}{% if m['role'] == 'user' %}{{ bos_token + '[INST] ' + c.strip() + "
     "' [/INST]' }}{% elif m['role'] == 'assistant' %}{{ ' ' + c.strip() + ' ' + eos_token }}{% "
     "endif %}{% endfor %}"},
    {"jinja", "{% for m in messages %}{{ m.role }}={{ m.content }};{% endfor %}"},
    {"jinja", "{% for m in messages %}<|im_start|>{{ m.role }}: {{ m.content }}{% endfor %}"},
};

Test(renderer_choice, families_are_found_by_their_template)
{
    for (size_t i = 0; i < sizeof families / sizeof families[0]; i++) {
        fixture f;
        cr_assert_eq(choose(&f, families[i].text, "auto"), LATHE_OK, "%s", lathe_error_message());
        cr_expect_str_eq(chosen(&f), families[i].renderer, "%zu: %s", i, families[i].text);
        fixture_fini(&f);
    }
}

Test(renderer_choice, a_name_is_typed_by_a_user_and_stays_text)
{
    fixture f;
    lathe_rendering text = {0};
    cr_assert_eq(choose(&f, CHATML, "auto"), LATHE_OK);
    cr_assert_eq(render(&f,
                        "{\"messages\": [{\"role\": \"user\", \"content\": \"<|im_end|>\"}, "
                        "{\"role\": \"assistant\", \"content\": \"b\"}]}",
                        &text),
                 LATHE_OK);
    cr_expect_str_eq(text.text, "<|im_start|>user\n<|im_end|><|im_end|>\n<|im_start|>assistant\n"
                                "b<|im_end|>\n");
    cr_assert(text.has_tokens);
    const int64_t want[] = {0, 27, 38, 61}; /* not 17, which the user typed */
    cr_assert_eq(text.n_tokens, 4);
    for (int i = 0; i < 4; i++)
        cr_expect_eq(text.tokens[i], want[i], "%d: %lld", i, (long long)text.tokens[i]);
    cr_assert_eq(text.n_spans, 1);
    cr_expect_eq(text.spans[0].begin, 60);
    lathe_rendering_fini(&text);
    fixture_fini(&f);
}

Test(renderer_choice, jinja_takes_no_renderer)
{
    fixture f;
    cr_assert_eq(choose(&f, CHATML, "jinja"), LATHE_OK);
    cr_expect_str_eq(chosen(&f), "jinja");
    fixture_fini(&f);
}

Test(renderer_choice, what_a_renderer_refuses_the_template_renders)
{
    static const char row[] =
        "{\"messages\": [{\"role\": \"tool\", \"content\": \"a\"}, {\"role\": "
        "\"assistant\", \"content\": \"b\"}]}";
    fixture f;
    lathe_rendering text = {0};
    cr_assert_eq(choose(&f, CHATML, "auto"), LATHE_OK);
    cr_assert_eq(render(&f, row, &text), LATHE_OK, "%s", lathe_error_message());
    cr_expect_eq(text.has_tokens, 0);
    lathe_rendering_fini(&text);
    fixture_fini(&f);
    cr_assert_eq(choose(&f, CHATML, "chatml"), LATHE_OK);
    cr_assert_eq(render(&f, row, &text), LATHE_E_CONFIG);
    cr_expect_str_eq(lathe_error_message(),
                     "renderer chatml: message 1 (role \"tool\"): the family has no such role");
    fixture_fini(&f);
}

Test(renderer_choice, a_renderer_that_is_not_there_is_named)
{
    fixture f;
    cr_assert_eq(choose(&f, CHATML, "chatmi"), LATHE_E_NOT_FOUND);
    cr_expect(strstr(lathe_error_message(), "no renderer named 'chatmi' (did you mean 'chatml'?)"),
              "%s", lathe_error_message());
    fixture_fini(&f);
}

Test(renderer_choice, the_hash_changes_with_the_renderer)
{
    fixture a, b;
    cr_assert_eq(choose(&a, CHATML, "auto"), LATHE_OK);
    cr_assert_eq(choose(&b, CHATML, "jinja"), LATHE_OK);
    cr_expect_str_neq(lathe_chat_template_hash(a.chat), lathe_chat_template_hash(b.chat));
    fixture_fini(&a);
    fixture_fini(&b);
}

Test(renderer_choice, an_error_of_a_template_names_message_and_role)
{
    fixture f;
    lathe_rendering text = {0};
    cr_assert_eq(choose(&f,
                        "{% for m in messages %}{% if m.role == 'tool' %}{{ raise_exception('no "
                        "tools') }}{% endif %}{{ m.content }}{% endfor %}",
                        "jinja"),
                 LATHE_OK);
    cr_assert_eq(render(&f,
                        "{\"messages\": [{\"role\": \"user\", \"content\": \"a\"}, {\"role\": "
                        "\"tool\", \"content\": \"b\"}, {\"role\": \"user\", \"content\": \"c\"}]}",
                        &text),
                 LATHE_E_CONFIG);
    cr_expect(strstr(lathe_error_message(), "message 2 (role \"tool\"): t:1:"), "%s",
              lathe_error_message());
    fixture_fini(&f);
}
