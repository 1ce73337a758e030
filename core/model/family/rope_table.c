/* Computes the table of rotary embeddings. */
#include "model/family/rope_table.h"

#include <math.h>

#include "base/parallel.h"

#define PI 3.14159265358979323846

/* Divides the frequencies of long wavelengths by factor, keeps those of short ones, and blends
 * those between. Every step is in f32 and in the order of the reference, so that the results
 * are equal. */
static float llama3_scale(const lathe_rope_config *rope, float f)
{
    const float factor = (float)rope->factor, original = (float)rope->original_max_positions;
    const float low = (float)rope->low_freq_factor, high = (float)rope->high_freq_factor;
    const float low_wavelength =
        (float)((double)rope->original_max_positions / rope->low_freq_factor);
    const float high_wavelength =
        (float)((double)rope->original_max_positions / rope->high_freq_factor);
    const float wavelength = (float)(2.0 * PI) / f;
    if (wavelength > low_wavelength)
        return f / factor;
    if (wavelength < high_wavelength)
        return f;
    const float smooth = (original / wavelength - low) / (high - low);
    return (1.0f - smooth) * f / factor + smooth * f;
}

/* The channel, perhaps a fraction, whose wavelength fits `rotations` times into the original
 * positions. */
static double yarn_channel(const lathe_rope_config *rope, double rotations)
{
    return rope->dims * log((double)rope->original_max_positions / (rotations * 2.0 * PI)) /
           (2.0 * log(rope->theta));
}

/* Channels below `low` keep their frequency, those above `high` are divided by factor, those
 * between are blended. */
static float yarn_scale(const lathe_rope_config *rope, int32_t i, float period)
{
    double low = yarn_channel(rope, rope->beta_fast), high = yarn_channel(rope, rope->beta_slow);
    low = fmax(rope->truncate ? floor(low) : low, 0.0);
    high = fmin(rope->truncate ? ceil(high) : high, (double)rope->dims - 1.0);
    if (low == high)
        high += 0.001;
    float ramp = ((float)i - (float)low) / (float)(high - low);
    ramp = ramp < 0.0f ? 0.0f : ramp > 1.0f ? 1.0f : ramp;
    const float share = 1.0f - ramp;
    return 1.0f / ((float)rope->factor * period) * (1.0f - share) + 1.0f / period * share;
}

void lathe_rope_inv_freq(const lathe_rope_config *rope, int32_t is_long, float *inv_freq)
{
    const float *factors = is_long ? rope->long_factor : rope->short_factor;
    for (int32_t i = 0; i < rope->dims / 2; i++) {
        const float exponent = (float)(2 * i) / (float)rope->dims;
        const float period = (float)pow(rope->theta, (double)exponent);
        const float f = 1.0f / period;
        switch (rope->type) {
        case LATHE_ROPE_LINEAR:
            inv_freq[i] = f / (float)rope->factor;
            break;
        case LATHE_ROPE_LLAMA3:
            inv_freq[i] = llama3_scale(rope, f);
            break;
        case LATHE_ROPE_YARN:
            inv_freq[i] = yarn_scale(rope, i, period);
            break;
        case LATHE_ROPE_LONGROPE:
            inv_freq[i] = 1.0f / (factors[i] * period);
            break;
        default:
            inv_freq[i] = f;
        }
    }
}

typedef struct job {
    float *table;
    const float *inv_freq;
    int32_t half;
    float factor;
} job;

static void fill(void *arg, int64_t begin, int64_t end, int32_t worker)
{
    (void)worker;
    const job *j = arg;
    for (int64_t p = begin; p < end; p++)
        for (int32_t i = 0; i < j->half; i++) {
            const double angle = (double)((float)p * j->inv_freq[i]); /* rounded to f32 first */
            j->table[p * 2 * j->half + i] = (float)cos(angle) * j->factor;
            j->table[(p * 2 + 1) * j->half + i] = (float)sin(angle) * j->factor;
        }
}

void lathe_rope_table(const lathe_rope_config *rope, int64_t positions, int32_t is_long,
                      float *table)
{
    float inv_freq[LATHE_MAX_ROPE_DIMS / 2];
    lathe_rope_inv_freq(rope, is_long, inv_freq);
    job j = {table, inv_freq, rope->dims / 2, (float)rope->attention_factor};
    lathe_parallel_for(positions, 64, fill, &j);
}
