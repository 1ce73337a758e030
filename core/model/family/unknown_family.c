/* Refuses a model that no plugin serves: names its unusual layers and the nearest family. */
#include "model/family/unknown_family.h"

#include <ctype.h>
#include <string.h>

#include "base/buffer.h"
#include "base/error.h"
#include "plug/suggest.h"

/* Layers that a configuration asks for by its keys, whatever the family is called. A value that is
 * null, false, 0 or empty asks for nothing. */
static const struct {
    const char *key, *part;
} parts[] = {
    {"num_local_experts", "a mixture of experts"},
    {"num_experts", "a mixture of experts"},
    {"n_routed_experts", "a mixture of experts"},
    {"moe_num_experts", "a mixture of experts"},
    {"moe_intermediate_size", "a mixture of experts"},
    {"num_experts_per_tok", "a mixture of experts"},
    {"kv_lora_rank", "latent attention"},
    {"linear_num_key_heads", "linear attention"},
    {"linear_key_head_dim", "linear attention"},
    {"full_attention_interval", "linear attention"},
    {"mamba_d_state", "state space layers"},
    {"mamba_num_heads", "state space layers"},
    {"ssm_cfg", "state space layers"},
    {"ssm_state_size", "state space layers"},
    {"state_size", "state space layers"},
    {"hybrid_override_pattern", "state space layers"},
    {"conv_L_cache", "short convolutions"},
    {"rwkv_version", "recurrent layers"},
    {"attention_hidden_size", "recurrent layers"},
    {"lru_width", "recurrent layers"},
    {"attention_chunk_size", "attention in chunks"},
    {"no_rope_layers", "layers without positions"},
    {"hidden_size_per_layer_input", "embeddings of its own for each layer"},
    {"num_kv_shared_layers", "layers that share keys and values"},
    {"global_head_dim", "heads of another size in some layers"},
    {"altup_num_inputs", "alternating updates"},
    {"cross_attention_layers", "cross-attention to images"},
    {"is_encoder_decoder", "an encoder and a decoder"},
    {"num_decoder_layers", "an encoder and a decoder"},
    {"decoder_layers", "an encoder and a decoder"},
    {"type_vocab_size", "an encoder, which reads in both directions"},
};
enum { N_PARTS = sizeof parts / sizeof parts[0], MAX_WORD = 64 };

static int asks(const json_t *value)
{
    return json_is_true(value) || json_number_value(value) != 0.0 ||
           (json_is_string(value) && json_string_length(value) > 0) ||
           (json_is_array(value) && json_array_size(value) > 0) ||
           (json_is_object(value) && json_object_size(value) > 0);
}

/* Lists each part once, with the key that asks for it. */
static void put_parts(const json_t *object, const char *parent, lathe_buffer *out)
{
    const char *said[N_PARTS];
    int n = 0;
    for (int i = 0; i < N_PARTS; i++) {
        int is_said = 0;
        for (int k = 0; k < n; k++)
            is_said |= strcmp(said[k], parts[i].part) == 0;
        if (is_said || !asks(json_object_get(object, parts[i].key)))
            continue;
        lathe_buffer_printf(out, "%s%s (%s%s%s)", n > 0 ? ", " : "", parts[i].part,
                            parent != NULL ? parent : "", parent != NULL ? "." : "", parts[i].key);
        said[n++] = parts[i].part;
    }
}

/* ---- the nearest family ---- */

/* The first word of a name, in small letters: "qwen" of "qwen2_moe" and of "Qwen2MoeForCausalLM".
 * Names of classes begin a word with each capital after a small letter. */
static void stem(const char *name, char *out)
{
    int n = 0;
    for (; name[n] != '\0' && n < MAX_WORD - 1 && isalpha((unsigned char)name[n]); n++) {
        if (n > 0 && isupper((unsigned char)name[n]) && islower((unsigned char)name[n - 1]))
            break;
        out[n] = (char)tolower((unsigned char)name[n]);
    }
    out[n] = '\0';
}

/* Whether a word begins with the other: "phimoe" and "phi". Of less than three letters it says
 * nothing. */
static int shares_stem(const char *a, const char *b)
{
    const size_t n = strlen(a), m = strlen(b), least = n < m ? n : m;
    return least >= 3 && strncmp(a, b, least) == 0;
}

static int32_t common_start(const char *a, const char *b)
{
    int32_t n = 0;
    while (a[n] != '\0' && a[n] == b[n])
        n++;
    return n;
}

/* Among the families whose first word is that of the model_type or of the architecture, the one
 * that shares most letters from the first on, and of several the one with the nearest spelling;
 * else one that could be meant by a misspelt name. */
static const char *nearest(const char *type, const char *architecture, const char *const *names,
                           int64_t n)
{
    char of_type[MAX_WORD], of_class[MAX_WORD], of_name[MAX_WORD];
    const char *best = NULL;
    int32_t least = INT32_MAX, max = -1;
    stem(type, of_type);
    stem(architecture, of_class);
    for (int64_t i = 0; i < n; i++) {
        stem(names[i], of_name);
        const int32_t edits = lathe_edit_distance(type, names[i]);
        const int32_t shared = common_start(type, names[i]);
        const int is_near = shares_stem(of_type, of_name) || shares_stem(of_class, of_name);
        if (!is_near || shared < max || (shared == max && edits >= least))
            continue;
        best = names[i];
        least = edits;
        max = shared;
    }
    return best != NULL ? best : lathe_suggest(type, names, n);
}

/* ---- the message ---- */

static const char *text_of(const json_t *object, const char *key)
{
    const char *text = json_string_value(json_object_get(object, key));
    return text != NULL ? text : "";
}

/* The configuration of the language model in one of several towers; NULL: the object is its own. */
static json_t *inner_of(json_t *object, const lathe_wrapper_match *match, const char **out_key)
{
    static const char *const keys[] = {"text_config", "llm_config", "language_config",
                                       "thinker_config"};
    *out_key = match != NULL ? match->wrapper->text_key : NULL;
    for (size_t i = 0; *out_key == NULL && i < sizeof keys / sizeof keys[0]; i++)
        if (json_is_object(json_object_get(object, keys[i])))
            *out_key = keys[i];
    return *out_key != NULL ? json_object_get(object, *out_key) : NULL;
}

static int is_in(const char *const *names, int64_t n, const char *name)
{
    int found = 0;
    for (int64_t i = 0; i < n; i++)
        found |= strcmp(names[i], name) == 0;
    return found;
}

/* names[0, n): all families and wrappers; plain[0, n_plain): families alone, for a text model. */
static void put_message(const lathe_config_reader *r, const lathe_wrapper_match *match,
                        const char *const *names, int64_t n, const char *const *plain,
                        int64_t n_plain, lathe_buffer *out)
{
    const char *key = NULL, *type = text_of(r->object, "model_type");
    json_t *inner = inner_of(r->object, match, &key);
    const json_t *object = inner != NULL ? inner : r->object;
    const json_t *classes = json_object_get(r->object, "architectures");
    const char *class_name = json_string_value(json_array_get(classes, 0));
    const char *text = text_of(object, "model_type");
    lathe_buffer missing = LATHE_BUFFER_INIT;
    if (type[0] == '\0')
        lathe_buffer_puts(out, "the key model_type is missing");
    else
        lathe_buffer_printf(out, "model_type is \"%s\"", type);
    if (inner != NULL && text[0] != '\0')
        lathe_buffer_printf(out, ", which wraps a text model of type \"%s\" (%s.model_type)", text,
                            key);
    else if (inner != NULL)
        lathe_buffer_printf(out, ", which wraps a text model (%s)", key);
    put_parts(object, key, &missing);
    if (type[0] != '\0')
        lathe_buffer_puts(out, "; ");
    if (is_in(names, n, text) && inner != NULL)
        lathe_buffer_printf(out, "no plugin that serves %s lists it as a wrapper", text);
    else if (type[0] != '\0')
        lathe_buffer_puts(out, "no plugin serves it");
    if (missing.len > 0 && missing.data != NULL)
        lathe_buffer_printf(out, ", and it has %s", missing.data);
    /* the text model says more than the name of what wraps it */
    const char *near = text[0] != '\0'
                           ? nearest(text, class_name != NULL ? class_name : "", plain, n_plain)
                           : NULL;
    if (near == NULL && type[0] != '\0')
        near = nearest(type, class_name != NULL ? class_name : "", names, n);
    if (near != NULL)
        lathe_buffer_printf(out, "; the nearest family is %s", near);
    lathe_buffer_puts(out, "; supported: ");
    for (int64_t i = 0; i < n; i++)
        lathe_buffer_printf(out, "%s%s", i > 0 ? ", " : "", names[i]);
    lathe_buffer_puts(out, n == 0 ? "none" : "");
    lathe_buffer_fini(&missing);
}

lathe_status lathe_unknown_family_refuse(lathe_registry *registry, const lathe_config_reader *r,
                                         const lathe_wrapper_match *match)
{
    lathe_arena arena = LATHE_ARENA_INIT;
    lathe_buffer text = LATHE_BUFFER_INIT;
    const char **names = NULL, **plain = NULL;
    int64_t n = 0, n_plain = 0;
    lathe_status status =
        registry != NULL ? lathe_model_type_names(registry, 1, &arena, &names, &n) : LATHE_OK;
    if (status != LATHE_OK)
        goto out;
    if (registry != NULL)
        status = lathe_model_type_names(registry, 0, &arena, &plain, &n_plain);
    if (status != LATHE_OK)
        goto out;
    put_message(r, match, (const char *const *)names, n, (const char *const *)plain, n_plain,
                &text);
    if ((status = text.status) != LATHE_OK)
        goto out;
    status = lathe_error_at(LATHE_E_CONFIG, "model", "model_type", "%s%s%s", LATHE_CONFIG_AT(r),
                            text.data);
out:
    lathe_buffer_fini(&text);
    lathe_arena_fini(&arena);
    return status;
}
