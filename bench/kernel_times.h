/* Times of kernels, copies and fills on a GPU, from CUPTI's activity records. */
#ifndef LATHE_BENCH_KERNEL_TIMES_H
#define LATHE_BENCH_KERNEL_TIMES_H

/** Starts recording; call it before the first use of CUDA in the process. Returns NULL, or the
 * reason why nothing is recorded: CUPTI is not installed, was missing at build time, or returned an
 * error. */
const char *kernel_times_open(void);

/** Drops all records. The device must be idle. */
void kernel_times_reset(void);

/** Seconds since the reset in which at least one kernel, copy or fill ran; the device must be idle.
 *  *out_kernels: number of kernels. Returns 0 if nothing was recorded. */
double kernel_times_busy(int *out_kernels);

/** Prints the `most` names with the longest total time since the reset, one line each, after "# ":
 *  ms, share of `seconds`, number of runs. */
void kernel_times_print(double seconds, int max);

/** Stops recording. */
void kernel_times_close(void);

#endif
