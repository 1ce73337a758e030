/* Reads and writes the keys of config.json that make a model a sequence classifier. */
#include "model/family/classifier.h"

#include <stdio.h>
#include <string.h>

#include "base/error.h"

static const char classifier[] = "ForSequenceClassification";

/* Returns where `end` begins in a text that ends with it; NULL: the text ends otherwise. */
static const char *suffix_of(const char *text, const char *end)
{
    const size_t n = strlen(text), m = strlen(end);
    return n >= m && strcmp(text + n - m, end) == 0 ? text + n - m : NULL;
}

int32_t lathe__classifier_labels(const json_t *object)
{
    const json_t *names = json_object_get(object, "architectures");
    const char *name = json_string_value(json_array_get(names, 0));
    const json_t *labels = json_object_get(object, "id2label");
    const json_t *n = json_object_get(object, "num_labels");
    /* transformers builds the class that "architectures" names: id2label alone makes no classifier
     */
    if (name == NULL || suffix_of(name, classifier) == NULL)
        return 0;
    if (json_object_size(labels) > 0)
        return (int32_t)json_object_size(labels);
    const json_int_t given = json_integer_value(n);
    return given > 0 && given < INT32_MAX ? (int32_t)given : 2; /* PreTrainedConfig has two */
}

/* "LlamaForSequenceClassification" of "LlamaForCausalLM", "GPT2For.." of "GPT2LMHeadModel". */
static void classifier_of(const char *name, char *out, size_t bytes)
{
    static const char *const ends[] = {"ForCausalLM", "LMHeadModel"};
    const char *end = NULL;
    for (size_t i = 0; i < sizeof ends / sizeof ends[0] && end == NULL; i++)
        end = suffix_of(name, ends[i]);
    const int n = end ? (int)(end - name) : (int)strlen(name); /* of the family's name */
    (void)snprintf(out, bytes, "%.*s%s", n, name, classifier);
}

lathe_status lathe__classifier_write(const char *architecture, int32_t n_labels, int32_t pad,
                                     json_t *object)
{
    char name[256], id[16], label[32];
    classifier_of(architecture, name, sizeof name);
    json_t *labels = json_object(), *ids = json_object();
    int failed = json_object_set_new(object, "architectures", json_pack("[s]", name));
    for (int32_t i = 0; i < n_labels; i++) {
        (void)snprintf(id, sizeof id, "%d", i);
        (void)snprintf(label, sizeof label, "LABEL_%d", i);
        failed |= json_object_set_new(labels, id, json_string(label));
        failed |= json_object_set_new(ids, label, json_integer(i));
    }
    (void)json_object_del(object, "num_labels"); /* id2label says it */
    failed |= json_object_set_new(object, "id2label", labels);
    failed |= json_object_set_new(object, "label2id", ids);
    /* a classifier finds the last token of a row, whose score counts, by the padding after it */
    if (pad >= 0)
        failed |= json_object_set_new(object, "pad_token_id", json_integer(pad));
    return failed ? lathe_error(LATHE_E_NOMEM, "no memory for the text of config.json") : LATHE_OK;
}
