/* Two ranks of which one is killed after both are connected; the other prints the time
 * until it gets the error. */
#include "check.h"
#include <signal.h>

static double since;

/* MPI ends a rank on an error; this function is called then. */
static void told(void)
{
    fprintf(stderr, "told after %.0f ms\n", (MPI_Wtime() - since) * 1e3);
    fflush(stderr);
    _Exit(0);
}

static void handler(MPI_Comm *comm, int *code, ...)
{
    (void)comm;
    (void)code;
    told();
}

/* Rank 1 does not return from this. */
static void begin_and_die(int *count, char ***words)
{
    MPI_Errhandler errors;
    char byte;

    begin(count, words);
    MPI_Comm_create_errhandler(handler, &errors);
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, errors);
    MPI_Sendrecv(&byte, 1, MPI_CHAR, rank ^ 1, 1, &byte, 1, MPI_CHAR, rank ^ 1, 1, MPI_COMM_WORLD,
                 MPI_STATUS_IGNORE);
    if (rank == 1)
        raise(SIGKILL);
    since = MPI_Wtime();
}
