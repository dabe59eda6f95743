/* Point-to-point messages of all lengths around every limit, in all modes of sending, receiving
 * and probing. */
#include "check.h"

static const int LENGTHS[] = {0,    1,    7,     8,     15,    16,    17,     23,     24,
                              25,   31,   32,    33,    127,   128,   129,    4079,   4080,
                              4081, 4095, 4096,  4097,  8175,  8176,  8177,   8191,   8192,
                              8193, 16383, 32751, 32752, 32753, 32768, 65537, 1 << 20, (4 << 20) + 3};
enum { COUNT = sizeof LENGTHS / sizeof *LENGTHS, LONGEST = (4 << 20) + 64 };

static unsigned char *sent, *came;

/* Every rank to the next, blocking. */
static void round_the_ring(void)
{
    int next = (rank + 1) % ranks, before = (rank + ranks - 1) % ranks;

    for (int at = 0; at < COUNT; at++) {
        int len = LENGTHS[at];
        MPI_Status status;
        fill(sent, len, rank + at);
        memset(came, 0xee, len + 8);
        MPI_Sendrecv(sent, len, MPI_BYTE, next, at, came, len + 8, MPI_BYTE, before, at,
                     MPI_COMM_WORLD, &status);
        int got;
        MPI_Get_count(&status, MPI_BYTE, &got);
        CHECK(got == len && status.MPI_SOURCE == before && status.MPI_TAG == at);
        verify(came, len, before + at);
        for (int beyond = len; beyond < len + 8; beyond++)
            CHECK(came[beyond] == 0xee);
    }
}

/* Many at a time, received in another order, from any source. */
static void many_at_a_time(void)
{
    enum { EACH = 64, LEN = 3000 };
    MPI_Request requests[2 * EACH];
    int peer = rank ^ 1;

    if (peer >= ranks)
        return;
    MPI_Status status;
    int cancelled;
    MPI_Irecv(came, 8, MPI_BYTE, MPI_ANY_SOURCE, 5000, MPI_COMM_WORLD, &requests[0]);
    MPI_Cancel(&requests[0]);
    MPI_Wait(&requests[0], &status);
    MPI_Test_cancelled(&status, &cancelled);
    CHECK(cancelled);
    unsigned char *into = malloc((size_t)EACH * LEN), *out = malloc((size_t)EACH * LEN);
    for (int at = 0; at < EACH; at++) {
        int tag = EACH - 1 - at, from = at % 3 ? peer : MPI_ANY_SOURCE;
        MPI_Irecv(into + tag * LEN, LEN, MPI_BYTE, from, tag, MPI_COMM_WORLD, &requests[at]);
    }
    for (int at = 0; at < EACH; at++) {
        fill(out + at * LEN, at * 40, 1000 * rank + at);
        MPI_Isend(out + at * LEN, at * 40, MPI_BYTE, peer, at, MPI_COMM_WORLD,
                  &requests[EACH + at]);
    }
    MPI_Waitall(2 * EACH, requests, MPI_STATUSES_IGNORE);
    for (int at = 0; at < EACH; at++)
        verify(into + at * LEN, at * 40, 1000 * peer + at);
    free(into);
    free(out);
}

/* Messages that arrive before their receives are probed first. */
static void probed(void)
{
    int peer = rank ^ 1;

    if (peer >= ranks)
        return;
    for (int at = 0; at < COUNT; at++) {
        int len = LENGTHS[at], got;
        MPI_Status status;
        if (rank & 1) {
            fill(sent, len, at);
            MPI_Ssend(sent, len, MPI_BYTE, peer, at, MPI_COMM_WORLD);
            MPI_Send(sent, len, MPI_BYTE, peer, 1000 + at, MPI_COMM_WORLD);
            continue;
        }
        MPI_Probe(MPI_ANY_SOURCE, MPI_ANY_TAG, MPI_COMM_WORLD, &status);
        MPI_Get_count(&status, MPI_BYTE, &got);
        CHECK(got == len && status.MPI_SOURCE == peer && status.MPI_TAG == at);
        MPI_Recv(came, len, MPI_BYTE, peer, at, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        verify(came, len, at);
        MPI_Message message;
        MPI_Mprobe(peer, 1000 + at, MPI_COMM_WORLD, &message, &status);
        MPI_Get_count(&status, MPI_BYTE, &got);
        CHECK(got == len);
        memset(came, 0, len);
        MPI_Mrecv(came, len, MPI_BYTE, &message, &status);
        verify(came, len, at);
    }
    int flag;
    MPI_Iprobe(peer, 31000, MPI_COMM_WORLD, &flag, MPI_STATUS_IGNORE);
    CHECK(!flag);
}

/* To the rank itself. */
static void to_oneself(void)
{
    for (int at = 0; at < COUNT; at++) {
        int len = LENGTHS[at];
        MPI_Request request;
        fill(sent, len, at);
        memset(came, 0, len);
        MPI_Isend(sent, len, MPI_BYTE, rank, at, MPI_COMM_WORLD, &request);
        MPI_Recv(came, len, MPI_BYTE, rank, at, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        MPI_Wait(&request, MPI_STATUS_IGNORE);
        verify(came, len, at);
    }
}

/* A buffer that is too short: an error, and no byte beyond its end. */
static void cut_off(void)
{
    int peer = rank ^ 1;

    if (peer >= ranks)
        return;
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    for (int len = 64; len <= 1 << 20; len *= 8) {
        if (rank & 1) {
            fill(sent, len, len);
            MPI_Send(sent, len, MPI_BYTE, peer, 9, MPI_COMM_WORLD);
        } else {
            memset(came, 0xee, len);
            int code = MPI_Recv(came, 40, MPI_BYTE, peer, 9, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
            int class;
            MPI_Error_class(code, &class);
            CHECK(class == MPI_ERR_TRUNCATE);
            for (int at = 40; at < len; at++)
                CHECK(came[at] == 0xee);
        }
    }
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_ARE_FATAL);
}

/* Messages are received in the order of the sends, short or long. */
static void in_order(void)
{
    int peer = rank ^ 1;

    if (peer >= ranks)
        return;
    for (int at = 0; at < 300; at++) {
        int len = at % 7 == 3 ? 20000 : at % 50 + 4;
        if (rank & 1) {
            memcpy(sent, &at, sizeof at);
            MPI_Send(sent, len, MPI_BYTE, peer, 3, MPI_COMM_WORLD);
        } else {
            int seen, got;
            MPI_Status status;
            MPI_Recv(came, 20000, MPI_BYTE, peer, 3, MPI_COMM_WORLD, &status);
            MPI_Get_count(&status, MPI_BYTE, &got);
            memcpy(&seen, came, sizeof seen);
            CHECK(seen == at && got == len);
        }
    }
}

int main(int count, char **words)
{
    begin(&count, &words);
    sent = malloc(LONGEST);
    came = malloc(LONGEST);
    round_the_ring();
    many_at_a_time();
    MPI_Barrier(MPI_COMM_WORLD);
    probed();
    MPI_Barrier(MPI_COMM_WORLD);
    to_oneself();
    MPI_Barrier(MPI_COMM_WORLD);
    cut_off();
    in_order();
    return end();
}
