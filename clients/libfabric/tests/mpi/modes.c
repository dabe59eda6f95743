/* Messages in the other modes of sending and of waiting, with layouts of memory in several
 * pieces, and with communicators of other ranks. */
#include "check.h"
#include <stddef.h>

enum { EDGES = 14, LONGEST = 1 << 20 };
static const int LENGTHS[EDGES] = {0,    1,    23,   24,   4080,  4095,  4096,
                                   4097, 8191, 8193, 32767, 32769, 65536, LONGEST};

static unsigned char *sent, *came;

/* Synchronous, buffered and ready sends. */
static void modes(void)
{
    int next = (rank + 1) % ranks, before = (rank + ranks - 1) % ranks, room;
    MPI_Pack_size(LONGEST, MPI_BYTE, MPI_COMM_WORLD, &room);
    void *buffer = malloc((size_t)room + MPI_BSEND_OVERHEAD);

    MPI_Buffer_attach(buffer, room + MPI_BSEND_OVERHEAD);
    for (int at = 0; at < EDGES; at++) {
        int len = LENGTHS[at];
        MPI_Request requests[2];
        fill(sent, len, rank + at);
        memset(came, 0, len);
        MPI_Irecv(came, len, MPI_BYTE, before, 1, MPI_COMM_WORLD, &requests[0]);
        MPI_Issend(sent, len, MPI_BYTE, next, 1, MPI_COMM_WORLD, &requests[1]);
        MPI_Waitall(2, requests, MPI_STATUSES_IGNORE);
        verify(came, len, before + at);

        memset(came, 0, len);
        MPI_Bsend(sent, len, MPI_BYTE, next, 2, MPI_COMM_WORLD);
        /* The buffer belongs to the library now. */
        memset(sent, 0xee, len);
        MPI_Recv(came, len, MPI_BYTE, before, 2, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        verify(came, len, before + at);

        fill(sent, len, rank - at);
        memset(came, 0, len);
        MPI_Irecv(came, len, MPI_BYTE, before, 3, MPI_COMM_WORLD, &requests[0]);
        MPI_Barrier(MPI_COMM_WORLD);
        MPI_Rsend(sent, len, MPI_BYTE, next, 3, MPI_COMM_WORLD);
        MPI_Wait(&requests[0], MPI_STATUS_IGNORE);
        verify(came, len, before - at);
    }
    MPI_Buffer_detach(&buffer, &room);
    free(buffer);
}

/* A synchronous send does not complete before the receive. */
static void no_sooner(void)
{
    int peer = rank ^ 1, done = 0;
    MPI_Request request;

    for (int len = 8; len <= 1 << 16 && peer < ranks; len *= 64) {
        if (rank & 1) {
            char go;
            MPI_Recv(&go, 1, MPI_CHAR, peer, 5, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
            MPI_Recv(came, len, MPI_BYTE, peer, 4, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
            continue;
        }
        MPI_Issend(sent, len, MPI_BYTE, peer, 4, MPI_COMM_WORLD, &request);
        for (int turn = 0; turn < 2000; turn++)
            MPI_Test(&request, &done, MPI_STATUS_IGNORE);
        CHECK(!done);
        MPI_Send("g", 1, MPI_CHAR, peer, 5, MPI_COMM_WORLD);
        MPI_Wait(&request, MPI_STATUS_IGNORE);
    }
}

/* Persistent requests. */
static void persistent(void)
{
    enum { LEN = 10000, TURNS = 40 };
    int next = (rank + 1) % ranks, before = (rank + ranks - 1) % ranks;
    MPI_Request requests[2];

    MPI_Recv_init(came, LEN, MPI_BYTE, before, 6, MPI_COMM_WORLD, &requests[0]);
    MPI_Send_init(sent, LEN, MPI_BYTE, next, 6, MPI_COMM_WORLD, &requests[1]);
    for (int turn = 0; turn < TURNS; turn++) {
        fill(sent, LEN, rank * 50 + turn);
        MPI_Startall(2, requests);
        MPI_Waitall(2, requests, MPI_STATUSES_IGNORE);
        verify(came, LEN, before * 50 + turn);
    }
    MPI_Request_free(&requests[0]);
    MPI_Request_free(&requests[1]);
}

/* All ranks send to the first, which receives from any source in three ways. */
static void from_anybody(void)
{
    enum { EACH = 60 };
    int seen[64] = {0}, left = EACH * (ranks - 1);

    for (int at = 0; rank != 0 && at < EACH; at++) {
        int len = LENGTHS[at % (EDGES - 1)] + 4;
        fill(sent, len, rank * 100 + at);
        memcpy(sent, &at, sizeof at);
        MPI_Send(sent, len, MPI_BYTE, 0, at % 5, MPI_COMM_WORLD);
    }
    while (rank == 0 && left > 0) {
        MPI_Status status;
        MPI_Message message;
        int flag = 0, len, at;
        if (left % 3 == 0) {
            while (!flag)
                MPI_Improbe(MPI_ANY_SOURCE, MPI_ANY_TAG, MPI_COMM_WORLD, &flag, &message, &status);
            MPI_Get_count(&status, MPI_BYTE, &len);
            MPI_Mrecv(came, len, MPI_BYTE, &message, &status);
        } else if (left % 3 == 1) {
            MPI_Recv(came, LONGEST, MPI_BYTE, MPI_ANY_SOURCE, MPI_ANY_TAG, MPI_COMM_WORLD, &status);
        } else {
            while (!flag)
                MPI_Iprobe(MPI_ANY_SOURCE, MPI_ANY_TAG, MPI_COMM_WORLD, &flag, &status);
            MPI_Get_count(&status, MPI_BYTE, &len);
            MPI_Recv(came, len, MPI_BYTE, status.MPI_SOURCE, status.MPI_TAG, MPI_COMM_WORLD, &status);
        }
        int of = status.MPI_SOURCE;
        MPI_Get_count(&status, MPI_BYTE, &len);
        memcpy(&at, came, sizeof at);
        CHECK(at == seen[of] && status.MPI_TAG == at % 5);
        CHECK(len == LENGTHS[at % (EDGES - 1)] + 4);
        for (int byte = 4; byte < len; byte++)
            CHECK(came[byte] == byte_of(of * 100 + at, byte));
        seen[of]++;
        left--;
    }
}

/* Any, some and all of many requests. */
static void as_they_end(void)
{
    enum { COUNT = 40 };
    int peer = rank ^ 1, ended[COUNT] = {0}, left = COUNT;
    MPI_Request in[COUNT], out[COUNT];
    int to[COUNT], from[COUNT];

    if (peer >= ranks)
        return;
    for (int at = 0; at < COUNT; at++)
        MPI_Irecv(&from[at], 1, MPI_INT, peer, 100 + at, MPI_COMM_WORLD, &in[at]);
    for (int at = COUNT - 1; at >= 0; at--) {
        to[at] = rank * 1000 + at;
        MPI_Isend(&to[at], 1, MPI_INT, peer, 100 + at, MPI_COMM_WORLD, &out[at]);
    }
    while (left > 0) {
        int which[COUNT], count = 0;
        if (left % 2)
            MPI_Waitsome(COUNT, in, &count, which, MPI_STATUSES_IGNORE);
        else {
            MPI_Waitany(COUNT, in, &which[0], MPI_STATUS_IGNORE);
            count = 1;
        }
        for (int at = 0; at < count; at++) {
            CHECK(which[at] >= 0 && which[at] < COUNT && !ended[which[at]]++);
            CHECK(from[which[at]] == peer * 1000 + which[at]);
        }
        left -= count;
    }
    MPI_Waitall(COUNT, out, MPI_STATUSES_IGNORE);
}

/* Columns of a matrix, parts of a structure, and a different type at the receiver. */
static void layouts(void)
{
    enum { ROWS = 300, COLUMNS = 40 };
    int next = (rank + 1) % ranks, before = (rank + ranks - 1) % ranks;
    int(*matrix)[COLUMNS] = malloc(sizeof(int[ROWS][COLUMNS])), line[ROWS];
    MPI_Datatype column, record;
    struct one {
        char letter;
        double number;
        int pair[3];
    } records[50], other[50];

    for (int row = 0; row < ROWS; row++)
        for (int at = 0; at < COLUMNS; at++)
            matrix[row][at] = rank * 1000000 + row * 100 + at;
    MPI_Type_vector(ROWS, 1, COLUMNS, MPI_INT, &column);
    MPI_Type_commit(&column);
    for (int at = 0; at < COLUMNS; at++) {
        MPI_Sendrecv(&matrix[0][at], 1, column, next, at, line, ROWS, MPI_INT, before, at,
                     MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        for (int row = 0; row < ROWS; row++)
            CHECK(line[row] == before * 1000000 + row * 100 + at);
    }
    for (int row = 0; row < ROWS; row++)
        line[row] = rank * 7 + row;
    MPI_Sendrecv(line, ROWS, MPI_INT, next, 77, &matrix[0][5], 1, column, before, 77,
                 MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    for (int row = 0; row < ROWS; row++) {
        CHECK(matrix[row][5] == before * 7 + row);
        CHECK(matrix[row][4] == rank * 1000000 + row * 100 + 4);
    }
    MPI_Sendrecv_replace(line, ROWS, MPI_INT, next, 78, before, 78, MPI_COMM_WORLD,
                         MPI_STATUS_IGNORE);
    for (int row = 0; row < ROWS; row++)
        CHECK(line[row] == before * 7 + row);

    MPI_Aint places[3] = {offsetof(struct one, letter), offsetof(struct one, number),
                          offsetof(struct one, pair)};
    MPI_Datatype parts, types[3] = {MPI_CHAR, MPI_DOUBLE, MPI_INT};
    MPI_Type_create_struct(3, (int[]){1, 1, 2}, places, types, &parts);
    MPI_Type_create_resized(parts, 0, sizeof(struct one), &record);
    MPI_Type_commit(&record);
    for (int at = 0; at < 50; at++) {
        records[at] = (struct one){(char)('a' + at % 26), rank + at / 8.0, {at, -at, rank}};
        other[at].pair[2] = -1;
    }
    MPI_Sendrecv(records, 50, record, next, 79, other, 50, record, before, 79, MPI_COMM_WORLD,
                 MPI_STATUS_IGNORE);
    for (int at = 0; at < 50; at++) {
        const struct one *got = &other[at];
        CHECK(got->letter == 'a' + at % 26 && got->number == before + at / 8.0);
        CHECK(got->pair[0] == at && got->pair[1] == -at && got->pair[2] == -1);
    }
    MPI_Type_free(&column);
    MPI_Type_free(&parts);
    MPI_Type_free(&record);
    free(matrix);
}

/* Messages within halves of the world; the same tag matches another message in each
 * communicator. */
static void communicators(void)
{
    MPI_Comm half, between, twins[8];
    int there, value, sum;

    MPI_Comm_split(MPI_COMM_WORLD, rank % 2, rank, &half);
    if (ranks % 2 == 0) {
        MPI_Intercomm_create(half, 0, MPI_COMM_WORLD, rank % 2 ? 0 : 1, 12, &between);
        MPI_Comm_remote_size(between, &there);
        CHECK(there == ranks / 2);
        MPI_Sendrecv(&rank, 1, MPI_INT, rank / 2, 1, &value, 1, MPI_INT, rank / 2, 1, between,
                     MPI_STATUS_IGNORE);
        CHECK(value == (rank ^ 1));
        MPI_Allreduce(&rank, &sum, 1, MPI_INT, MPI_SUM, between);
        int expected = 0;
        for (int of = rank % 2 ? 0 : 1; of < ranks; of += 2)
            expected += of;
        CHECK(sum == expected);
        MPI_Comm_free(&between);
    }
    MPI_Comm_free(&half);
    for (int at = 0; at < 8; at++)
        MPI_Comm_dup(MPI_COMM_WORLD, &twins[at]);
    int next = (rank + 1) % ranks, before = (rank + ranks - 1) % ranks, from[8];
    MPI_Request requests[16];
    for (int at = 0; at < 8; at++)
        MPI_Irecv(&from[at], 1, MPI_INT, before, 3, twins[at], &requests[at]);
    int to[8];
    for (int at = 7; at >= 0; at--) {
        to[at] = rank * 10 + at;
        MPI_Isend(&to[at], 1, MPI_INT, next, 3, twins[at], &requests[8 + at]);
    }
    MPI_Waitall(16, requests, MPI_STATUSES_IGNORE);
    for (int at = 0; at < 8; at++) {
        CHECK(from[at] == before * 10 + at);
        MPI_Comm_free(&twins[at]);
    }
}

int main(int count, char **words)
{
    begin(&count, &words);
    sent = malloc(LONGEST + 64);
    came = malloc(LONGEST + 64);
    modes();
    no_sooner();
    persistent();
    /* A probe of any source must not find messages of the other communicator. */
    MPI_Barrier(MPI_COMM_WORLD);
    from_anybody();
    MPI_Barrier(MPI_COMM_WORLD);
    as_they_end();
    layouts();
    communicators();
    return end();
}
