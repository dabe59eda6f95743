/* Ranks on several hosts: messages, collectives, one-sided operations, and two programs of the shape
 * of NAS IS (a bucket sort) and FT (a Fourier transform with a transposition). Each part verifies its
 * result. Rank 0 prints "passed". With the word "two-sided" one-sided operations are omitted; with
 * "one-sided" there are only messages and these. With "remapped" one-sided operations are omitted, and
 * messages leave from memory that changes between them. */
#include <math.h>
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

enum { LONG = 1 << 20, KEYS = 1 << 15, KEY_MAX = 1 << 16, SIDE = 64, ROUNDS = 1 };

static int rank, ranks;

static void check(int holds, const char *part)
{
    if (holds)
        return;
    fprintf(stderr, "rank %d: %s: wrong result\n", rank, part);
    MPI_Abort(MPI_COMM_WORLD, 1);
}

static char pattern(int from, int at)
{
    return (char)(at * 31 + at / 251 + from * 7);
}

/* Exchanges messages with every rank, by eager and rendezvous protocols. */
static void point_to_point(void)
{
    static const int lengths[] = {0, 1, 8, 4096, 65536, LONG};
    char *sent = malloc(LONG), *received = malloc(LONG);

    for (unsigned i = 0; i < sizeof(lengths) / sizeof(lengths[0]); i++) {
        int len = lengths[i];
        for (int distance = 1; distance < ranks; distance++) {
            int to = (rank + distance) % ranks, from = (rank - distance + ranks) % ranks;
            for (int at = 0; at < len; at++)
                sent[at] = pattern(rank, at);
            memset(received, 0, LONG);
            MPI_Sendrecv(sent, len, MPI_CHAR, to, 5, received, len, MPI_CHAR, from, 5,
                         MPI_COMM_WORLD, MPI_STATUS_IGNORE);
            for (int at = 0; at < len; at++) {
                if (received[at] == pattern(from, at))
                    continue;
                fprintf(stderr, "rank %d: byte %d of %d from rank %d is %d\n", rank, at, len, from,
                        received[at]);
                check(0, "message");
            }
        }
    }
    free(sent);
    free(received);
}

static char *map(int len)
{
    char *at = mmap(NULL, len, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

    check(at != MAP_FAILED, "mmap");
    return at;
}

/* Exchanges a message with a rank of the other half, from memory that has a new content. */
static void exchange(char *sent, char *received, int len, int round)
{
    int other = (rank + ranks / 2) % ranks;

    for (int at = 0; at < len; at++)
        sent[at] = pattern(rank + 16 * round, at);
    memset(received, 0, len);
    MPI_Sendrecv(sent, len, MPI_CHAR, other, 6, received, len, MPI_CHAR, other, 6, MPI_COMM_WORLD,
                 MPI_STATUS_IGNORE);
    for (int at = 0; at < len; at++)
        check(received[at] == pattern(other + 16 * round, at), "message of changed memory");
}

/* The pages of buffers change between messages: by an unmapping, after which the address is usually used
 * again, by a drop of the pages, and by a child that writes its copy. A registration that is kept must not
 * outlive its pages. */
static void changed_memory(void)
{
    enum { LEN = LONG / 8 };

    for (int round = 0; round < 3; round++) {
        char *sent = map(LEN), *received = map(LEN);
        exchange(sent, received, LEN, 4 * round);
        exchange(sent, received, LEN, 4 * round + 1);
        check(madvise(sent, LEN, MADV_DONTNEED) == 0 && madvise(received, LEN, MADV_DONTNEED) == 0,
              "madvise");
        exchange(sent, received, LEN, 4 * round + 2);
        if (round == 2) {
            pid_t child = fork();
            if (child == 0) {
                memset(sent, 1, LEN);
                memset(received, 1, LEN);
                _exit(0);
            }
            exchange(sent, received, LEN, 4 * round + 3);
            check(child > 0 && waitpid(child, NULL, 0) == child, "fork");
        }
        munmap(sent, LEN);
        munmap(received, LEN);
    }
}

static void collectives(void)
{
    long sum = 0, one = rank + 1, *all = malloc(ranks * sizeof(long));
    int *values = malloc(LONG / 4 * sizeof(int));

    MPI_Allreduce(&one, &sum, 1, MPI_LONG, MPI_SUM, MPI_COMM_WORLD);
    check(sum == (long)ranks * (ranks + 1) / 2, "allreduce");
    MPI_Allgather(&one, 1, MPI_LONG, all, 1, MPI_LONG, MPI_COMM_WORLD);
    for (int i = 0; i < ranks; i++)
        check(all[i] == i + 1, "allgather");
    for (int i = 0; i < LONG / 4; i++)
        values[i] = rank == 0 ? i * 3 : 0;
    MPI_Bcast(values, LONG / 4, MPI_INT, 0, MPI_COMM_WORLD);
    for (int i = 0; i < LONG / 4; i++)
        check(values[i] == i * 3, "broadcast");
    free(values);
    free(all);
}

/* Each rank writes its part of every window, and counts in the window of rank 0. */
static void one_sided(void)
{
    long *window, number = rank + 1, before, *got = calloc(ranks, sizeof(long));
    MPI_Win win;

    MPI_Win_allocate((ranks + 1) * sizeof(long), sizeof(long), MPI_INFO_NULL, MPI_COMM_WORLD, &window,
                     &win);
    memset(window, 0, (ranks + 1) * sizeof(long));
    MPI_Win_fence(0, win);
    for (int to = 0; to < ranks; to++)
        MPI_Put(&number, 1, MPI_LONG, to, rank, 1, MPI_LONG, win);
    MPI_Win_fence(0, win);
    for (int i = 0; i < ranks; i++)
        check(window[i] == i + 1, "put");
    MPI_Get(got, ranks, MPI_LONG, (rank + 1) % ranks, 0, ranks, MPI_LONG, win);
    MPI_Win_fence(0, win);
    for (int i = 0; i < ranks; i++)
        check(got[i] == i + 1, "get");
    for (int i = 0; i < 10; i++) {
        MPI_Win_lock(MPI_LOCK_SHARED, 0, 0, win);
        MPI_Fetch_and_op(&number, &before, MPI_LONG, 0, ranks, MPI_SUM, win);
        MPI_Win_unlock(0, win);
    }
    MPI_Barrier(MPI_COMM_WORLD);
    if (rank == 0) {
        MPI_Win_lock(MPI_LOCK_SHARED, 0, 0, win);
        MPI_Fetch_and_op(NULL, &before, MPI_LONG, 0, ranks, MPI_NO_OP, win);
        MPI_Win_unlock(0, win);
        check(before == 10L * ranks * (ranks + 1) / 2, "fetch and add");
    }
    MPI_Win_free(&win);
    free(got);
}

static int by_value(const void *a, const void *b)
{
    int x = *(const int *)a, y = *(const int *)b;
    return (x > y) - (x < y);
}

/* Sorts keys: rank r receives the keys of the r-th interval. Number and sum of the keys stay, and the
 * intervals are in order. */
static void sort_keys(void)
{
    int *keys = malloc(KEYS * sizeof(int)), *counts = calloc(4 * ranks, sizeof(int));
    int *to = counts + ranks, *received = to + ranks, *from = received + ranks;
    int width = KEY_MAX / ranks + 1, total = 0;
    long sums[2] = {0, 0}, all[2], mine[2] = {0, 0}, sorted[2];
    unsigned seed = 314159u + rank;

    for (int i = 0; i < KEYS; i++) {
        seed = seed * 1103515245u + 12345u;
        keys[i] = seed >> 16 & (KEY_MAX - 1);
        counts[keys[i] / width]++;
        sums[0]++;
        sums[1] += keys[i];
    }
    qsort(keys, KEYS, sizeof(int), by_value);
    MPI_Alltoall(counts, 1, MPI_INT, received, 1, MPI_INT, MPI_COMM_WORLD);
    for (int i = 0; i < ranks; i++) {
        to[i] = i ? to[i - 1] + counts[i - 1] : 0;
        from[i] = total;
        total += received[i];
    }
    int *interval = malloc((total + 1) * sizeof(int));
    MPI_Alltoallv(keys, counts, to, MPI_INT, interval, received, from, MPI_INT, MPI_COMM_WORLD);
    qsort(interval, total, sizeof(int), by_value);
    for (int i = 0; i < total; i++) {
        check(interval[i] / width == rank, "interval of a key");
        mine[0]++;
        mine[1] += interval[i];
    }
    MPI_Allreduce(sums, all, 2, MPI_LONG, MPI_SUM, MPI_COMM_WORLD);
    MPI_Allreduce(mine, sorted, 2, MPI_LONG, MPI_SUM, MPI_COMM_WORLD);
    check(all[0] == sorted[0] && all[1] == sorted[1], "number and sum of keys");
    free(interval);
    free(counts);
    free(keys);
}

/* Transforms a row of `SIDE` complex numbers in place. */
static void transform(double *row, int sign)
{
    double out[2 * SIDE];

    for (int k = 0; k < SIDE; k++) {
        double re = 0, im = 0;
        for (int i = 0; i < SIDE; i++) {
            double angle = sign * 2 * M_PI * (k * i % SIDE) / SIDE;
            re += row[2 * i] * cos(angle) - row[2 * i + 1] * sin(angle);
            im += row[2 * i] * sin(angle) + row[2 * i + 1] * cos(angle);
        }
        out[2 * k] = re / sqrt(SIDE);
        out[2 * k + 1] = im / sqrt(SIDE);
    }
    memcpy(row, out, sizeof(out));
}

/* Transposes a square that the ranks hold by rows. */
static void transpose(double *square, int rows)
{
    int block = rows * rows * 2;
    double *sent = malloc(ranks * block * sizeof(double)), *received = malloc(ranks * block * sizeof(double));

    for (int to = 0; to < ranks; to++)
        for (int i = 0; i < rows; i++)
            for (int j = 0; j < rows; j++)
                memcpy(sent + to * block + (j * rows + i) * 2,
                       square + (i * SIDE + to * rows + j) * 2, 2 * sizeof(double));
    MPI_Alltoall(sent, block, MPI_DOUBLE, received, block, MPI_DOUBLE, MPI_COMM_WORLD);
    for (int from = 0; from < ranks; from++)
        for (int i = 0; i < rows; i++)
            memcpy(square + (i * SIDE + from * rows) * 2, received + from * block + i * rows * 2,
                   rows * 2 * sizeof(double));
    free(sent);
    free(received);
}

static double energy(const double *square, int rows)
{
    double own = 0, all;

    for (int i = 0; i < rows * SIDE * 2; i++)
        own += square[i] * square[i];
    MPI_Allreduce(&own, &all, 1, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
    return all;
}

static void both_directions(double *square, int rows, int sign)
{
    for (int pass = 0; pass < 2; pass++) {
        for (int i = 0; i < rows; i++)
            transform(square + i * SIDE * 2, sign);
        transpose(square, rows);
    }
}

/* A transform keeps the energy (Parseval), and its inverse returns the square. */
static void fourier(void)
{
    int rows = SIDE / ranks, size = rows * SIDE * 2;
    double *square = malloc(size * sizeof(double)), *copy = malloc(size * sizeof(double));

    check(SIDE % ranks == 0, "number of ranks");
    for (int i = 0; i < size; i++)
        square[i] = copy[i] = sin(i * 0.37 + rank);
    double before = energy(square, rows);
    both_directions(square, rows, -1);
    check(fabs(energy(square, rows) - before) < 1e-6 * before, "energy of the transform");
    both_directions(square, rows, 1);
    for (int i = 0; i < size; i++)
        check(fabs(square[i] - copy[i]) < 1e-9, "inverse transform");
    free(square);
    free(copy);
}

int main(int count, char **words)
{
    const char *word = count < 2 ? "" : words[1];
    int is_remapped = strcmp(word, "remapped") == 0;
    int is_one_sided = !is_remapped && strcmp(word, "two-sided") != 0;
    int is_two_sided = strcmp(word, "one-sided") != 0;

    MPI_Init(&count, &words);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    check(ranks > 1, "number of ranks");
    for (int round = 0; round < ROUNDS; round++) {
        point_to_point();
        if (is_remapped)
            changed_memory();
        if (is_one_sided)
            one_sided();
        if (!is_two_sided)
            continue;
        collectives();
        sort_keys();
        fourier();
    }
    MPI_Barrier(MPI_COMM_WORLD);
    if (rank == 0)
        printf("passed\n");
    MPI_Finalize();
    return 0;
}
