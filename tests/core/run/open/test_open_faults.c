/* Opens a run with every allocation and every read before it begins failing in turn: each time a
 * clean error, no leak, and nothing left that disturbs the next attempt. */
#include "config/config.h"
#include "data/rows/shards.h"
#include "files/safetensors/safetensors.h"
#include "model/family/hf_config.h"
#include "support/inject.h"
#include "support/small_run.h"
#include "tokenizer/json/tokenizer_file.h"
#include <errno.h>

static char dir[64], path[128];
static lathe_tokenizer *bytes;
/* Has the plugins of the model families, opened before calls fail; the test `model` covers failures
 * of opening a family. NULL: the test needs none. */
static lathe_registry *registry;

static void setup(void)
{
    if (inject_unsupported() != NULL)
        cr_skip("%s", inject_unsupported());
    strcpy(dir, "/tmp/lathe-faults-XXXXXX");
    make_folder(dir, 3000);
    /* This test has its own cache of tried plugins: another process that writes the user's cache at
     * the same time may drop entries, so plugins would be tried again, which hides failures. */
    cr_assert_eq(setenv("XDG_CACHE_HOME", dir, 1), 0);
}

static void teardown(void)
{
    inject_disarm();
    lathe_tokenizer_destroy(bytes);
    bytes = NULL;
    lathe_registry_destroy(registry);
    registry = NULL;
    if (dir[0] != '\0')
        OK(lathe_dir_remove(dir));
}

TestSuite(open_faults, .init = setup, .fini = teardown);

typedef lathe_status (*action)(void);
static void (*before_each)(void);
static int64_t burst = 1; /* number of calls that fail from the i-th on */

/* Runs again with call i failing and returns its status; out_blocks: heap blocks not freed. */
static lathe_status fail_at(action act, uint32_t calls, int64_t i, int error, int64_t *out_blocks)
{
    if (before_each != NULL)
        before_each();
    const int64_t before = inject_live_blocks();
    inject_arm(calls, i, burst, error);
    const lathe_status status = act();
    inject_disarm();
    *out_blocks = inject_live_blocks() - before;
    return status;
}

/* Libraries survive some failures: libstdc++ sorts without its buffer, PCRE2 works without its JIT
 * compiler, OpenSSL without its cache of algorithms. */
static int must_fail(int library)
{
    return library == INJECT_IN_LATHE || library == INJECT_IN_JANSSON;
}

/* Makes every stride-th of the calls fail, about max_tries of them. n_tolerated: number of failures
 * that an action of Lathe may survive: a file that was only read is not closed, /proc and /sys
 * cannot be read, a candidate of an `auto` search is skipped, the cache of tried plugins is not
 * read. */
static void sweep(const char *what, action act, uint32_t calls, int error, int64_t max_tries,
                  int64_t n_tolerated)
{
    int64_t tolerated = 0, tries = 0;
    char passed[2000] = "";
    OK(act()); /* libraries keep memory from their first use */
    if (before_each != NULL)
        before_each();
    inject_arm(calls, 0, 0, 0);
    OK(act());
    const int64_t n = inject_disarm(), stride = n / max_tries + 1;
    cr_assert(n > 0, "%s makes no such call", what);
    for (int64_t i = 1; i <= n; i += stride, tries++) {
        int64_t left = 0, again = 0;
        lathe_error_clear();
        const lathe_status status = fail_at(act, calls, i, error, &left);
        if (inject_failed() == 0)
            continue; /* threads: this time there were fewer calls */
        if (status == LATHE_OK) {
            const size_t n_passed = strlen(passed);
            if (must_fail(inject_last_library()) && tolerated++ < 16)
                snprintf(passed + n_passed, sizeof passed - n_passed, "\n  %s", inject_last());
        } else {
            cr_expect(status == LATHE_E_NOMEM || lathe_error_message()[0] != '\0',
                      "%s: %s: status %d without a message", what, inject_last(), status);
            /* libstdc++'s streams hide it: toml++ then finds no number */
            if (calls == INJECT_MALLOC && inject_last_library() != INJECT_IN_LIBSTDCXX)
                cr_expect_eq(status, LATHE_E_NOMEM, "%s: %s: %d %s", what, inject_last(), status,
                             lathe_error_message());
        }
        if (left > 0)
            (void)fail_at(act, calls, i, error, &again);
        cr_expect(left <= 0 || again <= 0, "%s: %s: leaks %lld blocks", what, inject_last(),
                  (long long)again);
    }
    cr_expect(tolerated <= n_tolerated, "%s: %lld of %lld failures passed over:%s", what,
              (long long)tolerated, (long long)tries, passed);
    OK(act());
}

/* ---- the actions: open, and close again ---- */

static void open_families(void)
{
    OK(lathe_registry_create(&registry));
    OK(lathe_registry_scan(registry, LATHE_KIND_MODEL));
}

static lathe_status load_config(void)
{
    lathe_config *config = NULL;
    lathe_diags diags = {0};
    const lathe_status status = lathe_config_load(path, NULL, 0, 0, registry, &diags, &config);
    lathe_config_destroy(config);
    lathe_diags_fini(&diags);
    return status;
}

Test(open_faults, configuration)
{
    static const char toml[] = "[model]\nmodel_type = \"llama\"\nhidden_size = 64\n"
                               "intermediate_size = 128\nnum_hidden_layers = "
                               "1\nnum_attention_heads = 4\n[data]\nseq_len = 32\n"
                               "datasets = [{ path = \"corpus.txt\" }]\n[train]\nmax_steps = 5\n"
                               "[checkpoint]\ndir = \"out\"\n";
    snprintf(path, sizeof path, "%s/run.toml", dir);
    OK(lathe_file_write_atomic(path, toml, (int64_t)sizeof toml - 1));
    /* The search for a family lists the plugins' folder again and reads the cache of tried plugins.
     * If that fails, the open families are enough: three calls. */
    open_families();
    sweep("config", load_config, INJECT_MALLOC, ENOMEM, 500, 3);
    sweep("config", load_config, INJECT_OPEN | INJECT_READ | INJECT_MAP, EIO, 500, 3);
}

static lathe_status load_tokenizer(void)
{
    lathe_tokenizer *tok = NULL;
    lathe_ids ids = {NULL, 0, 0};
    char *text = NULL;
    int64_t n = 0;
    lathe_status status = lathe_tokenizer_load(path, &tok);
    if (status == LATHE_OK)
        status = lathe_tokenizer_encode(tok, "A text, 123.", 12, 0, &ids);
    if (status == LATHE_OK)
        status = lathe_tokenizer_decode(tok, ids.data, ids.n, 0, &text, &n);
    free(text);
    lathe_ids_fini(&ids);
    lathe_tokenizer_destroy(tok);
    return status;
}

Test(open_faults, tokenizer)
{
    snprintf(path, sizeof path, "%s/golden/data/tokenizer/llama3.json", LATHE_TEST_DATA);
    /* a table that cannot be read in place is read by jansson, so one failure is survived */
    burst = INT64_MAX;
    sweep("tokenizer", load_tokenizer, INJECT_MALLOC, ENOMEM, 400, 0);
    sweep("tokenizer", load_tokenizer, INJECT_LOAD, EIO, 100, 0);
}

static lathe_status open_weights(void)
{
    lathe_safetensors *set = NULL;
    const lathe_status status = lathe_safetensors_open(path, &set);
    if (status == LATHE_OK && lathe_safetensors_count(set) != 20)
        abort();
    lathe_safetensors_close(set);
    return status;
}

Test(open_faults, safetensors)
{
    snprintf(path, sizeof path, "%sllama_sharded", MODELS);
    sweep("safetensors", open_weights, INJECT_MALLOC, ENOMEM, 1000, 0);
    sweep("safetensors", open_weights, INJECT_LOAD, EIO, 1000, 0);
}

static lathe_status read_config_json(void)
{
    lathe_model_config config;
    char *text = NULL;
    const lathe_model_source source = {.registry = registry};
    lathe_status status = lathe_model_config_load(&source, path, &config);
    if (status == LATHE_OK)
        status = lathe_model_config_text(&config, &text);
    free(text);
    lathe_model_config_fini(&config);
    return status;
}

Test(open_faults, model_configuration)
{
    snprintf(path, sizeof path, "%sllama_tied", MODELS);
    /* three calls, as above, for the families, and three for the models of several towers whose
     * text model a family serves */
    open_families();
    sweep("config.json", read_config_json, INJECT_MALLOC, ENOMEM, 1000, 6);
    sweep("config.json", read_config_json, INJECT_LOAD, EIO, 1000, 6);
}

/* The plugins of the kinds that are searched as a whole. */
static int64_t count_candidates(void)
{
    static const char *const kinds[] = {"device", "attention", "model"};
    int64_t n = 0;
    for (size_t k = 0; k < sizeof kinds / sizeof kinds[0]; k++) {
        lathe_arena arena = LATHE_ARENA_INIT;
        char folder[512];
        char **names = NULL;
        int64_t n_names = 0;
        snprintf(folder, sizeof folder, "%s/lib/lathe/plugins/%s", LATHE_TEST_BUILD, kinds[k]);
        OK(lathe_dir_list(folder, &arena, &names, &n_names));
        n += n_names;
        lathe_arena_fini(&arena);
    }
    return n;
}

static lathe_status open_model(void)
{
    lathe_run *run = NULL;
    const lathe_status status = open_options(path, NULL, 0, LATHE_OPEN_INFER, &run);
    lathe_run_close(run);
    return status;
}

Test(open_faults, model)
{
    char toml[512];
    snprintf(path, sizeof path, "%s/run.toml", dir);
    snprintf(
        toml, sizeof toml,
        "[model]\npath = \"%sllama_tied\"\n[tokenizer]\npath = \"bytes\"\n[data]\nseq_len = 32\n"
        "[train]\nprecision = \"bf16\"\n", /* oneDNN, which computes fp32, throws without memory */
        MODELS);
    OK(lathe_file_write_atomic(path, toml, (int64_t)strlen(toml)));
    /* Every allocation, since a question that a lack of memory answers is one of thousands. */
    sweep("model", open_model, INJECT_MALLOC, ENOMEM, INT32_MAX, 0);
    /* Files with the limits of the machine and of the process may fail to be read; that limit is
     * then unknown. They are read three times: before and after the configuration, and for the
     * plan: fifty reads with the folders of plugins. Then come the plugins of kinds that are
     * searched as a whole (device, attention, model), of which the others are not needed. */
    sweep("model", open_model, INJECT_LOAD, EIO, 1000, 50 + count_candidates());
}

static void remove_cache(void)
{
    char cache[96];
    snprintf(cache, sizeof cache, "%s/cache", dir);
    OK(lathe_dir_remove(cache));
}

static lathe_status prepare_shards(void)
{
    char cache[96], corpus[96];
    snprintf(cache, sizeof cache, "%s/cache", dir);
    snprintf(corpus, sizeof corpus, "%s/corpus.txt", dir);
    const lathe_dataset dataset = {.path = corpus, .type = LATHE_DATASET_TEXT};
    lathe_shards *shards = NULL;
    const lathe_status status =
        lathe_shards_prepare(&dataset, 1, LATHE_ROWS_PACKED, bytes, cache, NULL, NULL, &shards);
    if (status == LATHE_OK && lathe_shards_tokens(shards) < 3000)
        abort();
    lathe_shards_destroy(shards);
    return status;
}

Test(open_faults, shards)
{
    OK(lathe_tokenizer_bytes(&bytes));
    before_each = remove_cache;
    sweep("shards", prepare_shards, INJECT_MALLOC, ENOMEM, 200, 0);
    sweep("shards", prepare_shards, INJECT_DISK | INJECT_READ | INJECT_MAP, ENOSPC, 200,
          9); /* the lock of the cache among them: it is removed before it is closed */
}
