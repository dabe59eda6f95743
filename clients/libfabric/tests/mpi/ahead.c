/* Many more messages than fit elsewhere are sent ahead of a barrier, and received behind it,
 * last to first: local sends must not block the barrier. */
#include "check.h"

enum { COUNT = 12000, LEN = 6000 };

int main(int count, char **words)
{
    static unsigned char bytes[LEN];
    static MPI_Request requests[COUNT];

    begin(&count, &words);
    int to = rank ^ 1;
    if (rank % 2 == 0) {
        unsigned char *all = malloc((size_t)COUNT * LEN);
        for (int at = 0; at < COUNT; at++) {
            fill(all + (size_t)at * LEN, LEN, at);
            MPI_Isend(all + (size_t)at * LEN, LEN, MPI_BYTE, to, at, MPI_COMM_WORLD,
                      &requests[at]);
        }
        MPI_Barrier(MPI_COMM_WORLD);
        MPI_Waitall(COUNT, requests, MPI_STATUSES_IGNORE);
        free(all);
    } else {
        MPI_Barrier(MPI_COMM_WORLD);
        for (int at = COUNT - 1; at >= 0; at--) {
            MPI_Recv(bytes, LEN, MPI_BYTE, to, at, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
            verify(bytes, LEN, at);
        }
    }
    return end();
}
