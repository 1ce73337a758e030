/* Checks the records of a run's data against its rewards. */
#include "run/parts/reward_records.h"

#include "base/error.h"
#include "data/records/row_kind.h"
#include "reward/reward_open.h"

lathe_status lathe__reward_check_record(const lathe_run *run, const lathe_source *source,
                                        int64_t line, const char *record, int64_t bytes)
{
    int32_t index = 0;
    const lathe_status status = lathe_rewards_check_record(run->rewards, record, bytes, &index);
    if (status == LATHE_OK)
        return LATHE_OK;
    if (source != NULL)
        (void)lathe_source_error(status, source, line);
    return status == LATHE_E_CONFIG ? lathe_reward_refuse(run->config, index, run->open.diags)
                                    : status;
}

lathe_status lathe__reward_check_data(const lathe_run *run, const lathe_loader *loader,
                                      const lathe_shards *shards)
{
    lathe_loader_facts facts;
    if (run->rewards == NULL || !lathe_row_kind_get(lathe_shards_rows(shards))->has_records)
        return LATHE_OK;
    lathe_loader_facts_get(loader, &facts);
    for (int64_t i = 0; i < facts.n_rows; i++) {
        const int64_t k = lathe_loader_record(loader, i);
        const lathe_source *source = NULL;
        int64_t bytes, line = 0;
        const char *record = lathe_shards_record(shards, k, &bytes);
        if (!lathe_shards_where(shards, k, &source, &line))
            source = NULL;
        LATHE_TRY(lathe__reward_check_record(run, source, line, record, bytes));
    }
    return LATHE_OK;
}
