/* Finds out whether a run is alive (declared in run_view.h): from its process if that is visible,
 * else from the age of its last output. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/process.h"
#include "view/run_view.h"

/* If no process is visible: the run has ended or stalled after this many step times without a
 * metrics line. */
enum { QUIET_STEPS = 20 };
static const double QUIET_SECONDS = 60.0;

double lathe_time_now(void)
{
    struct timespec t;
    (void)clock_gettime(CLOCK_REALTIME, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

double lathe_time_of_text(const char *text)
{
    struct tm parts = {0};
    const char *end = text ? strptime(text, "%Y-%m-%dT%H:%M:%SZ", &parts) : NULL;
    return end && *end == '\0' ? (double)timegm(&parts) : (double)NAN;
}

/* 1: the process of this start is alive; 0: it has ended; -1: it is not visible (another
 * machine). */
static int process_lives(const json_t *start)
{
    char host[256] = "", boot[64] = "";
    const char *its_host = json_string_value(json_object_get(start, "host"));
    const char *its_boot = json_string_value(json_object_get(start, "boot"));
    const long long pid = json_integer_value(json_object_get(start, "pid"));
    const long long ticks = json_integer_value(json_object_get(start, "start_ticks"));
    (void)gethostname(host, sizeof host - 1);
    if (its_host == NULL || strcmp(its_host, host) != 0 || pid <= 0)
        return -1;
    FILE *f = fopen("/proc/sys/kernel/random/boot_id", "re");
    if (f && fgets(boot, sizeof boot, f))
        boot[strcspn(boot, "\n")] = '\0';
    if (f)
        (void)fclose(f);
    if (its_boot && its_boot[0] && boot[0] && strcmp(its_boot, boot) != 0)
        return 0;
    const long long born = (long long)lathe_process_born(pid);
    return born != 0 && (ticks == 0 || born == ticks);
}

int32_t lathe_run_pulse(const lathe_run_view *v)
{
    static const struct {
        const char *end;
        int32_t pulse;
    } ends[] = {{"finished", LATHE_PULSE_FINISHED},
                {"stopped early", LATHE_PULSE_FINISHED},
                {"paused", LATHE_PULSE_PAUSED},
                {"interrupted", LATHE_PULSE_INTERRUPTED},
                {"failed", LATHE_PULSE_FAILED}};
    const json_t *start = lathe_run_view_start(v);
    const char *end = json_string_value(json_object_get(start, "end"));
    for (size_t i = 0; end && i < sizeof ends / sizeof ends[0]; i++)
        if (strcmp(end, ends[i].end) == 0)
            return ends[i].pulse;
    if (start == NULL && v->step < 0)
        return LATHE_PULSE_EMPTY;
    if (v->record == NULL &&
        v->record_stamp != 0) /* run.json is damaged, which no process that runs does */
        return LATHE_PULSE_STOPPED;
    const double begun = lathe_time_of_text(json_string_value(json_object_get(start, "time")));
    const double last_sign = isfinite(begun) ? fmax(begun, v->metrics_written) : v->metrics_written;
    const lathe_series *seconds = lathe_run_view_series(v, "step_seconds");
    const double step_time = seconds ? lathe_series_mean(seconds, 50) : 0.0;
    const int quiet = lathe_time_now() - last_sign > fmax(QUIET_SECONDS, QUIET_STEPS * step_time);
    const int lives = process_lives(start);
    if (lives == 1)
        return quiet ? LATHE_PULSE_STALLED : LATHE_PULSE_RUNNING;
    if (lives == -1 && !quiet)
        return LATHE_PULSE_RUNNING;
    const double max_steps = lathe_run_view_number(v, "max_steps");
    return max_steps > 0.0 && (double)v->step >= max_steps ? LATHE_PULSE_FINISHED
                                                           : LATHE_PULSE_STOPPED;
}

const char *lathe_run_pulse_text(int32_t pulse)
{
    static const char *const texts[] = {"waiting", "training",    "no step for long", "finished",
                                        "paused",  "interrupted", "failed",           "stopped"};
    return pulse >= 0 && pulse < (int32_t)(sizeof texts / sizeof texts[0]) ? texts[pulse] : "?";
}

double lathe_run_view_eta(const lathe_run_view *v)
{
    const lathe_series *seconds = lathe_run_view_series(v, "step_seconds");
    const double max_steps = lathe_run_view_number(v, "max_steps");
    if (seconds == NULL || !(max_steps >= (double)v->step))
        return (double)NAN;
    return (max_steps - (double)v->step) * lathe_series_mean(seconds, 50);
}

double lathe_run_view_elapsed(const lathe_run_view *v, int32_t pulse)
{
    const json_t *start = lathe_run_view_start(v);
    const double begun = lathe_time_of_text(json_string_value(json_object_get(start, "time")));
    const double ended = lathe_time_of_text(json_string_value(json_object_get(start, "end_time")));
    if (isfinite(ended))
        return fmax(0.0, ended - begun);
    const int runs = pulse == LATHE_PULSE_RUNNING || pulse == LATHE_PULSE_STALLED;
    return fmax(0.0, (runs ? lathe_time_now() : v->metrics_written) - begun);
}
