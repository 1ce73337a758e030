/* A child process that answers each line with a line: its pipes, its start and its end. */
#ifndef LATHE_COMMAND_CHILD_H
#define LATHE_COMMAND_CHILD_H

#include <stdint.h>
#include <sys/types.h>

enum { CHILD_LINE = 256 }; /* bytes that are kept of a line of its output */

typedef struct child {
    pid_t pid;        /* also of its process group; 0: not started, or ended */
    int in, out, err; /* our ends: its standard input, output and error; -1: closed */
    /* A shell that ends the group if this process is killed: it waits until `leash` is closed. */
    pid_t guard;
    int leash;
    /* The part of a line that has been read, of its output and of its errors. */
    char line[CHILD_LINE], error_line[CHILD_LINE];
    int n_line, n_error_line;
    char last_error[CHILD_LINE]; /* the last line of its errors that is not empty */
} child;

/** Starts the command, words[n] with words[n] NULL, in a process group of its own, which ends when
 *  this process is killed. It inherits no file but the three pipes. Returns 0, or the number of an
 *  error of the system. */
int child_start(child *c, char *const *words);

/** Closes the pipes and waits for the child; after a second it is killed. */
void child_stop(child *c);

/** Kills a process group at once, and all that descends from its leader, also in other groups. */
void child_kill(pid_t group);

/** 1 if it has written something that was not read. */
int child_has_output(const child *c);

/** Writes text[0, n), and calls line(arg, text) for each line of output, until it has returned 1 or
 *  all is written and `wait` is 0. Returns 1: line() returned 1; 0: all is written; -1: the child
 * has closed its output or its input. */
int child_exchange(child *c, const char *text, int64_t n, int wait,
                   int (*line)(void *arg, const char *text), void *arg);

/** Describes how the child ended: "exit status 1: its last error". Waits for its end, and kills it
 *  after a second. */
void child_end_text(child *c, char *out, int64_t bytes);

#endif
