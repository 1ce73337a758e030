/* The renderer of a chat template: families are found by their template, user text stays text, and
 * text, tokens and learnt tokens are those of transformers. */
#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/error.h"
#include "base/json/json.h"
#include "base/log.h"
#include "data/conversation/chat_record.h"
#include "run/decide/renderer_choice.h"
#include "tokenizer/json/tokenizer_file.h"

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

/* tokens: the folder's special tokens; taken. */
static lathe_status choose_with(fixture *f, const char *text, const char *name, json_t *tokens)
{
    memset(f, 0, sizeof *f);
    cr_assert_eq(setenv("LATHE_PLUGIN_PATH", LATHE_TEST_BUILD "/lib/lathe/plugins", 1), 0);
    f->tokens = tokens;
    cr_assert_eq(lathe_registry_create(&f->registry), LATHE_OK);
    cr_assert_eq(lathe_chat_template_create("t", text, (int64_t)strlen(text), f->tokens, &f->chat),
                 LATHE_OK, "%s", lathe_error_message());
    return lathe_renderer_choose(f->registry, name, NULL, NULL, f->chat, &f->arena, &f->renderer,
                                 NULL);
}

static lathe_status choose(fixture *f, const char *text, const char *name)
{
    return choose_with(f, text, name,
                       json_pack("{s:s, s:s}", "bos_token", "<s>", "eos_token", "</s>"));
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
    cr_assert_eq(lathe_chat_from_row(object, &what, &owned), LATHE_OK);
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

/* Headings in plain text with a sentence where there is no system message. */
#define HEADINGS(sentence, question, question_end, answer, answer_end, prompt)                     \
    "{{ bos_token }}{% if messages[0]['role'] == 'system' %}{{ messages[0]['content'] + "          \
    "'\\n\\n' }}{% set rest = messages[1:] %}{% else %}{{ '" sentence                              \
    "\\n\\n' }}{% set rest = messages %}{% endif %}{% for m in rest %}{% if m['role'] == 'user' "  \
    "%}{{ '" question "' + m['content'] + '" question_end                                          \
    "' }}{% elif m['role'] == 'assistant' %}{{ '" answer                                           \
    "' + m['content'] + eos_token + '" answer_end                                                  \
    "' }}{% else %}{{ raise_exception('no') }}{% endif %}{% endfor %}{% if "                       \
    "add_generation_prompt %}{{ '" prompt "' }}{% endif %}"
/* HEADINGS without a sentence, for contents without spaces at their ends and roles in turn. */
#define TRIMMED(question, question_end, answer, answer_end, prompt)                                \
    "{% if messages[0]['role'] == 'system' %}{% set s = messages[0]['content'] | trim + '\\n\\n' " \
    "%}{% set messages = messages[1:] %}{% else %}{% set s = '' %}{% endif %}{{ bos_token + s "    \
    "}}{% for message in messages %}{% if (message['role'] == 'user') != (loop.index0 % 2 == 0) "  \
    "%}{{ raise_exception('alternate') }}{% endif %}{% if message['role'] == 'user' %}{{ "         \
    "'" question "' + message['content'] | trim + '" question_end "' }}{% else %}{{ '" answer      \
    "' + message['content'] | trim + eos_token + '" answer_end "' }}{% endif %}{% endfor %}{% if " \
    "add_generation_prompt %}{{ '" prompt "' }}{% endif %}"

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
    {"zephyr",
     "{% for message in messages %}\n{% if message['role'] == 'user' %}\n{{ '<|user|>\\n' + "
     "message['content'] + eos_token }}\n{% elif message['role'] == 'system' %}\n{{ "
     "'<|system|>\\n' + message['content'] + eos_token }}\n{% elif message['role'] == 'assistant' "
     "%}\n{{ '<|assistant|>\\n' + message['content'] + eos_token }}\n{% endif %}\n{% if loop.last "
     "and add_generation_prompt %}\n{{ '<|assistant|>' }}\n{% endif %}\n{% endfor %}"},
    {"zephyr",
     "{% if messages[0]['role'] == 'system' %}{% set offset = 1 %}{% else %}{% set offset = 0 %}{% "
     "endif %}{% for message in messages %}{% if (message['role'] == 'user') != (loop.index0 % 2 "
     "== offset) %}{{ raise_exception('alternate') }}{% endif %}{{ '<|' + message['role'] + "
     "'|>\\n' + message['content'] | trim + eos_token + '\\n' }}{% endfor %}{% if "
     "add_generation_prompt %}{{ '<|assistant|>\\n' }}{% endif %}"},
    {"vicuna", TRIMMED("USER: ", "\\n", "ASSISTANT: ", "\\n", "ASSISTANT:")},
    {"alpaca",
     TRIMMED("### Instruction:\\n", "\\n\\n", "### Response:\\n", "\\n\\n", "### Response:\\n")},
    {"alpaca",
     HEADINGS("Below is an instruction that describes a task. Write a response that "
              "appropriately completes the request.",
              "### Instruction:\\n", "\\n\\n", "### Response:\\n", "\\n\\n", "### Response:\\n")},
    {"jinja", HEADINGS("Read.", "Q: ", "\\n", "A: ", "\\n", "A: ")},
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

Test(renderer_choice, a_key_that_is_null_is_none)
{
    fixture f;
    lathe_rendering text = {0};
    cr_assert_eq(choose(&f, CHATML, "chatml"), LATHE_OK);
    cr_assert_eq(render(&f,
                        "{\"messages\": [{\"role\": \"user\", \"content\": \"a\", \"tool_calls\": "
                        "null, \"weight\": null}, {\"role\": \"assistant\", \"content\": \"b\", "
                        "\"reasoning_content\": null}]}",
                        &text),
                 LATHE_OK, "%s", lathe_error_message());
    cr_expect_str_eq(text.text,
                     "<|im_start|>user\na<|im_end|>\n<|im_start|>assistant\nb<|im_end|>\n");
    lathe_rendering_fini(&text);
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

/* ---- text, token ids and learnt tokens, against transformers (tests/golden/renderer_tokens.py)
 * ---- */

/* A family of the golden file with its tokenizer and its renderer. */
typedef struct golden_family {
    fixture f;
    lathe_tokenizer *tokenizer;
    lathe_encoder *encoder;
    const json_t *family, *rows;
    int64_t now;
} golden_family;

static const char *text_of(const json_t *object, const char *key)
{
    return json_string_value(json_object_get(object, key));
}

/* The byte-level BPE of the tokenizer's tests with the special tokens of the family. */
static void make_tokenizer(golden_family *g)
{
    char path[] = "/tmp/lathe-renderer-XXXXXX";
    json_t *file = json_load_file(LATHE_TEST_DATA "/golden/data/tokenizer/gpt2.json", 0, NULL);
    cr_assert_not_null(file);
    json_object_set(file, "added_tokens", json_object_get(g->family, "added"));
    const int fd = mkstemp(path);
    cr_assert(fd >= 0);
    cr_assert_eq(json_dumpfd(file, fd, 0), 0);
    cr_assert_eq(close(fd), 0);
    cr_assert_eq(lathe_tokenizer_load(path, &g->tokenizer), LATHE_OK, "%s", lathe_error_message());
    cr_assert_eq(lathe_encoder_create(g->tokenizer, &g->encoder), LATHE_OK);
    cr_assert_eq(unlink(path), 0);
    json_decref(file);
}

/* The templates are not part of the repository: a comment with the words by which the renderer
 * finds its variant stands for one, with an empty {% generation %} block where the template has
 * some. */
static void open_family(golden_family *g, const json_t *golden, const json_t *family)
{
    memset(g, 0, sizeof *g);
    g->family = family;
    g->rows = json_object_get(golden, "rows");
    g->now = json_integer_value(json_object_get(golden, "now"));
    make_tokenizer(g);
    cr_assert_eq(choose_with(&g->f, text_of(family, "probe"), text_of(family, "renderer"),
                             json_deep_copy(json_object_get(family, "tokens"))),
                 LATHE_OK, "%s", lathe_error_message());
}

static void close_family(golden_family *g)
{
    lathe_encoder_destroy(g->encoder);
    lathe_tokenizer_destroy(g->tokenizer);
    fixture_fini(&g->f);
}

/* The ids of the first n messages of a row (n < 0: all, with the row's own prompt). */
static lathe_status ids_of(const golden_family *g, json_t *row, int n, int prompt, lathe_ids *out,
                           lathe_rendering *text)
{
    json_t *owned = NULL, *part = NULL;
    lathe_chat what;
    memset(text, 0, sizeof *text);
    out->n = 0;
    cr_assert_eq(lathe_chat_from_row(row, &what, &owned), LATHE_OK);
    if (n >= 0) {
        part = json_array();
        for (int i = 0; i < n; i++)
            json_array_append(part, json_array_get(what.messages, (size_t)i));
        what.messages = part;
        what.add_generation_prompt = prompt;
    }
    what.now = g->now;
    lathe_status status = lathe_chat_render(g->f.chat, &what, text);
    if (status == LATHE_OK)
        status = lathe_chat_encode_text(g->encoder, text, text->bytes, out);
    json_decref(part);
    json_decref(owned);
    return status;
}

static void expect_ids(const golden_family *g, const json_t *one, json_t *row)
{
    const json_t *want = json_object_get(one, "ids");
    const char *name = text_of(g->family, "template");
    const int number = (int)json_integer_value(json_object_get(one, "row"));
    lathe_rendering text;
    lathe_ids ids = {0};
    const lathe_status status = ids_of(g, row, -1, 0, &ids, &text);
    if (json_is_null(want)) {
        cr_expect_neq(status, LATHE_OK, "%s, row %d: the template refuses", name, number);
    } else {
        cr_assert_eq(status, LATHE_OK, "%s, row %d: %s", name, number, lathe_error_message());
        cr_expect_str_eq(text.text, text_of(one, "text"), "%s, row %d", name, number);
        cr_assert_eq((size_t)ids.n, json_array_size(want), "%s, row %d: %lld ids", name, number,
                     (long long)ids.n);
        for (int64_t i = 0; i < ids.n; i++)
            cr_expect_eq(ids.data[i], json_integer_value(json_array_get(want, (size_t)i)),
                         "%s, row %d, token %lld", name, number, (long long)i);
    }
    lathe_rendering_fini(&text);
    lathe_ids_fini(&ids);
}

/* Expects the learnt tokens. A text with the present date may have another number of tokens before
 * the first message, so tokens are counted from the end. */
static void expect_learnt(const golden_family *g, const json_t *one, const json_t *row)
{
    const json_t *parts = json_object_get(one, "learnt");
    const int64_t n_want = (int64_t)json_array_size(json_object_get(one, "ids"));
    lathe_dataset dataset = {.path = "row", .type = LATHE_DATASET_AUTO, .chat = g->f.chat};
    lathe_chat_tokens made = {0};
    char *json = json_dumps(row, 0);
    lathe_fields fields = {
        .row = json, .n_row = (int64_t)strlen(json), .is_chat = LATHE_FIELDS_CHAT};
    if (parts && json_array_size(parts) > 0) {
        cr_assert_eq(lathe_chat_encode(&dataset, &fields, g->tokenizer, g->encoder, &made),
                     LATHE_OK, "%s: %s", json, lathe_error_message());
        for (int64_t i = 0; i < made.ids.n; i++) {
            const int64_t at = i - made.ids.n + n_want;
            int want = 0;
            for (size_t k = 0; k < json_array_size(parts); k++) {
                const json_t *part = json_array_get(parts, k);
                want |= at >= json_integer_value(json_array_get(part, 0)) &&
                        at < json_integer_value(json_array_get(part, 1));
            }
            cr_expect_eq(made.learnt[i], want, "%s, %s: token %lld", text_of(g->family, "template"),
                         json, (long long)i);
        }
    }
    lathe_chat_tokens_fini(&made);
    free(json);
}

/* Each prompt of an answer, and each turn, is a prefix of the next one. */
static int extends(const golden_family *g, json_t *row)
{
    const json_t *messages = json_object_get(row, "messages");
    lathe_ids before = {0}, now = {0};
    lathe_rendering text;
    int all = 1;
    for (int step = 0; step <= 2 * (int)json_array_size(messages) && all; step++) {
        const int n = (step + 1) / 2, is_prompt = step % 2 == 0;
        const json_t *answer = json_array_get(messages, (size_t)(is_prompt ? n : n - 1));
        const int is_end = step == 2 * (int)json_array_size(messages);
        if (!is_end && (!answer || strcmp(text_of(answer, "role"), "assistant") != 0))
            continue;
        const lathe_status status = ids_of(g, row, is_end ? -1 : n, is_prompt, &now, &text);
        lathe_rendering_fini(&text);
        if (status != LATHE_OK)
            break; /* a conversation without a message has no prompt */
        all = before.n == 0 ||
              (now.n >= before.n &&
               memcmp(now.data, before.data, (size_t)before.n * sizeof *now.data) == 0);
        const lathe_ids swap = before;
        before = now;
        now = swap;
    }
    lathe_ids_fini(&before);
    lathe_ids_fini(&now);
    return all;
}

static void each_case(void (*check)(const golden_family *g, const json_t *one, json_t *row))
{
    json_t *golden = json_load_file(LATHE_TEST_DATA "/golden/data/renderers.json", 0, NULL),
           *family;
    size_t i, k;
    cr_assert_not_null(golden);
    cr_assert_eq(setenv("TZ", "UTC", 1), 0);
    lathe_log_set_level(LATHE_LOG_ERROR); /* not the warnings that the probe is no template */
    json_array_foreach(json_object_get(golden, "families"), i, family)
    {
        json_t *one;
        golden_family g;
        open_family(&g, golden, family);
        json_array_foreach(json_object_get(family, "cases"), k, one)
        {
            const size_t row = (size_t)json_integer_value(json_object_get(one, "row"));
            check(&g, one, json_array_get(g.rows, row));
        }
        close_family(&g);
    }
    json_decref(golden);
}

static void check_tokens(const golden_family *g, const json_t *one, json_t *row)
{
    expect_ids(g, one, row);
    if (!json_is_true(json_object_get(row, "add_generation_prompt")))
        expect_learnt(g, one, row);
}

Test(renderer_tokens, text_ids_and_learnt_tokens_are_those_of_transformers)
{
    each_case(check_tokens);
}

/* The flag against the tokens: ours, and those of transformers. */
static void check_extends(const golden_family *g, const json_t *one, json_t *row)
{
    const lathe_renderer_v1 *table = g->f.renderer.table;
    const json_t *by_template = json_object_get(one, "extends");
    const int flag = (table->flags & LATHE_RENDERER_EXTENDS) != 0;
    if (json_is_null(json_object_get(one, "ids")))
        return;
    const int does = extends(g, row);
    if (by_template)
        cr_expect_eq(does, json_is_true(by_template), "%s, row %d", text_of(g->family, "template"),
                     (int)json_integer_value(json_object_get(one, "row")));
    cr_expect(does || !flag, "%s declares that turns extend each other, but row %d does not",
              text_of(g->family, "renderer"), (int)json_integer_value(json_object_get(one, "row")));
}

Test(renderer_tokens, the_extension_flag_is_true_to_the_tokens)
{
    each_case(check_extends);
}
