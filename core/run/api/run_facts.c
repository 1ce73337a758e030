/* Takes the facts of an open run. */
#include "run/api/run_facts.h"

#include "chat/template/chat_template.h"
#include "exec/program/exec.h"
#include "parallel/ranks/failure_report.h"
#include "parallel/ranks/ranks.h"
#include "run/decide/dry_run.h"
#include "run/state/run_state.h"

void lathe_run_facts_get(const lathe_run *run, lathe_run_facts *out)
{
    const lathe_settings *set = &run->set;
    const lathe_exec *train = run->programs.train.exec;
    *out = (lathe_run_facts){
        .precision = set->precision,
        .compute_dtype = set->compute_dtype,
        .fp8 = set->fp8,
        .weight_dtype = run->params.compute_dtype,
        .device = run->parts.device.component->plugin->name,
        .machine = run->machine.info.model,
        .n_threads = run->machine.n_threads,
        .threads_are_set = set->threads != 0,
        .attention = train != NULL ? lathe_exec_attention(train) : "",
        .planned = lathe_mem_total(&run->planned),
        .rank = run->programs.rank,
        .n_ranks = run->ranks != NULL ? lathe_ranks_count(run->ranks) : 1,
        .engine = run->ranks != NULL ? run->ranks->data.info.engine : NULL,
        .is_dry = lathe__run_is_dry(run),
        .max_steps = set->max_steps,
        .model_path = set->model_path != NULL ? set->model_path : "",
        .template_hash = run->data.chat != NULL ? lathe_chat_template_hash(run->data.chat) : "",
        .draft_path = set->draft_path,
        .draft_tokens = set->draft_tokens,
        .row_tokens = set->seq_len,
        .max_positions = run->model.max_positions};
    for (int32_t i = 0; i < run->params.n; i++) {
        const lathe_param *row = run->params.rows[i];
        const int64_t n = lathe_desc_count(&row->desc);
        out->n_params += row->reference ? 0 : n;
        out->n_trainable += row->trainable ? n : 0;
    }
}

lathe_status lathe_run_is_first(lathe_run *run, const char *text, int32_t *out)
{
    return lathe_ranks_is_first(run->ranks, text, out);
}

void lathe_run_abandon(lathe_run *run)
{
    if (run->ranks == NULL) {
        lathe_run_close(run);
        return;
    }
    lathe__dry_run_end(run);
    lathe_ranks_abandon(run->ranks);
}
