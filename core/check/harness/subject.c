/* Functions that all checks use: values and instances of the checked plugin, guarded memory,
 * random numbers, comparisons. */
#include "check/harness/subject.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/buffer.h"
#include "base/error.h"
#include "base/json/json.h"
#include "base/parallel.h"
#include "base/print.h"
#include "check/harness/imports.h"
#include "lathe/rng.h"
#include "plug/schema_check.h"

enum { GUARD = LATHE__GUARD, GUARD_BYTE = 0xA5 };

int64_t (*lathe_conformance_heap)(void) = lathe_heap_allocations;

int64_t lathe__heap(void)
{
    return lathe_conformance_heap() + lathe__imports_heap();
}

static void note(lathe__subject *s, const char *format, va_list args)
{
    (void)vsnprintf(s->note, sizeof s->note, format, args);
}

lathe_status lathe__skip(lathe__subject *s, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    note(s, format, args);
    va_end(args);
    return LATHE__SKIP;
}

void lathe__note(lathe__subject *s, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    note(s, format, args);
    va_end(args);
}

static int has_key(const lathe_plugin *plugin, const char *key)
{
    for (int32_t i = 0; i < plugin->n_fields; i++)
        if (strcmp(plugin->fields[i].key, key) == 0)
            return 1;
    return 0;
}

int64_t lathe__small_size(const lathe_plugin *plugin, const char *key)
{
    static const struct {
        const char *key;
        int64_t value;
    } sizes[] = {{"vocab_size", 40},
                 {"hidden_size", 32},
                 {"intermediate_size", 48},
                 {"num_hidden_layers", 2},
                 {"num_attention_heads", 4},
                 {"num_key_value_heads", 2},
                 {"head_dim", 8},
                 {"q_lora_rank", 12},
                 {"kv_lora_rank", 10},
                 {"qk_nope_head_dim", 6},
                 {"qk_rope_head_dim", 8},
                 {"qk_head_dim", 14},
                 {"v_head_dim", 10},
                 {"n_embd", 32},
                 {"n_layer", 2},
                 {"n_head", 4},
                 {"n_positions", 64},
                 {"max_position_embeddings", 64},
                 {"sliding_window", 4},
                 {"d_model", 32},
                 {"n_layers", 2},
                 {"n_heads", 4},
                 {"max_seq_len", 64},
                 {"seq_length", 64}};
    /* heads that all come from one latent are as many for keys as for queries */
    if (strcmp(key, "num_key_value_heads") == 0 && has_key(plugin, "kv_lora_rank"))
        key = "num_attention_heads";
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++)
        if (strcmp(sizes[i].key, key) == 0)
            return sizes[i].value;
    return 0;
}

static int has_required(const lathe_plugin *plugin)
{
    for (int32_t i = 0; i < plugin->n_fields; i++)
        if (plugin->fields[i].flags & LATHE_FIELD_REQUIRED)
            return 1;
    return 0;
}

/* A size of a model with a default, which belongs to the sizes of the published model and may not
 * fit to the small ones: 16 key and value heads do not divide 4 query heads. */
static int is_other_size(const lathe_plugin *plugin, const lathe_field *f)
{
    return plugin->kind == LATHE_KIND_MODEL && f->type == LATHE_T_INT && f->default_value != NULL &&
           lathe__small_size(plugin, f->key) > 0 && has_required(plugin);
}

/* "key = value" for the fields that have no default, and for sizes that must fit to them. */
static void required_lines(const lathe_plugin *plugin, lathe_buffer *out)
{
    for (int32_t i = 0; i < plugin->n_fields; i++) {
        const lathe_field *f = &plugin->fields[i];
        if (!(f->flags & LATHE_FIELD_REQUIRED) && !is_other_size(plugin, f))
            continue;
        const int ranged = f->min <= f->max;
        lathe_buffer_printf(out, "%s = ", f->key);
        if (f->type == LATHE_T_INT && plugin->kind == LATHE_KIND_MODEL &&
            lathe__small_size(plugin, f->key) > 0)
            lathe_buffer_printf(out, "%lld\n", (long long)lathe__small_size(plugin, f->key));
        else if (f->type == LATHE_T_INT)
            lathe_buffer_printf(out, "%lld\n", ranged ? (long long)f->min + 1 : 1LL);
        else if (f->type == LATHE_T_FLOAT)
            lathe_buffer_printf(out, "%.17g\n", ranged ? f->min * 0.5 + f->max * 0.5 : 1.0);
        else if (f->type == LATHE_T_BOOL)
            lathe_buffer_puts(out, "false\n");
        else if (f->type == LATHE_T_STRING)
            lathe_buffer_printf(out, "\"%.*s\"\n", f->choices ? (int)strcspn(f->choices, "|") : 1,
                                f->choices ? f->choices : "x");
        else
            lathe_buffer_puts(out, f->type == LATHE_T_TABLE ? "{}\n" : "[]\n");
    }
}

/* Sets every key of `over` in `table`. */
static lathe_status lay_over(lathe_toml_node *table, const lathe_toml_node *over,
                             lathe_arena *arena)
{
    for (int64_t i = 0; over != NULL && i < over->n_children; i++)
        LATHE_TRY(lathe_toml_set(table, over->children[i], arena));
    return LATHE_OK;
}

lathe_status lathe__values_of(const lathe_plugin *plugin, const lathe_toml_node *settings,
                              const char *toml, lathe_arena *arena, const lathe_value **out)
{
    lathe_buffer text = LATHE_BUFFER_INIT;
    lathe_diags diags = {0};
    lathe_toml_node *table = NULL, *over = NULL;
    lathe_value *values = NULL;
    const lathe_schema_scope scope = {.section = plugin->name, .place = {"check", 0, 0}};
    required_lines(plugin, &text);
    lathe_status status = text.status;
    if (status != LATHE_OK)
        goto out;
    status = lathe_toml_load("check", text.data ? text.data : "", text.len, arena, &table);
    if (status != LATHE_OK)
        goto out;
    if ((status = lay_over(table, settings, arena)) != LATHE_OK)
        goto out;
    if (toml != NULL)
        status = lathe_toml_load("check", toml, (int64_t)strlen(toml), arena, &over);
    if (status != LATHE_OK)
        goto out;
    if ((status = lay_over(table, over, arena)) != LATHE_OK)
        goto out;
    status =
        lathe_schema_check(&scope, table, plugin->fields, plugin->n_fields, arena, &diags, &values);
    if (status != LATHE_OK)
        goto out;
    status = lathe_diags_status(&diags);
out:
    *out = values;
    lathe_diags_fini(&diags);
    lathe_buffer_fini(&text);
    return status;
}

lathe_status lathe__values(lathe__subject *s, const char *toml, const lathe_value **out)
{
    return lathe__values_of(s->plugin, s->settings, toml, &s->arena, out);
}

lathe_status lathe__instance_with(lathe__subject *s, const char *toml, lathe_instance *out)
{
    const lathe_value *values;
    *out = (lathe_instance){0};
    LATHE_TRY(lathe__values(s, toml, &values));
    return lathe_instance_init(out, s->component, values);
}

lathe_status lathe__instance(lathe__subject *s, lathe_instance *out)
{
    return lathe__instance_with(s, NULL, out);
}

lathe__guarded *lathe__guard(lathe__subject *s, unsigned char *raw, int64_t bytes)
{
    lathe__guarded *block = lathe_arena_alloc(&s->arena, (int64_t)sizeof *block);
    if (block == NULL || raw == NULL) {
        lathe_print_text(stderr, "the conformance suite is out of memory\n");
        abort(); /* this program only runs checks, and without memory it cannot report anything */
    }
    *block = (lathe__guarded){.next = s->guarded,
                              .middle = raw + GUARD + (GUARD - (uintptr_t)raw % GUARD) % GUARD,
                              .bytes = bytes};
    s->guarded = block;
    memset(block->middle - GUARD, GUARD_BYTE, GUARD);
    memset(block->middle + bytes, GUARD_BYTE, GUARD);
    return block;
}

void *lathe__memory(lathe__subject *s, int64_t bytes)
{
    return lathe__guard(s, lathe_arena_alloc(&s->arena, bytes + 3 * GUARD), bytes)->middle;
}

lathe_status lathe__guards(const lathe__subject *s)
{
    for (const lathe__guarded *b = s->guarded; b != NULL; b = b->next)
        for (int i = 0; i < GUARD; i++) {
            if (b->middle[i - GUARD] != GUARD_BYTE)
                return lathe_error(LATHE_E_CORRUPT, "wrote %d bytes before a block of %lld bytes",
                                   GUARD - i, (long long)b->bytes);
            if (b->middle[b->bytes + i] != GUARD_BYTE)
                return lathe_error(LATHE_E_CORRUPT,
                                   "wrote %d bytes after the end of a block of %lld bytes", i,
                                   (long long)b->bytes);
        }
    return LATHE_OK;
}

float *lathe__random(lathe__subject *s, int64_t n, uint64_t seed, double scale)
{
    float *out = lathe__memory(s, n * (int64_t)sizeof *out);
    for (int64_t i = 0; i < n; i++) {
        const lathe_u32x4 words = lathe_rng_block(seed, 0, 1, (uint64_t)i);
        out[i] = (float)(scale * (2.0 * (double)lathe_uniform_f32(words.v[0]) - 1.0));
    }
    return out;
}

int lathe__same(const void *a, const void *b, int64_t bytes)
{
    return bytes == 0 || memcmp(a, b, (size_t)bytes) == 0;
}

lathe_status lathe__with_threads(int32_t n_threads, lathe_status (*body)(void *arg), void *arg)
{
    const int32_t before = lathe_parallel_threads();
    lathe_parallel_init(n_threads);
    const lathe_status status = body(arg);
    lathe_parallel_init(before);
    return status;
}

lathe_status lathe__check_json(lathe__subject *s, const char *what, lathe__writer write, void *arg)
{
    char *text = lathe__memory(s, 16384);
    const int64_t n = write(arg, text, 16384);
    json_t *json = NULL;
    if (n < 0 || n > 16384)
        return lathe_error(LATHE_E_PARSE, "%s returned %lld bytes for a capacity of 16384", what,
                           (long long)n);
    LATHE_TRY(lathe_json_load(what, text, n, &json));
    json_decref(json);
    char *few = lathe__memory(s, 8);
    const int64_t needed = write(arg, few, 1);
    if (needed < n)
        return lathe_error(LATHE_E_PARSE, "%s says %lld bytes for a capacity of 1, needs %lld",
                           what, (long long)needed, (long long)n);
    for (int i = 2; i < 8; i++) /* it may write one byte and a NUL */
        if (few[i] != 0)
            return lathe_error(LATHE_E_CORRUPT, "%s wrote more than its capacity of 1", what);
    return LATHE_OK;
}
