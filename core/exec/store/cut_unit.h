/* Smallest pieces in which an optimizer can update a parameter, and the bytes of state of a piece.
 */
#ifndef LATHE_EXEC_CUT_UNIT_H
#define LATHE_EXEC_CUT_UNIT_H

#include "lathe/optimizer.h"
#include "plug/plugin_instance.h"

/** Elements of the smallest piece that can be updated alone: 1 for ELEMENT, a row for ROW, a block
 *  for BLOCK; 0: only the whole parameter.
 *
 *  partition  LATHE_PARTITION_* of the parameter
 *  slots      [n_slots] its state; each slot has an element per element or per unit, or the
 *             parameter cannot be cut */
int64_t lathe_cut_unit(const lathe_instance *optimizer, const lathe_param_info *info,
                       int32_t partition, const lathe_slot *slots, int32_t n_slots);

/** Bytes of a slot for the first n of a parameter's `whole` elements; n is a multiple of the unit,
 *  or `whole`. */
int64_t lathe_slot_bytes(const lathe_slot *slot, int64_t whole, int64_t n, int64_t unit);

/** The greatest common divisor of two numbers that are not negative. */
static inline int64_t lathe__common_divisor(int64_t a, int64_t b)
{
    while (b > 0) {
        const int64_t rest = a % b;
        a = b;
        b = rest;
    }
    return a;
}

#endif
