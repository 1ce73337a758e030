/* Loss spikes: whether a step's loss lies far above those before it.
 *
 * The state is plain data of fixed size and travels in the checkpoint, so a resumed run decides the same.
 */
#ifndef LATHE_UPDATE_LOSS_SPIKE_H
#define LATHE_UPDATE_LOSS_SPIKE_H

#include <stdint.h>

#define LATHE_MAX_SPIKE_WINDOW 1024

/** The losses of the last steps that updated. Begins as zeros. */
typedef struct lathe_loss_spike {
    double losses[LATHE_MAX_SPIKE_WINDOW]; /* nats; the k-th accepted one, from 0, is at k % MAX */
    int64_t n_accepted;
    int64_t n_spikes; /* seen over the run, whatever was done about them */
} lathe_loss_spike;

/** What a loss is beside the `n` before it. mean, std, zscore are NAN while n is too small to judge. */
typedef struct lathe_loss_verdict {
    double mean, std, zscore;
    int32_t n;
    int32_t is_spike;
} lathe_loss_verdict;

/** zscore = (loss - mean) / max(std, 1e-3 |mean|, 1e-6), a spike when it is above the threshold.
 *
 *  mean and std (of the population) are of the last `window` accepted losses, or of as many as there are, in
 *  the order of time, so that the result does not depend on where a run was resumed. Fewer than half a
 *  window, or than 2, judge nothing. The floor under std keeps losses that hardly vary from making a spike
 *  of every ripple: at the default threshold of 6, 0.6 % above the mean is always allowed.
 *
 *  loss       finite
 *  window     2 .. LATHE_MAX_SPIKE_WINDOW steps
 *  threshold  above 0
 *  Source     ours.
 */
lathe_loss_verdict lathe_loss_spike_judge(const lathe_loss_spike *s, double loss, int32_t window,
                                          double threshold);

/** Takes the loss of a step that updated. */
void lathe_loss_spike_accept(lathe_loss_spike *s, double loss);

/** How many of the last `window` losses are held. */
int32_t lathe_loss_spike_count(const lathe_loss_spike *s, int32_t window);

/** The i-th of the last n losses, oldest first; n at most what lathe_loss_spike_count gives. */
double lathe_loss_spike_get(const lathe_loss_spike *s, int32_t n, int32_t i);

#endif
