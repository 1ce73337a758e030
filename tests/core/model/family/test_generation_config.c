/* generation_config.json: the same tokens and probabilities as transformers' generate
 * (tests/golden/generation.py), the settings that override it, messages about it, and faulty
 * files. */
#include <jansson.h>

#include "base/log.h"
#include "run/parts/sampling_settings.h"
#include "support/small_run.h"

#define MODEL MODELS "llama_untied"

static char folder[32], said[4096];

static void setup(void)
{
    char command[512];
    strcpy(folder, "/tmp/lathe-generation-XXXXXX");
    cr_assert_not_null(mkdtemp(folder));
    snprintf(command, sizeof command, "cp " MODEL "/*.json " MODEL "/model.safetensors %s/",
             folder);
    cr_assert_eq(system(command), 0);
}

static void teardown(void)
{
    OK(lathe_dir_remove(folder));
}

TestSuite(generation_config, .init = setup, .fini = teardown);

static void keep(void *arg, int32_t level, const char *message)
{
    (void)arg;
    if (level >= LATHE_LOG_INFO && strlen(said) + strlen(message) + 2 < sizeof said)
        strcat(strcat(said, message), "\n");
}

static void write_json(const char *name, const json_t *value)
{
    char path[128];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    cr_assert_eq(json_dump_file(value, path, 0), 0);
}

/* Writes generation_config.json with this text. */
static void put(const char *text)
{
    char path[128];
    snprintf(path, sizeof path, "%s/generation_config.json", folder);
    OK(lathe_file_write_atomic(path, text, (int64_t)strlen(text)));
}

static lathe_status open_status(const char *const *more, lathe_run **out)
{
    settings s = {.n = 0};
    said[0] = '\0';
    lathe_log_set_sink(keep, NULL);
    set(&s, "model.path=%s", folder);
    set(&s, "tokenizer.path=bytes");
    set(&s, "data.seq_len=128");
    set(&s, "train.precision=fp32");
    set_all(&s, more);
    return open_run_status(LATHE_OPEN_INFER, s.list, out);
}

static lathe_run *open_with(const char *const *more)
{
    lathe_run *run = NULL;
    OK(open_status(more, &run));
    return run;
}

static lathe_sampling sampling_of(const lathe_run *run)
{
    lathe_sampling how = {.size = sizeof how};
    OK(lathe_default_sampling(run, &how));
    return how;
}

static const char *const nothing[] = {NULL};

static void set_config_eos(const json_t *eos)
{
    char path[128];
    snprintf(path, sizeof path, "%s/config.json", folder);
    json_t *config = json_load_file(path, 0, NULL);
    json_object_set(config, "eos_token_id", (json_t *)(uintptr_t)eos);
    write_json("config.json", config);
    json_decref(config);
}

static json_t *load_golden(void)
{
    json_t *golden = json_load_file(LATHE_TEST_DATA "/golden/data/generation.json", 0, NULL);
    cr_assert_not_null(golden);
    return golden;
}

Test(generation_config, greedy_tokens_are_those_of_transformers)
{
    json_t *golden = load_golden(), *row;
    const char *prompt = json_string_value(json_object_get(golden, "prompt"));
    size_t r;
    json_array_foreach(json_object_get(golden, "greedy"), r, row)
    {
        const char *name = json_string_value(json_object_get(row, "name"));
        const json_t *want = json_object_get(row, "tokens");
        lathe_generation g = {.size = (uint32_t)sizeof g};
        write_json("generation_config.json", json_object_get(row, "file"));
        set_config_eos(json_object_get(row, "config_eos"));
        lathe_run *run = open_with(nothing);
        lathe_sampling how = sampling_of(run);
        const int64_t n = json_integer_value(json_object_get(row, "max_new_tokens"));
        how.max_new_tokens = n > 0 ? (int32_t)n : how.max_new_tokens;
        OK(lathe_generate(run, prompt, &how, &g));
        cr_expect_eq((size_t)g.n_tokens, json_array_size(want), "%s: %d tokens", name, g.n_tokens);
        for (int32_t i = 0; i < g.n_tokens && (size_t)i < json_array_size(want); i++)
            cr_expect_eq(g.tokens[i], json_integer_value(json_array_get(want, (size_t)i)),
                         "%s, token %d", name, i);
        lathe_run_close(run);
    }
    cr_expect_eq(r, 10);
    json_decref(golden);
}

/* Draws from the logits after the prompt, each time with another seed. */
static void check_shares(const char *name, lathe_run *run, const char *prompt, const json_t *want)
{
    enum { V = 128, DRAWS = 20000 };
    int32_t ids[64];
    int64_t n = 0;
    double share[V] = {0.0}, total = 0.0;
    lathe_sampler *sampler = NULL;
    lathe_sampling how = sampling_of(run);
    for (; prompt[n]; n++)
        ids[n] = (unsigned char)prompt[n];
    const lathe_run_batch batch = {
        .size = (uint32_t)sizeof batch, .n_rows = 1, .row_tokens = (int32_t)n, .tokens = ids};
    lathe_forward_result f = {.size = (uint32_t)sizeof f};
    OK(lathe_forward(run, &batch, LATHE_FORWARD_LOGITS, &f));
    OK(lathe_sampler_create(V, &sampler));
    for (uint64_t seed = 0; seed < DRAWS; seed++) {
        how.seed = seed;
        share[lathe_sampler_pick(sampler, f.logits + (n - 1) * V, &how, ids, n, NULL)] +=
            1.0 / DRAWS;
    }
    for (int i = 0; i < V; i++) {
        char key[8];
        snprintf(key, sizeof key, "%d", i);
        const double p = json_number_value(json_object_get(want, key));
        total += p;
        cr_expect(p > 0.0 || share[i] == 0.0, "%s: token %d is cut in transformers", name, i);
        /* five standard deviations: 900 comparisons */
        cr_expect_float_eq(share[i], p, 5.0 * sqrt(p * (1.0 - p) / DRAWS) + 1e-6,
                           "%s: token %d has %g, %g in transformers", name, i, share[i], p);
    }
    cr_expect_float_eq(total, 1.0, 1e-6);
    lathe_sampler_destroy(sampler);
}

Test(generation_config, samples_are_drawn_from_the_probabilities_of_transformers)
{
    json_t *golden = load_golden(), *row;
    const char *prompt = json_string_value(json_object_get(golden, "prompt"));
    size_t r;
    json_array_foreach(json_object_get(golden, "sampled"), r, row)
    {
        write_json("generation_config.json", json_object_get(row, "file"));
        lathe_run *run = open_with(nothing);
        check_shares(json_string_value(json_object_get(row, "name")), run, prompt,
                     json_object_get(row, "shares"));
        lathe_run_close(run);
    }
    cr_expect_eq(r, 7);
    json_decref(golden);
}

Test(generation_config, the_run_file_wins_over_it)
{
    static const char *const more[] = {"generate.temperature=0.3", "generate.top_k=0",
                                       "generate.max_new_tokens=5",
                                       "generate.repetition_penalty=1.0", NULL};
    put("{\"do_sample\": true, \"temperature\": 0.6, \"top_k\": 20, \"top_p\": 0.95, "
        "\"max_new_tokens\": 9, \"repetition_penalty\": 1.1}");
    lathe_run *run = open_with(more);
    const lathe_sampling how = sampling_of(run);
    cr_expect(how.temperature == 0.3 && how.top_k == 0 && how.top_p == 0.95 &&
              how.max_new_tokens == 5 && how.max_length == 0 && how.repetition_penalty == 1.0);
    lathe_run_close(run);
    run = open_with(nothing);
    const lathe_sampling of_file = sampling_of(run);
    cr_expect(of_file.temperature == 0.6 && of_file.top_k == 20 && of_file.max_new_tokens == 9 &&
              of_file.repetition_penalty == 1.1);
    lathe_run_close(run);
}

Test(generation_config, a_temperature_that_is_asked_for_samples_although_the_file_does_not)
{
    static const char *const more[] = {"generate.temperature=0.7", NULL};
    put("{\"top_p\": 0.8}");
    lathe_run *run = open_with(more);
    const lathe_sampling how = sampling_of(run);
    cr_expect(how.temperature == 0.7 && how.top_p == 0.8 && how.top_k == 50);
    lathe_run_close(run);
}

Test(generation_config, without_the_file_the_defaults_of_generate_stand)
{
    lathe_run *run = open_with(nothing);
    const lathe_sampling how = sampling_of(run);
    cr_expect(how.temperature == 1.0 && how.top_k == 0 && how.top_p == 1.0 &&
              how.max_new_tokens == 128 && how.repetition_penalty == 1.0 && how.min_p == 0.0);
    lathe__sampling_say(run);
    cr_expect_str_eq(said, "");
    lathe_run_close(run);
}

Test(generation_config, says_which_values_came_from_the_file)
{
    static const char *const more[] = {"generate.top_p=0.5", NULL};
    char want[512];
    put("{\"do_sample\": true, \"temperature\": 0.6, \"top_k\": 20, \"top_p\": 0.95, "
        "\"eos_token_id\": [7, 9]}");
    lathe_run *run = open_with(more);
    lathe__sampling_say(run);
    snprintf(want, sizeof want,
             "from %s/generation_config.json: temperature 0.6, top_k 20, stops at token 7 or 9\n",
             folder);
    cr_expect_str_eq(said, want, "%s", said);
    lathe_run_close(run);
    put("{\"eos_token_id\": 7, \"top_k\": 20}");
    run = open_with(nothing);
    lathe__sampling_say(run);
    snprintf(want, sizeof want,
             "from %s/generation_config.json: the likeliest token each time (do_sample is not "
             "true), stops at token 7\n",
             folder);
    cr_expect_str_eq(said, want, "%s", said);
    lathe_run_close(run);
}

Test(generation_config, keys_that_are_not_applied_are_warned_of)
{
    put("{\"num_beams\": 4, \"no_repeat_ngram_size\": 0, \"stop_strings\": [\"x\"], "
        "\"suppress_tokens\": null, \"typical_p\": 1.0}");
    lathe_run_close(open_with(nothing));
    cr_expect(strstr(said, "generation_config.json: num_beams = 4 is not applied"), "%s", said);
    cr_expect(strstr(said, "stop_strings = [\"x\"] is not applied"), "%s", said);
    cr_expect_null(strstr(said, "no_repeat"), "%s", said);
    cr_expect_null(strstr(said, "typical_p"), "%s", said);
}

Test(generation_config, keys_that_nobody_knows_are_warned_of)
{
    put("{\"num_beam\": 4, \"max_window_size\": 6144, \"transformers_version\": \"5.24.0\"}");
    lathe_run_close(open_with(nothing));
    cr_expect(strstr(said, "generation_config.json: num_beam is not a key"), "%s", said);
    cr_expect(strstr(said, "max_window_size is not a key"), "%s", said);
    cr_expect_null(strstr(said, "transformers_version"), "%s", said);
}

/* The keys of GenerationConfig, by tests/golden/config_keys.py: a new one must be placed. */
Test(generation_config, every_key_of_transformers_has_its_place)
{
    json_t *all = json_load_file(LATHE_TEST_DATA "/golden/data/config_keys.json", 0, NULL), *key;
    json_t *keys = json_object_get(all, "generation_config");
    size_t i;
    cr_assert_gt(json_array_size(keys), 60);
    json_array_foreach(keys, i, key)
    {
        cr_expect_neq(lathe_generation_config_key(json_string_value(key)), LATHE_KEY_UNKNOWN, "%s",
                      json_string_value(key));
    }
    json_decref(all);
}

Test(generation_config, a_damaged_file_is_one_error_with_its_place)
{
    static const struct {
        const char *text, *want;
        lathe_status status;
    } bad[] = {
        {"{\"top_k\": }", "/generation_config.json:1:11: unexpected token near '}'", LATHE_E_PARSE},
        {"[]", "/generation_config.json: not a JSON object", LATHE_E_CONFIG},
    };
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        lathe_run *run = NULL;
        put(bad[i].text);
        cr_expect_eq(open_status(nothing, &run), bad[i].status, "%s", bad[i].text);
        const char *message = lathe_error_message();
        cr_expect(strncmp(message, folder, strlen(folder)) == 0 && strstr(message, bad[i].want),
                  "%s: %s", bad[i].text, message);
    }
}

/* transformers loads each of these, and refuses it only in a generate() that uses it. */
Test(generation_config, a_value_is_refused_where_it_is_used)
{
    static const struct {
        const char *text, *want; /* want NULL: it is not used */
        const char *instead;     /* a setting with which it is not used; NULL: none */
    } cases[] = {
        {"{\"do_sample\": true, \"top_k\": -1}", "top_k is -1; expected an integer from 0",
         "generate.top_k=5"},
        {"{\"do_sample\": true, \"top_p\": 1.5}",
         "top_p is 1.5; expected a number above 0, at most 1", "generate.top_p=0.9"},
        {"{\"do_sample\": true, \"min_p\": 2}", "min_p is 2; expected a number from 0 to 1",
         "generate.min_p=0.1"},
        {"{\"do_sample\": true, \"temperature\": 0}", "temperature is 0; expected a number above 0",
         "generate.temperature=0.7"},
        {"{\"do_sample\": true, \"top_k\": -1}", "top_k is -1", "generate.temperature=0"},
        {"{\"do_sample\": \"yes\"}", "do_sample is \"yes\"; expected true or false",
         "generate.temperature=0"},
        {"{\"repetition_penalty\": 0}", "repetition_penalty is 0; expected a number above 0",
         "generate.repetition_penalty=1"},
        {"{\"max_length\": 0}", "max_length is 0; expected an integer from 1",
         "generate.max_new_tokens=3"},
        {"{\"eos_token_id\": [2, \"</s>\"]}", "eos_token_id is [2,\"</s>\"]; expected token ids",
         NULL},
        {"{\"do_sample\": false, \"top_p\": 0, \"top_k\": -1, \"temperature\": 0}", NULL, NULL},
        {"{\"do_sample\": 1, \"temperature\": 0.5}", NULL, NULL},
        {"{\"max_new_tokens\": 4, \"max_length\": 0}", NULL, NULL},
        {"{\"eos_token_id\": -1, \"pad_token_id\": -1, \"bos_token_id\": -1}", NULL, NULL},
        {"{\"eos_token_id\": [-1, 2]}", NULL, NULL},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        const char *const more[] = {cases[i].instead, NULL};
        lathe_sampling how = {.size = sizeof how};
        put(cases[i].text);
        lathe_run *run = open_with(nothing);
        const lathe_status status = lathe_default_sampling(run, &how);
        cr_expect_eq(status, cases[i].want ? LATHE_E_CONFIG : LATHE_OK, "%s: %s", cases[i].text,
                     status == LATHE_OK ? "taken" : lathe_error_message());
        if (cases[i].want && status != LATHE_OK)
            cr_expect(strncmp(lathe_error_message(), folder, strlen(folder)) == 0 &&
                          strstr(lathe_error_message(), cases[i].want),
                      "%s: %s", cases[i].text, lathe_error_message());
        lathe_run_close(run);
        if (!cases[i].instead)
            continue;
        run = open_with(more);
        OK(lathe_default_sampling(run, &how));
        lathe_run_close(run);
    }
}

/* -1 stands for none, as in many files: then the end tokens of config.json hold. */
Test(generation_config, an_end_token_of_minus_one_is_none)
{
    lathe_generation g = {.size = (uint32_t)sizeof g};
    put("{\"eos_token_id\": [-1, 7]}");
    lathe_run *run = open_with(nothing);
    cr_expect_eq(run->generation.n_eos, 1);
    cr_expect_eq(run->generation.eos[0], 7);
    lathe_run_close(run);
    json_t *none = json_integer(-1);
    set_config_eos(none);
    json_decref(none);
    run = open_with(nothing);
    cr_expect_eq(run->model.n_eos, 0);
    lathe_sampling how = sampling_of(run);
    how.max_new_tokens = 2;
    OK(lathe_generate(run, "a", &how, &g));
    lathe_run_close(run);
}
