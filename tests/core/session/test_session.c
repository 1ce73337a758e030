/* lathe/session.h: what a session gives is what the commands give; pieces, cancelling, several
 * sessions side by side. */
#include "cli/cli_case.h"

#include <math.h>
#include <pthread.h>

#include "lathe/session.h"

#define LATHE LATHE_TEST_BUILD "/bin/lathe"
#define OK(call) cr_assert_eq((call), LATHE_OK, "%s: %s", #call, lathe_last_error())

static const char base_file[] = "[model]\nmodel_type = \"llama\"\nhidden_size = 32\n"
                                "intermediate_size = 64\nnum_hidden_layers = 2\n"
                                "num_attention_heads = 2\nmax_position_embeddings = 64\n"
                                "[tokenizer]\ntrain = { vocab_size = 300 }\n"
                                "[data]\ndatasets = [{ path = \"text.txt\" }]\nseq_len = 16\n"
                                "[optimizer]\nlr = 0.02\n"
                                "[train]\nprecision = \"fp32\"\nmax_steps = 12\nthreads = 1\n"
                                "[log]\nprogress = \"off\"\n[checkpoint]\ndir = \"first\"\n";

static const char lora_file[] = "[model]\npath = \"base\"\n[data]\nseq_len = 64\n"
                                "[stage]\nname = \"sft\"\n[adapter]\nname = \"lora\"\nr = 4\n"
                                "[optimizer]\nlr = 0.01\n[scheduler]\nname = \"constant\"\n"
                                "[train]\nprecision = \"fp32\"\nmax_steps = 100\nthreads = 1\n"
                                "micro_batch_size = 2\n";

static void setup(void)
{
    make_folder();
    put_times("text.txt", "the cat sat on the mat and it was fine with the other cats.\n", 40);
    put("base.toml", base_file);
    put("lora.toml", lora_file);
    expect(LATHE " train base.toml 2>&1", 0, "checkpoint first/step-00000012");
    cr_assert_eq(run("mv first/step-00000012 base"), 0);
    put("base/chat_template.jinja",
        "{% for m in messages %}{% if m.role == 'assistant' %}{% generation %}{{ m.content }}\n"
        "{% endgeneration %}{% else %}{{ m.content }}\n{% endif %}{% endfor %}"
        "{{ 'the' if add_generation_prompt }}");
}

TestSuite(session, .init = setup, .fini = remove_folder, .timeout = 120);

static const char *const settings[] = {"data.seq_len=64", "generate.temperature=0",
                                       "generate.max_new_tokens=8"};

static lathe_session *open_session(void)
{
    lathe_session *session = NULL;
    const lathe_session_config config = {
        .size = (uint32_t)sizeof config, .model = "base", .settings = settings, .n_settings = 3};
    OK(lathe_session_open(&config, &session));
    return session;
}

/* A text in pieces: what came, and after how many pieces it is ended. */
typedef struct collected {
    char text[4096];
    int64_t n;
    int32_t n_pieces, ends_after; /* 0: never */
    lathe_session *cancels;       /* NULL: none */
} collected;

static int32_t collect(void *arg, const lathe_session_piece *piece)
{
    collected *c = arg;
    cr_assert_lt(c->n + piece->bytes, (int64_t)sizeof c->text);
    memcpy(c->text + c->n, piece->text, (size_t)piece->bytes);
    c->n += piece->bytes;
    c->n_pieces++;
    cr_assert_geq(piece->n_tokens, c->n_pieces);
    if (c->cancels && c->n_pieces == c->ends_after)
        lathe_session_cancel(c->cancels);
    return !c->cancels && c->ends_after && c->n_pieces >= c->ends_after;
}

static lathe_generation stream(lathe_session *session, const char *text, collected *c)
{
    lathe_sampling how = {.size = (uint32_t)sizeof how};
    lathe_generation made = {.size = (uint32_t)sizeof made};
    const lathe_prompt prompt = {.size = (uint32_t)sizeof prompt, .text = text};
    OK(lathe_default_sampling(lathe_session_run(session), &how));
    OK(lathe_session_stream(session, &prompt, &how, collect, c, &made));
    return made;
}

Test(session, pieces_are_the_text_that_the_command_writes)
{
    lathe_session *session = open_session();
    collected c = {.n = 0};
    const lathe_generation made = stream(session, "the cat", &c);
    cr_assert_eq(made.n_tokens, 8);
    cr_expect_eq(made.finish, LATHE_FINISH_LENGTH);
    cr_assert_eq(c.n, made.text_bytes);
    cr_expect_arr_eq(c.text, made.text, (size_t)c.n);
    cr_assert_eq(run(LATHE " generate base --prompt 'the cat' --temperature 0 --max-new-tokens 8 "
                           "--data.seq_len 64 2>/dev/null"),
                 0);
    cr_expect_eq(strncmp(output, "the cat", 7), 0);
    cr_expect_eq(strncmp(output + 7, c.text, (size_t)c.n), 0, "%s: %.*s", output, (int)c.n, c.text);
    lathe_session_close(session);
}

Test(session, a_text_ends_by_its_caller)
{
    lathe_session *session = open_session();
    collected whole = {.n = 0}, ended = {.ends_after = 3};
    collected cancelled = {.ends_after = 3, .cancels = session};
    (void)stream(session, "the cat", &whole);
    lathe_generation made = stream(session, "the cat", &ended);
    cr_expect_eq(made.finish, LATHE_FINISH_CANCELLED);
    cr_expect_eq(made.n_tokens, 3);
    cr_expect_arr_eq(ended.text, whole.text, (size_t)ended.n);
    made = stream(session, "the cat", &cancelled);
    cr_expect_eq(made.finish, LATHE_FINISH_CANCELLED);
    cr_expect_eq(made.n_tokens, 3);
    /* the next one is whole again, also where a cancel comes after the end */
    collected again = {.n = 0};
    lathe_session_cancel(session);
    made = stream(session, "the cat", &again);
    cr_expect_eq(made.finish, LATHE_FINISH_LENGTH);
    cr_assert_eq(again.n, whole.n);
    cr_expect_arr_eq(again.text, whole.text, (size_t)whole.n);
    lathe_session_close(session);
}

static void refused(lathe_session_config config, lathe_status want, const char *why)
{
    lathe_session *session = NULL;
    config.size = (uint32_t)sizeof config;
    cr_expect_eq(lathe_session_open(&config, &session), want, "%s", lathe_last_error());
    cr_expect_null(session);
    cr_expect(strstr(lathe_last_error(), why), "%s: %s", why, lathe_last_error());
}

/* Generates while a text of the same session is under way. */
static int32_t generate_within(void *arg, const lathe_session_piece *piece)
{
    lathe_session *session = arg;
    lathe_sampling how = {.size = (uint32_t)sizeof how};
    lathe_generation made = {.size = (uint32_t)sizeof made};
    const lathe_prompt prompt = {.size = (uint32_t)sizeof prompt, .text = "a"};
    (void)piece;
    OK(lathe_default_sampling(lathe_session_run(session), &how));
    cr_expect_eq(lathe_session_stream(session, &prompt, &how, NULL, NULL, &made), LATHE_E_STATE);
    return 0;
}

Test(session, a_piece_may_not_begin_another_text)
{
    lathe_session *session = open_session();
    lathe_sampling how = {.size = (uint32_t)sizeof how};
    lathe_generation made = {.size = (uint32_t)sizeof made};
    const lathe_prompt prompt = {.size = (uint32_t)sizeof prompt, .text = "the cat"};
    OK(lathe_default_sampling(lathe_session_run(session), &how));
    OK(lathe_session_stream(session, &prompt, &how, generate_within, session, &made));
    cr_expect_eq(made.n_tokens, 8);
    cr_expect_eq(lathe_session_stream(session, &prompt, NULL, NULL, NULL, &made), LATHE_E_ARG);
    cr_expect_eq(lathe_session_use(session, NULL), LATHE_E_ARG);
    lathe_session_close(session);
    session = NULL;
    cr_expect_eq(lathe_session_open(NULL, &session), LATHE_E_ARG);
    refused((lathe_session_config){.model = "base", .n_settings = 2}, LATHE_E_ARG, "settings[0]");
}

static void refuses_status(lathe_status got, lathe_status want, const char *why)
{
    cr_expect_eq(got, want, "%s: %d %s", why, got, lathe_last_error());
    cr_expect(strstr(lathe_last_error(), why), "%s: %s", why, lathe_last_error());
}

Test(session, texts_that_would_lose_bytes_are_refused)
{
    const lathe_session_config config = {
        .size = (uint32_t)sizeof config, .model = "lossy", .settings = settings, .n_settings = 3};
    lathe_session *session = open_session();
    lathe_sampling how = {.size = (uint32_t)sizeof how};
    lathe_generation made = {.size = (uint32_t)sizeof made};
    const lathe_prompt prompt = {.size = (uint32_t)sizeof prompt, .text = "the \xff cat"};
    lathe_session_ids ids;
    const char *text;
    int64_t n;
    OK(lathe_session_encode(session, "a\xff", 2, &ids)); /* it has a token for every byte */
    OK(lathe_session_decode(session, ids.ids, ids.n, &text, &n));
    cr_expect_eq(n, 2);
    refuses_status(lathe_session_encode(session, NULL, 2, &ids), LATHE_E_ARG, "text or out");
    lathe_session_close(session);
    /* as SmolLM2's vocabulary, which lacks the byte */
    cr_assert_eq(run("cp -r base lossy && rm lossy/manifest.json && "
                     "LC_ALL=C sed -i 's/\"\xc3\xbf\"/\"none\"/' lossy/tokenizer.json"),
                 0, "%s", output);
    OK(lathe_session_open(&config, &session));
    refuses_status(lathe_session_encode(session, "a\xff", 2, &ids), LATHE_E_ARG,
                   "the text is not UTF-8: byte 1 is 0xff");
    OK(lathe_session_encode(session, "a\xc3\xa9", 3, &ids));
    OK(lathe_default_sampling(lathe_session_run(session), &how));
    refuses_status(lathe_session_stream(session, &prompt, &how, NULL, NULL, &made), LATHE_E_ARG,
                   "the prompt is not UTF-8: byte 4 is 0xff");
    lathe_session_close(session);
    expect(LATHE " generate lossy --prompt \"$(printf 'the \\377')\" 2>&1", 2,
           "the prompt is not UTF-8: byte 4 is 0xff");
}

Test(session, sampling_out_of_range_is_refused)
{
    lathe_session *session = open_session();
    lathe_run *const model = lathe_session_run(session);
    lathe_sampling usual = {.size = (uint32_t)sizeof usual};
    lathe_generation made = {.size = (uint32_t)sizeof made};
    OK(lathe_default_sampling(model, &usual));
#define REFUSES(field, value, why)                                                                 \
    do {                                                                                           \
        lathe_sampling how = usual;                                                                \
        how.field = (value);                                                                       \
        refuses_status(lathe_generate(model, "the", &how, &made), LATHE_E_ARG, why);               \
    } while (0)
    REFUSES(temperature, NAN, "lathe_sampling.temperature is nan");
    REFUSES(temperature, INFINITY, "lathe_sampling.temperature is inf");
    REFUSES(temperature, -1.0,
            "lathe_sampling.temperature is -1; expected a finite number of at "
            "least 0");
    REFUSES(top_p, 3.0, "lathe_sampling.top_p is 3; expected a number above 0, and at most 1");
    REFUSES(top_p, 0.0, "lathe_sampling.top_p is 0");
    REFUSES(top_p, NAN, "lathe_sampling.top_p is nan");
    REFUSES(min_p, 2.0, "lathe_sampling.min_p is 2");
    REFUSES(repetition_penalty, INFINITY, "lathe_sampling.repetition_penalty is inf");
    REFUSES(max_new_tokens, 0, "lathe_sampling.max_new_tokens is 0");
    REFUSES(top_k, -1, "lathe_sampling.top_k is -1");
    REFUSES(n_stop, -1, "lathe_sampling.n_stop is -1");
    REFUSES(n_stop_tokens, 2, "lathe_sampling.stop_tokens is NULL");
    lathe_session_close(session);
}

Test(session, ids_of_texts_and_conversations)
{
    static const char talk[] = "[{\"role\": \"user\", \"content\": \"the cat\"}]";
    static const char taught[] = "[{\"role\": \"user\", \"content\": \"the cat\"},"
                                 " {\"role\": \"assistant\", \"content\": \"sat\"}]";
    lathe_session *session = open_session();
    lathe_session_ids ids;
    const char *text;
    int64_t n, learnt = 0;
    OK(lathe_session_encode(session, "the cat sat", 11, &ids));
    OK(lathe_session_decode(session, ids.ids, ids.n, &text, &n));
    cr_expect_str_eq(text, "the cat sat");
    OK(lathe_session_render(session, talk, (int64_t)sizeof talk - 1, &ids));
    OK(lathe_session_decode(session, ids.ids, ids.n, &text, &n));
    cr_expect_str_eq(text, "the cat\nthe");
    cr_expect_null(ids.learnt);
    OK(lathe_session_learn(session, taught, (int64_t)sizeof taught - 1, &ids));
    cr_assert_not_null(ids.learnt);
    int64_t first = ids.n;
    for (int64_t i = 0; i < ids.n; i++) {
        learnt += ids.learnt[i];
        first = ids.learnt[i] && first == ids.n ? i : first;
    }
    OK(lathe_session_decode(session, ids.ids + first, ids.n - first, &text, &n));
    cr_expect_str_eq(text, "sat\n");
    cr_expect_eq(learnt, ids.n - first);
    lathe_session_close(session);
}

Test(session, a_dialogue_keeps_its_messages)
{
    lathe_session *session = open_session();
    lathe_dialogue *talk = NULL;
    lathe_sampling how = {.size = (uint32_t)sizeof how};
    lathe_generation made = {.size = (uint32_t)sizeof made};
    collected c = {.n = 0}, stopped = {.ends_after = 2};
    const char *json;
    int64_t n;
    OK(lathe_dialogue_create(session, &talk));
    OK(lathe_dialogue_sampling(talk, &how));
    cr_expect_eq(how.max_new_tokens, 8);
    cr_expect_eq(lathe_dialogue_undo(talk), LATHE_E_STATE);
    OK(lathe_dialogue_system(talk, "be brief"));
    OK(lathe_dialogue_say(talk, "the cat", 7, &how, collect, &c, &made));
    cr_expect_eq(lathe_dialogue_count(talk), 3);
    cr_expect_eq(lathe_dialogue_say(talk, "\xff", 1, &how, NULL, NULL, &made), LATHE_E_ARG);
    cr_expect_eq(lathe_dialogue_count(talk), 3, "the conversation is as it was");
    OK(lathe_dialogue_say(talk, "the mat", 7, &how, collect, &stopped, &made));
    cr_expect_eq(made.finish, LATHE_FINISH_CANCELLED);
    OK(lathe_dialogue_json(talk, &json, &n));
    cr_expect(
        strstr(json, "{\"role\": \"user\", \"content\": \"the mat\"}, {\"role\": \"assistant\""),
        "%s", json);
    OK(lathe_dialogue_undo(talk));
    cr_expect_eq(lathe_dialogue_count(talk), 3);
    lathe_dialogue_clear(talk);
    OK(lathe_dialogue_json(talk, &json, &n));
    cr_expect_str_eq(json, "{\"messages\": [{\"role\": \"system\", \"content\": \"be brief\"}]}");
    OK(lathe_dialogue_system(talk, ""));
    cr_expect_eq(lathe_dialogue_count(talk), 0);
    lathe_dialogue_destroy(talk);
    lathe_session_close(session);
}

typedef struct logged {
    char text[4096];
    int32_t n_warnings;
} logged;

static void take_line(void *arg, int32_t level, const char *message)
{
    logged *all = arg;
    all->n_warnings += level == 2;
    const size_t n = strlen(all->text);
    (void)snprintf(all->text + n, sizeof all->text - n, "%s\n", message);
}

/* A program of its own gets the log, also where a model is opened twice. */
Test(session, the_log_goes_to_the_function_that_is_set)
{
    static const char *const idle[] = {"data.seq_len=64", "optimizer.lr=1"};
    static logged all;
    lathe_session *session = NULL;
    const lathe_session_config config = {.size = (uint32_t)sizeof config,
                                         .purpose = LATHE_SESSION_EVALUATE,
                                         .model = "base",
                                         .data = "text.txt",
                                         .settings = idle,
                                         .n_settings = 2};
    lathe_set_log(take_line, &all);
    OK(lathe_session_open(&config, &session));
    lathe_session_close(session);
    cr_expect_eq(all.n_warnings, 1, "%s", all.text);
    cr_expect(strstr(all.text, "optimizer.lr has no effect: nothing is trained"), "%s", all.text);
    cr_expect(strstr(all.text, "evaluates as base was trained"), "%s", all.text);
    const size_t before = strlen(all.text);
    lathe_set_log(NULL, NULL);
    OK(lathe_session_open(&config, &session));
    lathe_session_close(session);
    cr_expect_eq(strlen(all.text), before);
}

/* ---- side by side ---- */

typedef struct side {
    pthread_t thread;
    const char *prompt;
    collected alone, beside;
    lathe_session *session;
    int32_t equal;
} side;

static void *answer_often(void *arg)
{
    side *s = arg;
    s->equal = 1;
    for (int i = 0; i < 5; i++) {
        s->beside = (collected){.n = 0};
        (void)stream(s->session, s->prompt, &s->beside);
        s->equal &= s->beside.n == s->alone.n &&
                    memcmp(s->beside.text, s->alone.text, (size_t)s->alone.n) == 0;
    }
    return NULL;
}

Test(session, two_sessions_do_not_change_each_other)
{
    side sides[2] = {{.prompt = "the cat"}, {.prompt = "and it was"}};
    for (int i = 0; i < 2; i++) {
        sides[i].session = open_session();
        (void)stream(sides[i].session, sides[i].prompt, &sides[i].alone);
    }
    for (int i = 0; i < 2; i++)
        cr_assert_eq(pthread_create(&sides[i].thread, NULL, answer_often, &sides[i]), 0);
    for (int i = 0; i < 2; i++) {
        cr_assert_eq(pthread_join(sides[i].thread, NULL), 0);
        cr_expect(sides[i].equal, "%s", sides[i].prompt);
        lathe_session_close(sides[i].session);
    }
}

/* ---- training, adapters, evaluation ---- */

static double step_on(lathe_session *session, int32_t *tokens, int32_t *targets)
{
    const lathe_run_batch rows = {.size = (uint32_t)sizeof rows,
                                  .n_rows = 2,
                                  .row_tokens = 16,
                                  .tokens = tokens,
                                  .targets = targets};
    lathe_forward_result forward = {.size = (uint32_t)sizeof forward};
    lathe_step_result step = {.size = (uint32_t)sizeof step};
    OK(lathe_forward(lathe_session_run(session), &rows, LATHE_FORWARD_TRAIN, &forward));
    OK(lathe_backward(lathe_session_run(session), NULL));
    OK(lathe_step(lathe_session_run(session), &step));
    return step.loss;
}

static void train_adapter(void)
{
    lathe_session *session = NULL;
    const lathe_session_config config = {
        .size = (uint32_t)sizeof config, .purpose = LATHE_SESSION_TRAIN, .model = "lora.toml"};
    int32_t tokens[32], targets[32];
    OK(lathe_session_open(&config, &session));
    for (int i = 0; i < 32; i++) {
        tokens[i] = 60 + i % 16;
        targets[i] = 61 + i % 16;
    }
    const double first = step_on(session, tokens, targets);
    double last = first;
    for (int i = 0; i < 20; i++)
        last = step_on(session, tokens, targets);
    cr_expect_lt(last, first - 0.5, "%g, %g", first, last);
    OK(lathe_save(lathe_session_run(session), "tuned"));
    lathe_session_close(session);
}

Test(session, trains_and_opens_what_it_saved)
{
    train_adapter();
    lathe_session *session = NULL;
    const lathe_session_adapter adapters[] = {{"tuned", "tuned"}};
    const lathe_session_config config = {.size = (uint32_t)sizeof config,
                                         .model = "base",
                                         .settings = settings,
                                         .n_settings = 3,
                                         .adapters = adapters,
                                         .n_adapters = 1};
    OK(lathe_session_open(&config, &session));
    collected tuned = {.n = 0}, base = {.n = 0};
    (void)stream(session, "the cat", &tuned);
    OK(lathe_session_use(session, "base"));
    (void)stream(session, "the cat", &base);
    cr_expect(base.n != tuned.n || memcmp(base.text, tuned.text, (size_t)base.n) != 0);
    cr_expect_eq(lathe_session_use(session, "nobody"), LATHE_E_ARG);
    lathe_session_close(session);
    collected plain = {.n = 0};
    session = open_session();
    (void)stream(session, "the cat", &plain);
    cr_assert_eq(plain.n, base.n);
    cr_expect_arr_eq(plain.text, base.text, (size_t)base.n);
    lathe_session_close(session);
}

/* Each primitive on a session of each purpose: what is not possible is LATHE_E_STATE. */
Test(session, primitives_that_a_purpose_lacks_are_refused)
{
    int32_t tokens[4] = {60, 61, 62, 63};
    const lathe_run_batch rows = {.size = (uint32_t)sizeof rows,
                                  .n_rows = 1,
                                  .row_tokens = 4,
                                  .tokens = tokens,
                                  .targets = tokens};
    lathe_forward_result out = {.size = (uint32_t)sizeof out};
    float logprobs[4];
    expect(LATHE " train base.toml --model.hidden_size 64 --train.max_steps 1 --checkpoint.dir w "
                 "2>&1 && mv w/step-00000001 wide",
           0, "");
    for (int32_t purpose = LATHE_SESSION_GENERATE; purpose <= LATHE_SESSION_EVALUATE; purpose++) {
        lathe_session *session = NULL;
        const int generates = purpose == LATHE_SESSION_GENERATE;
        const lathe_session_config config = {.size = (uint32_t)sizeof config,
                                             .purpose = purpose,
                                             .model = "base",
                                             .settings = settings,
                                             .n_settings = 3,
                                             .data = generates ? NULL : "text.txt"};
        OK(lathe_session_open(&config, &session));
        lathe_run *const model = lathe_session_run(session);
        OK(lathe_forward(model, &rows, LATHE_FORWARD_LOGITS, &out));
        if (generates) {
            refuses_status(lathe_forward(model, &rows, 0, &out), LATHE_E_STATE, "to generate");
            refuses_status(lathe_forward(model, NULL, 0, &out), LATHE_E_STATE, "to generate");
            refuses_status(lathe_forward(model, NULL, LATHE_FORWARD_LOGITS, &out), LATHE_E_STATE,
                           "no data");
            refuses_status(lathe_logprobs(model, &rows, logprobs), LATHE_E_STATE, "to generate");
        } else {
            OK(lathe_forward(model, &rows, 0, &out));
            OK(lathe_forward(model, NULL, 0, &out));
            OK(lathe_logprobs(model, &rows, logprobs));
        }
        refuses_status(lathe_forward(model, &rows, LATHE_FORWARD_TRAIN, &out), LATHE_E_STATE,
                       "not opened for training");
        refuses_status(lathe_backward(model, NULL), LATHE_E_STATE, "backward needs");
        refuses_status(lathe_step(model, NULL), LATHE_E_STATE, "step needs");
        OK(lathe_load(model, "base"));
        refuses_status(lathe_load(model, "wide"), LATHE_E_SHAPE,
                       "wide is no checkpoint of this run's model and adapter: ");
        refuses_status(lathe_save(model, "saved"), LATHE_E_STATE, "not opened for training");
        cr_expect_neq(access("saved", F_OK), 0, "nothing was written");
        lathe_session_close(session);
    }
}

Test(session, training_takes_a_run_file_and_goes_on_where_it_is_told_to)
{
    static const char *const goes_on[] = {"checkpoint.resume=first", "checkpoint.dir=second"};
    lathe_session_config config = {
        .size = (uint32_t)sizeof config, .purpose = LATHE_SESSION_TRAIN, .model = "base.toml"};
    lathe_session *session = NULL;
    lathe_step_result step = {.size = (uint32_t)sizeof step};
    lathe_forward_result forward = {.size = (uint32_t)sizeof forward};
    cr_assert_eq(run("cp -r base first/step-00000012"), 0);
    refused((lathe_session_config){.purpose = LATHE_SESSION_TRAIN, .model = "base"}, LATHE_E_CONFIG,
            "base: a model; a session that trains takes a run file (TOML)");
    refused((lathe_session_config){.purpose = LATHE_SESSION_TRAIN, .model = "nowhere.toml"},
            LATHE_E_CONFIG, "no such file");
    refused((lathe_session_config){.purpose = LATHE_SESSION_TRAIN,
                                   .model = "base.toml",
                                   .weights = LATHE_SESSION_WEIGHTS_AVERAGE},
            LATHE_E_ARG, "weights has no effect");
    for (int32_t i = 0; i < 2; i++) {
        config.settings = goes_on;
        config.n_settings = i == 0 ? 0 : 2;
        OK(lathe_session_open(&config, &session));
        OK(lathe_forward(lathe_session_run(session), NULL, LATHE_FORWARD_TRAIN, &forward));
        OK(lathe_backward(lathe_session_run(session), NULL));
        OK(lathe_step(lathe_session_run(session), &step));
        cr_expect_eq(step.step, i == 0 ? 1 : 13);
        lathe_session_close(session);
    }
}

Test(session, refuses_what_contradicts_itself)
{
    static const char *const no_key[] = {"data.seq_len"};
    const lathe_session_adapter adapters[] = {{"a", "nowhere"}};
    lathe_session *session = NULL;
    const lathe_session_config empty = {.size = 8, .model = "base"};
    refuses_status(lathe_session_open(&empty, &session), LATHE_E_ARG,
                   "lathe_session_config.size is 8; expected 64");
    refused((lathe_session_config){.model = NULL}, LATHE_E_ARG, "config.model is NULL");
    refused((lathe_session_config){.model = "base", .purpose = 7}, LATHE_E_ARG, "purpose is 7");
    refused((lathe_session_config){.model = "base", .weights = 7}, LATHE_E_ARG, "weights is 7");
    refused((lathe_session_config){.model = "base", .reserved = 7}, LATHE_E_ARG, "reserved is 7");
    refused((lathe_session_config){.model = "base", .n_adapters = 1}, LATHE_E_ARG, "adapters[0]");
    refused((lathe_session_config){.model = "nowhere"}, LATHE_E_CONFIG, "no such file or folder");
    refused((lathe_session_config){.model = "base", .settings = no_key, .n_settings = 1},
            LATHE_E_ARG, "not of the form section.key=value");
    refused((lathe_session_config){.model = "base", .use = "a"}, LATHE_E_ARG, "there are none");
    refused((lathe_session_config){.model = "base", .data = "text.txt"}, LATHE_E_ARG, "evaluation");
    refused((lathe_session_config){.model = "base", .adapters = adapters, .n_adapters = 1},
            LATHE_E_CONFIG, "nowhere");
    refused((lathe_session_config){.purpose = LATHE_SESSION_TRAIN,
                                   .model = "lora.toml",
                                   .data = "text.txt"},
            LATHE_E_ARG, "have no effect");
    cr_assert_eq(run("rm base/chat_template.jinja"), 0);
    session = open_session();
    lathe_dialogue *talk = NULL;
    cr_expect_eq(lathe_dialogue_create(session, &talk), LATHE_E_CONFIG);
    cr_expect(strstr(lathe_last_error(), "needs a chat template"), "%s", lathe_last_error());
    lathe_session_close(session);
}
