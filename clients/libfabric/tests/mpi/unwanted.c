/* A rank is killed; the other, which has messages waiting for it, gets an error. */
#include "dies.h"

enum { COUNT = 200, LEN = 70000 };

int main(int count, char **words)
{
    static MPI_Request requests[COUNT];
    static char bytes[LEN];

    begin_and_die(&count, &words);
    for (int at = 0; at < COUNT; at++)
        MPI_Isend(bytes, LEN, MPI_BYTE, 1, 2, MPI_COMM_WORLD, &requests[at]);
    MPI_Waitall(COUNT, requests, MPI_STATUSES_IGNORE);
    told();
}
