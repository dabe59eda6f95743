/* Ends of endpoints: a thousand closes, children of fork, and processes that are killed. */
#include <dirent.h>

#include "pair.h"

#define MOST (8 << 20)

static unsigned char memory[MOST];

static size_t descriptors(void) {
    DIR *dir = opendir("/proc/self/fd");
    size_t count = 0;
    CHECK(dir);
    while (readdir(dir))
        count++;
    closedir(dir);
    return count;
}

static size_t resident(void) {
    size_t all, here;
    FILE *file = fopen("/proc/self/statm", "r");
    CHECK(file && fscanf(file, "%zu %zu", &all, &here) == 2);
    fclose(file);
    return here * 4096;
}

/* Two endpoints, a message and a read between them, then close with operations in progress. */
static void once(int i) {
    entry told;
    struct fid_mr *mr;
    open_domain(0, i % 100 ? FI_PROGRESS_MANUAL : FI_PROGRESS_AUTO);
    open_end(&a, FI_WAIT_UNSPEC, 0);
    open_end(&b, i % 2 ? FI_WAIT_FD : FI_WAIT_NONE, 0);
    CHECK(fi_mr_reg(domain, memory, MOST, FI_REMOTE_READ, 0, 1, 0, &mr, NULL) == 0);
    WELL(fi_trecv(b.ep, memory, 100, NULL, a.addr, 1, 0, &words[2]));
    WELL(fi_tsend(a.ep, memory, 100, NULL, b.addr, 1, &words[1]));
    well(&b, &words[2]);
    well(&a, &words[1]);
    switch (i % 6) {
    case 0: WELL(fi_trecv(b.ep, memory, 100, NULL, a.addr, 1, 0, &words[2])); break;
    case 1: WELL(fi_tsend(a.ep, memory, MOST, NULL, b.addr, 1, &words[1])); break;
    case 2: WELL(fi_read(a.ep, memory, MOST, NULL, b.addr, 0, 1, &words[1])); break;
    case 3: WELL(fi_tinject(a.ep, memory, 4096, b.addr, 1)); break;
    case 4: fi_cq_sread(a.cq, &told, 1, NULL, 1); break;
    case 5: WELL(fi_send(b.ep, memory, 10, NULL, a.addr, &words[1])); break;
    }
    if (i % 4 == 0)
        go_on();
    CHECK(fi_close(&mr->fid) == 0);
    close_end(i % 3 ? &a : &b);
    close_end(i % 3 ? &b : &a);
    memset(&a, 0, sizeof a);
    memset(&b, 0, sizeof b);
    close_domain();
}

/* An injected message arrives although there was no time to connect. */
static void at_once(void) {
    struct end c = {0};
    open_domain(0, FI_PROGRESS_MANUAL);
    open_end(&a, FI_WAIT_NONE, 0);
    open_end(&c, FI_WAIT_NONE, 0);
    fill(memory, 4096, 3);
    for (int i = 0; i < 3; i++)
        CHECK(fi_tinject(c.ep, memory, 4096, a.addr, 1) == 0);
    close_end(&c);
    for (int i = 0; i < 3; i++) {
        memset(memory, 0, 4096);
        WELL(fi_trecv(a.ep, memory, 4096, NULL, FI_ADDR_UNSPEC, 1, 0, &words[1]));
        CHECK(well(&a, &words[1]).len == 4096 && is(memory, 4096, 3));
    }
    close_end(&a);
    close_domain();
    memset(&a, 0, sizeof a);
}

static void a_thousand(void) {
    size_t fds = 0, bytes = 0;
    for (int i = 0; i < 1000; i++) {
        if (i == 200) {
            fds = descriptors();
            bytes = resident();
        }
        once(i);
    }
    CHECK(descriptors() == fds);
    CHECK(resident() < bytes + (8 << 20));
}

/* A second process: prints its name, obeys a byte, and waits to be killed. */
static pid_t other(int to_it[2], int from_it[2], char name[NAME_BYTES]) {
    CHECK(pipe(to_it) == 0 && pipe(from_it) == 0);
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        char how, theirs[NAME_BYTES];
        fi_addr_t addr;
        struct fid_mr *mr;
        struct iovec into = {memory, MOST};
        alarm(20);
        open_domain(0, FI_PROGRESS_MANUAL);
        open_end(&a, FI_WAIT_NONE, 0);
        CHECK(fi_mr_reg(domain, memory, MOST, FI_REMOTE_READ | FI_REMOTE_WRITE, 0, 1, 0, &mr,
                        NULL) == 0);
        CHECK(write(from_it[1], a.name, NAME_BYTES) == NAME_BYTES);
        CHECK(read(to_it[0], theirs, NAME_BYTES) == NAME_BYTES && read(to_it[0], &how, 1) == 1);
        CHECK(fi_av_insert(av, theirs, 1, &addr, 0, NULL) == 1);
        WELL(fi_trecv(a.ep, memory, 8, NULL, addr, 1, 0, &words[2]));
        WELL(fi_tsend(a.ep, memory, 8, NULL, addr, 1, &words[1]));
        for (int told = 0; told < 2;) {
            entry some;
            told += fi_cq_read(a.cq, &some, 1) == 1;
        }
        /* Some operations are started and never continued. */
        if (how == 'n')
            WELL(fi_tsend(a.ep, memory, MOST, NULL, addr, 5, &words[1]));
        for (int i = 0; i < 50; i++)
            fi_cq_read(a.cq, NULL, 0);
        (void)into;
        CHECK(write(from_it[1], "", 1) == 1);
        pause();
        _exit(0);
    }
    close(to_it[0]);
    close(from_it[1]);
    CHECK(read(from_it[0], name, NAME_BYTES) == NAME_BYTES);
    return child;
}

/* All operations that depend on a killed process fail within two seconds. */
static void killed(void) {
    const char hows[] = "rRmwtsldn";
    for (const char *how = hows; *how; how++) {
        int to_it[2], from_it[2], status, waiting = 1;
        char name[NAME_BYTES], byte;
        fi_addr_t addr;
        entry told;
        fault failed;
        struct iovec into = {memory, 100000};
        struct fi_msg msg = {&into, NULL, 1, 0, &words[4], 0};
        struct fi_msg_tagged late = {&into, NULL, 1, 0, 9, 0, &words[4], 0};
        pid_t child = other(to_it, from_it, name);
        open_domain(0, FI_PROGRESS_MANUAL);
        open_end(&a, FI_WAIT_UNSPEC, 0);
        CHECK(fi_av_insert(av, name, 1, &addr, 0, NULL) == 1);
        CHECK(write(to_it[1], a.name, NAME_BYTES) == NAME_BYTES && write(to_it[1], how, 1) == 1);
        WELL(fi_tsend(a.ep, memory, 8, NULL, addr, 1, &words[1]));
        WELL(fi_trecv(a.ep, memory, 8, NULL, addr, 1, 0, &words[1]));
        well(&a, &words[1]);
        well(&a, &words[1]);
        struct pollfd polled = {.fd = from_it[0], .events = POLLIN};
        while (poll(&polled, 1, 0) == 0)
            go_on();
        CHECK(read(from_it[0], &byte, 1) == 1);
        msg.addr = late.addr = addr;
        switch (*how) {
        case 'r': WELL(fi_trecv(a.ep, memory, 8, NULL, addr, 9, 0, &words[4])); break;
        case 'R': CHECK(fi_recvmsg(a.ep, &msg, FI_MULTI_RECV) == 0); break;
        case 'm': WELL(fi_tsend(a.ep, memory, MOST, NULL, addr, 9, &words[4])); break;
        case 'w': WELL(fi_write(a.ep, memory, MOST, NULL, addr, 0, 1, &words[4])); break;
        case 't': WELL(fi_write(a.ep, memory, 8, NULL, addr, 0, 1, &words[4])); break;
        case 's': CHECK(fi_tsendmsg(a.ep, &late, FI_DELIVERY_COMPLETE | FI_COMPLETION) == 0); break;
        case 'l': WELL(fi_read(a.ep, memory, MOST, NULL, addr, 0, 1, &words[4])); break;
        case 'd':
            WELL(fi_fetch_atomic(a.ep, memory, 1, NULL, memory, NULL, addr, 0, 1, FI_UINT64, FI_SUM,
                                 &words[4]));
            break;
        case 'n': WELL(fi_trecv(a.ep, memory, MOST, NULL, addr, 5, 0, &words[4])); break;
        }
        for (int i = 0; i < 100; i++)
            go_on();
        double since = now();
        CHECK(kill(child, SIGKILL) == 0 && waitpid(child, &status, 0) == child);
        for (; waiting; waiting--) {
            CHECK(fi_cq_sread(a.cq, &told, 1, NULL, 5000) == -FI_EAVAIL);
            CHECK(fi_cq_readerr(a.cq, &failed, 0) == 1 && failed.op_context == &words[4]);
        }
        CHECK(now() - since < 2);
        /* Operations that are started afterwards fail as well. */
        WELL(fi_tsend(a.ep, memory, 8, NULL, addr, 1, &words[5]));
        CHECK(fi_cq_sread(a.cq, &told, 1, NULL, 5000) == -FI_EAVAIL);
        CHECK(fi_cq_readerr(a.cq, &failed, 0) == 1 && failed.op_context == &words[5]);
        WELL(fi_trecv(a.ep, memory, 8, NULL, addr, 1, 0, &words[6]));
        CHECK(fi_cq_sread(a.cq, &told, 1, NULL, 5000) == -FI_EAVAIL);
        CHECK(fi_cq_readerr(a.cq, &failed, 0) == 1 && failed.op_context == &words[6]);
        CHECK(now() - since < 2);
        silent(&a);
        close(to_it[1]);
        close(from_it[0]);
        close_end(&a);
        close_domain();
    }
}

/* A child has no endpoint of its parent, and the parent is not disturbed by it. */
static void children(enum fi_progress progress) {
    int status;
    open_domain(0, progress);
    open_end(&a, FI_WAIT_UNSPEC, 0);
    open_end(&b, FI_WAIT_UNSPEC, 0);
    WELL(fi_trecv(b.ep, memory, 8, NULL, FI_ADDR_UNSPEC, 1, 0, &words[2]));
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        alarm(10);
        CHECK(fi_tsend(a.ep, memory, 8, NULL, b.addr, 1, &words[1]) == -FI_EINVAL);
        CHECK(fi_close(&a.ep->fid) == 0 && fi_close(&b.ep->fid) == 0);
        CHECK(fi_close(&a.cq->fid) == 0 && fi_close(&b.cq->fid) == 0);
        CHECK(fi_close(&a.sent->fid) == 0 && fi_close(&a.received->fid) == 0);
        CHECK(fi_close(&b.sent->fid) == 0 && fi_close(&b.received->fid) == 0);
        memset(&a, 0, sizeof a);
        memset(&b, 0, sizeof b);
        close_domain();
        open_domain(0, progress);
        open_end(&a, FI_WAIT_UNSPEC, 0);
        WELL(fi_tsend(a.ep, memory, 8, NULL, a.addr, 1, &words[1]));
        WELL(fi_trecv(a.ep, memory + 8, 8, NULL, a.addr, 1, 0, &words[1]));
        well(&a, &words[1]);
        well(&a, &words[1]);
        close_end(&a);
        close_domain();
        exit(0);
    }
    CHECK(waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0);
    WELL(fi_tsend(a.ep, memory, 8, NULL, b.addr, 1, &words[1]));
    well(&b, &words[2]);
    well(&a, &words[1]);
    close_end(&a);
    close_end(&b);
    memset(&a, 0, sizeof a);
    memset(&b, 0, sizeof b);
    close_domain();
}

static volatile bool forking = true;

static void *have_children(void *unused) {
    for (int i = 0; i < 100; i++) {
        int status;
        pid_t child = fork();
        CHECK(child >= 0);
        if (child == 0)
            _exit(0);
        CHECK(waitpid(child, &status, 0) == child && WIFEXITED(status));
    }
    forking = false;
    return unused;
}

/* A thread forks children while another thread makes calls without a pause. */
static void others_fork(void) {
    pthread_t thread;
    threading = FI_THREAD_DOMAIN;
    alarm(30);
    open_domain(0, FI_PROGRESS_MANUAL);
    CHECK(info->domain_attr->threading == FI_THREAD_DOMAIN);
    open_end(&a, FI_WAIT_NONE, 0);
    open_end(&b, FI_WAIT_NONE, 0);
    CHECK(pthread_create(&thread, NULL, have_children, NULL) == 0);
    while (forking) {
        WELL(fi_trecv(b.ep, memory + 8, 8, NULL, FI_ADDR_UNSPEC, 1, 0, &words[2]));
        WELL(fi_tsend(a.ep, memory, 8, NULL, b.addr, 1, &words[1]));
        well(&a, &words[1]);
        well(&b, &words[2]);
    }
    CHECK(pthread_join(thread, NULL) == 0);
    alarm(0);
    close_end(&a);
    close_end(&b);
    memset(&a, 0, sizeof a);
    memset(&b, 0, sizeof b);
    close_domain();
    threading = FI_THREAD_UNSPEC;
}

int main(int count, char **arguments) {
    CHECK(count == 2);
    if (strcmp(arguments[1], "thousand") == 0) {
        at_once();
        a_thousand();
    } else if (strcmp(arguments[1], "killed") == 0) {
        killed();
    } else {
        children(FI_PROGRESS_MANUAL);
        children(FI_PROGRESS_AUTO);
        others_fork();
    }
    puts("ok");
    return 0;
}
