/* A status line of figures: figures of low rank are left out until the line fits the terminal. */
#ifndef LATHE_METRICS_STATUS_LINE_H
#define LATHE_METRICS_STATUS_LINE_H

#include <stdint.h>
#include <stdio.h>

#define LATHE_STATUS_FIGURES 16

typedef struct lathe_status_line {
    char text[LATHE_STATUS_FIGURES][96];
    int32_t rank[LATHE_STATUS_FIGURES]; /* 0 and up; the lowest are left out first */
    int32_t n;
} lathe_status_line;

/** Adds a figure, in the order in which figures are printed; two spaces come between them. */
__attribute__((format(printf, 3, 4))) void
lathe_status_line_add(lathe_status_line *line, int32_t rank, const char *format, ...);

/** Adds a duration with its name, "elapsed 12:34", in the forms of lathe_status_line_add_eta. */
void lathe_status_line_add_time(lathe_status_line *line, int32_t rank, const char *name,
                                double seconds);

/** Adds "ETA 12:34", "ETA 5:04:03" or, from four days on, "ETA 12d 5h"; more than 999 days are no
 * figure to plan by and read "ETA >999d". */
void lathe_status_line_add_eta(lathe_status_line *line, int32_t rank, double seconds);

/** Prints figures in fewer than `columns` columns, so that the terminal does not wrap the line; 0
 * prints all. A first figure that is too long is cut. */
void lathe_status_line_print(const lathe_status_line *line, int32_t columns, FILE *out);

/** Width of the stream's terminal in columns; otherwise the variable COLUMNS; otherwise 80. Call it
 * for every line, because the user may resize the window. */
int32_t lathe_terminal_columns(FILE *stream);

#endif
