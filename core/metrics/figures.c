/* Collects the figures of a training step. */
#include "metrics/figures.h"

#include <assert.h>

void lathe__figures_add(lathe_figures *f, const char *key, double value)
{
    assert(f->n < LATHE_MAX_FIGURES);
    if (f->n == LATHE_MAX_FIGURES)
        return;
    f->keys[f->n] = key;
    f->values[f->n++] = value;
}
