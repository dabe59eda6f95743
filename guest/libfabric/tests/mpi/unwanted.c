/* One rank dies without a word; the other, whose messages wait for it, is told. */
#include "check.h"
#include <signal.h>

static double since;

/* MPI ends who is told; this is what it calls. */
static void told(void)
{
    fprintf(stderr, "told after %.0f ms\n", (MPI_Wtime() - since) * 1e3);
    fflush(stderr);
}

static void handler(MPI_Comm *comm, int *code, ...)
{
    (void)comm;
    (void)code;
    told();
    _Exit(0);
}

enum { COUNT = 200, LEN = 70000 };

int main(int count, char **words)
{
    MPI_Errhandler errors;
    static MPI_Request requests[COUNT];
    static char bytes[LEN];
    char byte;

    begin(&count, &words);
    MPI_Comm_create_errhandler(handler, &errors);
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, errors);
    MPI_Sendrecv(&byte, 1, MPI_CHAR, rank ^ 1, 1, &byte, 1, MPI_CHAR, rank ^ 1, 1, MPI_COMM_WORLD,
                 MPI_STATUS_IGNORE);
    if (rank == 1)
        raise(SIGKILL);
    since = MPI_Wtime();
    for (int at = 0; at < COUNT; at++)
        MPI_Isend(bytes, LEN, MPI_BYTE, 1, 2, MPI_COMM_WORLD, &requests[at]);
    MPI_Waitall(COUNT, requests, MPI_STATUSES_IGNORE);
    told();
    _Exit(0);
}
