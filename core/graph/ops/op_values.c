/* Converts elements of any dtype to and from doubles. */
#include "graph/ops/op_values.h"

#include <math.h>

/* Exact for all dtypes except i64, which is exact up to 2^53. */
double lathe__op_load(const void *memory, int32_t dtype, int64_t i)
{
    switch (dtype) {
    case LATHE_F32:
        return (double)((const float *)memory)[i];
    case LATHE_BF16:
        return (double)lathe_bf16_to_f32(((const uint16_t *)memory)[i]);
    case LATHE_F16:
        return (double)lathe_f16_to_f32(((const uint16_t *)memory)[i]);
    case LATHE_F64:
        return ((const double *)memory)[i];
    case LATHE_I32:
        return (double)((const int32_t *)memory)[i];
    case LATHE_I64:
        return (double)((const int64_t *)memory)[i];
    default: /* NaN makes every comparison fail */
        return NAN;
    }
}

void lathe__op_store(void *memory, int32_t dtype, int64_t i, double x)
{
    if (dtype == LATHE_F32)
        ((float *)memory)[i] = (float)x;
    else if (dtype == LATHE_BF16)
        ((uint16_t *)memory)[i] = lathe_f32_to_bf16((float)x);
    else if (dtype == LATHE_F16)
        ((uint16_t *)memory)[i] = lathe_f32_to_f16((float)x);
    else if (dtype == LATHE_F64)
        ((double *)memory)[i] = x;
    else if (dtype == LATHE_I32)
        ((int32_t *)memory)[i] = (int32_t)x;
    else if (dtype == LATHE_I64)
        ((int64_t *)memory)[i] = (int64_t)x;
}

/* x after it was stored as this dtype: rounded to nearest even. */
double lathe__op_round(double x, int32_t dtype)
{
    char cell[8]; /* the widest dtype */
    lathe__op_store(cell, dtype, 0, x);
    return lathe__op_load(cell, dtype, 0);
}
