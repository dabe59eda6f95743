/* More long messages than another host has room for are sent in both directions before they are
 * received; messages behind them arrive, and the long ones are received last to first. */
#include "check.h"

enum { COUNT = 700, LEN = 70000 };

int main(int count, char **words)
{
    static unsigned char *out[COUNT], *in[COUNT];
    static MPI_Request requests[2 * COUNT];

    begin(&count, &words);
    int to = rank ^ 1;
    for (int at = 0; at < COUNT; at++) {
        out[at] = malloc(LEN);
        fill(out[at], LEN, rank * COUNT + at);
        MPI_Isend(out[at], LEN, MPI_BYTE, to, at, MPI_COMM_WORLD, &requests[at]);
    }
    MPI_Barrier(MPI_COMM_WORLD);
    /* The last alone, while all others wait. */
    in[COUNT - 1] = malloc(LEN);
    MPI_Recv(in[COUNT - 1], LEN, MPI_BYTE, to, COUNT - 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    requests[2 * COUNT - 1] = MPI_REQUEST_NULL;
    for (int at = COUNT - 2; at >= 0; at--) {
        in[at] = malloc(LEN);
        MPI_Irecv(in[at], LEN, MPI_BYTE, to, at, MPI_COMM_WORLD, &requests[COUNT + at]);
    }
    MPI_Waitall(2 * COUNT, requests, MPI_STATUSES_IGNORE);
    for (int at = 0; at < COUNT; at++)
        verify(in[at], LEN, to * COUNT + at);
    return end();
}
