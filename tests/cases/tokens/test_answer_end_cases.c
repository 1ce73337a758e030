/* The end of an answer: a base model with a chat template ends its answers where the template ends
 * them, in every command and in the files that other programs read; a template whose end is no
 * token is told. */
#include "chat/template/chat_template.h"
#include "data/conversation/answer_end.h"
#include "lathe/status.h"
#include "tokenizer/json/tokenizer_file.h"
#include "tokens_case.h"

static const char sft_file[] =
    "[model]\npath = \"m\"\n[data]\ndatasets = [{ path = \"talk.jsonl\" }]\nseq_len = 64\n"
    "[stage]\nname = \"sft\"\n[optimizer]\nname = \"adamw\"\nlr = 5e-3\n[scheduler]\n"
    "name = \"constant\"\n[train]\nprecision = \"fp32\"\nmicro_batch_size = 2\nmax_steps = 60\n"
    "threads = 1\n[checkpoint]\ndir = \"out\"\n";

static const char ppo_file[] =
    "[model]\npath = \"out/step-00000060\"\n[data]\ndatasets = [{ path = \"talk.jsonl\" }]\n"
    "seq_len = 64\n[stage]\nname = \"ppo\"\nmax_new_tokens = 16\ngroup = 2\n[reward]\n"
    "name = \"length\"\ntokens = 8\nbuffer_tokens = 4\n[train]\nprecision = \"fp32\"\n"
    "micro_batch_size = 4\nmax_steps = 1\nthreads = 1\n[checkpoint]\ndir = \"ppo\"\n";

static void setup_run(void)
{
    setup();
    put("talk.jsonl", "{\"messages\":[{\"role\":\"user\",\"content\":\"Hi\"},{\"role\":"
                      "\"assistant\",\"content\":\"ok\"}]}\n"
                      "{\"messages\":[{\"role\":\"user\",\"content\":\"Hello\"},{\"role\":"
                      "\"assistant\",\"content\":\"ok\"}]}\n");
    put("sft.toml", sft_file);
    put("ppo.toml", ppo_file);
}

TestSuite(answer_end_cases, .init = setup_run, .fini = remove_folder);

static const char warning[] =
    "sft.toml:2:8: warning: the chat template ends an answer with <|im_end|> (258), which is none "
    "of the model's end tokens (<|endoftext|>): it is added to eos_token_id in "
    "generation_config.json of the checkpoints, and answers end there";

Test(answer_end_cases, a_base_model_ends_its_answers)
{
    cr_assert_eq(run(LATHE " train sft.toml 2>&1"), 0, "%s", output);
    cr_expect_not_null(strstr(output, warning), "%s", output);
    expect("cat out/step-00000060/generation_config.json", 0, "\"eos_token_id\": [256, 258]");
    expect("printf 'Hi\\n' | " LATHE " chat out --max-new-tokens 20 2>/dev/null", 0, "ok\n");
    cr_expect_str_eq(output, "ok\n");
    expect("echo '[{\"role\":\"user\",\"content\":\"Hi\"}]' | " LATHE
           " generate out --messages - --max-new-tokens 20 2>/dev/null",
           0, "ok");
    cr_expect_str_eq(output, "ok\n");
    /* a prompt that is a text goes on to the end tokens of the folder */
    expect(LATHE " generate out/step-00000060 --prompt $'<|im_start|>user\\nHi<|im_end|>\\n"
                 "<|im_start|>assistant\\n' --max-new-tokens 20 2>/dev/null",
           0, "ok");
    expect(LATHE " train ppo.toml 2>&1", 0, "checkpoint ppo/step-00000001");
    cr_expect_null(strstr(output, "none of the model's end tokens"), "%s", output);
    expect("cat ppo/metrics.jsonl", 0, "\"completions/clipped_ratio\": 0");
    expect("cat ppo/step-00000001/generation_config.json", 0, "\"eos_token_id\": [256, 258]");
}

/* The folder of another program says that only the end of text ends: chat and ppo know better. */
Test(answer_end_cases, ppo_ends_where_the_template_the_tokenizer_and_the_stage_say)
{
    cr_assert_eq(run(LATHE " train sft.toml 2>&1"), 0, "%s", output);
    put("out/step-00000060/generation_config.json", "{\"eos_token_id\": 7}");
    expect("printf 'Hi\\n' | " LATHE " chat out/step-00000060 --max-new-tokens 20 2>&1", 0,
           "an answer ends at <|im_end|> (258), which the chat template writes after it");
    expect(LATHE " train ppo.toml 2>&1", 0,
           "the chat template ends an answer with <|im_end|> (258)");
    expect("cat ppo/metrics.jsonl", 0, "\"completions/clipped_ratio\": 0");
    expect("cat ppo/step-00000001/generation_config.json", 0, "\"eos_token_id\": [7, 258]");
    /* an answer of one token: k is the first byte after o */
    expect(LATHE " train ppo.toml --checkpoint.dir short '--stage.stop_tokens=[\"k\"]' 2>&1", 0,
           "checkpoint");
    expect("cat short/metrics.jsonl", 0, "\"completions/mean_length\": 2");
    expect(LATHE " train ppo.toml --checkpoint.dir other '--stage.stop_tokens=[\"<|x|>\"]' 2>&1", 2,
           "stage.stop_tokens: the tokenizer has no token \"<|x|>\"");
}

Test(answer_end_cases, an_end_that_is_no_token_is_told)
{
    static const char *const plain[] = {"<|endoftext|>", NULL};
    put_tokenizer("m/tokenizer.json", "null", "null", plain);
    expect(LATHE " train sft.toml --train.max_steps 1 2>&1", 0,
           "the chat template writes \"<|im_end|> \" after an answer, which has no special token");
    put("m/chat_template.jinja",
        "{% for message in messages %}{{ '\\n' + message['role'] + ': ' + message['content'] }}"
        "{% endfor %}{% if add_generation_prompt %}{{ '\\nassistant: ' }}{% endif %}");
    expect(LATHE " train sft.toml --train.max_steps 1 --checkpoint.dir o2 2>&1", 0,
           "the chat template writes nothing after an answer");
    put("m/chat_template.jinja",
        "{% for message in messages %}{{ '\\n' + message['role'] + ': ' }}"
        "{% generation %}{{ message['content'] }}{% endgeneration %}{{ eos_token }}{% endfor %}"
        "{% if add_generation_prompt %}{{ '\\nassistant: ' }}{% endif %}");
    expect(LATHE " train sft.toml --train.max_steps 1 --checkpoint.dir o3 2>&1", 0,
           "leaves out <|endoftext|>, which ends an answer");
    /* the tokenizer's own end needs no word */
    put("m/chat_template.jinja",
        "{% for message in messages %}{{ '\\n' + message['role'] + ': ' + message['content'] + "
        "eos_token }}{% endfor %}{% if add_generation_prompt %}{{ '\\nassistant: ' }}{% endif %}");
    cr_expect_eq(run(LATHE " train sft.toml --train.max_steps 1 --checkpoint.dir o4 2>&1"), 0);
    cr_expect_null(strstr(output, "an answer"), "%s", output);
    cr_expect_eq(run("ls o4/step-00000001/generation_config.json 2>&1"), 2, "%s", output);
}

/* Texts that do not go through the template say nothing of it. */
Test(answer_end_cases, texts_past_the_template_do_not_change_the_folder)
{
    put("pairs.jsonl", "{\"prompt\": \"a\", \"completion\": \" b\"}\n");
    cr_expect_eq(run(LATHE " train sft.toml --train.max_steps 1 "
                           "'--data.datasets=[{path=\"pairs.jsonl\"}]' 2>&1"),
                 0, "%s", output);
    cr_expect_null(strstr(output, "end tokens"), "%s", output);
    cr_expect_eq(run("ls out/step-00000001/generation_config.json 2>&1"), 2, "%s", output);
}

/* The token that is written after an answer, by templates of each shape. */
Test(answer_end_cases, the_first_token_after_the_text_counts)
{
    static const char *const names[] = {"</s>", "<|end|>", "<|endoftext|>", "<eot>", NULL};
    static const struct {
        const char *text;
        int32_t want; /* index in `names`; -1: none; -2: not known */
    } cases[] = {
        {"{% for m in messages %}[{{ m.role }}] {{ m.content }} </s>{% endfor %}", 0},
        /* Phi-3: a token after each turn, and another one at the end */
        {"{% for m in messages %}<|{{ m.role }}|>\n{{ m.content }}<|end|>\n{% endfor %}"
         "{% if add_generation_prompt %}<|assistant|>\n{% else %}<|endoftext|>{% endif %}",
         1},
        {"{% for m in messages %}{{ m.role }}:\n{{ m.content | trim }}\n\n<eot>{% endfor %}", 3},
        {"{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}", -1},
        {"{% for m in messages %}{{ m.role }}: {{ m.content }}{% endfor %}", -1},
        {"{% for m in messages %}{{ m.role }}{% endfor %}", -2},
        {"{{ raise_exception('no') }}", -2},
        {"{% if messages[0].role != 'system' %}{{ raise_exception('system first') }}{% endif %}",
         -2},
    };
    lathe_tokenizer *tok = NULL;
    put_tokenizer("ends.json", "null", "null", names);
    cr_assert_eq(lathe_tokenizer_load("ends.json", &tok), LATHE_OK);
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        lathe_chat_template *chat = NULL;
        lathe_answer_end end;
        cr_assert_eq(lathe_chat_template_create("t", cases[i].text, (int64_t)strlen(cases[i].text),
                                                NULL, &chat),
                     LATHE_OK);
        cr_assert_eq(lathe_answer_end_find(chat, tok, &end), LATHE_OK);
        cr_expect_eq(end.is_known, cases[i].want > -2, "%s", cases[i].text);
        cr_expect_eq(end.id, cases[i].want >= 0 ? 256 + cases[i].want : -1, "%s: %d", cases[i].text,
                     end.id);
        lathe_chat_template_destroy(chat);
    }
    lathe_tokenizer_destroy(tok);
}
