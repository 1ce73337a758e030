/* Smallest pieces in which an optimizer can update a parameter. */
#include "exec/store/cut_unit.h"

int64_t lathe_cut_unit(const lathe_instance *optimizer, const lathe_param_info *info,
                       int32_t partition, const lathe_slot *slots, int32_t n_slots)
{
    const lathe_optimizer_v1 *table = optimizer->table;
    const int64_t whole = lathe_desc_count(&info->desc);
    const int64_t rows = info->desc.rank ? info->desc.dims[0] : 1;
    int64_t unit = 1;
    if (partition == LATHE_PARTITION_TENSOR || partition == LATHE_PARTITION_MATRIX)
        return 0;
    if (partition == LATHE_PARTITION_ROW)
        unit = rows ? whole / rows : 0;
    if (partition == LATHE_PARTITION_BLOCK && LATHE_HAS(table, block))
        unit = table->block(optimizer->self, info);
    if (unit < 1 || whole < 1)
        return 0;
    const int64_t n_units = (whole + unit - 1) / unit;
    for (int32_t k = 0; k < n_slots; k++) {
        const int64_t n = lathe_desc_count(&slots[k].desc);
        if (n != whole && n != n_units)
            return 0;
    }
    return unit;
}

int64_t lathe_slot_bytes(const lathe_slot *slot, int64_t whole, int64_t n, int64_t unit)
{
    if (n == whole)
        return lathe_desc_bytes(&slot->desc);
    const int64_t count = lathe_desc_count(&slot->desc) == whole ? n
                          : unit > 0                             ? (n + unit - 1) / unit
                                                                 : 0;
    return count * lathe_dtype_bytes(slot->desc.dtype);
}
