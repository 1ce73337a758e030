/* Computes sums of squares of a change and of its result.
 *
 * The function is compiled for each vector width that the processor may have, because code for two
 * doubles at a time would be slower than the memory. Each width uses the same lanes and no fused
 * multiply-add, so the sums have the same bits. Clang 14 leaves the name of a clone undefined in
 * other objects, so with it only one width is compiled.
 */
#include "optim/change_norms.h"

#include "base/target_clones.h"

#define LANES 16

LATHE_TARGET_CLONES void lathe__squares_of_change(const float *x, const float *was, int64_t n,
                                                  double out[2])
{
    double change[LANES] = {0.0}, size[LANES] = {0.0};
    int64_t i = 0;
    for (; i + LANES <= n; i += LANES)
        for (int k = 0; k < LANES; k++) {
            const double w = (double)x[i + k], d = w - (double)was[i + k];
            change[k] += d * d;
            size[k] += w * w;
        }
    for (; i < n; i++) {
        const double w = (double)x[i], d = w - (double)was[i];
        change[0] += d * d;
        size[0] += w * w;
    }
    out[0] = out[1] = 0.0;
    for (int k = 0; k < LANES; k++) {
        out[0] += change[k];
        out[1] += size[k];
    }
}
