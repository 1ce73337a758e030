/* @NAME@: codes by hand, and the error of a round trip. Run with the path of the .so. */
#include <lathe/quant.h>
#include <lathe/kit/testing.h>
#include <math.h>

int main(int argc, char **argv)
{
    const lathe_plugin *const plugin = lathe_test_open(argc > 1 ? argv[1] : NULL);
    const lathe_quant_v1 *const table = plugin->table;
    void *self;
    LATHE_CHECK(lathe_test_create(plugin, "", &self) == LATHE_OK);

    const float w[6] = {0.0f, 12.7f, -12.7f, 0.12f, -0.04f, 6.0f};
    lathe_plane layout[LATHE_MAX_PLANES];
    LATHE_CHECK(table->planes(self, 2, 3, layout) == 2);
    LATHE_CHECK(lathe_desc_bytes(&layout[0].desc) == 6);
    int8_t codes[6];
    float scale, back[6];
    uint16_t half[6];
    void *const planes[2] = {codes, &scale};
    const void *const packed[2] = {codes, &scale};
    LATHE_CHECK(table->encode(self, 2, 3, w, planes) == LATHE_OK);
    const int8_t want[6] = {0, 127, -127, 1, 0, 60};
    LATHE_CHECK(memcmp(codes, want, 6) == 0);
    LATHE_CHECK(table->decode(self, 2, 3, packed, back, LATHE_F32, NULL, NULL) == LATHE_OK);
    LATHE_CHECK(table->decode(self, 2, 3, packed, half, LATHE_BF16, NULL, NULL) == LATHE_OK);
    for (int i = 0; i < 6; i++) {
        LATHE_CHECK(fabsf(back[i] - w[i]) <= 0.5001f * scale);
        LATHE_CHECK(half[i] == lathe_f32_to_bf16(back[i]));
    }
    LATHE_CHECK(table->decode(self, 2, 3, packed, half, LATHE_F16, NULL, NULL) == LATHE_OK);
    for (int i = 0; i < 6; i++)
        LATHE_CHECK(half[i] == lathe_f32_to_f16(back[i]));
    const lathe_weight_part part = {1, 1, 1, 0, 0, 3, 3};
    table->decode_part(self, 2, 3, packed, &part, half, LATHE_F16);
    for (int i = 0; i < 3; i++)
        LATHE_CHECK(half[i] == lathe_f32_to_f16(back[3 + i]));
    const float zeros[2] = {0}, bad[2] = {1.0f, NAN};
    LATHE_CHECK(table->encode(self, 1, 2, zeros, planes) == LATHE_OK && codes[1] == 0);
    LATHE_CHECK(table->encode(self, 1, 2, bad, planes) == LATHE_E_NUMERIC);
    LATHE_CHECK(table->decode(self, 2, 3, packed, back, LATHE_I64, NULL, NULL) == LATHE_E_DTYPE);
    LATHE_CHECK(table->accepts(self, 0, 3) == LATHE_E_SHAPE);
    plugin->destroy(self);
    return lathe_test_failures != 0;
}
