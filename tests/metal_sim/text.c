/* Text that grows, and programs whose output is such a text. */
#include "sim.h"

#include <spawn.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

extern char **environ;

void sim_text_add(struct sim_text *text, const char *data, size_t length) {
    if (text->length + length + 1 > text->capacity) {
        text->capacity = 2 * (text->length + length + 1);
        text->data = realloc(text->data, text->capacity);
    }
    memcpy(text->data + text->length, data, length);
    text->length += length;
    text->data[text->length] = 0;
}

void sim_text_format(struct sim_text *text, const char *format, ...) {
    va_list arguments;
    char *line = NULL;
    va_start(arguments, format);
    int length = vasprintf(&line, format, arguments);
    va_end(arguments);
    if (length >= 0)
        sim_text_add(text, line, (size_t)length);
    free(line);
}

int sim_run_program(char *const *arguments, struct sim_text *output) {
    int ends[2], status = -1;
    pid_t child;
    posix_spawn_file_actions_t actions;
    if (pipe(ends))
        return -1;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, ends[1], 1);
    posix_spawn_file_actions_adddup2(&actions, ends[1], 2);
    posix_spawn_file_actions_addclose(&actions, ends[0]);
    posix_spawn_file_actions_addclose(&actions, ends[1]);
    bool started = !posix_spawnp(&child, arguments[0], &actions, NULL, arguments, environ);
    posix_spawn_file_actions_destroy(&actions);
    close(ends[1]);
    char piece[4096];
    for (ssize_t n; started && (n = read(ends[0], piece, sizeof piece)) > 0;)
        if (output)
            sim_text_add(output, piece, (size_t)n);
    close(ends[0]);
    if (!started || waitpid(child, &status, 0) < 0)
        return -1;
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}
