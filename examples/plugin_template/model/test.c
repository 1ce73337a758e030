/* @NAME@: what it serves and the tensors of a small model. Run with the path of the .so. */
#include <stdlib.h>

#include <lathe/kit/testing.h>
#include <lathe/model.h>

static int n_tensors;
static int64_t n_parameters;

static lathe_status add(void *ctx, const lathe_model_tensor *t)
{
    (void)ctx;
    n_tensors++;
    n_parameters += t->rows * (t->cols > 0 ? t->cols : 1);
    return LATHE_OK;
}

static int64_t size_of(const char *key)
{
    static const struct {
        const char *key;
        int64_t value;
    } sizes[] = {{"vocab_size", 10},         {"hidden_size", 8},
                 {"intermediate_size", 12},  {"num_hidden_layers", 2},
                 {"num_attention_heads", 2}, {"max_position_embeddings", 16}};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
        if (strcmp(sizes[i].key, key) == 0)
            return sizes[i].value;
    return 0;
}

int main(int argc, char **argv)
{
    const lathe_plugin *const plugin = lathe_test_open(argc > 1 ? argv[1] : NULL);
    const lathe_model_v1 *const table = plugin->table;
    lathe_value *values = calloc((size_t)plugin->n_fields, sizeof *values);
    lathe_model_info info = {.size = (uint32_t)sizeof info};
    void *self = NULL;
    for (int32_t i = 0; i < plugin->n_fields; i++) {
        const int64_t size = size_of(plugin->fields[i].key);
        values[i].type = plugin->fields[i].type;
        values[i].is_set = size > 0;
        values[i].i = size;
        values[i].f = (double)size;
    }
    LATHE_CHECK(table->n_types == 1 && strcmp(table->types[0].model_type, "@NAME@") == 0);
    LATHE_CHECK(plugin->create(lathe_test_host(), values, plugin->n_fields, &self) == LATHE_OK);
    LATHE_CHECK(table->describe(self, &info) == LATHE_OK);
    LATHE_CHECK(info.n_layers == 2 && info.layers[1].head_dim == 4);
    LATHE_CHECK(table->tensors(self, add, NULL) == LATHE_OK);
    /* by hand: embedding, head and last norm; in each of 2 layers q, k, v, o, gate, up, down and
     * two norms */
    LATHE_CHECK(n_tensors == 3 + 2 * 9);
    LATHE_CHECK(n_parameters == 2 * 10 * 8 + 8 + 2 * (4 * 8 * 8 + 3 * 12 * 8 + 2 * 8));
    plugin->destroy(self);
    free(values);
    return lathe_test_failures != 0;
}
