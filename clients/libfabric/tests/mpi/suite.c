/* Calls the named programs of this folder in turn, in one job: the start of a job takes more
 * processor time than most of them. Each is compiled with SUITE, and its `main` with the name
 * NAME_program. Prints "ok NAME" after each. */
#define SUITE
#include "check.h"

typedef int program(int, char **);

#define PROGRAM(name) extern program name##_program;
#include "suite.h"
#undef PROGRAM

static const struct {
    const char *name;
    program *run;
} PROGRAMS[] = {
#define PROGRAM(name) {#name, name##_program},
#include "suite.h"
};

int main(int count, char **words)
{
    MPI_Init(&count, &words);
    begin(&count, &words);
    for (int word = 1; word < count; word++)
        for (size_t at = 0; at < sizeof(PROGRAMS) / sizeof(PROGRAMS[0]); at++) {
            if (strcmp(words[word], PROGRAMS[at].name))
                continue;
            if (PROGRAMS[at].run(1, words))
                fail("%s failed", words[word]);
            if (rank == 0) {
                printf("ok %s\n", words[word]);
                fflush(stdout);
            }
        }
    return MPI_Finalize();
}
