/* Sleeping on queues, counters and descriptors, and wake-ups by other threads and processes. */
#include "pair.h"

#include <dirent.h>
#include <fcntl.h>

static unsigned char out[100000], in[100000];

/* The time that ended threads waited for a processor, in seconds. */
static pthread_mutex_t ended = PTHREAD_MUTEX_INITIALIZER;
static double ended_delayed;
static int ended_tasks[64], ended_count;

/* The same of a thread. */
static double task_delayed(const char *task) {
    char path[300];
    double delay = 0;
    snprintf(path, sizeof path, "/proc/self/task/%s/schedstat", task);
    FILE *file = fopen(path, "r");
    if (!file)
        return 0;
    if (fscanf(file, "%*s %lf", &delay) != 1)
        delay = 0;
    fclose(file);
    return delay / 1e9;
}

/* Ends a thread; its wait for a processor stays counted. */
static void leave(void) {
    char task[16];
    snprintf(task, sizeof task, "%d", gettid());
    CHECK(pthread_mutex_lock(&ended) == 0);
    ended_tasks[ended_count++ % 64] = gettid();
    ended_delayed += task_delayed(task);
    CHECK(pthread_mutex_unlock(&ended) == 0);
}

/* The time that the threads of this process waited for a processor, in seconds. */
static double delayed(void) {
    DIR *tasks = opendir("/proc/self/task");
    CHECK(tasks && pthread_mutex_lock(&ended) == 0);
    double all = ended_delayed;
    for (struct dirent *task; (task = readdir(tasks));) {
        bool counted = task->d_name[0] == '.';
        for (int i = 0; i < 64; i++)
            counted |= ended_tasks[i] == atoi(task->d_name);
        if (!counted)
            all += task_delayed(task->d_name);
    }
    CHECK(pthread_mutex_unlock(&ended) == 0 && closedir(tasks) == 0);
    return all;
}

/* The start of a wait; its duration excludes the time that other processes took. */
struct begin {
    double at, delayed;
};
static struct begin begin(void) { return (struct begin){now(), delayed()}; }
static double waited(struct begin since) { return now() - since.at - (delayed() - since.delayed); }
static int turn[2];

/* Synchronises threads without a descriptor of the provider. */
static void tell(void) { CHECK(write(turn[1], "x", 1) == 1); }
static void hear(void) {
    char byte;
    CHECK(read(turn[0], &byte, 1) == 1);
}

static void *send_later(void *len) {
    entry told;
    hear();
    usleep(20000);
    WELL(fi_tsend(a.ep, out, (size_t)len, NULL, b.addr, 1, &words[1]));
    CHECK(fi_cq_sread(a.cq, &told, 1, NULL, 10000) == 1 && told.op_context == &words[1]);
    leave();
    return NULL;
}

/* A sleeping thread is woken by a message that another thread sends, and by nothing else until
 * the time-out. */
static void sleeps(void) {
    const size_t sizes[] = {8, sizeof out};
    entry told;
    double before = now();
    struct begin since = begin();
    CHECK(fi_cq_sread(b.cq, &told, 1, NULL, 50) == -FI_EAGAIN);
    CHECK(now() - before > 0.045 && waited(since) < 2);
    CHECK(fi_cq_sread(b.cq, &told, 1, NULL, 0) == -FI_EAGAIN);
    for (int i = 0; i < 20; i++) {
        pthread_t thread;
        size_t len = sizes[i % 2];
        WELL(fi_trecv(b.ep, in, len, NULL, FI_ADDR_UNSPEC, 1, 0, &words[2]));
        CHECK(pthread_create(&thread, NULL, send_later, (void *)len) == 0);
        tell();
        since = begin();
        CHECK(fi_cq_sread(b.cq, &told, 1, NULL, 10000) == 1 && told.op_context == &words[2]);
        CHECK(waited(since) < 0.7);
        CHECK(pthread_join(thread, NULL) == 0);
    }
}

static void *post_later(void *unused) {
    hear();
    usleep(20000);
    WELL(fi_tsend(a.ep, out, 8, NULL, b.addr, 1, &words[1]));
    usleep(20000);
    WELL(fi_trecv(b.ep, in, 8, NULL, FI_ADDR_UNSPEC, 1, 0, &words[2]));
    leave();
    return unused;
}

/* The message arrives before another thread posts its receive. */
static void posted(void) {
    for (int i = 0; i < 10; i++) {
        pthread_t thread;
        entry told;
        CHECK(pthread_create(&thread, NULL, post_later, NULL) == 0);
        tell();
        struct begin since = begin();
        CHECK(fi_cq_sread(b.cq, &told, 1, NULL, 10000) == 1 && told.op_context == &words[2]);
        CHECK(waited(since) < 0.9);
        CHECK(pthread_join(thread, NULL) == 0);
        CHECK(fi_cq_sread(a.cq, &told, 1, NULL, 10000) == 1);
    }
}

static void *count_later(void *unused) {
    hear();
    usleep(20000);
    CHECK(fi_cntr_add(b.received, 5) == 0);
    hear();
    usleep(20000);
    CHECK(fi_cntr_adderr(b.received, 1) == 0);
    leave();
    return unused;
}

static void counters(void) {
    pthread_t thread;
    uint64_t before = fi_cntr_read(b.received);
    struct begin since = begin();
    CHECK(pthread_create(&thread, NULL, count_later, NULL) == 0);
    CHECK(fi_cntr_wait(b.received, before + 5, 30) == -FI_ETIMEDOUT);
    tell();
    CHECK(fi_cntr_wait(b.received, before + 5, 10000) == 0);
    tell();
    CHECK(fi_cntr_wait(b.received, before + 6, 10000) == -FI_EAVAIL);
    CHECK(waited(since) < 0.9 && fi_cntr_readerr(b.received) == 1);
    CHECK(pthread_join(thread, NULL) == 0);
}

static void *signal_later(void *unused) {
    hear();
    usleep(20000);
    CHECK(fi_cq_signal(b.cq) == 0);
    leave();
    return unused;
}

static void signals(void) {
    pthread_t thread;
    entry told;
    struct begin since = begin();
    CHECK(pthread_create(&thread, NULL, signal_later, NULL) == 0);
    tell();
    CHECK(fi_cq_sread(b.cq, &told, 1, NULL, -1) == -FI_EAGAIN);
    CHECK(waited(since) < 0.9);
    CHECK(pthread_join(thread, NULL) == 0);
    /* A signal before the wait makes the next wait return, once. */
    CHECK(fi_cq_signal(b.cq) == 0);
    since = begin();
    CHECK(fi_cq_sread(b.cq, &told, 1, NULL, 5000) == -FI_EAGAIN && waited(since) < 0.9);
    double before = now();
    CHECK(fi_cq_sread(b.cq, &told, 1, NULL, 60) == -FI_EAGAIN && now() - before > 0.05);
}

/* By a descriptor: no event is missed between the read and the poll. */
static void descriptors(void) {
    struct pollfd polled = {.events = POLLIN};
    struct fid *fids[] = {&b.cq->fid};
    CHECK(fi_control(&b.cq->fid, FI_GETWAIT, &polled.fd) == 0);
    for (int i = 0; i < 50; i++) {
        pthread_t thread;
        entry told;
        size_t len = i % 2 ? 8 : sizeof out;
        struct begin since = begin();
        WELL(fi_trecv(b.ep, in, len, NULL, FI_ADDR_UNSPEC, 1, 0, &words[2]));
        CHECK(pthread_create(&thread, NULL, send_later, (void *)len) == 0);
        tell();
        for (;;) {
            int may = fi_trywait(fabric, fids, 1);
            CHECK(may == 0 || may == -FI_EAGAIN);
            if (may == 0)
                CHECK(poll(&polled, 1, 5000) == 1);
            ssize_t count = fi_cq_read(b.cq, &told, 1);
            if (count == 1)
                break;
            CHECK(count == -FI_EAGAIN);
        }
        CHECK(told.op_context == &words[2] && waited(since) < 0.9);
        CHECK(pthread_join(thread, NULL) == 0);
    }
    /* The thread must not sleep if an entry is there. */
    entry told;
    WELL(fi_tsend(a.ep, out, 8, NULL, b.addr, 1, &words[1]));
    WELL(fi_trecv(b.ep, in, 8, NULL, FI_ADDR_UNSPEC, 1, 0, &words[2]));
    CHECK(fi_trywait(fabric, fids, 1) == -FI_EAGAIN);
    CHECK(fi_cq_sread(b.cq, &told, 1, NULL, 5000) == 1);
    CHECK(fi_cq_sread(a.cq, &told, 1, NULL, 5000) == 1);
}

/* Many threads send; a single thread sleeps for all of the completions. */
enum { THREADS = 4, EACH = 2000 };

static void *send_many(void *unused) {
    for (int at = 0; at < EACH; at++) {
        ssize_t got;
        while ((got = fi_tsend(a.ep, out, at % 50 ? 8 : 20000, NULL, b.addr, 2, NULL)) == -FI_EAGAIN)
            sched_yield();
        CHECK(got == 0);
    }
    return unused;
}

static void *receive_many(void *unused) {
    entry told;
    for (int at = 0; at < THREADS * EACH; at++) {
        WELL(fi_trecv(b.ep, in, sizeof in, NULL, FI_ADDR_UNSPEC, 2, 0, NULL));
        CHECK(fi_cq_sread(b.cq, &told, 1, NULL, 10000) == 1);
    }
    return unused;
}

static void threads(void) {
    pthread_t all[THREADS + 1];
    double since = now();
    CHECK(pthread_create(&all[THREADS], NULL, receive_many, NULL) == 0);
    for (int at = 0; at < THREADS; at++)
        CHECK(pthread_create(&all[at], NULL, send_many, NULL) == 0);
    for (int at = 0; at < THREADS * EACH; at++) {
        entry told;
        CHECK(fi_cq_sread(a.cq, &told, 1, NULL, 10000) == 1);
    }
    for (int at = 0; at <= THREADS; at++)
        CHECK(pthread_join(all[at], NULL) == 0);
    CHECK(now() - since < 20);
}

enum { FILL = 3000, FILL_BYTES = 4000 };

static void *asleep(void *unused) {
    entry told;
    CHECK(fi_cq_sread(a.cq, &told, 1, NULL, 10000) == -FI_EAGAIN);
    return unused;
}

/* A thread sends more than there is room for and does nothing else; a sleeping thread continues
 * the sends as soon as there is room. */
static void full(void) {
    struct fid_domain *here = domain, *there;
    struct fid_av *names = av, *theirs;
    struct fi_av_attr attr = {.type = FI_AV_TABLE};
    struct end far = {0};
    fi_addr_t to;
    int soon = 0;
    /* In a domain of its own, so that its progress wakes no thread here. */
    CHECK(fi_domain(fabric, info, &there, NULL) == 0);
    CHECK(fi_av_open(there, &attr, &theirs, NULL) == 0);
    domain = there;
    av = theirs;
    open_end(&far, FI_WAIT_UNSPEC, 0);
    CHECK(fi_av_insert(names, far.name, 1, &to, 0, NULL) == 1);
    for (int round = 0; round < 5; round++) {
        pthread_t thread;
        entry told;
        for (int at = 0; at < FILL; at++)
            CHECK(fi_trecv(far.ep, in, sizeof in, NULL, FI_ADDR_UNSPEC, 4, 0, NULL) == 0);
        CHECK(pthread_create(&thread, NULL, asleep, NULL) == 0);
        usleep(30000);
        for (int at = 0; at < FILL; at++)
            CHECK(fi_tinject(a.ep, out, FILL_BYTES, to, 4) == 0);
        usleep(30000);
        struct begin since = begin();
        for (int at = 0; at < FILL; at++)
            CHECK(fi_cq_sread(far.cq, &told, 1, NULL, 10000) == 1);
        soon += waited(since) < 0.4;
        CHECK(fi_cq_signal(a.cq) == 0);
        CHECK(pthread_join(thread, NULL) == 0);
    }
    CHECK(soon >= 3);
    close_end(&far);
    CHECK(fi_close(&theirs->fid) == 0 && fi_close(&there->fid) == 0);
    domain = here;
    av = names;
}

/* An endpoint with two queues and a thread asleep on each: the first waits for its sends, the
 * second for a message and then does other work. The first does not depend on the second. */
enum { LONG_ROUNDS = 40, LONG_BYTES = 3 << 20, LONG_TAG = 5, SHORT_TAG = 6 };

static struct end both;
static struct fid_cq *incoming;
static unsigned char big_out[LONG_BYTES], big_in[LONG_BYTES];
static fi_addr_t far_addr;

static void *waits_for_sent(void *unused) {
    entry told;
    for (int round = 0; round < LONG_ROUNDS; round++) {
        CHECK(fi_tsend(both.ep, big_out, sizeof big_out, NULL, far_addr, LONG_TAG, &words[1]) == 0);
        CHECK(fi_cq_sread(both.cq, &told, 1, NULL, 10000) == 1 && told.op_context == &words[1]);
    }
    return unused;
}

static void *waits_for_incoming(void *unused) {
    static unsigned char word[8];
    entry told;
    for (int round = 0; round < LONG_ROUNDS; round++) {
        CHECK(fi_trecv(both.ep, word, sizeof word, NULL, FI_ADDR_UNSPEC, SHORT_TAG, 0, NULL) == 0);
        CHECK(fi_cq_sread(incoming, &told, 1, NULL, 10000) == 1);
        /* Until the long message is complete. */
        hear();
    }
    return unused;
}

/* Polls for messages for this time. */
static ssize_t look(struct end *far, double time) {
    entry told;
    ssize_t got = 0;
    double since = now();
    while (got <= 0 && now() - since < time)
        got = fi_cq_read(far->cq, &told, 1);
    CHECK(got <= 0 || told.len == sizeof big_in);
    return got;
}

/* Receives a long message and wakes the other thread meanwhile; returns whether this takes no
 * longer than with permanent polling. */
static bool take_long(struct end *far, fi_addr_t to, int round) {
    CHECK(fi_trecv(far->ep, big_in, sizeof big_in, NULL, FI_ADDR_UNSPEC, LONG_TAG, 0, NULL) == 0);
    ssize_t got = look(far, round % 8 * 30e-6);
    /* The sender finds no room for a while, and sleeps. */
    usleep(round % 2 * 3000);
    CHECK(fi_tinject(far->ep, out, 8, to, SHORT_TAG) == 0);
    if (got <= 0)
        got = look(far, round % 3 * 50e-6);
    usleep(5000);
    struct begin since = begin();
    if (got <= 0)
        got = look(far, 10);
    CHECK(got == 1);
    bool soon = waited(since) < 0.15;
    tell();
    return soon;
}

static void two_queues(void) {
    struct fid_domain *here = domain;
    struct fid_av *names = av, *theirs;
    struct fi_cq_attr queue = {.format = FI_CQ_FORMAT_TAGGED, .wait_obj = FI_WAIT_UNSPEC};
    struct fi_av_attr attr = {.type = FI_AV_TABLE};
    struct end far = {0};
    size_t len = sizeof both.name;
    pthread_t threads[2];
    fi_addr_t to;
    int soon = 0;
    CHECK(fi_endpoint(domain, info, &both.ep, NULL) == 0);
    CHECK(fi_cq_open(domain, &queue, &both.cq, NULL) == 0);
    CHECK(fi_cq_open(domain, &queue, &incoming, NULL) == 0);
    CHECK(fi_ep_bind(both.ep, &av->fid, 0) == 0);
    CHECK(fi_ep_bind(both.ep, &both.cq->fid, FI_TRANSMIT) == 0);
    CHECK(fi_ep_bind(both.ep, &incoming->fid, FI_RECV) == 0);
    CHECK(fi_enable(both.ep) == 0);
    CHECK(fi_getname(&both.ep->fid, both.name, &len) == 0);
    /* In a domain of its own, so that its progress wakes no thread here. */
    CHECK(fi_domain(fabric, info, &domain, NULL) == 0);
    CHECK(fi_av_open(domain, &attr, &theirs, NULL) == 0);
    av = theirs;
    open_end(&far, FI_WAIT_UNSPEC, 0);
    CHECK(fi_av_insert(theirs, both.name, 1, &to, 0, NULL) == 1);
    CHECK(fi_av_insert(names, far.name, 1, &far_addr, 0, NULL) == 1);
    fill(big_out, sizeof big_out, 1);
    CHECK(pthread_create(&threads[0], NULL, waits_for_incoming, NULL) == 0);
    CHECK(pthread_create(&threads[1], NULL, waits_for_sent, NULL) == 0);
    for (int round = 0; round < LONG_ROUNDS; round++) {
        memset(big_in, 0, sizeof big_in);
        soon += take_long(&far, to, round);
        CHECK(is(big_in, sizeof big_in, 1));
    }
    CHECK(pthread_join(threads[1], NULL) == 0 && pthread_join(threads[0], NULL) == 0);
    CHECK(soon >= LONG_ROUNDS - 2);
    close_end(&far);
    CHECK(fi_close(&theirs->fid) == 0 && fi_close(&domain->fid) == 0);
    domain = here;
    av = names;
    CHECK(fi_close(&both.ep->fid) == 0 && fi_close(&both.cq->fid) == 0);
    CHECK(fi_close(&incoming->fid) == 0);
}

/* A queue that cannot watch an endpoint is not bound: the queue can be closed, and another one takes
 * its place. The same of a counter. */
static void unwatched(void) {
    struct fi_cq_attr attr = {.format = FI_CQ_FORMAT_TAGGED, .wait_obj = FI_WAIT_FD};
    struct fi_cntr_attr counts = {.events = FI_CNTR_EVENTS_COMP, .wait_obj = FI_WAIT_FD};
    struct fid_ep *ep;
    struct fid_cq *broken, *whole;
    struct fid_cntr *count;
    int queue = -1, counter = -1, null = open("/dev/null", O_RDONLY);
    CHECK(null >= 0 && fi_endpoint(domain, info, &ep, NULL) == 0);
    CHECK(fi_cq_open(domain, &attr, &broken, NULL) == 0);
    CHECK(fi_cq_open(domain, &attr, &whole, NULL) == 0);
    CHECK(fi_cntr_open(domain, &counts, &count, NULL) == 0);
    CHECK(fi_control(&broken->fid, FI_GETWAIT, &queue) == 0);
    CHECK(fi_control(&count->fid, FI_GETWAIT, &counter) == 0);
    /* The application takes the descriptors away. */
    CHECK(dup2(null, queue) == queue && dup2(null, counter) == counter && close(null) == 0);
    CHECK(fi_ep_bind(ep, &broken->fid, FI_TRANSMIT | FI_RECV) == -FI_EINVAL);
    CHECK(fi_ep_bind(ep, &count->fid, FI_SEND) == -FI_EINVAL);
    CHECK(fi_close(&broken->fid) == 0 && fi_close(&count->fid) == 0);
    CHECK(fi_ep_bind(ep, &av->fid, 0) == 0);
    CHECK(fi_enable(ep) == -FI_ENOCQ);
    CHECK(fi_ep_bind(ep, &whole->fid, FI_TRANSMIT | FI_RECV) == 0);
    CHECK(fi_enable(ep) == 0);
    CHECK(fi_close(&ep->fid) == 0 && fi_close(&whole->fid) == 0);
}

static void manual(void) {
    open_domain(0, FI_PROGRESS_MANUAL);
    open_end(&a, FI_WAIT_UNSPEC, 0);
    open_end(&b, FI_WAIT_FD, 0);
    sleeps();
    posted();
    counters();
    signals();
    descriptors();
    threads();
    full();
    unwatched();
    close_end(&a);
    close_end(&b);
    close_domain();
}

static void of_two_queues(bool direct) {
    CHECK(setenv("CAUSEWAY_DIRECT", direct ? "1" : "0", 1) == 0);
    open_domain(0, FI_PROGRESS_MANUAL);
    two_queues();
    close_domain();
}

/* Memory of a process without calls is accessed, and its messages arrive. */
static void by_itself(void) {
    static unsigned char memory[300000];
    struct fid_mr *mr;
    entry told;
    open_domain(0, FI_PROGRESS_AUTO);
    open_end(&a, FI_WAIT_UNSPEC, 0);
    open_end(&b, FI_WAIT_UNSPEC, 0);
    CHECK(fi_mr_reg(domain, memory, sizeof memory, FI_REMOTE_READ | FI_REMOTE_WRITE, 0, 1, 0, &mr,
                    NULL) == 0);
    int soon = 0;
    for (int i = 0; i < 20; i++) {
        /* Long enough for all threads to sleep. */
        if (i > 10)
            usleep(10000);
        struct begin since = begin();
        size_t len = i % 2 ? 8 : sizeof out;
        fill(out, len, i);
        WELL(fi_write(a.ep, out, len, NULL, b.addr, 3, 1, &words[1]));
        CHECK(fi_cq_sread(a.cq, &told, 1, NULL, 10000) == 1 && is(memory + 3, len, i));
        WELL(fi_read(a.ep, in, len, NULL, b.addr, 3, 1, &words[1]));
        CHECK(fi_cq_sread(a.cq, &told, 1, NULL, 10000) == 1 && is(in, len, i));
        soon += waited(since) < 0.3;
    }
    /* The daemon, another process, may wait for a processor. */
    CHECK(soon >= 15);
    /* No thread polls, and the bytes arrive. */
    for (int i = 0; i < 5; i++) {
        struct begin since = begin();
        memset(in, 0, sizeof in);
        fill(out, sizeof out, i);
        WELL(fi_trecv(b.ep, in, sizeof in, NULL, FI_ADDR_UNSPEC, 1, 0, &words[2]));
        WELL(fi_tsend(a.ep, out, sizeof out, NULL, b.addr, 1, &words[1]));
        while (!is(in, sizeof in, i)) {
            CHECK(waited(since) < 1);
            usleep(1000);
        }
        CHECK(fi_cq_sread(a.cq, &told, 1, NULL, 1000) == 1);
        CHECK(fi_cq_sread(b.cq, &told, 1, NULL, 1000) == 1);
    }
    CHECK(fi_close(&mr->fid) == 0);
    close_end(&a);
    close_end(&b);
    close_domain();
    /* A close wakes the domain's thread, which would sleep for a second. The wait of that thread
     * for a processor is unknown once it has ended, so one close of three is enough. */
    soon = 0;
    for (int round = 0; round < 3; round++) {
        open_domain(0, FI_PROGRESS_AUTO);
        open_end(&a, FI_WAIT_UNSPEC, 0);
        usleep(20000);
        close_end(&a);
        struct begin since = begin();
        close_domain();
        soon += waited(since) < 0.5;
    }
    CHECK(soon >= 1);
}

static void *sleeps_for_it(void *unused) {
    entry told;
    struct begin since = begin();
    CHECK(fi_cq_sread(b.cq, &told, 1, NULL, 10000) == 1 && told.op_context == &words[2]);
    CHECK(waited(since) < 0.9);
    return unused;
}

/* Unexpected messages fill the limit until one is not accepted; then a thread sleeps, and
 * another posts the receive for exactly that message. */
static void deferred(void) {
    uint64_t tag = 0;
    CHECK(setenv("FI_CAUSEWAY_UNEXPECTED_MIB", "1", 1) == 0);
    open_domain(0, FI_PROGRESS_MANUAL);
    open_end(&a, FI_WAIT_UNSPEC, 0);
    open_end(&b, FI_WAIT_UNSPEC, 0);
    for (bool kept = true; kept;) {
        entry told;
        fault failed;
        struct fi_msg_tagged peek = {.addr = FI_ADDR_UNSPEC, .tag = ++tag, .context = &words[3]};
        WELL(fi_tsend(a.ep, out, 8000, NULL, b.addr, tag, &words[1]));
        well(&a, &words[1]);
        for (int i = 0; i < 100; i++)
            go_on();
        CHECK(tag < 1000);
        CHECK(fi_trecvmsg(b.ep, &peek, FI_PEEK) == 0);
        kept = fi_cq_read(b.cq, &told, 1) == 1;
        CHECK(kept || fi_cq_readerr(b.cq, &failed, 0) == 1);
    }
    pthread_t thread;
    CHECK(tag > 50 && pthread_create(&thread, NULL, sleeps_for_it, NULL) == 0);
    usleep(100000);
    CHECK(fi_trecv(b.ep, in, 8000, NULL, FI_ADDR_UNSPEC, tag, 0, &words[2]) == 0);
    CHECK(pthread_join(thread, NULL) == 0);
    close_end(&a);
    close_end(&b);
    close_domain();
}

int main(int count, char **arguments) {
    CHECK(pipe(turn) == 0);
    if (count > 1 && strcmp(arguments[1], "auto") == 0)
        by_itself();
    else if (count > 1 && strcmp(arguments[1], "deferred") == 0)
        deferred();
    else if (count > 1 && strcmp(arguments[1], "queues") == 0)
        of_two_queues(true);
    else if (count > 1 && strcmp(arguments[1], "channels") == 0)
        of_two_queues(false);
    else
        manual();
    puts("ok");
    return 0;
}
