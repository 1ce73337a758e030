/* The table of rotary embeddings. */
#include "model/rope_table.h"

#include <math.h>

#include "base/parallel.h"

/* Long wavelengths are divided by factor, short ones kept, those between blended. Every step in f32,
 * in the order of the reference, so that the frequencies agree with it. */
static float llama3_scale(const lathe_rope_config *rope, float f)
{
    const float factor = (float)rope->factor, original = (float)rope->original_max_positions;
    const float low = (float)rope->low_freq_factor, high = (float)rope->high_freq_factor;
    const float low_wavelength =
        (float)((double)rope->original_max_positions / rope->low_freq_factor);
    const float high_wavelength =
        (float)((double)rope->original_max_positions / rope->high_freq_factor);
    const float wavelength = (float)(2.0 * 3.14159265358979323846) / f;
    if (wavelength > low_wavelength)
        return f / factor;
    if (wavelength < high_wavelength)
        return f;
    const float smooth = (original / wavelength - low) / (high - low);
    return (1.0f - smooth) * f / factor + smooth * f;
}

void lathe_rope_inv_freq(const lathe_rope_config *rope, int32_t head_dim, float *inv_freq)
{
    for (int32_t i = 0; i < head_dim / 2; i++) {
        const float exponent = (float)(2 * i) / (float)head_dim;
        const float power = (float)pow(rope->theta, (double)exponent);
        const float f = 1.0f / power;
        if (rope->type == LATHE_ROPE_LINEAR)
            inv_freq[i] = f / (float)rope->factor;
        else
            inv_freq[i] = rope->type == LATHE_ROPE_LLAMA3 ? llama3_scale(rope, f) : f;
    }
}

typedef struct job {
    float *table;
    const float *inv_freq;
    int32_t half;
} job;

static void fill(void *arg, int64_t begin, int64_t end, int32_t worker)
{
    (void)worker;
    const job *j = arg;
    for (int64_t p = begin; p < end; p++)
        for (int32_t i = 0; i < j->half; i++) {
            const double angle = (double)((float)p * j->inv_freq[i]); /* rounded to f32 first */
            j->table[p * 2 * j->half + i] = (float)cos(angle);
            j->table[(p * 2 + 1) * j->half + i] = (float)sin(angle);
        }
}

void lathe_rope_table(const lathe_rope_config *rope, int32_t head_dim, int64_t positions,
                      float *table)
{
    float inv_freq[512];
    const int32_t d = head_dim < 1024 ? head_dim : 1024; /* the config reader allows at most that */
    lathe_rope_inv_freq(rope, d, inv_freq);
    job j = {table, inv_freq, d / 2};
    lathe_parallel_for(positions, 64, fill, &j);
}
