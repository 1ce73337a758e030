/* Detects loss spikes: steps whose loss is far above the losses before it.
 *
 * The state is plain data of fixed size. Checkpoints hold it, so a resumed run makes the same
 * decisions.
 */
#ifndef LATHE_OPTIM_LOSS_SPIKE_H
#define LATHE_OPTIM_LOSS_SPIKE_H

#include <stdint.h>

#define LATHE_MAX_SPIKE_WINDOW 1024

/** The losses of the last steps that updated. Begins as zeros. */
typedef struct lathe_loss_spike {
    /* in nats; the k-th accepted loss, from 0, is at k % MAX */
    double losses[LATHE_MAX_SPIKE_WINDOW];
    int64_t n_accepted;
    int64_t n_spikes; /* spikes detected in the whole run, whatever was done about them */
} lathe_loss_spike;

/** A loss compared with the `n` losses before it. mean, std and zscore are NAN while n is too small
 * to judge. */
typedef struct lathe_loss_verdict {
    double mean, std, zscore;
    int32_t n;
    int32_t is_spike;
} lathe_loss_verdict;

/** zscore = (loss - mean) / max(std, 1e-3 |mean|, 1e-6). The loss is a spike if zscore is above the
 * threshold.
 *
 * mean and std (of the population) are computed over the last `window` accepted losses, or over all
 * if there are fewer, in order of time, so the result does not depend on the step at which a run
 * resumed. With fewer losses than half a window, or fewer than 2, nothing is a spike. The lower
 * limit of std keeps small changes of an almost constant loss from being spikes: at the default
 * threshold of 6, a loss up to 0.6 % above the mean is never a spike.
 *
 *  loss       finite
 *  window     2 .. LATHE_MAX_SPIKE_WINDOW steps
 *  threshold  above 0
 *  Source     ours.
 */
lathe_loss_verdict lathe_loss_spike_judge(const lathe_loss_spike *s, double loss, int32_t window,
                                          double threshold);

/** Adds the loss of a step that updated the weights. */
void lathe_loss_spike_accept(lathe_loss_spike *s, double loss);

/** Number of losses stored, at most `window`. */
int32_t lathe_loss_spike_count(const lathe_loss_spike *s, int32_t window);

/** The i-th of the last n losses, oldest first; n is at most the result of
 * lathe_loss_spike_count. */
double lathe_loss_spike_get(const lathe_loss_spike *s, int32_t n, int32_t i);

#endif
