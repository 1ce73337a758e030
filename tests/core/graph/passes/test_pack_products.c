/* Products that read a weight from its planes, and the check that none multiplies a decoded weight
 * whose format quantizes activations. */
#include <criterion/criterion.h>
#include <string.h>

#include "base/error.h"
#include "graph/ir/ir_graph.h"
#include "graph/passes/passes.h"

#define OK(call) cr_assert_eq((call), LATHE_OK, "%s: %s", #call, lathe_error_message())

enum { ROWS = 4, INPUTS = 8, OUTPUTS = 6 };

typedef struct sketch {
    lathe_params params;
    lathe_graph *g;
    lathe_val x, a, w; /* of the batch; a parameter [2, INPUTS]; the quantized weight */
} sketch;

static lathe_status offers_all(void *arg, const lathe_graph *g, const lathe_ir_node *n,
                               int32_t *out)
{
    (void)arg, (void)g, (void)n;
    *out = 1;
    return LATHE_OK;
}

static lathe_status offers_none(void *arg, const lathe_graph *g, const lathe_ir_node *n,
                                int32_t *out)
{
    (void)arg, (void)g, (void)n;
    *out = 0;
    return LATHE_OK;
}

static void open_sketch(sketch *s, int32_t activations)
{
    static const struct lathe_instance *const some = (const void *)"a format";
    int32_t index;
    lathe_params_init(&s->params, LATHE_F32);
    const lathe_param w = {.name = "w",
                           .desc = lathe_desc_2d(LATHE_F32, OUTPUTS, INPUTS),
                           .role = LATHE_ROLE_MATRIX,
                           .init_from = -1,
                           .format = some,
                           .n_planes = 1,
                           .activations = activations,
                           .planes = {{"codes", "", lathe_desc_2d(LATHE_I8, OUTPUTS, INPUTS)}}};
    const lathe_param a = {.name = "a",
                           .desc = lathe_desc_2d(LATHE_F32, 2, INPUTS),
                           .role = LATHE_ROLE_MATRIX,
                           .init_from = -1};
    OK(lathe_params_add(&s->params, &w, &index));
    OK(lathe_params_add(&s->params, &a, &index));
    OK(lathe_graph_create(&s->params, &s->g));
    OK(lathe_graph_input(s->g, "x", lathe_desc_2d(LATHE_F32, ROWS, INPUTS), &s->x));
    OK(lathe_graph_param(s->g, 0, &s->w));
    OK(lathe_graph_param(s->g, 1, &s->a));
}

static void close_sketch(sketch *s)
{
    lathe_graph_destroy(s->g);
    lathe_params_fini(&s->params);
}

/* Adds x W^T as an output. */
static void multiply(sketch *s, lathe_val x)
{
    lathe_val y;
    OK(lathe_graph_api_get()->linear(s->g, x, s->w, LATHE_NONE, "product", &y));
    lathe_graph_output(s->g, y);
}

/* Packs, and checks; *out_packed: products that read planes. */
static lathe_status pack(sketch *s, lathe_offers_fn offers, int32_t *out_packed)
{
    OK(lathe_pass_packed(s->g, offers, NULL, out_packed));
    return lathe_pass_check_activations(s->g);
}

static int32_t n_decoded(const sketch *s)
{
    int32_t n = 0;
    for (int32_t i = 0; i < s->g->n_nodes; i++)
        n += s->g->nodes[i].op == LATHE_OP_DEQUANT;
    return n;
}

Test(pack_products, a_weight_is_read_from_its_planes_where_the_device_offers_it)
{
    for (int offered = 0; offered < 2; offered++) {
        int32_t packed;
        sketch s;
        open_sketch(&s, 0);
        multiply(&s, s.x);
        multiply(&s, s.a);
        OK(pack(&s, offered ? offers_all : offers_none, &packed));
        cr_expect_eq(packed, 2 * offered);
        cr_expect_eq(n_decoded(&s), 2 - 2 * offered);
        close_sketch(&s);
    }
}

/* A product of parameters multiplies no activations, so its weight is decoded. */
Test(pack_products, only_products_of_the_batch_quantize)
{
    int32_t packed;
    sketch s;
    open_sketch(&s, LATHE_I8);
    multiply(&s, s.x);
    multiply(&s, s.a);
    OK(pack(&s, offers_all, &packed));
    cr_expect_eq(packed, 1);
    cr_expect_eq(n_decoded(&s), 1);
    close_sketch(&s);
}

static void expect_refusal(lathe_status status)
{
    cr_expect_eq(status, LATHE_E_CONFIG);
    cr_expect(strstr(lathe_error_message(), "quant.activations would not hold for w, which linear "
                                            "'product' reads as a decoded weight"),
              "%s", lathe_error_message());
}

Test(pack_products, a_product_that_would_not_quantize_is_refused)
{
    int32_t packed;
    sketch s;
    open_sketch(&s, LATHE_I8);
    multiply(&s, s.x);
    expect_refusal(pack(&s, offers_none, &packed));
    close_sketch(&s);
}

/* An adapter that multiplies what it made of the weight. */
Test(pack_products, a_weight_that_only_parameters_multiply_is_refused)
{
    int32_t packed;
    sketch s;
    open_sketch(&s, LATHE_I8);
    multiply(&s, s.a);
    expect_refusal(pack(&s, offers_all, &packed));
    close_sketch(&s);
}
